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
		r.Approvers = max(r.Approvers, needed)
	case requestBreakerReset:
		if open, err := j.breakerIsOpen(a.Target); err != nil || !open {
			return j.illegal("payload/target", "The breaker of the target is not open."), err
		}
	}
	if len(t.Requests) >= requestsMax {
		t.Requests = slices.DeleteFunc(t.Requests, j.over)
	}
	if len(t.Requests) >= requestsMax {
		return j.illegal("type", "A ticket has at most 20 requests for approval that are open or granted."), nil
	}
	t.Requests = append(t.Requests, r)
	return nil, nil
}

// over reports whether nothing can come of a request any more. What a denied plan
// comes to is that nothing else is granted.
func (j *judged) over(r store.RequestRow) bool {
	if r.Denied != "" {
		return r.Kind != requestPlan
	}
	return r.ExpiresMillis <= j.now && len(j.live(&r)) == 0
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
	used := slices.ContainsFunc(r.Grants, func(g store.GrantRow) bool { return g.Bound != "" })
	switch {
	case r.Denied != "":
		return nil, closed("payload/request_id", "The request was denied by the message %s.", r.Denied), nil
	case used:
		return nil, closed("payload/request_id", "What was granted is used."), nil
	case r.ExpiresMillis <= j.now:
		return nil, closed("payload/request_id", "The request has expired."), nil
	case a.Hash != r.Hash && (a.Hash != "" || j.m.Type == ticket.TypeApprovalGrant):
		return nil, conflict("payload/plan_hash", "The request is for the plan_hash %q.", r.Hash), nil
	}
	return r, nil, nil
}

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
	case slices.ContainsFunc(r.Grants, func(g store.GrantRow) bool { return g.Approver == j.m.From }):
		return event.Errorf(event.CodeAlreadyAnswered, "The agent %q has granted this, and counts once.", j.m.From).With("payload/approver"), nil
	case r.Kind == requestEscalation && !slices.Contains(r.Options, a.Choice):
		return notCorrelated("payload/choice", "The choice %q is none of the options of the request.", a.Choice), nil
	case a.ExpiresMillis <= j.now:
		return closed("payload/expires_at", "The grant is past its expires_at."), nil
	case len(r.Grants) >= grantsMax:
		return closed("payload/request_id", "The request has %d grants.", grantsMax), nil
	}
	r.Grants = append(r.Grants, store.GrantRow{ID: j.id, Approver: j.m.From, Choice: a.Choice, ExpiresMillis: a.ExpiresMillis})
	return nil, nil
}

// deny takes a denial. One is enough.
func (j *judged) deny() (*event.Error, error) {
	r, refused, err := j.asked()
	if refused == nil && err == nil {
		r.Denied = j.id
	}
	return refused, err
}

// asksFor reports whether an agent is one of those who ask for a ticket.
func asksFor(t *store.TicketRow, agent string) bool { return slices.Contains(t.Requesters, agent) }

// counts reports whether a grant counts. It does not after its time, and, unless it was
// bound before, not once its approver has asked for the ticket as well, by an amendment:
// at the moment at which something follows from it, somebody else has decided.
func (j *judged) counts(g *store.GrantRow) bool {
	return g.ExpiresMillis > j.now && (g.Bound != "" || !asksFor(j.t, g.Approver))
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
	if r == nil || r.Kind != requestPlan || slices.ContainsFunc(j.t.Requests, func(r store.RequestRow) bool { return r.Kind == requestPlan && r.Denied != "" }) {
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
	if r == nil || r.Kind != kind || r.Denied != "" {
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

// grantedWhole reports whether a request for approval has as many grants as it needs
// that choose the same: one of two is no answer.
func (p *Projector) grantedWhole(of, request string) (bool, error) {
	var t store.TicketRow
	if _, err := p.messageRow(store.MessageTicket, of, &t); err != nil {
		return false, err
	}
	i := slices.IndexFunc(t.Requests, func(r store.RequestRow) bool { return r.ID == request })
	if i < 0 {
		return false, nil
	}
	agreed := map[string]int{}
	for _, g := range t.Requests[i].Grants {
		if asksFor(&t, g.Approver) {
			continue
		}
		if agreed[g.Choice]++; agreed[g.Choice] >= t.Requests[i].Approvers {
			return true, nil
		}
	}
	return false, nil
}

// use uses up the grants of a request.
func (j *judged) use(id string) {
	r, _ := j.granting(id)
	for i := range r.Grants {
		r.Grants[i].Bound = j.id
	}
}

// approved refuses an execute that does not name as many live grants of the plan as
// it needs, and binds those that it names.
func (j *judged) approved() (*event.Error, error) {
	needed, err := j.needed()
	if err != nil {
		return nil, err
	}
	var approvers []string
	for _, id := range j.m.Executed.Approvals {
		r, g := j.granting(id)
		if r == nil {
			return j.foreign(id)
		}
		if r.Kind != requestPlan {
			return boundTo(id, "a request of the kind "+r.Kind), nil
		}
		if r.Denied != "" || !j.counts(g) {
			continue
		}
		if g.Bound == "" {
			g.Bound = j.id
		}
		needed = max(needed, r.Approvers)
		if !slices.Contains(approvers, g.Approver) {
			approvers = append(approvers, g.Approver)
		}
	}
	if len(approvers) < needed {
		return event.Errorf(event.CodeApprovalRequired, "The execute names live grants of %d approvers, and the plan needs %d.", len(approvers), needed).
			With("payload/approval_ids").Fact("needed", needed), nil
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
