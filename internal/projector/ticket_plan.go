// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"slices"

	"signalbox/event"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// targetsMax is how many targets of a plan are known by name at most, to look up
// their breakers. More are many, whatever the catalogue says.
const targetsMax = 100

// few is how many targets a plan may have that are not many.
func (j *judged) few() int { return min(j.p.registry.Verbs.TargetsMax, targetsMax) }

func conflict(field, format string, args ...any) *event.Error {
	return event.Errorf(event.CodePlanConflict, format, args...).With(field)
}

// ask takes a plan.request: a slice of this revision, or the first of the next.
func (j *judged) ask() *event.Error {
	t, a := j.t, j.m.Asked
	switch {
	case a.Revision == t.Revision+1:
		j.revise(a.Revision)
		t.Amended = ""
	case a.Revision != t.Revision || len(t.Slices) == 0:
		return conflict("payload/revision", "The ticket has had revision %d, and the next one is %d.", t.Revision, t.Revision+1).Fact("revision", t.Revision)
	}
	if j.slice(a.Slice) != nil {
		return conflict("payload/slice_id", "The slice %q of revision %d was asked for; ask again under the next revision.", a.Slice, t.Revision)
	}
	if len(t.Slices) == slicesMax {
		return conflict("payload/slice_id", "A ticket has at most %d slices.", slicesMax)
	}
	t.Slices = append(t.Slices, store.SliceRow{ID: a.Slice, Domain: j.m.To, State: ticket.SliceRequested, Request: j.id, DueMillis: a.DueMillis})
	return nil
}

// propose takes the one proposal of a slice.
func (j *judged) propose() *event.Error {
	t, m := j.t, j.m.Proposed
	if m.Revision != t.Revision {
		return conflict("payload/revision", "The revision that is being planned is %d.", t.Revision).Fact("revision", t.Revision)
	}
	s := j.slice(m.Slice)
	if s == nil || s.Domain != j.m.To {
		return conflict("payload/slice_id", "No slice %.80q was asked of the domain %s.", m.Slice, j.m.To)
	}
	if s.State != ticket.SliceRequested {
		return event.Errorf(event.CodeAlreadyAnswered, "The slice %q of revision %d is %s.", s.ID, t.Revision, s.State).With("payload/slice_id")
	}
	s.State, s.Proposal, s.Hash, s.Steps, s.Rollback = ticket.SliceProposed, j.id, m.Hash, m.Steps, m.Rollback
	s.Tier, s.ValidMillis, s.Policy = m.Tier, m.ValidMillis, j.m.Verbs
	j.settle(s.Request) // whatever else the proposal answers, it is the one of its slice
	for _, target := range m.Targets {
		if len(t.Targets) > j.few() {
			break
		}
		if !slices.Contains(t.Targets, target) {
			t.Targets = append(t.Targets, target)
		}
	}
	return nil
}

// tier is the least that a plan of the accepted proposals has, and why.
func (j *judged) tier() (tier int, why string) {
	raise := func(to int, format string, args ...any) {
		if to > tier {
			tier, why = to, fmt.Sprintf(format, args...)
		}
	}
	for i := range j.t.Slices {
		s := &j.t.Slices[i]
		raise(s.Tier, "The slice %q is of tier %d.", s.ID, s.Tier)
	}
	if tier > ticket.TierReadOnly && slices.ContainsFunc(j.t.Slices, func(s store.SliceRow) bool { return s.Domain != j.t.Slices[0].Domain }) {
		raise(ticket.TierMaterial, "There are several domains.")
	}
	if len(j.t.Targets) > j.few() {
		raise(ticket.TierIrreversible, "There are more than %d targets.", j.few())
	}
	return tier, why
}

// plan takes a message of a plan: the first one puts it in force, and each freezes
// a slice of it.
func (j *judged) plan() *event.Error {
	t, m := j.t, j.m.Planned
	if m.Revision != t.Revision {
		return conflict("payload/revision", "The revision that is being planned is %d.", t.Revision).Fact("revision", t.Revision)
	}
	if t.Plan == nil {
		if refused := j.fits(); refused != nil {
			return refused
		}
		t.Plan = &store.PlanRow{ID: m.Plan, Hash: m.Hash, Tier: m.Tier, Message: j.id, ValidMillis: m.ValidMillis, Policy: j.m.Verbs}
		for i := range t.Slices {
			t.Plan.ValidMillis = min(t.Plan.ValidMillis, t.Slices[i].ValidMillis)
		}
	}
	if t.Plan.ID != m.Plan || t.Plan.Hash != m.Hash {
		return conflict("payload/plan_hash", "The plan in force is %q with the hash %s, and another one has the next revision.", t.Plan.ID, t.Plan.Hash)
	}
	t.Plan.ValidMillis = min(t.Plan.ValidMillis, m.ValidMillis)
	s := j.slice(m.Frozen)
	if s == nil || s.Domain != j.m.To {
		return conflict("payload/slice/slice_id", "The plan has no slice %.80q of the domain %s.", m.Frozen, j.m.To)
	}
	if s.State != ticket.SliceProposed {
		return event.Errorf(event.CodeAlreadyAnswered, "The slice %q is %s.", s.ID, s.State).With("payload/slice/slice_id")
	}
	s.State = ticket.SliceFrozen
	return nil
}

// fits checks that a plan is of exactly the accepted proposals, that these count
// still, and that its tier is no lower than theirs.
func (j *judged) fits() *event.Error {
	t, m := j.t, j.m.Planned
	if slices.ContainsFunc(t.Slices, func(s store.SliceRow) bool { return s.State != ticket.SliceProposed }) {
		return j.illegal("payload/slices", ruleOf(ticket.TypePlan))
	}
	planned := map[string]bool{}
	for _, given := range m.Slices {
		s := j.slice(given.ID)
		if s == nil || s.Hash != given.Hash || planned[given.ID] {
			return conflict("payload/slices", "The slice %.80q of the plan, with the hash %.80s, is not that of an accepted proposal.", given.ID, given.Hash)
		}
		planned[given.ID] = true
		if s.Policy != j.m.Verbs || s.ValidMillis <= j.now {
			return event.Errorf(event.CodePlanStale, "The proposal of the slice %q is past its valid_until, or was checked against the catalogue of verbs %s.", s.ID, s.Policy).With("payload/slices")
		}
	}
	if len(planned) < len(t.Slices) {
		return conflict("payload/slices", "The plan has %d of the %d slices that were asked for.", len(planned), len(t.Slices))
	}
	if m.ValidMillis <= j.now {
		return event.Errorf(event.CodePlanStale, "The plan is past its valid_until.").With("payload/valid_until")
	}
	if least, why := j.tier(); m.Tier < least {
		return conflict("payload/tier", "The tier is %d, and that of the accepted proposals is %d. %s", m.Tier, least, why).Fact("tier", least)
	}
	return nil
}

// ruleOf is the sentence of the row by which a type itself moves.
func ruleOf(kind string) string {
	return rule(func(m ticket.Move) bool { return m.Moves && m.Trigger == kind })
}

func ruleOfGuard(name string) string {
	return rule(func(m ticket.Move) bool { return m.Guard == name })
}

func rule(is func(ticket.Move) bool) string {
	return ticket.Moves()[slices.IndexFunc(ticket.Moves(), is)].Rule
}

// inForce refuses another plan than the one in force.
func (j *judged) inForce(plan, hash string) *event.Error {
	if p := j.t.Plan; p == nil || p.ID != plan || p.Hash != hash {
		return conflict("payload/plan_hash", "The plan %.80q with the hash %.80s is not in force.", plan, hash)
	}
	return nil
}

// frozen reports whether all of the plan is.
func (j *judged) frozen() bool {
	return j.t.Plan != nil && !slices.ContainsFunc(j.t.Slices, func(s store.SliceRow) bool { return s.State == ticket.SliceProposed })
}

// outdated reports whether a plan is not to be begun any more.
func (j *judged) outdated() bool {
	p := j.t.Plan
	return p == nil || p.ValidMillis <= j.now || p.Policy != j.p.registry.Verbs.Version || j.t.Amended != ""
}

// stale reports whether an approved plan is to be planned again.
func (j *judged) stale() (bool, error) {
	if j.outdated() || j.planDenied() {
		return true, nil
	}
	needed, err := j.needed()
	if err != nil || needed == 0 {
		return false, err
	}
	return !slices.ContainsFunc(j.t.Requests, func(r store.RequestRow) bool {
		return r.Kind == requestPlan && r.Denied == "" && r.Void == "" && len(j.live(&r)) >= max(needed, r.Approvers)
	}), nil
}

// free reports whether the plan needs no approval.
func (j *judged) free() (bool, error) {
	if !j.frozen() {
		return false, nil
	}
	needed, err := j.needed()
	return needed == 0, err
}

// execute takes an execute of the plan in force.
func (j *judged) execute() (*event.Error, error) {
	t, x := j.t, j.m.Executed
	if t.Missed != "" {
		return event.Errorf(event.CodeDeadlineMissed, "A deadline of the ticket was missed: %s. Nothing is executed until a ticket.state moves the ticket.", t.Missed), nil
	}
	if refused := j.inForce(x.Plan, x.Hash); refused != nil {
		return refused, nil
	}
	if x.Mode == modeApply {
		if t.Cancelled != "" {
			return j.illegal("type", "Nothing more is applied of a ticket that is to be cancelled."), nil
		}
		if j.outdated() {
			return event.Errorf(event.CodePlanStale, "The plan is past its valid_until, of another catalogue of verbs than the one in force, or from before an amendment.").With("payload/plan_hash"), nil
		}
	}
	s, refused := j.executable()
	if refused != nil {
		return refused, nil
	}
	if refused, err := j.approved(); refused != nil || err != nil {
		return refused, err
	}
	j.dispatch(s)
	return nil, nil
}
