// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// cause is a message that a ticket.state names.
type cause struct {
	id   string
	kind string // type
}

// state makes the move that a ticket.state asks for, if a row of the table has it,
// and one of the causes is its trigger.
func (j *judged) state() (*event.Error, error) {
	t, m := j.t, j.m.Moved
	if m.From != t.State {
		return j.illegal("payload/from", "A ticket.state names in from the state that the ticket is in."), nil
	}
	causes, refused, err := j.causes()
	if refused != nil || err != nil {
		return refused, err
	}
	row, by, refused, err := j.row(causes)
	if refused != nil || err != nil {
		return refused, err
	}
	if refused, err := j.breaker(causes); refused != nil || err != nil {
		return refused, err
	}
	if row.Guard == "accepted" || row.Guard == "chosen" {
		j.use(by.id)
	}
	if m.To != m.From {
		j.move(m.To)
		t.Missed = ""
	}
	if slices.Contains([]string{ticket.StatePartial, ticket.StateFailed, ticket.StateRolledBack, ticket.StateCancelled, ticket.StateClosed}, m.To) {
		j.skip()
	}
	if refused := j.claims(); refused != nil {
		return refused, nil
	}
	if m.To != m.From && row.To != ticket.ResumeTo && (m.To == ticket.StateOpen || m.To == ticket.StatePlanning) {
		j.replan(row)
	}
	return nil, nil
}

// causes are the messages that the ticket.state names.
func (j *judged) causes() (causes []cause, refused *event.Error, err error) {
	for _, id := range j.m.Moved.Causes {
		row, refused, err := j.p.cited(j.m, "payload/cause", id)
		if refused != nil || err != nil {
			return nil, refused, err
		}
		causes = append(causes, cause{id, row.Type})
	}
	return causes, nil, nil
}

// row finds the row of the table that has the move, and the cause that triggers it.
func (j *judged) row(causes []cause) (*ticket.Move, cause, *event.Error, error) {
	var rules []string
	for i := range ticket.Moves() {
		row := &ticket.Moves()[i]
		if row.Moves || !row.Leaves(j.t.State) || !j.leadsTo(row) {
			continue
		}
		rules = append(rules, row.Rule)
		for _, by := range causes {
			if row.Trigger != ticket.Any && row.Trigger != by.kind {
				continue
			}
			ok := row.Guard == ""
			if !ok {
				var err error
				if ok, err = guards[row.Guard](j, row, by); err != nil {
					return nil, cause{}, nil, err
				}
			}
			if ok {
				return row, by, nil, nil
			}
		}
	}
	if rules == nil {
		rules = []string{"No rule leads from " + j.t.State + " to " + j.m.Moved.To + " by a ticket.state."}
	}
	return nil, cause{}, j.illegal("payload/to", strings.Join(rules, " ")), nil
}

func (j *judged) leadsTo(row *ticket.Move) bool {
	switch to := j.m.Moved.To; row.To {
	case ticket.ResumeTo:
		return to == j.t.ResumeTo
	case ticket.Same:
		return to == j.t.State && j.m.Moved.Action != ""
	default:
		return to == row.To
	}
}

// claims refuses a ticket.state that says of a slice or of the tier what is not so.
// Of slices that are under way it may know less than the log.
func (j *judged) claims() *event.Error {
	for _, claim := range j.m.Moved.Slices {
		s := j.slice(claim.ID)
		if s == nil {
			return event.Errorf(event.CodePlanConflict, "The ticket has no slice %.80q.", claim.ID).With("payload/slices")
		}
		if ticket.TerminalSlice(claim.State) && claim.State != s.State && claim.State != s.Undo {
			return event.Errorf(event.CodePlanConflict, "The slice %q is %s, and not %s.", s.ID, s.State, claim.State).With("payload/slices")
		}
	}
	if tier := j.m.Moved.Tier; tier != nil && j.t.Plan != nil && *tier != j.t.Plan.Tier {
		return event.Errorf(event.CodePlanConflict, "The tier of the plan in force is %d.", j.t.Plan.Tier).With("payload/tier").Fact("tier", j.t.Plan.Tier)
	}
	return nil
}

// replan ends the plan and its slices: what follows has the next revision.
func (j *judged) replan(row *ticket.Move) {
	if row.Choice != "" || row.To == ticket.StateOpen {
		j.t.Cancelled = "" // the gate, or who amended it later, has decided otherwise
	}
	j.revise(j.t.Revision)
}

// revise begins a revision without slices.
func (j *judged) revise(revision int) {
	t := j.t
	for i := range t.Slices {
		if s := &t.Slices[i]; s.Proposal == "" {
			j.settle(s.Request) // a proposal of that revision is not taken any more
		}
	}
	t.Revision, t.Slices, t.Targets, t.Plan = revision, nil, nil, nil
	t.Requests = slices.DeleteFunc(t.Requests, func(r store.RequestRow) bool {
		of := r.Kind == requestPlan || r.Kind == requestAcceptPartial
		if of {
			j.settle(r.ID)
		}
		return of
	})
}

// guards are what has to hold besides the trigger, by their names in the table.
var guards = map[string]func(*judged, *ticket.Move, cause) (bool, error){
	"overdue":         func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.overdue(by.id), nil },
	"free":            func(j *judged, _ *ticket.Move, _ cause) (bool, error) { return j.free() },
	"granted":         func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.granted(by.id) },
	"denied":          func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.denied(by.id), nil },
	"stale":           func(j *judged, _ *ticket.Move, _ cause) (bool, error) { return j.stale() },
	"accepted":        func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.accepted(by.id), nil },
	"chosen":          func(j *judged, row *ticket.Move, by cause) (bool, error) { return j.chosen(by.id, row.Choice), nil },
	"breaker":         func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.mayChangeBreaker(by.id), nil },
	"amended":         func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.t.Amended == by.id, nil },
	"cancelled":       func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.t.Cancelled == by.id, nil },
	"not_cancelled":   func(j *judged, _ *ticket.Move, _ cause) (bool, error) { return j.t.Cancelled == "", nil },
	"dead_lettered":   func(j *judged, _ *ticket.Move, by cause) (bool, error) { return j.deadLettered(by.id), nil },
	"all_succeeded":   ofSlices(func(c *counts) bool { return c.underWay == 0 && c.succeeded == c.all }),
	"mixed":           ofSlices(func(c *counts) bool { return c.underWay == 0 && c.applied > 0 && c.succeeded < c.all }),
	"nothing_applied": ofSlices(func(c *counts) bool { return c.underWay == 0 && c.applied == 0 && c.undone == 0 }),
	"undone":          ofSlices(func(c *counts) bool { return c.underWay == 0 && c.applied == 0 && c.undone > 0 }),
	"rollback_failed": ofSlices(func(c *counts) bool { return c.notUndone > 0 }),
	"verified":        ofSlices(func(c *counts) bool { return c.underWay == 0 && c.verified == c.all }),
	"not_verified":    ofSlices(func(c *counts) bool { return c.refuted > 0 }),
	"settled":         ofSlices(func(c *counts) bool { return c.underWay == 0 }),
}

func ofSlices(holds func(*counts) bool) func(*judged, *ticket.Move, cause) (bool, error) {
	return func(j *judged, _ *ticket.Move, _ cause) (bool, error) {
		c := countSlices(j.t.Slices)
		return holds(&c), nil
	}
}

// overdue reports whether a message was to be answered by now and is not.
func (j *judged) overdue(id string) bool {
	return slices.ContainsFunc(j.t.Slices, func(s store.SliceRow) bool {
		return s.Request == id && s.State == ticket.SliceRequested && s.DueMillis <= j.now ||
			s.Execute == id && underWay(s.State) && s.CompleteMillis <= j.now ||
			s.UndoExecute == id && underWay(s.Undo) && s.UndoCompleteMillis <= j.now
	}) || slices.ContainsFunc(j.t.Requests, func(r store.RequestRow) bool {
		return r.ID == id && r.Kind == requestPlan && r.ExpiresMillis <= j.now && stands(&r) && !granted(j.t, &r, j.now)
	})
}
