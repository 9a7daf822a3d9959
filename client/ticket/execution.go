// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"signalbox/ticket"
)

// Execution is an execute that an agent is carrying out.
type Execution struct {
	Execute
	// ID names the work. Whatever the agent acts on is to be given it, or a part of it,
	// as idempotency key.
	ID     string
	Ticket string
	// Uncertain says that an earlier life of the agent began this and did not come to
	// an end: some of it may be done.
	Uncertain bool

	beats *beats
}

// Progress is what the next heartbeats say: how much is done, from 0 to 1.
func (x *Execution) Progress(done float64, note string) {
	if x.beats != nil {
		x.beats.progress(x.ID, done, note)
	}
}

// Report is what became of an execution. Steps that it does not name were not
// started; where it names none, and its outcome is that all was done, all are done. One
// that says that all was done, or that a [ModeVerify] has passed, while a step has failed or
// was not started, contradicts
// itself, and the broker would refuse it with all that it says. The agent sends it with the
// outcome that its steps have: [OutcomePartial] where one was applied, else [OutcomeFailed],
// and [OutcomeRollbackFailed] of a rollback. The verification then has not passed, and says
// why, as [AgentOptions].OnError does.
type Report struct {
	Outcome      string // see OutcomeSuccess
	Steps        []StepStatus
	Verification Verification
	Changed      []string // targets
}

// Steps makes a function for [AgentOptions] that goes step by step and stops at the
// first that fails, or is not begun by complete_by: the outcome then says how far it
// came. Do is given one step and
// a name for it, under which it is to have its effect at most once, and returns a
// reference to evidence.
func Steps(do func(ctx context.Context, x *Execution, s Step, name string) (evidence string, err error)) func(context.Context, *Execution) (*Report, error) {
	return func(ctx context.Context, x *Execution) (*Report, error) {
		r := &Report{Verification: Verification{Passed: true}}
		done := 0
		for i, s := range x.Steps {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				r.Verification = Verification{Checks: []string{fmt.Sprintf("step %d: it was not begun, for the time was over", s.N)}}
				break
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			evidence, err := do(ctx, x, s, fmt.Sprintf("%s/%d", x.ID, s.N))
			if ctx.Err() != nil && err != nil {
				return nil, err // it was stopped, and knows not whether the step is done
			}
			status := StepStatus{N: s.N, Status: doneStatus(x.Mode), EvidenceRef: orNone(evidence)}
			if err != nil {
				status.Status, status.EvidenceRef = "failed", orNone(shortened(err.Error()))
				r.Steps = append(r.Steps, status)
				r.Verification = Verification{Checks: []string{shortened(fmt.Sprintf("step %d: %v", s.N, err))}}
				break
			}
			done++
			r.Steps = append(r.Steps, status)
			if x.Mode != ModeVerify {
				r.Changed = addTarget(r.Changed, s.Target)
			}
			x.Progress(float64(i+1)/float64(len(x.Steps)), "")
		}
		r.Outcome = outcomeOf(x.Mode, done > 0, done == len(x.Steps))
		return r, nil
	}
}

func doneStatus(mode string) string {
	if mode == ModeRollback {
		return "undone"
	}
	return "done"
}

// outcomeOf is the outcome of an execution of whose steps some are done, or all.
func outcomeOf(mode string, some, all bool) string {
	switch {
	case mode == ModeRollback && all:
		return OutcomeRolledBack
	case mode == ModeRollback:
		return OutcomeRollbackFailed
	case all:
		return OutcomeSuccess
	case !some || mode == ModeVerify:
		return OutcomeFailed
	}
	return OutcomePartial
}

func orNone(ref string) string {
	if ref == "" {
		return "none"
	}
	return ref
}

// shortened keeps the text of an error within what a payload may have of it.
func shortened(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most]
	}
	return string([]rune(text)) // no half of a character at the end
}

func addTarget(list []string, target string) []string {
	for _, t := range list {
		if t == target {
			return list
		}
	}
	return append(list, target)
}

// begin takes an execute on, unless that was done, and has it carried out. The work
// goes on when ctx, that of the hand-out, has ended, for as long as the agent lives.
func (a *Agent) begin(ctx, life context.Context, m *Message, token string) error {
	if job := a.book.job(m.ID); job != nil {
		return nil // it runs, or is to be sent, or was
	}
	due, err := m.Due(0)
	if err != nil {
		return err
	}
	waiting, stop := context.WithDeadlineCause(ctx, due, errUndelivered)
	defer stop()
	select {
	case a.slots <- struct{}{}:
	case <-waiting.Done():
		return context.Cause(waiting)
	}
	if waiting.Err() != nil {
		<-a.slots
		return context.Cause(waiting)
	}
	job, err := a.book.taken(context.WithoutCancel(ctx), m.Envelope, token)
	if job == nil { // it was taken on while this waited, or is not stored
		<-a.slots
		return err
	}
	if err != nil {
		a.o.OnError(err)
	}
	a.running.Go(func() { a.pursue(life, job, m, &room{slots: a.slots, held: true}) })
	return nil
}

// errUndelivered is why an execute is not taken on that has waited for too long: from
// its deliver_by on the slice is dead for everybody else.
var errUndelivered = errors.New("ticketclient: deliver_by has passed before the agent had room for the execute")

// room is the slot of one execute. It has one while it is carried out, and until the
// broker was asked whether it is; whatever the broker does not answer or take keeps no
// other execute waiting.
type room struct {
	slots chan struct{}
	held  bool
}

func (r *room) enter(ctx context.Context) bool {
	if !r.held {
		select {
		case r.slots <- struct{}{}:
			r.held = true
		case <-ctx.Done():
		}
	}
	return r.held
}

func (r *room) leave() {
	if r.held {
		<-r.slots
		r.held = false
	}
}

// resume takes up what earlier lives of the agent have left. What they have stored and
// perhaps not acknowledged is acknowledged by the hand-out that they had.
func (a *Agent) resume(ctx context.Context) error {
	for _, j := range a.book.open() {
		if j.answer != nil {
			a.running.Go(func() { a.sendAtLast(ctx, j) })
			continue
		}
		m, err := DecodeMessage(j.request.Bytes())
		if err != nil {
			return err
		}
		a.running.Go(func() {
			if !j.started {
				a.acknowledge(ctx, j)
			}
			a.pursue(ctx, j, m, &room{slots: a.slots})
		})
	}
	return nil
}

// pursue carries out an execute, once it is delivered and there is room, and says what
// became of it.
func (a *Agent) pursue(ctx context.Context, j *job, m *Message, r *room) {
	defer r.leave()
	if !j.started && !a.toBegin(ctx, m, r) || !r.enter(ctx) {
		return
	}
	defer a.beats.ended(m.ID)
	a.beats.progress(m.ID, 0, "")
	d, err := a.carryOut(ctx, m, j.started)
	if err != nil {
		return // the agent ends, and the next Run takes it up
	}
	signed, err := a.sender.Sign(d)
	if err == nil {
		j, err = a.book.said(context.WithoutCancel(ctx), m.ID, signed)
	}
	if err != nil {
		a.o.OnError(fmt.Errorf("the result of %s cannot be kept: %w", m.ID, err))
		return
	}
	a.beats.ended(m.ID)
	r.leave()
	a.sendAtLast(ctx, j)
}

// carryOut calls the function of a mode until it has ended, and says so; or until
// the time is over, and says that.
func (a *Agent) carryOut(ctx context.Context, m *Message, uncertain bool) (ticket.Draft, error) {
	x := &Execution{Execute: *m.Payload.(*Execute), ID: m.ID, Ticket: m.TicketID, beats: a.beats}
	due, err := m.Due(1)
	if err != nil {
		return ticket.Draft{}, err
	}
	working, stop := context.WithDeadline(ctx, due)
	defer stop()
	do := map[string]func(context.Context, *Execution) (*Report, error){ModeApply: a.o.Execute, ModeRollback: a.o.Rollback, ModeVerify: a.o.Verify}[x.Mode]
	began := time.Now()
	err = errors.New("it was not begun: the agent was away, or had no room for it, until then")
	if uncertain {
		err = errors.New("the agent was away until then; what it did before that is not known")
	}
	for wait := againMin; working.Err() == nil; wait = min(2*wait, againMax) {
		x.Uncertain = uncertain
		var report *Report
		if do == nil {
			err = &RefuseError{Code: "mode_unknown", Reason: "The agent has nothing for the mode " + x.Mode + "."}
		} else {
			report, err = do(working, x)
		}
		if err == nil && report == nil {
			err = errors.New("the function returned neither a report nor an error")
		}
		refused := (*RefuseError)(nil)
		switch {
		case err == nil:
			return a.result(m, x, report, began), nil
		case errors.As(err, &refused):
			return a.result(m, x, &Report{Outcome: OutcomeRefused, Verification: Verification{Checks: []string{shortened(refused.Error())}}}, began), nil
		}
		if working.Err() == nil {
			a.o.OnError(fmt.Errorf("%s %s of %s: %w", x.Mode, x.SliceID, m.TicketID, err))
			uncertain = true
			sleep(working, wait)
		}
	}
	if ctx.Err() != nil {
		return ticket.Draft{}, context.Cause(ctx)
	}
	return escalate(&m.Header, "complete_by_missed", shortened(err.Error())), nil
}

// result accounts for every step. For the outcome of a report that contradicts itself it
// takes what the steps come to: what was done is done by then, and others have to know it.
func (a *Agent) result(m *Message, x *Execution, r *Report, began time.Time) ticket.Draft {
	steps, unnamed := make([]StepStatus, len(x.Steps)), "not_started"
	all := r.Outcome == OutcomeSuccess || r.Outcome == OutcomeRolledBack && x.Mode == ModeRollback
	if all && len(r.Steps) == 0 {
		unnamed = doneStatus(x.Mode)
	}
	for i, s := range x.Steps {
		steps[i] = StepStatus{N: s.N, Status: unnamed}
		for _, told := range r.Steps {
			if told.N == s.N {
				steps[i] = told
			}
		}
		steps[i].EvidenceRef = orNone(steps[i].EvidenceRef)
	}
	outcome, verification, says := r.Outcome, r.Verification, "its outcome is "+r.Outcome
	if x.Mode == ModeVerify { // to have looked, and found a fault, is a success
		all, says = r.Verification.Passed, "its verification has passed"
	}
	if i := slices.IndexFunc(steps, unfinished); all && i >= 0 {
		err := fmt.Errorf("the report contradicts itself: %s, and step %d is %s", says, steps[i].N, steps[i].Status)
		a.o.OnError(fmt.Errorf("%s %s of %s: %w", x.Mode, x.SliceID, m.TicketID, err))
		// A step that the execute does not have counts: under whatever number, something took effect.
		some := slices.ContainsFunc(r.Steps, func(s StepStatus) bool { return s.Status == "done" })
		outcome = outcomeOf(x.Mode, some, false)
		checks := append([]string{err.Error()}, r.Verification.Checks...)
		verification = Verification{Checks: checks[:min(len(checks), checksMax)]}
	}
	return Answer(&m.Header, ticket.TypeResult, ticket.RoleOrchestrator, "result/"+m.ID, &Result{
		ExecuteID: m.ID, PlanHash: x.PlanHash, SliceID: x.SliceID, Outcome: outcome, Steps: steps,
		Verification: verification, Changed: r.Changed, StartedAt: began.UTC(), EndedAt: time.Now().UTC(),
	})
}

// checksMax is how many checks a verification may have: one more would be refused.
const checksMax = 500

// unfinished reports whether a step keeps a result from saying that all was done.
func unfinished(s StepStatus) bool { return s.Status == "failed" || s.Status == "not_started" }

// sendAtLast sends what is stored, however long the broker cannot be reached.
func (a *Agent) sendAtLast(ctx context.Context, j *job) {
	for wait := againMin; ctx.Err() == nil; wait = min(2*wait, againMax) {
		err := a.send(ctx, j)
		if err == nil {
			return
		}
		a.o.OnError(err)
		sleep(ctx, wait)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
