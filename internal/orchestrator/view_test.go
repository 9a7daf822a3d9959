// SPDX-License-Identifier: Apache-2.0

package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// told is a ticket of which was said what a test says.
type told struct {
	ticketclient.Ticket
	t *testing.T
}

func (s *told) say(from, kind, to, cause string, payload any) *ticketclient.Message {
	s.t.Helper()
	m := &ticketclient.Message{Header: ticket.Header{
		ID: fmt.Sprint("m", len(s.Messages)+1), Type: kind, TicketID: "INC-1", From: from, To: to, CausationID: cause, Time: time.Now(),
	}, Payload: payload}
	signed, err := ticket.Draft{
		Header: ticket.Header{Type: kind, TicketID: "INC-1", TraceID: "t", From: from, To: to}, Payload: payload,
	}.Sign(make([]byte, 64))
	if err != nil {
		s.t.Fatal(err)
	}
	m.Envelope = signed
	s.Messages = append(s.Messages, m)
	return m
}

// verified is a ticket of one slice whose verification is under way.
func verified(t *testing.T) (s *told, execute *ticketclient.Message) {
	t.Helper()
	s = &told{Ticket: ticketclient.Ticket{ID: "INC-1", Trace: "t", Verbs: verbs(t)}, t: t}
	s.say("desk", ticket.TypeOpen, "orchestrator", "", &ticketclient.Open{Op: "open", SourceRef: "desk:1", Priority: 2})
	s.say("orch", ticket.TypePlanRequest, "network", "m1", &ticketclient.PlanRequest{SliceID: "fw", Revision: 1})
	steps := []ticketclient.Step{{N: 1, Verb: "acl.block", Target: "fw/1"}}
	s.say("net", ticket.TypeProposal, "network", "m2", &ticketclient.Proposal{SliceID: "fw", Revision: 1, Steps: steps, Rollback: steps})
	now := time.Now()
	s.say("orch", ticket.TypePlan, "network", "m3", &ticketclient.Plan{
		PlanID: "plan-1", Revision: 1, Tier: 1, PolicyVersion: verbs(t).Version, Slice: ticketclient.FrozenSlice{ID: "fw", Steps: steps, Rollback: steps},
		Window: ticketclient.Window{Start: now.Add(-time.Hour), End: now.Add(time.Hour)}, ValidUntil: now.Add(time.Hour),
	})
	s.say("orch", ticket.TypeState, "intake", "m4", &ticketclient.State{From: "PLANNED", To: "APPROVED"})
	apply := s.say("orch", ticket.TypeExecute, "network", "m5", &ticketclient.Execute{SliceID: "fw", Mode: ticketclient.ModeApply, Steps: steps})
	s.say("net", ticket.TypeResult, "orchestrator", apply.ID, &ticketclient.Result{ExecuteID: apply.ID, SliceID: "fw", Outcome: ticketclient.OutcomeSuccess})
	s.say("orch", ticket.TypeState, "intake", "m7", &ticketclient.State{From: "EXECUTING", To: "VERIFYING"})
	execute = s.say("orch", ticket.TypeExecute, "network", "m8", &ticketclient.Execute{SliceID: "fw", Mode: ticketclient.ModeVerify, Steps: steps})
	return s, execute
}

const oneSlice = `{"rules":[{"name":"web","source_ref":"desk:*","slices":[{"id":"fw","domain":"network","objective":"x","targets":["fw/1"]}]}]}`

// TestSlicesThatThePolicyGets: a policy that was given another slice does not concern
// a plan that is there, in whatever state the ticket is.
func TestSlicesThatThePolicyGets(t *testing.T) {
	s, _ := verified(t)
	p := policy(t, `{"rules":[{"name":"web","source_ref":"desk:*","slices":[
		{"id":"fw","domain":"dns","objective":"x","targets":["fw/1"]},{"id":"more","domain":"network","objective":"x","targets":["fw/2"]}]}]}`)
	all := s.Messages
	for i := 4; i <= len(all); i++ {
		s.Messages = all[:i]
		moves, _ := p.Decide("orch", &s.Ticket, time.Now())
		for _, m := range moves {
			if x, ok := m.Payload.(*ticketclient.Execute); ok && (x.SliceID != "fw" || m.To != "network") {
				t.Errorf("after %d messages, %s is told to carry out %s", i, m.To, x.SliceID)
			}
		}
	}
}

// TestVerificationThatIsNotDelivered is escalated, and tried again if the gate says so.
func TestVerificationThatIsNotDelivered(t *testing.T) {
	s, execute := verified(t)
	p := policy(t, oneSlice)
	s.say(ticket.RoleBus, ticket.TypeEscalation, "gate", execute.ID, &ticketclient.Escalation{ReasonCode: "deliver_by_missed", Severity: "critical"})
	moves, _ := p.Decide("orch", &s.Ticket, time.Now())
	if len(moves) != 1 || moves[0].Type != ticket.TypeEscalation || moves[0].Cause != execute.ID {
		t.Fatalf("the next moves are %+v", moves)
	}
	s.say("orch", ticket.TypeEscalation, "gate", execute.ID, moves[0].Payload)
	s.say("orch", ticket.TypeState, "intake", "m11", &ticketclient.State{From: "VERIFYING", To: "ESCALATED", Cause: []string{"m11"}})
	s.say("orch", ticket.TypeState, "intake", "m12", &ticketclient.State{From: "ESCALATED", To: "VERIFYING", ReasonCode: "resumed", Cause: []string{"m12"}})
	moves, _ = p.Decide("orch", &s.Ticket, time.Now())
	if len(moves) != 1 || moves[0].Type != ticket.TypeExecute || moves[0].Key != "r1/execute/fw/verify/2" {
		t.Errorf("after the gate has said to go on, the next moves are %+v", moves)
	}
}
