// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"

	"signalbox/event"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// Kinds of a request for approval.
const (
	requestPlan          = "plan"
	requestAcceptPartial = "accept_partial"
	requestBreakerReset  = "breaker_reset"
	requestEscalation    = "escalation"
)

const (
	// requestsMax bounds the requests in a ticket's row, without those that nothing
	// can come of any more.
	requestsMax = 20
	// grantsMax bounds the grants of one request.
	grantsMax = 10
)

// request takes a request for approval to the gate.
func (j *judged) request() (*event.Error, error) {
	t, a := j.t, j.m.Approval
	if j.m.To != ticket.RoleGate {
		return nil, nil // a domain agent asks the orchestrator to ask
	}
	r := store.RequestRow{ID: j.id, Kind: a.Kind, Hash: a.Hash, Target: a.Target, Options: a.Options, Approvers: a.Approvers, ExpiresMillis: a.ExpiresMillis}
	if r.ExpiresMillis <= j.now {
		return closed("payload/expires_at", "The request is past its expires_at."), nil
	}
	switch a.Kind {
	case requestPlan, requestAcceptPartial:
		if refused := j.inForce(a.Plan, a.Hash); refused != nil {
			return refused, nil
		}
		if a.Revision != t.Revision || a.Tier != t.Plan.Tier {
			return conflict("payload/tier", "The plan in force is of revision %d and tier %d.", t.Revision, t.Plan.Tier).Fact("tier", t.Plan.Tier), nil
		}
		needed, err := j.needed()
		if err != nil {
			return nil, err
		}
		if !j.frozen() || a.Kind == requestPlan && t.State == ticket.StatePlanned && needed == 0 {
			return j.illegal("type", ruleOf(ticket.TypeApprovalRequest)), nil
		}
		if a.Kind == requestPlan && t.State == ticket.StateAwaitingApproval && j.planDenied() {
			return j.illegal("type", ruleOfGuard("denied")), nil
		}
		r.Approvers = max(r.Approvers, needed)
	case requestBreakerReset:
		if open, err := j.breakerIsOpen(a.Target); err != nil || !open {
			return j.illegal("payload/target", "The breaker of the target is not open."), err
		}
	}
	j.supersede(&r)
	if len(t.Requests) >= requestsMax {
		t.Requests = slices.DeleteFunc(slices.Clone(t.Requests), j.over)
	}
	if len(t.Requests) >= requestsMax {
		return j.illegal("type", "A ticket has at most 20 requests for approval that are open or granted."), nil
	}
	t.Requests = append(t.Requests, r)
	return nil, nil
}

// over reports whether nothing can come of a request any more. What the last denial of
// the plan comes to is that nothing else is granted.
func (j *judged) over(r store.RequestRow) bool {
	if r.Denied != "" {
		return r.Kind != requestPlan || r.Denied != denialOf(j.t.Requests)
	}
	return r.Void != "" || moot(j.t, &r) && !used(&r) || r.ExpiresMillis <= j.now && len(j.live(&r)) == 0
}

// used reports whether what was granted is bound to its plan, or used up.
func used(r *store.RequestRow) bool {
	return slices.ContainsFunc(r.Grants, func(g store.GrantRow) bool { return g.Bound != "" })
}

// stands reports whether a request has neither been decided for good nor come to
// nothing. What stands and has enough grants is granted until these count no more.
func stands(r *store.RequestRow) bool { return r.Denied == "" && r.Void == "" && !used(r) }

// granted reports whether as many as a request needs have granted it, all of them for
// the same choice, and count at a time, now or later.
func granted(t *store.TicketRow, r *store.RequestRow, at int64) bool { return missing(t, r, at) == 0 }

func missing(t *store.TicketRow, r *store.RequestRow, at int64) int {
	agreed, most := map[string]int{}, 0
	for i := range r.Grants {
		g, choice := &r.Grants[i], r.Grants[i].Choice
		if r.Kind == requestPlan {
			choice = "" // whatever else is said with it
		}
		if countsAt(t, g, at) {
			agreed[choice]++
			most = max(most, agreed[choice])
		}
	}
	return max(0, r.Approvers-most)
}

// Missing is how many more have to grant a request that the gate can decide still: a
// grant is taken, and counts. Of any other it is zero.
func Missing(t *store.TicketRow, r *store.RequestRow, now int64) int {
	if !stands(r) || r.ExpiresMillis <= now || ticket.Terminal(t.State) || moot(t, r) {
		return 0
	}
	return missing(t, r, now)
}

// serves reports whether something can follow from a request in the state that the
// ticket is in: what could not be asked there is not answered there either. A ticket
// that is escalated may go back to where it was, and a plan is not asked about but
// carried out once it is approved.
func serves(t *store.TicketRow, r *store.RequestRow) bool {
	state := t.State
	if state == ticket.StateEscalated && r.Kind != requestEscalation {
		state = t.ResumeTo
	}
	if state == ticket.StateApproved && r.Kind == requestPlan {
		return true
	}
	return slices.ContainsFunc(ticket.Takes(), func(take ticket.Take) bool {
		return take.Type == ticket.TypeApprovalRequest && take.Kind == r.Kind && take.Permits(state)
	})
}

// void has nothing come any more of requests that stand.
func (j *judged) void(is func(*store.RequestRow) bool) {
	for i := range j.t.Requests {
		if r := &j.t.Requests[i]; stands(r) && is(r) {
			r.Void = j.id
			j.settle(r.ID)
		}
	}
}

// supersede has a request take the place of earlier ones for the same that are not
// granted: who is asked once more is not to answer twice.
func (j *judged) supersede(by *store.RequestRow) {
	j.void(func(r *store.RequestRow) bool {
		return r.Kind == by.Kind && r.Target == by.Target && !granted(j.t, r, j.now)
	})
}

// ungrant has requests wait for the gate again whose grants do not suffice any more,
// since somebody who granted them has asked for the ticket as well.
func (j *judged) ungrant() {
	for i := range j.t.Requests {
		if r := &j.t.Requests[i]; unanswered(j.t, r, j.now) {
			j.again = append(j.again, r)
		}
	}
}

// unanswered reports whether something has to be said about a request until it expires:
// what has granted it so far will not do.
func unanswered(t *store.TicketRow, r *store.RequestRow, now int64) bool {
	return stands(r) && !moot(t, r) && r.ExpiresMillis > now && !granted(t, r, r.ExpiresMillis-1)
}

// planDenied reports whether somebody has denied the plan in force.
func (j *judged) planDenied() bool { return denialOf(j.t.Requests) != "" }

// putLast puts a request that was denied behind all that were made before, so that the
// order says of each whether the plan was denied since.
func (j *judged) putLast(id string) {
	all := j.t.Requests
	i := slices.IndexFunc(all, func(r store.RequestRow) bool { return r.ID == id })
	r := all[i]
	j.t.Requests = append(slices.Delete(all, i, i+1), r)
}

// denialOf is the message by which the plan was denied last, by an answer to one of the
// requests; "": it was not.
func denialOf(requests []store.RequestRow) string {
	for _, r := range slices.Backward(requests) {
		if r.Kind == requestPlan && r.Denied != "" {
			return r.Denied
		}
	}
	return ""
}

// moot reports whether a request is about a plan that was denied since, by an answer to
// this request or another: however it is granted, nothing follows.
func moot(t *store.TicketRow, r *store.RequestRow) bool {
	at := slices.IndexFunc(t.Requests, func(of store.RequestRow) bool { return of.ID == r.ID })
	return r.Kind == requestPlan && at >= 0 && denialOf(t.Requests[at:]) != ""
}

func closed(field, format string, args ...any) *event.Error {
	return event.Errorf(event.CodeApprovalClosed, format, args...).With(field)
}

// asked finds the request that a grant or a denial decides.
func (j *judged) asked() (*store.RequestRow, *event.Error, error) {
	a := j.m.Approval
	row, refused, err := j.p.cited(j.m, "payload/request_id", a.Request)
	if refused != nil || err != nil {
		return nil, refused, err
	}
	i := slices.IndexFunc(j.t.Requests, func(r store.RequestRow) bool { return r.ID == a.Request })
	switch {
	case i < 0 && row.Type != ticket.TypeApprovalRequest:
		return nil, notCorrelated("payload/request_id", "The message %s is no request for approval.", a.Request), nil
	case i < 0:
		return nil, closed("payload/request_id", "The request %s is not one of the plan in force.", a.Request), nil
	}
	r := &j.t.Requests[i]
	switch {
	case r.Denied != "":
		return nil, closed("payload/request_id", "The request was denied by the message %s.", r.Denied), nil
	case r.Void != "":
		return nil, closed("payload/request_id", "Nothing comes of the request since the message %s: the ticket has gone on, or was asked about anew.", r.Void), nil
	case moot(j.t, r):
		return nil, closed("payload/request_id", "The plan was denied by the message %s since the request was made.", denialOf(j.t.Requests)), nil
	case used(r):
		return nil, closed("payload/request_id", "What was granted is used."), nil
	case r.ExpiresMillis <= j.now:
		return nil, closed("payload/request_id", "The request has expired."), nil
	case a.Hash != r.Hash && (a.Hash != "" || j.m.Type == ticket.TypeApprovalGrant):
		return nil, conflict("payload/plan_hash", "The request is for the plan_hash %q.", r.Hash), nil
	case a.Plan != "" && j.t.Plan != nil && a.Plan != j.t.Plan.ID && (r.Kind == requestPlan || r.Kind == requestAcceptPartial): // whoever reads the grant reads this, and not the hash
		return nil, conflict("payload/plan_id", "The request is for the plan_id %q.", j.t.Plan.ID), nil
	}
	return r, nil, nil
}
