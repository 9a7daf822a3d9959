// SPDX-License-Identifier: Apache-2.0

package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/orchestrator"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// awaited is a ticket whose plan, of a tier, waits for approval until a time.
func awaited(t *testing.T, tier int, expires time.Time) (s *told, request *ticketclient.Message) {
	t.Helper()
	s, _ = verified(t)
	s.Messages = s.Messages[:4]
	plan := s.Messages[3].Payload.(*ticketclient.Plan)
	plan.Tier = tier
	request = s.say("orch", ticket.TypeApprovalRequest, ticket.RoleGate, "m4", &ticketclient.ApprovalRequest{
		Kind: "plan", PlanID: plan.PlanID, Revision: 1, Tier: &plan.Tier, ApproversRequired: 1, ExpiresAt: expires.UTC(),
	})
	return s, request
}

func (s *told) grants(from string, request *ticketclient.Message, choice string, expires time.Time) {
	s.t.Helper()
	s.say(from, ticket.TypeApprovalGrant, ticket.RoleOrchestrator, request.ID, &ticketclient.ApprovalGrant{
		RequestID: request.ID, PlanHash: request.Payload.(*ticketclient.ApprovalRequest).PlanHash, Approver: from, Choice: choice, ExpiresAt: expires.UTC(), SingleUse: true,
	})
}

// next is what a policy says next about a ticket: the types of its moves, with the state
// or the kind that they are about.
func next(t *testing.T, p *orchestrator.Policy, s *told, now time.Time) (moves string, wake time.Time) {
	t.Helper()
	all, wake := p.Decide("orch", &s.Ticket, now)
	for _, m := range all {
		switch payload := m.Payload.(type) {
		case *ticketclient.State:
			moves += m.Type + " " + payload.To + " "
		case *ticketclient.ApprovalRequest:
			moves += m.Type + " " + payload.Kind + " "
		case *ticketclient.Escalation:
			moves += m.Type + " " + payload.ReasonCode + " "
		default:
			moves += m.Type + " "
		}
	}
	return moves, wake
}

// TestPlanIsApprovedByWhatTheBrokerCounts: grants of whoever has asked for the ticket, and
// those that are over, are none; they are asked for again. Where nothing is to be done,
// the ticket is looked at again when something of it is over.
func TestPlanIsApprovedByWhatTheBrokerCounts(t *testing.T) {
	now := time.Now()
	hour := now.Add(time.Hour)
	for _, c := range []struct {
		name       string
		tier       int
		requesters []string
		grants     func(*told, *ticketclient.Message)
		want       string
		wake       time.Time
	}{
		{"nobody has", 2, nil, func(*told, *ticketclient.Message) {}, "", hour},
		{"one has", 2, nil, func(s *told, r *ticketclient.Message) { s.grants("alice", r, "", hour) }, "ticket.state APPROVED ", time.Time{}},
		{"who asked has", 2, []string{"u1", "alice"}, func(s *told, r *ticketclient.Message) { s.grants("alice", r, "", hour) }, "approval.request plan ", time.Time{}},
		{"who asked has, and another", 2, []string{"u1", "alice"}, func(s *told, r *ticketclient.Message) {
			s.grants("alice", r, "", hour)
			s.grants("bob", r, "", hour)
		}, "ticket.state APPROVED ", time.Time{}},
		{"it is over", 2, nil, func(s *told, r *ticketclient.Message) { s.grants("alice", r, "", now.Add(-time.Minute)) }, "approval.request plan ", time.Time{}},
		{"one of two has", 3, nil, func(s *told, r *ticketclient.Message) { s.grants("alice", r, "", now.Add(time.Minute)) }, "", now.Add(time.Minute)},
		{"one has twice", 3, nil, func(s *told, r *ticketclient.Message) {
			s.grants("alice", r, "", now.Add(-time.Minute))
			s.grants("alice", r, "", hour)
		}, "", hour},
		{"two have", 3, nil, func(s *told, r *ticketclient.Message) {
			s.grants("alice", r, "", hour)
			s.grants("bob", r, "", hour)
		}, "ticket.state APPROVED ", time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, request := awaited(t, c.tier, hour)
			s.Requesters = c.requesters
			c.grants(s, request)
			moves, wake := next(t, policy(t, oneSlice), s, now)
			if moves != c.want || c.want == "" && !wake.Equal(c.wake.Truncate(time.Nanosecond)) {
				t.Errorf("the next moves are %q, and it wakes at %s", moves, wake)
			}
		})
	}
}

// TestNobodyIsNeededOnceNoBreakerIsOpen: a plan of a low tier that was approved under an
// open breaker is carried out, without the grants, when no breaker is open any more. One
// that was denied is not, and neither is one of a higher tier.
func TestNobodyIsNeededOnceNoBreakerIsOpen(t *testing.T) {
	now := time.Now()
	hour, open := now.Add(time.Hour), []client.TicketBreaker{{Target: "fw/1", Opened: now}}
	for _, c := range []struct {
		name     string
		tier     int
		until    time.Time // of the grant
		denied   bool
		breakers []client.TicketBreaker
		want     string
		ids      int
	}{
		{"the grant is over", 1, now.Add(-time.Minute), false, nil, "execute ", 0},
		{"the grant counts", 1, hour, false, nil, "execute ", 0},
		{"the breaker is open", 1, hour, false, open, "execute ", 1},
		{"the breaker is open, and the grant is over", 1, now.Add(-time.Minute), false, open, "ticket.state PLANNING ", 0},
		{"it was denied", 1, now.Add(-time.Minute), true, nil, "escalation approval_lapsed ", 0},
		{"it was denied, and the grant counts", 1, hour, true, nil, "escalation approval_lapsed ", 0},
		{"the tier is higher", 2, now.Add(-time.Minute), false, nil, "ticket.state PLANNING ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, request := awaited(t, c.tier, hour)
			s.grants("alice", request, "", c.until)
			s.say("orch", ticket.TypeState, ticket.RoleIntake, "m6", &ticketclient.State{From: "AWAITING_APPROVAL", To: "APPROVED", Cause: []string{"m6"}})
			if c.denied { // while it was carried out
				s.say("orch", ticket.TypeState, ticket.RoleIntake, "m7", &ticketclient.State{From: "APPROVED", To: "EXECUTING"})
				s.say("bob", ticket.TypeApprovalDeny, ticket.RoleOrchestrator, request.ID, &ticketclient.ApprovalDeny{RequestID: request.ID, Approver: "bob", ReasonCode: "no"})
			}
			s.Breakers = c.breakers
			p := policy(t, oneSlice)
			moves, _ := next(t, p, s, now)
			ids := 0
			all, _ := p.Decide("orch", &s.Ticket, now)
			for _, m := range all {
				if x, ok := m.Payload.(*ticketclient.Execute); ok {
					ids = len(x.ApprovalIDs)
				}
			}
			if moves != c.want || ids != c.ids {
				t.Errorf("the next moves are %q with %d grants", moves, ids)
			}
		})
	}
}

// TestDenialOfAnApprovedPlan: who denies what others have granted is heard until the plan is
// begun, and what follows is something that the rules let follow. Once the gate was told and
// has said to go on, the plan is made anew, whatever its tier.
func TestDenialOfAnApprovedPlan(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	open := []client.TicketBreaker{{Target: "fw/1", Opened: time.Now()}}
	for _, c := range []struct {
		name, onDenied string
		tier           int
		breakers       []client.TicketBreaker
		want, resumed  string
	}{
		{"it needs approval", "close", 2, nil, "escalation denied ", "ticket.state PLANNING "},
		{"it is to be made anew", "replan", 2, nil, "ticket.state PLANNING ", ""},
		{"a breaker is open", "replan", 1, open, "ticket.state PLANNING ", ""},
		{"nobody has to approve it", "close", 1, nil, "escalation denied ", "ticket.state PLANNING "},
		{"nobody has to approve it, and it is to be made anew", "replan", 1, nil, "ticket.state PLANNING ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, request := awaited(t, c.tier, hour)
			s.grants("alice", request, "", hour)
			s.say("orch", ticket.TypeState, ticket.RoleIntake, "m6", &ticketclient.State{From: "AWAITING_APPROVAL", To: "APPROVED", Cause: []string{"m6"}})
			s.say("bob", ticket.TypeApprovalDeny, ticket.RoleOrchestrator, request.ID, &ticketclient.ApprovalDeny{RequestID: request.ID, Approver: "bob", ReasonCode: "no", Reason: "Not now."})
			s.Breakers = c.breakers
			p := policy(t, strings.Replace(oneSlice, `"slices"`, `"on_denied":"`+c.onDenied+`","slices"`, 1))
			if moves, _ := next(t, p, s, time.Now()); moves != c.want {
				t.Errorf("the next moves are %q", moves)
			}
			if c.resumed == "" {
				return
			}
			s.say("orch", ticket.TypeState, ticket.RoleIntake, "m8", &ticketclient.State{From: "APPROVED", To: "ESCALATED"})
			s.say("orch", ticket.TypeState, ticket.RoleIntake, "m9", &ticketclient.State{From: "ESCALATED", To: "APPROVED", ReasonCode: "resumed"})
			if moves, _ := next(t, p, s, time.Now()); moves != c.resumed {
				t.Errorf("when the gate has said to go on they are %q", moves)
			}
		})
	}
}

// TestPlanThatIsDeniedWhileItIsCarriedOut is asked about again once the gate has said to go
// on, also where by its tier nobody has to approve it; what is left of it names that grant.
func TestPlanThatIsDeniedWhileItIsCarriedOut(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	for _, tier := range []int{1, 2} {
		s, request := awaited(t, tier, hour)
		s.grants("alice", request, "", hour)
		s.say("orch", ticket.TypeState, ticket.RoleIntake, "m6", &ticketclient.State{From: "AWAITING_APPROVAL", To: "APPROVED", Cause: []string{"m6"}})
		s.say("orch", ticket.TypeState, ticket.RoleIntake, "m7", &ticketclient.State{From: "APPROVED", To: "EXECUTING"})
		s.say("bob", ticket.TypeApprovalDeny, ticket.RoleOrchestrator, request.ID, &ticketclient.ApprovalDeny{RequestID: request.ID, Approver: "bob", ReasonCode: "no", Reason: "Not now."})
		s.say("orch", ticket.TypeState, ticket.RoleIntake, "m9", &ticketclient.State{From: "EXECUTING", To: "ESCALATED"})
		s.say("orch", ticket.TypeState, ticket.RoleIntake, "m10", &ticketclient.State{From: "ESCALATED", To: "EXECUTING", ReasonCode: "resumed"})
		p := policy(t, oneSlice)
		if moves, _ := next(t, p, s, time.Now()); moves != "approval.request plan " {
			t.Fatalf("at tier %d the next moves are %q", tier, moves)
		}
		again := s.say("orch", ticket.TypeApprovalRequest, ticket.RoleGate, "m10", request.Payload)
		if moves, _ := next(t, p, s, time.Now()); moves != "" {
			t.Errorf("at tier %d, while nobody answers, the next moves are %q", tier, moves)
		}
		s.grants("alice", again, "", hour)
		moves, _ := p.Decide("orch", &s.Ticket, time.Now())
		if len(moves) != 1 || moves[0].Type != ticket.TypeExecute || !slices.Equal(moves[0].Payload.(*ticketclient.Execute).ApprovalIDs, []string{s.Messages[len(s.Messages)-1].ID}) {
			t.Errorf("at tier %d, once it is granted, the next moves are %+v", tier, moves)
		}
	}
}

// carriedOut has the slice executed in a mode, with an outcome.
func (s *told) carriedOut(mode, outcome string) {
	s.t.Helper()
	plan := s.Messages[3].Payload.(*ticketclient.Plan)
	x := s.say("orch", ticket.TypeExecute, "network", s.Messages[len(s.Messages)-1].ID, &ticketclient.Execute{SliceID: "fw", Mode: mode, Steps: plan.Slice.Steps})
	s.say("net", ticket.TypeResult, ticket.RoleOrchestrator, x.ID, &ticketclient.Result{ExecuteID: x.ID, SliceID: "fw", Outcome: outcome})
}

// TestGateIsToldWhatToResumeComesTo: what the gate is told is what follows, also where the
// plan was denied, before it was asked or before it has said to go on the last time.
func TestGateIsToldWhatToResumeComesTo(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name, from       string
		denied, resumed  bool // the gate has said to go on since, and it did not help
		revisions        int
		told, then, next string // what follows at once when it says so now, and then
	}{
		{"a rollback", "ROLLING_BACK", false, false, 3, "try the rollback again;", "execute ", ""},
		{"a rollback of a plan that was denied", "ROLLING_BACK", true, false, 3, "ask for the approval of the plan, and then to try the rollback again;", "approval.request plan ", ""},
		{"the same once more", "ROLLING_BACK", true, true, 3, "ask for the approval of the plan, and then to try the rollback again;", "approval.request plan ", ""},
		{"a part", "PARTIAL", false, false, 3, "undo what took effect;", "ticket.state ROLLING_BACK ", "execute "},
		{"a part of a plan that was denied", "PARTIAL", true, false, 3, "ask for the approval of the plan, and then to undo what took effect;", "ticket.state ROLLING_BACK ", "approval.request plan "},
		{"a plan that was denied", "APPROVED", true, false, 3, "ask for another plan, for this one was denied;", "ticket.state PLANNING ", ""},
		{"the last one", "APPROVED", true, false, 1, "ask this again, for the policy allows no further plan;", "escalation revisions_exhausted ", ""},
		{"the last one, once more", "APPROVED", true, true, 1, "ask this again, for the policy allows no further plan;", "escalation revisions_exhausted ", ""},
		{"what is left", "EXECUTING", true, false, 3, "ask for the approval of what is left of the plan;", "approval.request plan ", ""},
		{"a plan that is not approved yet", "AWAITING_APPROVAL", true, false, 3, "do what the policy says of a plan that was denied;", "ticket.state DENIED ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, request := awaited(t, 2, hour)
			move := func(from, to, reason string) {
				s.say("orch", ticket.TypeState, ticket.RoleIntake, s.Messages[len(s.Messages)-1].ID, &ticketclient.State{From: from, To: to, ReasonCode: reason})
			}
			if c.from != "AWAITING_APPROVAL" {
				s.grants("alice", request, "", hour)
				move("AWAITING_APPROVAL", "APPROVED", "granted")
			}
			switch c.from {
			case "EXECUTING":
				move("APPROVED", "EXECUTING", "")
			case "PARTIAL", "ROLLING_BACK":
				s.carriedOut(ticketclient.ModeApply, ticketclient.OutcomePartial)
				move("EXECUTING", "PARTIAL", "mixed")
			}
			if c.from == "ROLLING_BACK" {
				move("PARTIAL", "ROLLING_BACK", "rollback")
				s.carriedOut(ticketclient.ModeRollback, ticketclient.OutcomeRollbackFailed)
			}
			if c.denied {
				s.say("bob", ticket.TypeApprovalDeny, ticket.RoleOrchestrator, request.ID, &ticketclient.ApprovalDeny{RequestID: request.ID, Approver: "bob", ReasonCode: "no", Reason: "Not now."})
			}
			if c.resumed {
				move(c.from, "ESCALATED", "")
				move("ESCALATED", c.from, "resumed")
			}
			move(c.from, "ESCALATED", "")
			p := policy(t, strings.Replace(oneSlice, `"slices"`, fmt.Sprintf(`"on_partial":"rollback","revisions":%d,"slices"`, c.revisions), 1))
			moves, _ := p.Decide("orch", &s.Ticket, time.Now())
			if len(moves) != 1 || !strings.Contains(moves[0].Payload.(*ticketclient.ApprovalRequest).Summary, " To resume is to "+c.told) {
				t.Fatalf("the gate is asked %+v", moves)
			}
			move("ESCALATED", c.from, "resumed")
			if then, _ := next(t, p, s, time.Now()); then != c.then {
				t.Errorf("when it has said to resume, the next moves are %q", then)
			}
			if c.next != "" {
				move(c.from, "ROLLING_BACK", "rollback")
				if then, _ := next(t, p, s, time.Now()); then != c.next {
					t.Errorf("and then they are %q", then)
				}
			}
		})
	}
}

// TestQuestionOfAnEarlierPlanStopsNothing: the broker keeps the request to reset a breaker
// when a plan is made anew. That nobody answers it does not stop a plan without that target.
func TestQuestionOfAnEarlierPlanStopsNothing(t *testing.T) {
	s, _ := verified(t)
	s.Messages = s.Messages[:4]
	reset := s.say("orch", ticket.TypeApprovalRequest, ticket.RoleGate, "m4", &ticketclient.ApprovalRequest{Kind: "breaker_reset", Target: "fw/1", ApproversRequired: 1})
	s.say("orch", ticket.TypeState, ticket.RoleIntake, "m4", &ticketclient.State{From: "PLANNED", To: "PLANNING"})
	s.say("orch", ticket.TypePlanRequest, "network", "m6", &ticketclient.PlanRequest{SliceID: "fw", Revision: 2})
	s.say(ticket.RoleBus, ticket.TypeEscalation, ticket.RoleOrchestrator, reset.ID, &ticketclient.Escalation{ReasonCode: "expires_at_missed", Severity: "warning"})
	if moves, _ := next(t, policy(t, oneSlice), s, time.Now()); moves != "" {
		t.Errorf("the ticket goes on with %q", moves)
	}
}

// TestExpiredRequestIsTheBussToSay: nothing is asked again before, and the gate is once it
// has said to go on.
func TestExpiredRequestIsTheBussToSay(t *testing.T) {
	now := time.Now()
	s, request := awaited(t, 2, now.Add(-time.Second))
	p := policy(t, oneSlice)
	if moves, _ := next(t, p, s, now); moves != "" {
		t.Errorf("before the bus says so: %q", moves)
	}
	missed := s.say(ticket.RoleBus, ticket.TypeEscalation, ticket.RoleOrchestrator, request.ID, &ticketclient.Escalation{ReasonCode: "expires_at_missed"})
	if moves, _ := next(t, p, s, now); moves != "ticket.state ESCALATED " {
		t.Errorf("then: %q", moves)
	}
	s.say("orch", ticket.TypeState, ticket.RoleIntake, missed.ID, &ticketclient.State{From: "AWAITING_APPROVAL", To: "ESCALATED", Cause: []string{missed.ID}})
	s.say("orch", ticket.TypeState, ticket.RoleIntake, "m8", &ticketclient.State{From: "ESCALATED", To: "AWAITING_APPROVAL", ReasonCode: "resumed", Cause: []string{"m8"}})
	if moves, _ := next(t, p, s, now); moves != "approval.request plan " {
		t.Errorf("after the gate has said to go on: %q", moves)
	}
}

// TestEscalationIsDecidedByWhatTheBrokerCounts, as a plan is; platform-ops is told once
// for each time that the ticket stands.
func TestEscalationIsDecidedByWhatTheBrokerCounts(t *testing.T) {
	now := time.Now()
	hour := now.Add(time.Hour)
	for name, c := range map[string]struct {
		requesters []string
		expires    time.Time
		want       string
	}{
		"it counts":        {[]string{"u1"}, hour, "ticket.state AWAITING_APPROVAL "},
		"who asked has":    {[]string{"alice"}, hour, "approval.request escalation "},
		"the time is over": {nil, now.Add(-time.Minute), "approval.request escalation "},
	} {
		t.Run(name, func(t *testing.T) {
			s, question := escalatedFrom(t, hour)
			s.Requesters = c.requesters
			s.grants("alice", question, "resume", c.expires)
			if moves, _ := next(t, policy(t, oneSlice), s, now); moves != c.want {
				t.Errorf("the next moves are %q", moves)
			}
		})
	}
	s, question := escalatedFrom(t, hour)
	p := policy(t, oneSlice)
	told := 0
	for range 7 { // as often as it is asked, nobody answers
		s.say(ticket.RoleBus, ticket.TypeEscalation, ticket.RoleOrchestrator, question.ID, &ticketclient.Escalation{ReasonCode: "expires_at_missed"})
		moves, _ := p.Decide("orch", &s.Ticket, now)
		for _, m := range moves {
			if s.Said("orch", m.Type, s.Key(m.Key)) {
				continue
			}
			said := s.say("orch", m.Type, m.To, m.Cause, m.Payload)
			said.IdempotencyKey = s.Key(m.Key)
			if m.Type == ticket.TypeEscalation {
				told++
			} else {
				question = said
			}
		}
	}
	if told != 1 {
		t.Errorf("platform-ops was told %d times", told)
	}
}

// escalatedFrom is a ticket that was escalated while it waited for approval, and about
// which the gate is asked.
func escalatedFrom(t *testing.T, expires time.Time) (s *told, question *ticketclient.Message) {
	t.Helper()
	s, _ = awaited(t, 2, expires)
	s.say("net", ticket.TypeEscalation, ticket.RoleOrchestrator, "m5", &ticketclient.Escalation{ReasonCode: "odd", Severity: "warning"})
	s.say("orch", ticket.TypeState, ticket.RoleIntake, "m6", &ticketclient.State{From: "AWAITING_APPROVAL", To: "ESCALATED", Cause: []string{"m6"}})
	question = s.say("orch", ticket.TypeApprovalRequest, ticket.RoleGate, "m7", &ticketclient.ApprovalRequest{
		Kind: "escalation", Options: []string{"resume", "close"}, ApproversRequired: 1, ExpiresAt: expires.UTC(),
	})
	return s, question
}

// TestAmendedPlanIsNotApplied: the broker takes no execute of it, so what is approved is
// planned again, and what is under way comes to its end without the rest.
func TestAmendedPlanIsNotApplied(t *testing.T) {
	now := time.Now()
	hour := now.Add(time.Hour)
	amend := func(s *told) {
		open := *s.Messages[0].Payload.(*ticketclient.Open)
		open.Op = "amend"
		m := s.say("desk", ticket.TypeOpen, ticket.RoleOrchestrator, "m1", &open)
		s.say("orch", ticket.TypeEscalation, ticket.RoleGate, m.ID, &ticketclient.Escalation{ReasonCode: "amended", Severity: "info"})
	}
	s, request := awaited(t, 2, hour)
	s.grants("alice", request, "", hour)
	amend(s)
	s.say("orch", ticket.TypeState, ticket.RoleIntake, "m6", &ticketclient.State{From: "AWAITING_APPROVAL", To: "APPROVED", Cause: []string{"m6"}})
	if moves, _ := next(t, policy(t, oneSlice), s, now); moves != "ticket.state PLANNING " {
		t.Errorf("what is approved goes on with %q", moves)
	}

	two := fmt.Sprintf(`{"rules":[{"name":"web","source_ref":"desk:*","slices":[%s,%s]}]}`,
		`{"id":"fw","domain":"network","objective":"x","targets":["fw/1"]}`, `{"id":"app","domain":"network","objective":"x","targets":["fw/2"],"depends_on":["fw"]}`)
	s, _ = verified(t)
	said := slices.Clone(s.Messages)
	s.Messages = s.Messages[:3]
	s.say("net", ticket.TypeProposal, "network", "m2", &ticketclient.Proposal{SliceID: "app", Revision: 1, Steps: said[2].Payload.(*ticketclient.Proposal).Steps})
	plan := *said[3].Payload.(*ticketclient.Plan)
	s.say("orch", ticket.TypePlan, "network", "m3", &plan)
	second := plan
	second.Slice.ID, second.DependsOn = "app", []string{"fw"}
	s.say("orch", ticket.TypePlan, "network", "m4", &second)
	s.say("orch", ticket.TypeState, ticket.RoleIntake, "m5", &ticketclient.State{From: "PLANNED", To: "APPROVED"})
	x := s.say("orch", ticket.TypeExecute, "network", "m7", said[5].Payload)
	amend(s)
	result := *said[6].Payload.(*ticketclient.Result)
	result.ExecuteID = x.ID
	s.say("net", ticket.TypeResult, ticket.RoleOrchestrator, x.ID, &result)
	if moves, _ := next(t, policy(t, two), s, now); moves != "ticket.state PARTIAL " {
		t.Errorf("what is under way goes on with %q", moves)
	}
}

// TestGrantsThatLapseWhileNobodyDecides are asked for again, and the broker takes every
// move that follows: of a plan whose grant is over before anybody acts on it, and of an
// escalation whose approver amends the ticket.
func TestGrantsThatLapseWhileNobodyDecides(t *testing.T) {
	t.Parallel() // most of it is waiting
	t.Run("a plan", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "")
		over := make(chan time.Time, 1)
		p := policy(t, webPolicy)
		end := s.orchestrateUntil(p)
		s.open("INC-1")
		s.wait("INC-1", ticket.TypeApprovalRequest)
		end()
		s.gate("alice", func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
			kind, payload := grant("alice", "")(m, r)
			if len(over) == 0 {
				at := time.Now().Add(4 * time.Second).UTC() // so that it still counts when it comes
				payload.(*ticketclient.ApprovalGrant).ExpiresAt = at
				over <- at
			}
			return kind, payload
		})
		s.wait("INC-1", ticket.TypeApprovalGrant)
		time.Sleep(time.Until((<-over).Add(50 * time.Millisecond)))
		over <- time.Time{} // what follows is granted for as long as is usual
		s.orchestrate(p, 0)
		states, all := s.path("INC-1")
		if want := []string{"APPROVED", "VERIFYING", "RESOLVED", "CLOSED"}; !slices.Equal(states, want) || asked(all) != 2 {
			t.Errorf("the ticket went through %v, and the gate was asked %d times", states, asked(all))
		}
	})
	t.Run("an escalation", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "")
		p := policy(t, `{"rules":[{"name":"other","source_ref":"siem:*","slices":[{"id":"a","domain":"network","objective":"x","targets":["fw/1"]}]}]}`)
		s.gate("bob", silent("escalation", 1, grant("bob", "cancel")))
		end := s.orchestrateUntil(p)
		s.open("INC-1")
		s.wait("INC-1", ticket.TypeApprovalRequest)
		end()
		first := true
		s.gate("alice", func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
			if !first {
				return "", nil
			}
			first = false
			return grant("alice", "close")(m, r)
		})
		s.wait("INC-1", ticket.TypeApprovalGrant)
		_, err := ticketclient.NewSender(s.c, "desk", tickettest.Key("desk")).Send(t.Context(), ticket.Draft{
			Header:  ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-INC-1", To: "orchestrator"},
			Payload: &ticketclient.Open{Op: "amend", SourceRef: "desk:INC-1", Title: "It is slower", BodyRef: "desk:INC-1/body", Requester: "Alice", Priority: 2},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.orchestrate(p, 0)
		states, all := s.path("INC-1")
		if want := []string{"ESCALATED", "CANCELLED"}; !slices.Equal(states, want) || asked(all) != 2 {
			t.Errorf("the ticket went through %v, and the gate was asked %d times", states, asked(all))
		}
	})
}

// asked is how often the gate was asked for something.
func asked(all []*ticketclient.Message) (n int) {
	for _, m := range all {
		if m.Type == ticket.TypeApprovalRequest && m.To == ticket.RoleGate {
			n++
		}
	}
	return n
}
