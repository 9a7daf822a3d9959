// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	"signalbox/event"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// approve brings a ticket of tier 1 to where it may be executed, and has it executed.
func (s *space) approve(id string) (execute ticket.Header, payload *ticketclient.Execute) {
	s.t.Helper()
	return s.approveWith(id, func(*ticketclient.Execute) {})
}

// approveWith is approve with an execute that is changed before it is signed.
func (s *space) approveWith(id string, change func(*ticketclient.Execute)) (execute ticket.Header, payload *ticketclient.Execute) {
	s.t.Helper()
	open := s.open(id)
	s.ask(open, "network")
	p := s.saidOf(id, "net", ticket.TypeProposal)
	proposal := p.Payload.(*ticketclient.Proposal)
	plan := ticket.Plan{TicketID: id, PlanID: "p1", Revision: 1, Tier: 1, PolicyVersion: "1.0.0", Slices: []ticket.PlanSlice{{ID: "s1", Hash: proposal.SliceHash}}}
	hash, err := plan.Hash()
	if err != nil {
		s.t.Fatal(err)
	}
	now := p.Time.UTC()
	planned := s.send("orch", ticketclient.Answer(&p.Header, ticket.TypePlan, "network", "", &ticketclient.Plan{
		PlanID: "p1", Revision: 1, PlanHash: hash, PolicyVersion: "1.0.0", Slices: plan.Slices, Tier: 1, TierReason: "a small change", Slice: proposal.Freeze(),
		Window: ticketclient.Window{Start: now, End: now.AddDate(0, 0, 1)},
	}))
	tier := 1
	s.send("orch", ticketclient.Answer(&p.Header, ticket.TypeState, "intake", "", &ticketclient.State{From: "PLANNED", To: "APPROVED", ReasonCode: "tier_low", Cause: []string{planned}, Tier: &tier}))
	payload = &ticketclient.Execute{
		PlanID: "p1", PlanHash: hash, SliceID: "s1", Mode: ticketclient.ModeApply, Steps: proposal.Freeze().Steps,
		LeaseID: "l1", LeaseScope: ticketclient.LeaseScope{Plan: "p1", Target: "fw/1"},
	}
	change(payload)
	execute = p.Header
	execute.ID = s.send("orch", ticketclient.Answer(&p.Header, ticket.TypeExecute, "network", "do-"+id, payload))
	return execute, payload
}

// TestAgentAnswersForItself: ids, hash, cause and trace of what an agent says are
// filled in, so that the broker takes it, and its heartbeats come.
func TestAgentAnswersForItself(t *testing.T) {
	s := newSpace(t)
	s.work(t.TempDir(), nil)
	execute, _ := s.approve("INC-1")
	result := s.said("net", ticket.TypeResult, 1)
	r := result.Payload.(*ticketclient.Result)
	if result.CausationID != execute.ID || r.Outcome != ticketclient.OutcomeSuccess || len(r.Steps) != 1 || r.Steps[0].Status != "done" || r.Steps[0].EvidenceRef != "log:1" || !slices.Equal(r.Changed, []string{"fw/1"}) {
		t.Errorf("the result is %+v, which answers %s", r, result.CausationID)
	}
	before := s.said("net", ticket.TypeHeartbeat, 1).Payload.(*ticketclient.Heartbeat)
	beat := s.said("net", ticket.TypeHeartbeat, 2).Payload.(*ticketclient.Heartbeat)
	if beat.Seq <= before.Seq || !slices.Equal(beat.Domains, []string{"network"}) { // one that takes too long is not sent again
		t.Errorf("heartbeats are %+v and %+v", before, beat)
	}
	if reads, err := ticket.ParseRange(beat.Accepts); err != nil || !reads.Reads(ticket.SchemaVersion()) {
		t.Errorf("it says that it reads %q, and not what it says itself, %s: %v", beat.Accepts, ticket.SchemaVersion(), err)
	}
}

// TestAgentActsOnce: an agent that dies in the middle is told so when it begins again,
// and one that has answered does not act again, though the request comes once more.
func TestAgentActsOnce(t *testing.T) {
	s, dir := newSpace(t), t.TempDir()
	var acts, uncertain atomic.Int32
	began := make(chan struct{})
	dying := s.work(dir, func(o *ticketclient.AgentOptions) {
		o.Execute = func(ctx context.Context, x *ticketclient.Execution) (*ticketclient.Report, error) {
			acts.Add(1)
			close(began)
			<-ctx.Done() // it dies while it acts
			return nil, ctx.Err()
		}
	})
	execute, payload := s.approve("INC-1")
	<-began
	dying.stop()

	again := func(o *ticketclient.AgentOptions) {
		o.Execute = func(_ context.Context, x *ticketclient.Execution) (*ticketclient.Report, error) {
			if x.Uncertain {
				uncertain.Add(1)
			}
			acts.Add(1)
			return &ticketclient.Report{Outcome: ticketclient.OutcomeSuccess, Verification: ticketclient.Verification{Passed: true}}, nil
		}
	}
	s.work(dir, again).stopAfter(func() { s.said("net", ticket.TypeResult, 1) })
	if acts.Load() != 2 || uncertain.Load() != 1 {
		t.Errorf("it acted %d times, of which it was told of an earlier attempt %d times", acts.Load(), uncertain.Load())
	}

	// The same request under another id has the stored result, and never comes.
	m, err := ticketclient.NewSender(s.c, "orch", tickettest.Key("orch")).Sign(ticketclient.Answer(&ticket.Header{
		ID: execute.CausationID, TicketID: execute.TicketID, TraceID: execute.TraceID,
	}, ticket.TypeExecute, "network", "do-INC-1", payload))
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := s.c.PostMessage(t.Context(), m.Bytes())
	if err != nil || receipt.First != execute.ID || receipt.Result == nil {
		t.Fatalf("a repeated execute: %+v, %v", receipt, err)
	}
	s.work(dir, again).stopAfter(func() { s.said("net", ticket.TypeHeartbeat, 3) })
	if acts.Load() != 2 {
		t.Errorf("it acted %d times", acts.Load())
	}
}

// token leaves word that something has happened, however often it does.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *agent) stopAfter(what func()) { what(); a.stop() }

// TestAgentRefuses: what an agent will not do is said, and not left to a deadline.
func TestAgentRefuses(t *testing.T) {
	s := newSpace(t)
	s.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		o.Plan = func(_ context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			return nil, &ticketclient.RefuseError{Code: "target_unknown", Reason: "There is no " + r.Targets[0] + "."}
		}
	})
	asked := s.ask(s.open("INC-1"), "network")
	m := s.said("net", ticket.TypeEscalation, 1)
	if e := m.Payload.(*ticketclient.Escalation); m.CausationID != asked.ID || e.ReasonCode != "target_unknown" || !slices.Equal(e.Asks, []string{"There is no fw/1."}) {
		t.Errorf("the escalation is %+v", e)
	}
}

// TestStepsStopAtTheFirstThatFails, and say how far they came, in the words of each
// mode.
func TestStepsStopAtTheFirstThatFails(t *testing.T) {
	x := &ticketclient.Execution{Execute: ticketclient.Execute{Steps: []ticketclient.Step{{N: 1, Target: "a"}, {N: 2, Target: "b"}, {N: 3, Target: "a"}}}, ID: "m"}
	for _, c := range []struct {
		mode    string
		fails   int
		outcome string
		steps   int
		changed int
	}{
		{ticketclient.ModeApply, 0, ticketclient.OutcomeSuccess, 3, 2}, {ticketclient.ModeApply, 2, ticketclient.OutcomePartial, 2, 1},
		{ticketclient.ModeApply, 1, ticketclient.OutcomeFailed, 1, 0}, {ticketclient.ModeRollback, 0, ticketclient.OutcomeRolledBack, 3, 2},
		{ticketclient.ModeRollback, 3, ticketclient.OutcomeRollbackFailed, 3, 2}, {ticketclient.ModeVerify, 0, ticketclient.OutcomeSuccess, 3, 0},
		{ticketclient.ModeVerify, 2, ticketclient.OutcomeFailed, 2, 0},
	} {
		x.Mode = c.mode
		r, err := ticketclient.Steps(func(_ context.Context, _ *ticketclient.Execution, s ticketclient.Step, name string) (string, error) {
			if s.N == c.fails {
				return "", errors.New("no")
			}
			return "e:" + name, nil
		})(t.Context(), x)
		if err != nil || r.Outcome != c.outcome || len(r.Steps) != c.steps || len(r.Changed) != c.changed || r.Verification.Passed != (c.fails == 0) {
			t.Errorf("%s with a failure at %d: %+v, %v", c.mode, c.fails, r, err)
		}
	}
}

// TestAgentDoesNothingThatIsNotDelivered: an execute whose acknowledgement does not
// arrive is dead for everybody else, and so for the agent; one whose acknowledgement
// has arrived is carried out, though nobody has told the agent so.
func TestAgentDoesNothingThatIsNotDelivered(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrives bool
		within  time.Duration
		says    string
	}{{"it is lost", false, 5 * time.Second, ticket.TypeEscalation}, {"its answer is lost", true, time.Minute, ticket.TypeResult}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			broker, err := url.Parse(s.url)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(broker)
			var executed atomic.Bool
			between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !executed.Load() || !strings.HasSuffix(r.URL.Path, "/ack") {
					proxy.ServeHTTP(w, r)
					return
				}
				if c.arrives {
					proxy.ServeHTTP(httptest.NewRecorder(), r)
				}
				w.WriteHeader(http.StatusBadGateway)
			}))
			defer between.Close()
			lossy, err := client.New(between.URL)
			if err != nil {
				t.Fatal(err)
			}
			var acts atomic.Int32
			dropped := make(chan struct{}, 1)
			a := (&space{t: t, c: lossy, url: s.url}).work(t.TempDir(), func(o *ticketclient.AgentOptions) {
				o.Execute = func(context.Context, *ticketclient.Execution) (*ticketclient.Report, error) {
					acts.Add(1)
					return &ticketclient.Report{Outcome: ticketclient.OutcomeSuccess, Verification: ticketclient.Verification{Passed: true}}, nil
				}
				o.OnError = func(err error) {
					if strings.Contains(err.Error(), "is not carried out") {
						token(dropped)
					}
				}
			})
			s.approveWith("INC-1", func(x *ticketclient.Execute) {
				executed.Store(true)
				x.DeliverBy = time.Now().Add(c.within).UTC()
			})
			from := map[string]string{ticket.TypeEscalation: ticket.RoleBus, ticket.TypeResult: "net"}[c.says]
			s.saidOf("INC-1", from, c.says)
			if !c.arrives {
				select {
				case <-dropped:
				case <-time.After(tickettest.Patience):
					t.Error("the agent has not given it up")
				}
			}
			a.stop()
			if got := acts.Load() == 1; got != c.arrives || acts.Load() > 1 {
				t.Errorf("it has acted %d times", acts.Load())
			}
		})
	}
}

// TestOneOfSeveralAgentsOfADomainActs: all of them are handed the execute, and the one
// carries it out whose proposal it is.
func TestOneOfSeveralAgentsOfADomainActs(t *testing.T) {
	s := newSpaceOf(t, append(tickettest.Staff(), ticket.Change{Op: ticket.ChangeAdd, Agent: "net2", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"}}))
	var acts, others atomic.Int32
	counting := func(n *atomic.Int32, name string) func(o *ticketclient.AgentOptions) {
		return func(o *ticketclient.AgentOptions) {
			o.Name, o.Key = name, tickettest.Key(name)
			o.Execute = func(context.Context, *ticketclient.Execution) (*ticketclient.Report, error) {
				n.Add(1)
				return &ticketclient.Report{Outcome: ticketclient.OutcomeSuccess, Verification: ticketclient.Verification{Passed: true}}, nil
			}
			if name == "net2" {
				o.Plan = func(ctx context.Context, _ *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
					<-ctx.Done() // it is slow, and the other one has proposed long since
					return nil, ctx.Err()
				}
			}
		}
	}
	over := make(chan struct{}, 1)
	s.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		counting(&others, "net2")(o)
		o.OnError = func(err error) {
			if strings.Contains(err.Error(), "another agent") {
				token(over)
			}
		}
	})
	s.work(t.TempDir(), counting(&acts, "net"))
	s.approve("INC-1")
	s.saidOf("INC-1", "net", ticket.TypeResult)
	select {
	case <-over:
	case <-time.After(tickettest.Patience):
		t.Error("the other agent has not looked at the execute")
	}
	if acts.Load() != 1 || others.Load() != 0 {
		t.Errorf("the one acted %d times, and the other %d times", acts.Load(), others.Load())
	}
}

// TestRefusedAnswerIsEscalated: what the broker does not take of an agent's own words is
// told to whoever asked, before the deadline would tell that there was no answer.
func TestRefusedAnswerIsEscalated(t *testing.T) {
	s := newSpace(t)
	s.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		o.Plan = func(ctx context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			p, err := proposed(ctx, r)
			if r.Objective == "Something free" {
				p.Steps[0].Verb = "do.something"
			}
			return p, err
		}
		o.Execute = func(context.Context, *ticketclient.Execution) (*ticketclient.Report, error) {
			return &ticketclient.Report{Outcome: "splendid"}, nil
		}
	})
	asked := s.open("INC-1")
	asked.ID = s.send("orch", ticketclient.Answer(&asked, ticket.TypePlanRequest, "network", "", &ticketclient.PlanRequest{
		SliceID: "s1", Revision: 1, Objective: "Something free", Targets: []string{"fw/1"},
	}))
	executed, _ := s.approve("INC-2")
	for of, c := range map[string]struct{ cause, says string }{"INC-1": {asked.ID, "verb_unknown"}, "INC-2": {executed.ID, "payload_invalid"}} {
		m := s.saidOf(of, "net", ticket.TypeEscalation)
		if e := m.Payload.(*ticketclient.Escalation); m.CausationID != c.cause || e.ReasonCode != "answer_refused" || !strings.Contains(e.Asks[0], c.says) {
			t.Errorf("of %s it says %+v to %s", of, e, m.CausationID)
		}
	}
}

// TestReportThatContradictsItselfArrives: what was done is known to others, and how the
// report was wrong.
func TestReportThatContradictsItselfArrives(t *testing.T) {
	s := newSpace(t)
	s.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		o.Execute = func(context.Context, *ticketclient.Execution) (*ticketclient.Report, error) {
			return &ticketclient.Report{
				Outcome: ticketclient.OutcomeSuccess, Steps: []ticketclient.StepStatus{{N: 1, Status: "failed"}}, Verification: ticketclient.Verification{Passed: true},
			}, nil
		}
	})
	executed, _ := s.approve("INC-1")
	r := s.saidOf("INC-1", "net", ticket.TypeResult).Payload.(*ticketclient.Result)
	if r.ExecuteID != executed.ID || r.Outcome != ticketclient.OutcomeFailed || r.Verification.Passed || len(r.Verification.Checks) != 1 || !strings.Contains(r.Verification.Checks[0], "contradicts itself") {
		t.Errorf("its result is %+v", r)
	}
}

// TestProposalThatLacksSomethingIsNotSent: it is asked for again, and whoever wrote the
// agent is told what it lacks in their own words.
func TestProposalThatLacksSomethingIsNotSent(t *testing.T) {
	s := newSpace(t)
	told := make(chan string, 100)
	calls := 0
	s.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		o.Plan = func(ctx context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			p, err := proposed(ctx, r)
			if calls++; calls == 1 {
				p.Risk.DataClass = ""
			}
			return p, err
		}
		o.OnError = func(err error) { told <- err.Error() }
	})
	asked := s.ask(s.open("INC-1"), "network")
	if m := s.saidOf("INC-1", "net", ticket.TypeProposal); m.CausationID != asked.ID {
		t.Errorf("the proposal answers %s", m.CausationID)
	}
	for deadline := time.After(tickettest.Patience); ; {
		select {
		case text := <-told:
			if !strings.Contains(text, "has no Risk.DataClass") {
				continue // a heartbeat took too long
			}
		case <-deadline:
			t.Error("it is not told what the proposal lacks")
		}
		break
	}
}

// TestPlanThatFailsIsEscalated: with its error, once it has failed as often as it is asked
// for, and not left to the deadline as a dead letter that nobody looks at.
func TestPlanThatFailsIsEscalated(t *testing.T) {
	s, dir := newSpace(t), t.TempDir()
	s.work(dir, nil).stopAfter(func() { s.said("net", ticket.TypeHeartbeat, 1) })
	net := s.c.With(client.WithToken(ticketclient.Tokens(s.c, "net", tickettest.Key("net"))))
	all, err := net.Subscriptions(t.Context())
	if err != nil || len(all) != 1 || all[0].Config.MaxAttempts != 8 {
		t.Fatalf("the agent has the subscriptions %+v, %v", all, err)
	}
	document := all[0].Subscription
	document.Config.MaxAttempts = 2 // eight take two minutes
	if _, err := net.PutSubscription(t.Context(), document.ID, document); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	s.work(dir, func(o *ticketclient.AgentOptions) {
		o.Plan = func(context.Context, *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			if calls.Add(1) == 1 {
				return nil, nil // which is wrong, and must not end the agent
			}
			return nil, errors.New("the inventory is away")
		}
	})
	asked := s.ask(s.open("INC-1"), "network")
	m := s.saidOf("INC-1", "net", ticket.TypeEscalation)
	if e := m.Payload.(*ticketclient.Escalation); m.CausationID != asked.ID || e.ReasonCode != "plan_failed" || !strings.Contains(e.Asks[0], "the inventory is away") || calls.Load() != 2 {
		t.Errorf("after %d calls it says %+v", calls.Load(), e)
	}
}

// TestRotatedAgentSaysWhatItHadSaid: what an agent has answered and could not send before its
// key was replaced is signed with the key that it has now. What had arrived all the same is
// not said twice.
func TestRotatedAgentSaysWhatItHadSaid(t *testing.T) {
	for name, arrives := range map[string]bool{"it had not arrived": false, "it had arrived": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := newSpace(t), t.TempDir()
			lost := make(chan struct{}, 1000)
			between := s.through(t, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
					return false
				}
				body, err := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if m, parsed := ticket.Parse(body); err != nil || parsed != nil || m.Header().Type != ticket.TypeResult {
					return false
				}
				if arrives {
					if _, err := s.c.PostMessage(r.Context(), body); err != nil {
						t.Error(err)
					}
				}
				refuse(w, event.CodeInternal)
				lost <- struct{}{}
				return true
			})
			agent := between.work(dir, nil)
			s.approve("INC-1")
			comes(t, lost)
			agent.stop()

			registry, err := s.c.Space(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			another := tickettest.Key("net, once more")
			signed, err := ticket.Change{
				Space: registry.Space, Revision: registry.Revision + 1, At: time.Now().UTC(), Op: ticket.ChangeRotate, Agent: "net", Key: ticket.EncodeKey(tickettest.Public(another)),
			}.Sign(tickettest.Key("admin"))
			if err == nil {
				_, err = s.c.ChangeAgents(t.Context(), signed.Bytes())
			}
			if err != nil {
				t.Fatal(err)
			}
			s.work(dir, func(o *ticketclient.AgentOptions) {
				o.Key = another
				o.Execute = func(context.Context, *ticketclient.Execution) (*ticketclient.Report, error) {
					return nil, &ticketclient.RefuseError{Code: "no", Reason: "Enough."}
				}
			})
			signer := another
			if arrives {
				signer = tickettest.Key("net")
			}
			result := s.saidOf("INC-1", "net", ticket.TypeResult)
			if err := result.Envelope.Verify(tickettest.Public(signer)); err != nil || result.Payload.(*ticketclient.Result).Outcome != ticketclient.OutcomeSuccess {
				t.Errorf("its result is %+v: %v", result.Payload, err)
			}
			s.approve("INC-2") // and it goes on with its work
			s.saidOf("INC-2", "net", ticket.TypeResult)
		})
	}
}
