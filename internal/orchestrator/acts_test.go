// SPDX-License-Identifier: Apache-2.0

package orchestrator_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// TestPolicyActs: what a policy says about a plan that did not come to its end is what
// happens, and the broker lets it.
func TestPolicyActs(t *testing.T) {
	for _, c := range []struct {
		name, policy   string
		fail           string
		failures       int
		choice, states string
	}{
		{"the rest is planned again", "on_partial: replan", "comp/apply/2", 1, "", "APPROVED PARTIAL PLANNING APPROVED VERIFYING RESOLVED CLOSED"},
		{"the gate accepts a part", "on_partial: accept", "comp/apply/2", -1, "", "APPROVED PARTIAL RESOLVED CLOSED"},
		{"the gate closes a part", "on_partial: escalate", "comp/apply/2", -1, "close", "APPROVED PARTIAL ESCALATED CLOSED"},
		{"nothing is applied", "on_failed: close", "net/apply/1", -1, "", "APPROVED FAILED CLOSED"},
		{"the gate has it planned again", "on_failed: escalate", "net/apply/1", 1, "replan", "APPROVED FAILED ESCALATED PLANNING APPROVED VERIFYING RESOLVED CLOSED"},
		{"revisions run out", "on_failed: replan\n    revisions: 2", "net/apply/1", -1, "cancel", "APPROVED FAILED PLANNING APPROVED FAILED ESCALATED CANCELLED"},
		{"a check fails", "on_partial: rollback", "comp/verify/1", -1, "", "APPROVED VERIFYING PARTIAL ROLLING_BACK ROLLED_BACK CLOSED"},
		{"a rollback fails once", "on_partial: rollback\n    on_rolled_back: close", "comp/rollback/1", 1, "resume", "APPROVED PARTIAL ROLLING_BACK ESCALATED ROLLING_BACK ROLLED_BACK CLOSED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.fail, func(s *stage) {
				s.failures = c.failures
				if c.fail == "comp/rollback/1" {
					s.also = "comp/apply/2" // so that there is something to roll back
				}
			})
			s.gate("alice", grant("alice", c.choice))
			s.orchestrate(policy(t, strings.Replace(webPolicy, "on_partial: rollback", c.policy, 1)), 0)
			s.open("INC-1")
			if states, _ := s.path("INC-1"); strings.Join(states, " ") != c.states {
				t.Errorf("the ticket went through %v", states)
			}
		})
	}
}

// TestTwoPeopleApprove where the policy asks for two: one is not enough.
func TestTwoPeopleApprove(t *testing.T) {
	s := newStage(t, "")
	s.orchestrate(policy(t, strings.Replace(webPolicy, "on_partial", "approvers: 2\n    on_partial", 1)), 0)
	s.open("INC-1")
	for i, name := range []string{"alice", "bob"} {
		gate := ticketclient.NewGate(s.c, name, tickettest.Key(name))
		w := tickettest.Wait(t.Context(), t, gate)
		if w.Ask().ApproversRequired != 2 || len(w.Granted) != i || w.Fault != nil || len(s.ran()) > 0 {
			t.Fatalf("%s sees %+v, and %v was done", name, w, s.ran())
		}
		if _, err := gate.Approve(t.Context(), w, "", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if states, _ := s.path("INC-1"); !slices.Equal(states, []string{"APPROVED", "VERIFYING", "RESOLVED", "CLOSED"}) {
		t.Errorf("the ticket went through %v", states)
	}
}

// TestApprovedPlanIsDenied, while it waits for its window: the broker takes what the
// orchestrator makes of that, and nothing is done.
func TestApprovedPlanIsDenied(t *testing.T) {
	for onDenied, want := range map[string]string{"close": "APPROVED ESCALATED CLOSED", "replan\n    revisions: 1": "APPROVED ESCALATED CLOSED", "replan": "APPROVED PLANNING DENIED PLANNING DENIED ESCALATED CLOSED"} {
		t.Run(onDenied, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "")
			start := time.Now().UTC().Add(12 * time.Hour)
			window := fmt.Sprintf("window: {start: %q, end: %q}\n    on_denied: %s", start.Format("15:04"), start.Add(time.Hour).Format("15:04"), onDenied)
			s.gate("alice", func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
				if r.Kind == "plan" && r.Revision > 1 {
					return ticket.TypeApprovalDeny, &ticketclient.ApprovalDeny{RequestID: m.ID, PlanHash: r.PlanHash, Approver: "alice", ReasonCode: "no", Reason: "Not again."}
				}
				return grant("alice", "close")(m, r)
			})
			s.orchestrate(policy(t, strings.Replace(webPolicy, "on_denied: close", window, 1)), 0)
			s.open("INC-1")
			s.wait("INC-1", ticket.TypeState) // APPROVED
			var request ticketclient.Message
			said, err := s.as("orch").Ticket(t.Context(), "INC-1")
			for i := range said.Messages {
				if m, fault := ticketclient.DecodeMessage(said.Messages[i].Message); fault == nil && m.Type == ticket.TypeApprovalRequest {
					request = *m
				}
			}
			if err == nil {
				_, err = ticketclient.NewSender(s.c, "bob", tickettest.Key("bob")).Send(t.Context(), ticketclient.Answer(&request.Header, ticket.TypeApprovalDeny, ticket.RoleOrchestrator, "", &ticketclient.ApprovalDeny{
					RequestID: request.ID, PlanHash: said.Plan.Hash, Approver: "bob", ReasonCode: "freeze", Reason: "There is a freeze tonight.",
				}))
			}
			if err != nil {
				t.Fatal(err)
			}
			if states, _ := s.path("INC-1"); strings.Join(states, " ") != want || len(s.ran()) > 0 {
				t.Errorf("the ticket went through %v, and %v was done", states, s.ran())
			}
		})
	}
}

// TestCancelledTicketIsUndone: what is under way comes to its end, nothing more is
// begun, and what took effect is rolled back.
func TestCancelledTicketIsUndone(t *testing.T) {
	s := newStage(t, "", func(s *stage) { s.hold = make(chan struct{}) })
	s.gate("alice", grant("alice", ""))
	s.orchestrate(policy(t, webPolicy), 0)
	s.open("INC-1")
	for len(s.ran()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	_, err := ticketclient.NewSender(s.c, "desk", tickettest.Key("desk")).Send(t.Context(), ticket.Draft{
		Header: ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-INC-1", To: ticket.RoleOrchestrator},
		Payload: &ticketclient.Open{
			Op: "cancel", SourceRef: "desk:INC-1", Title: "The web is slow", BodyRef: "desk:1", Requester: "u1", Priority: 2,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	close(s.hold)
	states, _ := s.path("INC-1")
	if !slices.Equal(states, []string{"APPROVED", "PARTIAL", "ROLLING_BACK", "ROLLED_BACK", "CLOSED"}) || !slices.Equal(s.ran(), []string{"net/apply/1", "net/rollback/1"}) {
		t.Errorf("the ticket went through %v, and what was done is %v", states, s.ran())
	}
}

// TestGateApprovesOnlyWhatIsShown: not what has expired, and not a plan that somebody
// on the way has altered, whatever hash is said of it.
func TestGateApprovesOnlyWhatIsShown(t *testing.T) {
	s := newStage(t, "")
	s.orchestrate(policy(t, webPolicy), 0)
	s.open("INC-1")
	gate := ticketclient.NewGate(s.c, "alice", tickettest.Key("alice"))
	w := tickettest.Wait(t.Context(), t, gate)
	if _, err := gate.Approve(t.Context(), w, "", w.Expires); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("what has expired: %v", err)
	}
	broker, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(broker)
	proxy.ModifyResponse = func(res *http.Response) error {
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
			return nil // a stream has no end
		}
		body, err := io.ReadAll(res.Body)
		res.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte("fw/1"), []byte("fw/2"))))
		return err
	}
	between := httptest.NewServer(proxy)
	defer between.Close()
	c, err := client.New(between.URL)
	if err != nil {
		t.Fatal(err)
	}
	gate = ticketclient.NewGate(c, "alice", tickettest.Key("alice"))
	w = tickettest.Wait(t.Context(), t, gate)
	if w.Fault == nil {
		t.Fatal("an altered plan is shown as if it were the one that was asked about")
	}
	if _, err := gate.Approve(t.Context(), w, "", time.Now()); err == nil {
		t.Error("an altered plan is approved")
	}
}
