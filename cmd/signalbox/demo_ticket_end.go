// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

// replay sends recorded messages again.
func (s *ticketStory) replay(ctx context.Context) error {
	s.scene("Somebody replays what was recorded")
	recorded := s.grant.Envelope
	receipt, err := s.c.PostMessage(ctx, recorded.Bytes())
	if err != nil {
		return err
	}
	s.claim(receipt.Outcome == event.OutcomeDuplicate, "the recorded grant, byte for byte, is a duplicate, and without effect")
	altered := strings.Replace(string(recorded.Bytes()), recorded.Header().ID, ticket.NewID(time.Now()), 1)
	_, err = s.c.PostMessage(ctx, []byte(altered))
	s.refusal("broker", err)
	s.claim(refusedWith(err, event.CodeSignatureInvalid), "under another id it is refused, for its signature does not fit")
	again, err := ticketclient.NewSender(s.c, "alice", s.keys["alice"]).Sign(ticket.Draft{
		Header: ticket.Header{
			Type: ticket.TypeApprovalGrant, TicketID: firstTicket, TraceID: s.grant.TraceID, CausationID: s.grant.CausationID, To: ticket.RoleOrchestrator, Nonce: s.grant.Nonce,
		},
		Payload: recorded.Payload(),
	})
	if err != nil {
		return err
	}
	_, err = s.c.PostMessage(ctx, again.Bytes())
	s.refusal("broker", err)
	s.claim(refusedWith(err, event.CodeNonceReused), "signed once more by its owner, with the same nonce, it is refused as well")
	return nil
}

// misuse uses the grant of the first plan for another one.
func (s *ticketStory) misuse(ctx context.Context) error {
	s.scene("A grant is used for another plan")
	if _, err := s.run(ctx, "desk", "demo", "ticket", "intake", secondTicket); err != nil {
		return err
	}
	request, err := s.await(ctx, secondTicket, "orch", ticket.TypeApprovalRequest)
	if err != nil {
		return err
	}
	s.kill("orch")
	s.says("orch", "is taken over: somebody has its key")
	plan := s.planned(secondTicket)
	if plan == nil {
		return nil // the claim above about the request has said so
	}
	p := plan.Payload.(*ticketclient.Plan)
	execute := func(key string, approvals ...string) error {
		_, err := ticketclient.NewSender(s.c, "orch", s.keys["orch"]).Send(ctx, ticketclient.Answer(&plan.Header, ticket.TypeExecute, plan.To, key, &ticketclient.Execute{
			PlanID: p.PlanID, PlanHash: p.PlanHash, SliceID: p.Slice.ID, Mode: ticketclient.ModeApply, Steps: p.Slice.Steps, ApprovalIDs: approvals,
			LeaseID: "lease-1", LeaseScope: ticketclient.LeaseScope{Plan: p.PlanID, Target: p.Slice.Steps[0].Target},
		}))
		s.refusal("broker", err)
		return err
	}
	s.claim(refusedWith(execute("early", s.grant.ID), event.CodeTicketMoveIllegal), "before the plan is approved, an execute is refused")
	if _, err := s.run(ctx, "alice", "gate", "approve", request.ID); err != nil {
		return err
	}
	grant, err := s.await(ctx, secondTicket, "alice", ticket.TypeApprovalGrant)
	if err != nil {
		return err
	}
	if _, err := ticketclient.NewSender(s.c, "orch", s.keys["orch"]).Send(ctx, ticketclient.Answer(&grant.Header, ticket.TypeState, ticket.RoleIntake, "approved", &ticketclient.State{
		From: "AWAITING_APPROVAL", To: "APPROVED", ReasonCode: "granted", Cause: []string{grant.ID}, Tier: &p.Tier,
	})); err != nil {
		return err
	}
	s.claim(refusedWith(execute("foreign", s.grant.ID), event.CodeGrantBound), "the grant of %s does not cover the plan of %s", firstTicket, secondTicket)
	s.claim(refusedWith(execute("none"), event.CodeApprovalRequired), "and without a grant nothing is executed at tier 2")
	return nil
}

// planned finds the message that froze the first slice of a ticket.
func (s *ticketStory) planned(id string) *ticketclient.Message {
	for _, m := range s.seen {
		if m.TicketID == id && m.Type == ticket.TypePlan {
			return m
		}
	}
	return nil
}

// forbidden has an agent propose what is never done.
func (s *ticketStory) forbidden(ctx context.Context) error {
	s.scene("An agent proposes what is never done")
	plan := s.planned(secondTicket)
	p := &ticketclient.Proposal{
		SliceID: "block", Revision: 1, Steps: []ticketclient.Step{{N: 1, Verb: "firmware.wipe", Target: "fw/edge", Params: []byte("{}"), Reversible: new(bool), Precheck: "none", Postcheck: "none"}},
		Risk: ticketclient.Risk{BlastRadius: "all", Reversibility: "none", DataClass: "none"}, Tier: ticket.TierIrreversible,
	}
	var err error
	if p.SliceHash, err = p.Slice().Hash(); err != nil || plan == nil {
		return err
	}
	_, err = ticketclient.NewSender(s.c, "net", s.keys["net"]).Send(ctx, ticketclient.Answer(&plan.Header, ticket.TypeProposal, "network", "wipe", p))
	s.refusal("broker", err)
	s.claim(refusedWith(err, event.CodeVerbDenied), "wiping firmware is refused, whoever signs it and whoever approves it")
	return nil
}

// prove verifies the audit trail without the broker.
func (s *ticketStory) prove(ctx context.Context) error {
	s.scene("What happened, in order")
	timeline, err := s.run(ctx, "audit", "audit", "trace", s.grant.TraceID, "--format", "text")
	if err != nil {
		return err
	}
	s.quote(timeline)
	s.claim(containsAll(timeline, "signalbox.ticket.ticket.open", "signalbox.ticket.approval.grant", "signalbox.ticket.ticket.state"), "the timeline has it all, from the opening to the end")

	s.scene("The audit trail is verified without the broker")
	files := map[string][]string{
		"audit.pub": {"audit", "key"}, "checkpoints.txt": {"audit", "checkpoint"}, "trail.ndjson": {"audit", "export"},
	}
	for _, name := range []string{"audit.pub", "checkpoints.txt", "trail.ndjson"} {
		text, err := s.run(ctx, "audit", files[name]...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	s.killAll()
	s.says("broker", "is gone, and everybody else")
	verified, err := s.run(ctx, "audit", "audit", "verify", "trail.ndjson", "--key", "audit.pub", "--checkpoint", "checkpoints.txt", "--format", "text")
	s.quote(verified)
	s.claim(err == nil, "every entry, the chain and the signed checkpoint fit each other")

	trail := filepath.Join(s.dir, "trail.ndjson")
	text, err := os.ReadFile(trail)
	if err != nil {
		return err
	}
	forged := strings.Replace(string(text), "approval.gate", "approval.none", 1)
	if err := os.WriteFile(trail, []byte(forged), 0o600); err != nil {
		return err
	}
	_, err = s.run(ctx, "audit", "audit", "verify", "trail.ndjson", "--key", "audit.pub")
	s.claim(err != nil && forged != string(text), "with one word of it changed, it does not verify")
	return nil
}
