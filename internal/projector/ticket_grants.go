// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"slices"

	"signalbox/event"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// grant takes what an approver grants. One agent counts once, and whoever asks for
// the ticket not at all.
func (j *judged) grant() (*event.Error, error) {
	a := j.m.Approval
	r, refused, err := j.asked()
	if refused != nil || err != nil {
		return refused, err
	}
	switch {
	case asksFor(j.t, j.m.From):
		return event.Errorf(event.CodeSelfApproval, "The agent %q has asked for the ticket %q, and does not approve it.", j.m.From, j.m.Ticket).With("payload/approver"), nil
	case slices.ContainsFunc(r.Grants, func(g store.GrantRow) bool { return g.Approver == j.m.From && j.counts(&g) }):
		return event.Errorf(event.CodeAlreadyAnswered, "The agent %q has granted this, and counts once.", j.m.From).With("payload/approver"), nil
	case r.Kind == requestEscalation && !slices.Contains(r.Options, a.Choice):
		return notCorrelated("payload/choice", "The choice %q is none of the options of the request.", a.Choice), nil
	case a.ExpiresMillis <= j.now:
		return closed("payload/expires_at", "The grant is past its expires_at."), nil
	case len(r.Grants) >= grantsMax:
		return closed("payload/request_id", "The request has %d grants.", grantsMax), nil
	}
	r.Grants = append(r.Grants, store.GrantRow{ID: j.id, Approver: j.m.From, Choice: a.Choice, ExpiresMillis: a.ExpiresMillis})
	if granted(j.t, r, r.ExpiresMillis-1) {
		j.settle(r.ID)
	}
	return nil, nil
}

// deny takes a denial. One is enough.
func (j *judged) deny() (*event.Error, error) {
	r, refused, err := j.asked()
	if refused != nil || err != nil {
		return refused, err
	}
	r.Denied = j.id
	j.settle(r.ID)
	if r.Kind == requestPlan { // it is the plan that was denied, however often it was asked about
		j.putLast(r.ID)
		j.void(func(r *store.RequestRow) bool { return r.Kind == requestPlan && !granted(j.t, r, j.now) })
	}
	for i := range j.t.Requests {
		if r := &j.t.Requests[i]; stands(r) && moot(j.t, r) { // it is granted, for as long as that counts
			j.settle(r.ID)
		}
	}
	return nil, nil
}

// asksFor reports whether an agent is one of those who ask for a ticket.
func asksFor(t *store.TicketRow, agent string) bool { return slices.Contains(t.Requesters, agent) }

// counts reports whether a grant counts. It does not after its time, and, unless it was
// bound before, not once its approver has asked for the ticket as well, by an amendment:
// at the moment at which something follows from it, somebody else has decided.
func (j *judged) counts(g *store.GrantRow) bool { return countsAt(j.t, g, j.now) }

func countsAt(t *store.TicketRow, g *store.GrantRow, at int64) bool {
	return g.ExpiresMillis > at && (g.Bound != "" || !asksFor(t, g.Approver))
}

// Counts is the rule for a grant as those who read a ticket are told it: none counts of
// a request that was denied or has come to nothing, nor, unless it was bound before, of a
// plan that was denied since it was asked for.
func Counts(t *store.TicketRow, r *store.RequestRow, g *store.GrantRow, now int64) bool {
	return r.Denied == "" && r.Void == "" && (g.Bound != "" || !moot(t, r)) && countsAt(t, g, now)
}

// live are the grants of a request that count.
func (j *judged) live(r *store.RequestRow) (grants []*store.GrantRow) {
	for i := range r.Grants {
		if g := &r.Grants[i]; j.counts(g) {
			grants = append(grants, g)
		}
	}
	return grants
}

// granting finds a grant and its request.
func (j *judged) granting(id string) (*store.RequestRow, *store.GrantRow) {
	for i := range j.t.Requests {
		r := &j.t.Requests[i]
		for k := range r.Grants {
			if r.Grants[k].ID == id {
				return r, &r.Grants[k]
			}
		}
	}
	return nil, nil
}

// needed is how many people have to approve what is done to the plan in force.
func (j *judged) needed() (int, error) {
	needed := ticket.Approvers(j.t.Plan.Tier)
	if needed > 0 {
		return needed, nil
	}
	for _, target := range j.t.Targets {
		if open, err := j.breakerIsOpen(target); err != nil || open {
			return 1, err
		}
	}
	return 0, nil
}

// granted reports whether a grant is one of enough for the plan, which nobody has
// denied.
func (j *judged) granted(id string) (bool, error) {
	r, _ := j.granting(id)
	if r == nil || r.Kind != requestPlan || r.Void != "" || j.planDenied() {
		return false, nil
	}
	needed, err := j.needed()
	return len(j.live(r)) >= max(needed, r.Approvers), err
}

func (j *judged) denied(id string) bool {
	return slices.ContainsFunc(j.t.Requests, func(r store.RequestRow) bool { return r.Kind == requestPlan && r.Denied == id })
}

// enough reports whether a grant is one of enough of a kind that were not used and
// chose the same.
func (j *judged) enough(id, kind string) (r *store.RequestRow, choice string, ok bool) {
	r, g := j.granting(id)
	if r == nil || r.Kind != kind || r.Denied != "" || r.Void != "" {
		return nil, "", false
	}
	agreed := 0
	for _, other := range j.live(r) {
		if other.Bound == "" && other.Choice == g.Choice {
			agreed++
		}
	}
	return r, g.Choice, agreed >= r.Approvers
}

func (j *judged) accepted(id string) bool {
	_, _, ok := j.enough(id, requestAcceptPartial)
	return ok
}

func (j *judged) chosen(id, choice string) bool {
	_, have, ok := j.enough(id, requestEscalation)
	return ok && have == choice
}

// use uses up the grants of a request.
func (j *judged) use(id string) {
	r, _ := j.granting(id)
	for i := range r.Grants {
		r.Grants[i].Bound = j.id
	}
	j.settle(r.ID)
}

// approved refuses an execute that does not name as many live grants of the plan as
// it needs, and binds those that it names. What else was asked about the plan is void.
// A plan that was denied needs one whatever its tier, and nothing that was asked for
// before the denial is bound to it any more. What was bound by then covers it still.
func (j *judged) approved() (*event.Error, error) {
	needed, err := j.needed()
	if err != nil {
		return nil, err
	}
	denial := denialOf(j.t.Requests)
	if denial != "" {
		needed = max(needed, 1)
	}
	var approvers []string
	binds := false
	for _, id := range j.m.Executed.Approvals {
		r, g := j.granting(id)
		if r == nil {
			return j.foreign(id)
		}
		if r.Kind != requestPlan {
			return boundTo(id, "a request of the kind "+r.Kind), nil
		}
		if !Counts(j.t, r, g, j.now) {
			continue
		}
		if g.Bound == "" {
			g.Bound = j.id
			j.settle(r.ID)
			binds = true
		}
		needed = max(needed, r.Approvers)
		if !slices.Contains(approvers, g.Approver) {
			approvers = append(approvers, g.Approver)
		}
	}
	if len(approvers) < needed {
		why := ""
		if denial != "" {
			why = fmt.Sprintf(" It was denied by the message %s, and whatever its tier it needs a grant that was asked for since, or was bound before.", denial)
		}
		return event.Errorf(event.CodeApprovalRequired, "The execute names live grants of %d approvers, and the plan needs %d.%s", len(approvers), needed, why).
			With("payload/approval_ids").Fact("needed", needed), nil
	}
	if binds { // the plan is carried out: whoever was asked about it as well has nothing to decide any more
		j.void(func(r *store.RequestRow) bool { return r.Kind == requestPlan && !granted(j.t, r, j.now) })
	}
	return nil, nil
}

// foreign says what is wrong with a grant that is not of the plan in force.
func (j *judged) foreign(id string) (*event.Error, error) {
	var row store.MessageRow
	ok, err := j.p.messageRow(store.MessageID, id, &row)
	if err == nil && ok && row.Type == ticket.TypeApprovalGrant {
		return boundTo(id, "another plan"), nil
	}
	return notCorrelated("payload/approval_ids", "The message %s is no grant.", id), err
}

func boundTo(id, what string) *event.Error {
	return event.Errorf(event.CodeGrantBound, "The grant %s is for %s.", id, what).With("payload/approval_ids")
}
