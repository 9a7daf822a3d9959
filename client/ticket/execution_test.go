// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/ticket"
)

// alone is an agent with room for two executes that nobody has asked for anything, and no
// broker: what is asked there is never answered.
func alone(t *testing.T, act func(context.Context, *Execution) (*Report, error)) *Agent {
	t.Helper()
	store, err := client.OpenLedgerFile(t.TempDir() + "/net.book")
	if err != nil {
		t.Fatal(err)
	}
	mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(mute.Close)
	c, err := client.New(mute.URL, client.WithRetry(client.Retry{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	a, err := OpenAgent(t.Context(), c, AgentOptions{
		Name: "net", Key: ed25519.NewKeyFromSeed(make([]byte, 32)), Store: store, Execute: act, Concurrency: 2,
		Plan: func(context.Context, *PlanRequest) (*Proposal, error) { return nil, errors.New("no") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.running.Wait(); _ = store.Close() })
	return a
}

// executeBy is an execute that is to be delivered and completed so long from now.
func executeBy(t *testing.T, deliver, complete time.Duration) *Message {
	t.Helper()
	signed, err := ticket.Draft{
		Header: ticket.Header{Type: ticket.TypeExecute, TicketID: "INC-1", TraceID: "t", From: "orch", To: "network"},
		Payload: &Execute{
			PlanID: "p1", SliceID: "s1", Mode: ModeApply, Steps: []Step{{N: 1, Verb: "acl.block", Target: "fw/1"}, {N: 2, Verb: "acl.block", Target: "fw/2"}},
			DeliverBy: time.Now().Add(deliver).UTC(), CompleteBy: time.Now().Add(complete).UTC(),
		},
	}.Sign(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeMessage(signed.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAgentTakesAnExecuteOnOnce: one that waits for room comes again when its hand-out
// has ended, and both find room at last.
func TestAgentTakesAnExecuteOnOnce(t *testing.T) {
	a := alone(t, func(context.Context, *Execution) (*Report, error) { return &Report{Outcome: OutcomeSuccess}, nil })
	m := executeBy(t, time.Hour, time.Hour)
	life, stop := context.WithCancel(t.Context())
	fill(a)
	var handed sync.WaitGroup
	for range 2 {
		handed.Go(func() {
			if err := a.begin(t.Context(), life, m, "t"); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // for both to wait, if they come to it
	<-a.slots
	<-a.slots
	handed.Wait()
	if n := len(a.slots); n != 1 { // it waits until it is delivered, which there is nobody to say
		t.Errorf("it was taken on %d times", n)
	}
	stop()
}

// TestAgentTakesNothingOnAfterDeliverBy: what has waited for room until its slice was
// dead for everybody else is not carried out.
func TestAgentTakesNothingOnAfterDeliverBy(t *testing.T) {
	a := alone(t, func(context.Context, *Execution) (*Report, error) {
		t.Error("it acted")
		return &Report{Outcome: OutcomeSuccess}, nil
	})
	life, stop := context.WithCancel(t.Context())
	defer stop()
	if err := a.begin(t.Context(), life, executeBy(t, -time.Second, time.Hour), "t"); err == nil {
		t.Error("it was taken on although there is room")
	}
	fill(a)
	if err := a.begin(t.Context(), life, executeBy(t, 10*time.Millisecond, time.Hour), "t"); err == nil {
		t.Error("it was taken on although there is none")
	}
}

// fill takes all the room that an agent has.
func fill(a *Agent) {
	for range cap(a.slots) {
		a.slots <- struct{}{}
	}
}

// TestAgentBeginsNothingAfterCompleteBy: an execute that is found again after its time
// is escalated, and not carried out late.
func TestAgentBeginsNothingAfterCompleteBy(t *testing.T) {
	a := alone(t, func(context.Context, *Execution) (*Report, error) {
		t.Error("it acted")
		return &Report{Outcome: OutcomeSuccess}, nil
	})
	draft, err := a.carryOut(t.Context(), executeBy(t, -time.Hour, -time.Second), true)
	if err != nil || draft.Type != ticket.TypeEscalation || draft.Payload.(*Escalation).ReasonCode != "complete_by_missed" {
		t.Errorf("what it says is %+v, %v", draft, err)
	}
}

// TestResultAccountsForEveryStep: what a report does not name was not started, but where
// it names nothing and says that all was done. One that contradicts itself is sent with the
// outcome that its steps have, and says so: the broker would refuse it as it is.
func TestResultAccountsForEveryStep(t *testing.T) {
	m := executeBy(t, time.Hour, time.Hour)
	step := func(n int, status string) StepStatus { return StepStatus{N: n, Status: status} }
	for _, c := range []struct {
		name, mode, outcome string
		steps               []StepStatus
		want, says          string
		contradicts         string // what the check says that is added
	}{
		{"all", ModeApply, OutcomeSuccess, nil, "done done", OutcomeSuccess, ""},
		{"all is verified", ModeVerify, OutcomeSuccess, nil, "done done", OutcomeSuccess, ""},
		{"all is undone", ModeRollback, OutcomeRolledBack, nil, "undone undone", OutcomeRolledBack, ""},
		{"nothing", ModeApply, OutcomeFailed, nil, "not_started not_started", OutcomeFailed, ""},
		{"undone at once", ModeApply, OutcomeRolledBack, nil, "not_started not_started", OutcomeRolledBack, ""},
		{"a part", ModeApply, OutcomePartial, []StepStatus{step(1, "done")}, "done not_started", OutcomePartial, ""},
		{"a step is skipped", ModeApply, OutcomeSuccess, []StepStatus{step(2, "skipped"), step(1, "done")}, "done skipped", OutcomeSuccess, ""},
		{"a step is not named", ModeApply, OutcomeSuccess, []StepStatus{step(1, "done")}, "done not_started", OutcomePartial, "its outcome is success, and step 2 is not_started"},
		{"a step has failed", ModeApply, OutcomeSuccess, []StepStatus{step(1, "done"), step(2, "failed")}, "done failed", OutcomePartial, "its outcome is success, and step 2 is failed"},
		{"the first step has failed", ModeApply, OutcomeSuccess, []StepStatus{step(1, "failed")}, "failed not_started", OutcomeFailed, "its outcome is success, and step 1 is failed"},
		{"they are numbered otherwise", ModeApply, OutcomeSuccess, []StepStatus{step(3, "done")}, "not_started not_started", OutcomePartial, "its outcome is success, and step 1 is not_started"},
		{"a verification has failed", ModeVerify, OutcomeSuccess, []StepStatus{step(1, "done"), step(2, "failed")}, "done failed", OutcomeFailed, "its verification has passed, and step 2 is failed"},
		{"a rollback has failed", ModeRollback, OutcomeRolledBack, []StepStatus{step(1, "undone")}, "undone not_started", OutcomeRollbackFailed, "its outcome is rolled_back, and step 2 is not_started"},
		{"a rollback has succeeded in part", ModeRollback, OutcomeSuccess, []StepStatus{step(2, "undone")}, "not_started undone", OutcomeRollbackFailed, "its outcome is success, and step 1 is not_started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := alone(t, nil)
			var told error
			a.o.OnError = func(err error) { told = err }
			x := &Execution{Execute: *m.Payload.(*Execute)}
			x.Mode = c.mode
			checks := slices.Repeat([]string{"it was looked at"}, checksMax)
			r := a.result(m, x, &Report{Outcome: c.outcome, Steps: c.steps, Verification: Verification{Passed: true, Checks: checks}}, time.Now()).Payload.(*Result)
			if len(r.Steps) != 2 || r.Steps[0].Status+" "+r.Steps[1].Status != c.want || r.Steps[0].EvidenceRef != "none" || r.Outcome != c.says {
				t.Errorf("it says %s, and of the steps %+v", r.Outcome, r.Steps)
			}
			added := ""
			if r.Verification.Checks[0] != checks[0] {
				added = strings.TrimPrefix(r.Verification.Checks[0], "the report contradicts itself: ")
			}
			if added != c.contradicts || r.Verification.Passed != (c.contradicts == "") || (told != nil) != (c.contradicts != "") || len(r.Verification.Checks) != checksMax {
				t.Errorf("its verification has passed (%v) and says %q first, and what is told is %v", r.Verification.Passed, r.Verification.Checks[0], told)
			}
		})
	}
}

// TestVerificationThatFindsAFault is sent as it is: the agent has done what it was to do.
func TestVerificationThatFindsAFault(t *testing.T) {
	m := executeBy(t, time.Hour, time.Hour)
	x := &Execution{Execute: *m.Payload.(*Execute)}
	x.Mode = ModeVerify
	r := alone(t, nil).result(m, x, &Report{Outcome: OutcomeSuccess, Steps: []StepStatus{{N: 1, Status: "failed"}}}, time.Now()).Payload.(*Result)
	if r.Outcome != OutcomeSuccess || r.Verification.Passed || len(r.Verification.Checks) > 0 {
		t.Errorf("its result is %+v", r)
	}
}

// TestStepsStopWhenTheTimeIsOver: a step that takes too long is the last one, even if it
// does not look at the time itself; what is done by then is reported.
func TestStepsStopWhenTheTimeIsOver(t *testing.T) {
	x := &Execution{Execute: *executeBy(t, time.Hour, time.Hour).Payload.(*Execute), ID: "m"}
	for _, c := range []struct {
		cause error
		end   func(context.Context) (context.Context, context.CancelFunc)
	}{
		{nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		}},
		{context.Canceled, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, stop := context.WithCancel(ctx)
			go stop()
			return ctx, stop
		}},
	} {
		ctx, stop := c.end(t.Context())
		did := 0
		r, err := Steps(func(ctx context.Context, _ *Execution, _ Step, _ string) (string, error) {
			did++
			<-ctx.Done()
			return "log:1", nil
		})(ctx, x)
		stop()
		if did != 1 || !errors.Is(err, c.cause) {
			t.Errorf("%d steps were done, and the error is %v", did, err)
		}
		if c.cause == nil && (r.Outcome != OutcomePartial || r.Verification.Passed || len(r.Steps) != 1) {
			t.Errorf("the report is %+v", r)
		}
	}
}

// TestWholeNumbersAreReadInAnySpelling: 7.0 is a whole number of JSON.
func TestWholeNumbersAreReadInAnySpelling(t *testing.T) {
	signed, err := ticket.Draft{
		Header:  ticket.Header{Type: ticket.TypeHeartbeat, TicketID: ticket.None, TraceID: "t", From: "net", To: "platform-ops"},
		Payload: &Heartbeat{Agent: "net", Seq: 7},
	}.Sign(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeMessage(bytes.Replace(signed.Bytes(), []byte(`"seq":7`), []byte(`"seq":7.0`), 1))
	if err != nil || m.Payload.(*Heartbeat).Seq != 7 {
		t.Errorf("the message is read as %+v, %v", m, err)
	}
}
