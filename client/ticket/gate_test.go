// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// irreversible runs an agent of the network that plans something of tier 3, and has an
// orchestrator ask one person to approve it.
func (s *space) irreversible(id string) (request string) {
	s.t.Helper()
	s.work(s.t.TempDir(), func(o *ticketclient.AgentOptions) {
		o.Plan = func(ctx context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			p, err := proposed(ctx, r)
			p.Tier = 3
			return p, err
		}
	})
	s.ask(s.open(id), "network")
	p := s.saidOf(id, "net", ticket.TypeProposal)
	proposal := p.Payload.(*ticketclient.Proposal)
	tier := 3
	plan := ticket.Plan{TicketID: id, PlanID: "p1", Revision: 1, Tier: tier, PolicyVersion: "1.0.0", Slices: []ticket.PlanSlice{{ID: "s1", Hash: proposal.SliceHash}}}
	hash, err := plan.Hash()
	if err != nil {
		s.t.Fatal(err)
	}
	now := p.Time.UTC()
	s.send("orch", ticketclient.Answer(&p.Header, ticket.TypePlan, "network", "", &ticketclient.Plan{
		PlanID: "p1", Revision: 1, PlanHash: hash, PolicyVersion: "1.0.0", Slices: plan.Slices, Tier: tier, TierReason: "core network", Slice: proposal.Freeze(),
		Window: ticketclient.Window{Start: now, End: now.AddDate(0, 0, 1)},
	}))
	return s.send("orch", ticketclient.Answer(&p.Header, ticket.TypeApprovalRequest, "gate", "", &ticketclient.ApprovalRequest{
		Kind: "plan", PlanID: "p1", Revision: 1, PlanHash: hash, Tier: &tier, Summary: "Change the core", PlanRef: p.ID, RollbackRef: p.ID, Risk: proposal.Risk, ApproversRequired: 1,
	}))
}

// TestGateAsksForAsManyAsTheBrokerNeeds: a request of tier 3 waits for the second
// approver, though its orchestrator has asked for one only.
func TestGateAsksForAsManyAsTheBrokerNeeds(t *testing.T) {
	s := newSpace(t)
	request := s.irreversible("INC-1")
	alice, bob := ticketclient.NewGate(s.c, "alice", tickettest.Key("alice")), ticketclient.NewGate(s.c, "bob", tickettest.Key("bob"))
	w := tickettest.Wait(t.Context(), t, alice)
	if w.Request.ID != request || w.Fault != nil || w.Needed != 2 || w.Missing() != 2 || len(w.Proposals) != 1 || w.Proposals[0] == nil || !slices.Contains(w.Requesters, "u1") {
		t.Fatalf("what waits is %+v", w)
	}
	if _, err := alice.Approve(t.Context(), w, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	w = tickettest.Wait(t.Context(), t, bob)
	if w.Request.ID != request || w.Missing() != 1 || !slices.Equal(w.Granted, []string{"alice"}) {
		t.Fatalf("after one grant, what waits is %+v", w)
	}
	again, err := alice.Waiting(t.Context())
	if err != nil || len(again) != 1 {
		t.Fatalf("who has granted it sees %v, %v", again, err)
	}
	if _, err := alice.Approve(t.Context(), again[0], "", time.Now()); !isCode(err, event.CodeAlreadyAnswered) {
		t.Errorf("granting it twice: %v", err)
	}
	if _, err := bob.Approve(t.Context(), w, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	if waiting, err := bob.Waiting(t.Context()); err != nil || len(waiting) > 0 {
		t.Errorf("after both there waits %v, %v", waiting, err)
	}
}

func isCode(err error, code event.Code) bool {
	e := (*event.Error)(nil)
	return errors.As(err, &e) && e.Code == code
}

// TestWhoseGrantHasExpiredGrantsAgain: the request waits for them as for others, and the
// gate says it anew.
func TestWhoseGrantHasExpiredGrantsAgain(t *testing.T) {
	s := newSpace(t)
	request := s.irreversible("INC-1")
	alice := ticketclient.NewGate(s.c, "alice", tickettest.Key("alice"))
	w := tickettest.Wait(t.Context(), t, alice)
	now := time.Now().UTC()
	s.send("alice", ticketclient.Answer(&w.Request.Header, ticket.TypeApprovalGrant, ticket.RoleOrchestrator, "decide/"+request, &ticketclient.ApprovalGrant{
		RequestID: request, PlanID: w.Ask().PlanID, PlanHash: w.Ask().PlanHash, Approver: "alice", DecidedAt: now, ExpiresAt: now.Add(4 * time.Second), SingleUse: true,
	}))
	for w = tickettest.Wait(t.Context(), t, alice); len(w.Granted) > 0; w = tickettest.Wait(t.Context(), t, alice) {
		time.Sleep(50 * time.Millisecond)
	}
	_, err := alice.Approve(t.Context(), w, "", time.Now())
	for until := now.Add(tickettest.Patience); isCode(err, event.CodeAlreadyAnswered) && time.Now().Before(until); {
		time.Sleep(50 * time.Millisecond) // a message is judged by the time of the log, which is a little behind
		_, err = alice.Approve(t.Context(), w, "", time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	if w = tickettest.Wait(t.Context(), t, alice); w.Missing() != 1 || !slices.Equal(w.Granted, []string{"alice"}) {
		t.Errorf("after the second grant, what waits is %+v", w)
	}
}

// TestWhoChoosesOtherwiseDoesNotAgree: of those who choose from options, as many have to
// choose the same.
func TestWhoChoosesOtherwiseDoesNotAgree(t *testing.T) {
	s := newSpace(t)
	open := s.open("INC-1")
	page := s.send("net", ticketclient.Answer(&open, ticket.TypeEscalation, ticket.RoleOrchestrator, "", &ticketclient.Escalation{
		ReasonCode: "stuck", Severity: "warning", Refs: []string{open.ID}, ContextRef: open.ID, Asks: []string{"What now?"},
	}))
	tier := 0
	s.send("orch", ticketclient.Answer(&open, ticket.TypeState, "intake", "", &ticketclient.State{From: "OPEN", To: "ESCALATED", ReasonCode: "stuck", Cause: []string{page}, Tier: &tier}))
	s.send("orch", ticketclient.Answer(&open, ticket.TypeApprovalRequest, "gate", "", &ticketclient.ApprovalRequest{
		Kind: "escalation", Summary: "What now?", Risk: ticketclient.Risk{BlastRadius: "none", Reversibility: "full", DataClass: "none"},
		ApproversRequired: 2, Options: []string{"resume", "close"},
	}))
	alice, bob := ticketclient.NewGate(s.c, "alice", tickettest.Key("alice")), ticketclient.NewGate(s.c, "bob", tickettest.Key("bob"))
	w := tickettest.Wait(t.Context(), t, alice)
	if n := w.MissingAfter("close"); n != 1 {
		t.Errorf("after the first there are %d missing", n)
	}
	if _, err := alice.Approve(t.Context(), w, "close", time.Now()); err != nil {
		t.Fatal(err)
	}
	w = tickettest.Wait(t.Context(), t, bob)
	if same, other := w.MissingAfter("close"), w.MissingAfter("resume"); same != 0 || other != 1 {
		t.Errorf("of those who choose the same there are %d missing then, and of others %d", same, other)
	}
	if _, err := bob.Approve(t.Context(), w, "resume", time.Now()); err != nil {
		t.Fatal(err)
	}
	if w = tickettest.Wait(t.Context(), t, bob); w.Missing() != 1 {
		t.Errorf("after both have chosen otherwise there are %d missing", w.Missing())
	}
}

// TestGateShowsAgainWhatAnAmendmentTakesBack: who asks for a ticket does not decide it, so
// that what they granted before waits for others, and who has granted it still is listed.
func TestGateShowsAgainWhatAnAmendmentTakesBack(t *testing.T) {
	s := newSpace(t)
	request := s.irreversible("INC-1")
	alice, bob := ticketclient.NewGate(s.c, "alice", tickettest.Key("alice")), ticketclient.NewGate(s.c, "bob", tickettest.Key("bob"))
	for _, gate := range []*ticketclient.Gate{alice, bob} {
		if _, err := gate.Approve(t.Context(), tickettest.Wait(t.Context(), t, gate), "", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if waiting, err := bob.Waiting(t.Context()); err != nil || len(waiting) > 0 {
		t.Fatalf("after both have granted it there waits %v, %v", waiting, err)
	}
	s.send("desk", ticket.Draft{Header: ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-INC-1", To: "orchestrator"}, Payload: &ticketclient.Open{
		Op: "amend", SourceRef: "desk:1", Title: "More of it", BodyRef: "desk:1", Requester: "Alice", Priority: 2,
	}})
	w := tickettest.Wait(t.Context(), t, alice)
	if w.Request.ID != request || w.Missing() != 1 || !slices.Equal(w.Granted, []string{"bob"}) {
		t.Errorf("after the amendment, what waits is %+v", w)
	}
	if _, err := alice.Approve(t.Context(), w, "", time.Now()); !isCode(err, event.CodeSelfApproval) {
		t.Errorf("who has amended it approves it: %v", err)
	}
}

// TestGateShowsNothingOfWhatIsOver: a request of a ticket that was cancelled waits for
// nobody.
func TestGateShowsNothingOfWhatIsOver(t *testing.T) {
	s := newSpace(t)
	s.irreversible("INC-1")
	alice := ticketclient.NewGate(s.c, "alice", tickettest.Key("alice"))
	tickettest.Wait(t.Context(), t, alice)
	open := ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-INC-1", To: "orchestrator"}
	open.ID = s.send("desk", ticket.Draft{Header: open, Payload: &ticketclient.Open{
		Op: "cancel", SourceRef: "desk:1", Title: "Not needed", BodyRef: "desk:1", Requester: "u1", Priority: 2,
	}})
	tier := 3
	s.send("orch", ticketclient.Answer(&open, ticket.TypeState, "intake", "", &ticketclient.State{From: "AWAITING_APPROVAL", To: "CANCELLED", ReasonCode: "cancelled", Cause: []string{open.ID}, Tier: &tier}))
	if waiting, err := alice.Waiting(t.Context()); err != nil || len(waiting) > 0 {
		t.Errorf("there waits %v, %v", waiting, err)
	}
}
