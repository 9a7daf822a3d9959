// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// Modes of an execute.
const (
	modeApply    = "apply"
	modeRollback = "rollback"
	modeVerify   = "verify"
)

// counts are what the guards say of the slices of a ticket.
type counts struct {
	all       int
	underWay  int // dispatched or running, to apply or to undo
	succeeded int // and not undone
	applied   int // at least a part, and not undone
	undone    int
	notUndone int // whose rollback did not do what it was to
	verified  int // the latest verification has passed
	refuted   int // it has failed
}

func countSlices(rows []store.SliceRow) (c counts) {
	count := func(n *int, holds bool) {
		if holds {
			*n++
		}
	}
	for i := range rows {
		s := &rows[i]
		undone := s.Undo == ticket.SliceRolledBack || s.State == ticket.SliceRolledBack
		some := s.State == ticket.SliceSucceeded || s.State == ticket.SlicePartial || s.State == ticket.SliceRollbackFailed
		count(&c.all, true)
		count(&c.underWay, underWay(s.State) || underWay(s.Undo))
		count(&c.succeeded, s.State == ticket.SliceSucceeded && !undone)
		count(&c.applied, some && !undone)
		count(&c.undone, undone)
		count(&c.notUndone, ticket.TerminalSlice(s.Undo) && !undone || s.State == ticket.SliceRollbackFailed && s.Undo == "")
		count(&c.verified, s.Verified == store.VerifyPassed)
		count(&c.refuted, s.Verified == store.VerifyFailed)
	}
	return c
}

func underWay(state string) bool {
	return state == ticket.SliceDispatched || state == ticket.SliceRunning
}

// waiting reports whether a slice has neither been dispatched nor given up.
func waiting(s store.SliceRow) bool {
	return s.State == ticket.SliceRequested || s.State == ticket.SliceProposed || s.State == ticket.SliceFrozen
}

// dispatched reports whether a slice was ever sent to be applied.
func dispatched(s store.SliceRow) bool { return s.Execute != "" }

// slice finds a slice of the revision.
func (j *judged) slice(id string) *store.SliceRow {
	i := slices.IndexFunc(j.t.Slices, func(s store.SliceRow) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &j.t.Slices[i]
}

// skip gives up what was not dispatched.
func (j *judged) skip() {
	for i := range j.t.Slices {
		if s := &j.t.Slices[i]; waiting(*s) {
			s.State = ticket.SliceSkipped
		}
	}
}

// executable finds the slice that an execute is for, and refuses what the slice is
// not ready for, or other steps than were frozen.
func (j *judged) executable() (*store.SliceRow, *event.Error) {
	x := j.m.Executed
	s := j.slice(x.Slice)
	if s == nil || s.Domain != j.m.To {
		return nil, event.Errorf(event.CodePlanConflict, "The plan has no slice %.80q of the domain %s.", x.Slice, j.m.To).With("payload/slice_id")
	}
	undone := s.Undo == ticket.SliceRolledBack || s.State == ticket.SliceRolledBack
	done := s.State == ticket.SliceSucceeded || s.State == ticket.SlicePartial || s.State == ticket.SliceFailed || s.State == ticket.SliceRollbackFailed
	ready, want, rule := s.State == ticket.SliceFrozen, s.Steps, "A slice is applied once, when it is frozen."
	switch x.Mode {
	case modeRollback:
		ready, want, rule = done && !undone && !underWay(s.Undo), s.Rollback, "A slice is rolled back when it was carried out, at least in part, and is not rolled back."
	case modeVerify:
		ready, rule = done, "A slice is verified when it was carried out."
	}
	if !ready {
		return nil, event.Errorf(event.CodeTicketMoveIllegal, "The slice %q is %s. %s", s.ID, s.State, rule).With("payload/slice_id").Fact("state", j.t.State)
	}
	if x.Steps != want {
		return nil, event.Errorf(event.CodePlanConflict, "The steps are not those of the frozen slice %q in the mode %s.", s.ID, x.Mode).With("payload/steps")
	}
	return s, nil
}

// dispatch notes that a slice is sent to be carried out.
func (j *judged) dispatch(s *store.SliceRow) {
	x := j.m.Executed
	switch x.Mode {
	case modeApply:
		s.State, s.Execute, s.DeliverMillis, s.CompleteMillis = ticket.SliceDispatched, j.id, x.DeliverMillis, x.CompleteMillis
	case modeRollback:
		s.Undo, s.UndoExecute, s.UndoCompleteMillis = ticket.SliceDispatched, j.id, x.CompleteMillis
	}
	j.set(store.MessageExecution, j.id, store.ExecutionRow{Plan: x.Hash, Slice: x.Slice, Mode: x.Mode, Targets: x.Targets, Numbers: x.Numbers})
}

// outcomes are the states of a slice after the outcome of an execute that applies
// it, and undone those of its rollback after the outcome of one that rolls it back.
var (
	outcomes = map[string]string{
		"success": ticket.SliceSucceeded, "partial": ticket.SlicePartial, "failed": ticket.SliceFailed, "rolled_back": ticket.SliceRolledBack,
		"rollback_failed": ticket.SliceRollbackFailed, "refused": ticket.SliceRefused,
	}
	undone = map[string]string{
		"success": ticket.SliceRolledBack, "rolled_back": ticket.SliceRolledBack, "partial": ticket.SliceRollbackFailed, "failed": ticket.SliceRollbackFailed,
		"rollback_failed": ticket.SliceRollbackFailed, "refused": ticket.SliceRefused,
	}
)

// result takes what became of an execute. It is kept whatever state the ticket is
// in, for it says what happened.
func (j *judged) result() (*event.Error, error) {
	m := j.m.Resulted
	var x store.ExecutionRow
	if _, err := j.p.messageRow(store.MessageExecution, j.m.Execute, &x); err != nil {
		return nil, err
	}
	x.Result, x.Progress = j.id, nil
	j.set(store.MessageExecution, j.m.Execute, x)
	if x.Slice == "" {
		return nil, nil // of an execute from before level 3
	}
	if m.Hash != x.Plan {
		return notCorrelated("payload/plan_hash", "The execute %s was of the plan %s.", j.m.Execute, x.Plan), nil
	}
	if m.Slice != x.Slice {
		return notCorrelated("payload/slice_id", "The execute %s was of the slice %q.", j.m.Execute, x.Slice), nil
	}
	if refused := j.accounted(&x); refused != nil {
		return refused, nil
	}
	if s := j.slice(x.Slice); s != nil {
		j.follow(s, &x)
	}
	if !m.Passed && m.Outcome != "refused" {
		return nil, j.failed(x.Targets)
	}
	return nil, nil
}

// accounted refuses a result that does not account for every step of its execute, once,
// or says that all of it was done when it was not: what is done in part is said to be.
// Of a refusal nothing was started. An execute from before level 8 has no steps noted.
func (j *judged) accounted(x *store.ExecutionRow) *event.Error {
	m := j.m.Resulted
	whole := m.Outcome == "success" || m.Outcome == "rolled_back" && x.Mode == modeRollback
	if x.Mode == modeVerify { // to have looked, and found a fault, is a success
		whole = m.Passed
	}
	switch {
	case len(x.Numbers) == 0 || m.Outcome == "refused" && len(m.Numbers) == 0:
		return nil
	case !slices.Equal(m.Numbers, x.Numbers) && !slices.Equal(m.Numbers, slices.Compact(slices.Clone(x.Numbers))): // two steps may have one number
		return event.Errorf(event.CodePayloadInvalid, "The execute %s has the steps %s, and the result accounts for %s. A result accounts for every step of its execute, once.", j.m.Execute, listed(x.Numbers), listed(m.Numbers)).
			With("payload/steps")
	case m.Unfinished && whole && x.Mode == modeVerify:
		return event.Errorf(event.CodePayloadInvalid, "The verification passed, and not all of its steps are done.").With("payload/steps")
	case m.Unfinished && whole:
		return event.Errorf(event.CodePayloadInvalid, "The outcome is %s, and not all steps are done. What was done in part is partial, failed or rollback_failed.", m.Outcome).With("payload/steps")
	}
	return nil
}

// listed are the first of some numbers, for people.
func listed(numbers []int) string {
	const most = 20
	if len(numbers) == 0 {
		return "none"
	}
	text := strings.Trim(fmt.Sprint(numbers[:min(len(numbers), most)]), "[]")
	if len(numbers) > most {
		text += " …"
	}
	return text
}

// follow has a slice follow the result of an execute, if that is of the slice's plan.
func (j *judged) follow(s *store.SliceRow, x *store.ExecutionRow) {
	m := j.m.Resulted
	switch {
	case x.Mode == modeApply && s.Execute == j.m.Execute && !ticket.TerminalSlice(s.State):
		s.State = outcomes[m.Outcome]
	case x.Mode == modeRollback && s.UndoExecute == j.m.Execute && !ticket.TerminalSlice(s.Undo):
		s.Undo = undone[m.Outcome]
		return // a rollback says nothing of what was applied
	case x.Mode != modeVerify || j.t.Plan == nil || j.t.Plan.Hash != x.Plan:
		return
	}
	s.Verified = store.VerifyFailed
	if m.Passed {
		s.Verified = store.VerifyPassed
	}
}

// deadLettered reports whether a slice is dead-lettered for an execute.
func (j *judged) deadLettered(execute string) bool {
	return slices.ContainsFunc(j.t.Slices, func(s store.SliceRow) bool {
		return s.Execute == execute && s.State == ticket.SliceDeadLettered || s.UndoExecute == execute && s.Undo == ticket.SliceDeadLettered
	})
}

// The three that follow are for what happens to a ticket without a message of an
// agent. Each is a part of a proposal that apply has taken, and does nothing if
// what it would note is overtaken.

// executeDelivered notes that the domain of an execute has acknowledged it.
func (p *Projector) executeDelivered(id string) error {
	return p.changeExecuted(id, ticket.SliceRunning)
}

// executeUndelivered notes that nobody has acknowledged an execute by its
// deliver_by. The other slices go on.
func (p *Projector) executeUndelivered(id string) error {
	return p.changeExecuted(id, ticket.SliceDeadLettered)
}

func (p *Projector) changeExecuted(id, state string) error {
	var m store.MessageRow
	ok, err := p.messageRow(store.MessageID, id, &m)
	if err != nil || !ok {
		return err
	}
	return p.changeTicket(m.Ticket, func(t *store.TicketRow) bool {
		for i := range t.Slices {
			s := &t.Slices[i]
			switch {
			case s.Execute == id && s.State == ticket.SliceDispatched:
				s.State = state
				return true
			case s.UndoExecute == id && s.Undo == ticket.SliceDispatched:
				s.Undo = state
				return true
			}
		}
		return false
	})
}

// deadlineMissed blocks further executes of a ticket until a ticket.state moves it.
// What was missed is named for people.
func (p *Projector) deadlineMissed(id, what string) error {
	return p.changeTicket(id, func(t *store.TicketRow) bool {
		if ticket.Terminal(t.State) {
			return false
		}
		t.Missed = what
		return true
	})
}

// changeTicket changes the row of a ticket, if there is one and change says so.
func (p *Projector) changeTicket(id string, change func(*store.TicketRow) bool) error {
	var t store.TicketRow
	ok, err := p.messageRow(store.MessageTicket, id, &t)
	if err == nil && ok && change(&t) {
		p.setMessageRow(store.MessageTicket, id, &t)
	}
	return err
}
