// SPDX-License-Identifier: Apache-2.0

package orchestrator_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// silent says nothing about the first requests of a kind, and then what another says.
func silent(kind string, times int, then func(*ticketclient.Message, *ticketclient.ApprovalRequest) (string, any)) func(*ticketclient.Message, *ticketclient.ApprovalRequest) (string, any) {
	return func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
		if r.Kind == kind && times != 0 {
			times--
			return "", nil
		}
		return then(m, r)
	}
}

// TestUnansweredAcceptance: where the gate does not say whether it accepts what took
// effect in part, it is asked again, and then the policy goes on.
func TestUnansweredAcceptance(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, c := range []struct {
		name, policy string
		silent       int
		choice       string
		states       string
		asked        int
	}{
		{"it answers the second time", "asks: 2", 1, "", "APPROVED PARTIAL RESOLVED CLOSED", 2},
		{"it never answers, and what was done is undone", "asks: 2\n    on_unaccepted: rollback", -1, "", "APPROVED PARTIAL ROLLING_BACK ROLLED_BACK CLOSED", 2},
		{"it never answers, and is told so", "asks: 1\n    on_unaccepted: escalate", -1, "close", "APPROVED PARTIAL ESCALATED CLOSED", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "comp/apply/2")
			s.gate("alice", silent("accept_partial", c.silent, grant("alice", c.choice)))
			s.orchestrate(policy(t, strings.Replace(webPolicy, "on_partial: rollback", "on_partial: accept\n    approve_within: 2s\n    "+c.policy, 1)), 0)
			s.open("INC-1")
			states, all := s.path("INC-1")
			asked := 0
			for _, m := range all {
				if r, ok := m.Payload.(*ticketclient.ApprovalRequest); ok && r.Kind == "accept_partial" {
					asked++
				}
			}
			if strings.Join(states, " ") != c.states || asked != c.asked {
				t.Errorf("the ticket went through %v, and it was asked %d times", states, asked)
			}
		})
	}
}

// TestUnansweredEscalation: the gate is asked until it says how the ticket goes on, and
// what was missed meanwhile stops nothing afterwards. Platform-ops is told.
func TestUnansweredEscalation(t *testing.T) {
	t.Parallel() // most of it is waiting
	s := newStage(t, "comp/apply/2")
	s.gate("alice", silent("escalation", 2, grant("alice", "resume")))
	s.orchestrate(policy(t, strings.Replace(webPolicy, "on_partial: rollback", "on_partial: escalate\n    approve_within: 2s\n    asks: 2", 1)), 0)
	s.open("INC-1")
	states, all := s.path("INC-1")
	if got := strings.Join(states, " "); got != "APPROVED PARTIAL ESCALATED PARTIAL ROLLING_BACK ROLLED_BACK CLOSED" {
		t.Errorf("the ticket went through %s", got)
	}
	told := 0
	for _, m := range all {
		if m.From == "orch" && m.Type == ticket.TypeEscalation && m.To == ticket.RolePlatformOps {
			told++
		}
	}
	if told != 1 {
		t.Errorf("platform-ops was told %d times", told)
	}
}

// breakerPolicy has one slice of tier 1.
const breakerPolicy = `
rules:
  - name: firewall
    source_ref: desk:*
    on_partial: rollback
    on_failed: close
    %s
    slices:
      - {id: fw, domain: network, objective: "Keep the attacker away from {*}", targets: ["fw/1"]}
`

// TestOpenBreaker: what a policy says about a target whose breaker is open is what
// happens to a plan of tier 1; and what was begun before it opened is rolled back under
// an approval.
func TestOpenBreaker(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, c := range []struct {
		name, policy string
		decide       func(*ticketclient.Message, *ticketclient.ApprovalRequest) (string, any)
		states       string
		kinds        string
	}{
		{"it is reset", "on_breaker: reset", grant("alice", ""), "PLANNED APPROVED VERIFYING RESOLVED CLOSED", "breaker_reset"},
		{"the reset is denied, and the plan approved", "on_breaker: reset", denying("breaker_reset"), "APPROVED VERIFYING RESOLVED CLOSED", "breaker_reset plan"},
		{"nobody answers about the reset", "on_breaker: reset\n    asks: 1\n    approve_within: 2s", silent("breaker_reset", -1, grant("alice", "")), "APPROVED VERIFYING RESOLVED CLOSED", "breaker_reset plan"},
		{"the plan is approved", "on_breaker: approve", grant("alice", ""), "APPROVED VERIFYING RESOLVED CLOSED", "plan"},
		{"it is held, and goes on", "on_breaker: escalate", grant("alice", "resume"), "ESCALATED PLANNED APPROVED VERIFYING RESOLVED CLOSED", "escalation plan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "net/verify/1", func(s *stage) { s.failures = 0 })
			s.openBreaker("fw/1")
			s.gate("alice", c.decide)
			s.orchestrate(policy(t, fmt.Sprintf(breakerPolicy, c.policy)), 0)
			s.open("INC-1")
			states, all := s.path("INC-1")
			var kinds []string
			for _, m := range all {
				if r, ok := m.Payload.(*ticketclient.ApprovalRequest); ok {
					kinds = append(kinds, r.Kind)
					if r.Kind == "breaker_reset" && r.Target != "fw/1" {
						t.Errorf("the breaker of %s is to be reset", r.Target)
					}
				}
			}
			if strings.Join(states, " ") != c.states || strings.Join(kinds, " ") != c.kinds {
				t.Errorf("the ticket went through %v, and the gate was asked for %v", states, kinds)
			}
		})
	}
}

// TestBreakerThatOpensMeanwhile: the third verification that fails opens the breaker, and
// the rollback of the same plan, which needed no approval until then, has one.
func TestBreakerThatOpensMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t, "net/verify/1")
	s.gate("alice", grant("alice", ""))
	s.orchestrate(policy(t, fmt.Sprintf(breakerPolicy, "on_breaker: approve")), 0)
	for i, asked := range []bool{false, false, true} {
		id := fmt.Sprintf("INC-%d", i)
		s.open(id)
		states, all := s.path(id)
		approval := slices.ContainsFunc(all, func(m *ticketclient.Message) bool { return m.Type == ticket.TypeApprovalRequest })
		if want := []string{"APPROVED", "VERIFYING", "PARTIAL", "ROLLING_BACK", "ROLLED_BACK", "CLOSED"}; !slices.Equal(states, want) || approval != asked {
			t.Errorf("%s went through %v, and it is %v that the gate was asked", id, states, approval)
		}
	}
}

// openBreaker opens the breaker of a target, by a ticket that is at its end then.
func (s *stage) openBreaker(target string) {
	s.t.Helper()
	send := func(from, to string, kind string, cause string, payload any) string {
		s.t.Helper()
		h := ticket.Header{Type: kind, TicketID: "OLD-1", TraceID: "trace-OLD-1", To: to, CausationID: cause}
		receipt, err := ticketclient.NewSender(s.c, from, tickettest.Key(from)).Send(s.t.Context(), ticket.Draft{Header: h, Payload: payload})
		if err != nil {
			s.t.Fatal(err)
		}
		return receipt.ID
	}
	said := ticketclient.Open{Op: "open", SourceRef: "desk:old", Title: "An old one", BodyRef: "desk:old", Requester: "u1", Priority: 2}
	open := send("desk", ticket.RoleOrchestrator, ticket.TypeOpen, "", &said)
	send("orch", ticket.RoleIntake, ticket.TypeState, open, &ticketclient.State{
		From: "OPEN", To: "OPEN", ReasonCode: "seen_broken", Cause: []string{open}, Breaker: &ticketclient.Breaker{Target: target, Action: "open"},
	})
	said.Op = "cancel"
	cancel := send("desk", ticket.RoleOrchestrator, ticket.TypeOpen, open, &said)
	send("orch", ticket.RoleIntake, ticket.TypeState, cancel, &ticketclient.State{From: "OPEN", To: "CANCELLED", ReasonCode: "cancelled", Cause: []string{cancel}})
}

// denying says no to a kind of request, and yes to others.
func denying(kind string) func(*ticketclient.Message, *ticketclient.ApprovalRequest) (string, any) {
	return func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
		if r.Kind != kind {
			return grant("alice", "")(m, r)
		}
		return ticket.TypeApprovalDeny, &ticketclient.ApprovalDeny{RequestID: m.ID, PlanHash: r.PlanHash, Approver: "alice", ReasonCode: "not_yet", Reason: "Look at it first."}
	}
}

// TestRestartReadsWhatIsOpen: an orchestrator that begins anew reads the tickets that
// are open and no history, and needs no word of the audit trail.
func TestRestartReadsWhatIsOpen(t *testing.T) {
	t.Parallel() // most of it is waiting
	s := newStage(t, "")
	broker, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(broker)
	var closed, open, audit atomic.Int32
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/v1/audit/"):
			audit.Add(1)
			w.WriteHeader(http.StatusForbidden)
			return
		case strings.HasPrefix(path, "/v1/tickets/OLD"):
			closed.Add(1)
		case strings.HasPrefix(path, "/v1/tickets/INC"):
			open.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer between.Close()
	direct := s.c
	p := policy(t, webPolicy)
	s.gate("alice", func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
		if m.TicketID == "INC-1" {
			return "", nil
		}
		return grant("alice", "")(m, r)
	})
	end := s.orchestrateUntil(p)
	s.open("OLD-1")
	s.path("OLD-1")
	s.open("INC-1")
	s.wait("INC-1", ticket.TypeApprovalRequest)
	end()

	if s.c, err = client.New(between.URL); err != nil {
		t.Fatal(err)
	}
	end = s.orchestrateUntil(p)
	s.c = direct
	s.open("NEW-1") // it decides about this one after those that it began with
	s.path("NEW-1")
	end()
	if closed.Load() > 0 || open.Load() == 0 || audit.Load() > 0 {
		t.Errorf("it has asked %d times for a ticket that is closed, %d times for one that is open, and %d times for the audit trail", closed.Load(), open.Load(), audit.Load())
	}
}

// TestVerbsInForce: a plan is made with the catalogue that the broker has, whatever the
// orchestrator was built with, and says so.
func TestVerbsInForce(t *testing.T) {
	s, _ := verified(t)
	p := policy(t, oneSlice)
	s.Messages = s.Messages[:3]
	other := *verbs(t)
	other.Version, other.Verbs = "7.0.0", slices.Clone(other.Verbs)
	for i := range other.Verbs {
		if other.Verbs[i].Name == "acl.block" {
			other.Verbs[i].Tier = ticket.TierMaterial
		}
	}
	s.Verbs = &other
	moves, _ := p.Decide("orch", &s.Ticket, time.Now())
	if len(moves) != 1 {
		t.Fatalf("the next moves are %+v", moves)
	}
	if plan := moves[0].Payload.(*ticketclient.Plan); plan.PolicyVersion != "7.0.0" || plan.Tier != ticket.TierMaterial {
		t.Errorf("the plan is of tier %d by the catalogue %s", plan.Tier, plan.PolicyVersion)
	}

	s, _ = verified(t)
	s.Messages = s.Messages[:5] // approved
	s.Verbs = &other
	if moves, _ = p.Decide("orch", &s.Ticket, time.Now()); len(moves) != 1 || moves[0].Type != ticket.TypeState || moves[0].Payload.(*ticketclient.State).To != "PLANNING" {
		t.Errorf("with another catalogue in force, a plan goes on with %+v", moves)
	}
}

// TestSilenceAfterTheGateHasSaidToGoOn is asked about again: the deadlines of what was
// under way are over.
func TestSilenceAfterTheGateHasSaidToGoOn(t *testing.T) {
	s, _ := verified(t)
	s.Messages = s.Messages[:5]
	s.say("orch", ticket.TypeExecute, "network", "m5", &ticketclient.Execute{SliceID: "fw", Mode: ticketclient.ModeApply, CompleteBy: time.Now().Add(-2 * time.Hour).UTC()})
	p := policy(t, oneSlice)
	s.say("orch", ticket.TypeState, "intake", "m6", &ticketclient.State{From: "EXECUTING", To: "ESCALATED", Cause: []string{"m6"}})
	s.say("orch", ticket.TypeState, "intake", "m7", &ticketclient.State{From: "ESCALATED", To: "EXECUTING", ReasonCode: "resumed", Cause: []string{"m7"}})
	moves, wake := p.Decide("orch", &s.Ticket, time.Now())
	if len(moves) > 0 || wake.IsZero() {
		t.Fatalf("at once it goes on with %+v, and wakes at %s", moves, wake)
	}
	moves, _ = p.Decide("orch", &s.Ticket, wake)
	if len(moves) != 1 || moves[0].Type != ticket.TypeEscalation || moves[0].Payload.(*ticketclient.Escalation).ReasonCode != "no_progress" {
		t.Errorf("then it goes on with %+v", moves)
	}
}
