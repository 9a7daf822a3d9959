// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"fmt"
	"slices"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// standing is where a request for approval has come to, by the rules of the broker: what
// the broker does not count is not acted on.
type standing struct {
	grants []*ticketclient.Message // that count, one of each approver, of those who agree
	enough bool                    // they are as many as it needs
	lapsed bool                    // somebody has granted it whose grant does not count any more
	until  time.Time               // when the first of those that count is over; zero: there are none
}

// live says where a request has come to. A grant counts until its time is over, and,
// unless it was bound before, until its approver asks for the ticket as well.
func (d *decision) live(request *ticketclient.Message) (l standing) {
	ask := request.Payload.(*ticketclient.ApprovalRequest)
	needed := ask.ApproversRequired
	if ask.Tier != nil {
		needed = max(needed, ticket.Approvers(*ask.Tier))
	}
	counted := map[string]bool{}
	agreed := map[string][]*ticketclient.Message{} // by what was chosen
	for _, g := range d.grants[request.ID] {
		due, err := g.Due(0)
		grant := g.Payload.(*ticketclient.ApprovalGrant)
		asks := slices.Contains(d.t.Requesters, g.From) && !d.bound[g.ID]
		if err != nil || !due.After(d.now) || counted[g.From] || asks || grant.PlanHash != ask.PlanHash {
			continue
		}
		counted[g.From] = true
		if l.until.IsZero() || due.Before(l.until) {
			l.until = due
		}
		choice := grant.Choice
		if ask.Kind == "plan" {
			choice = "" // a plan is taken or left
		}
		agreed[choice] = append(agreed[choice], g)
		if !l.enough {
			l.grants, l.enough = agreed[choice], len(agreed[choice]) >= needed
		}
	}
	l.lapsed = slices.ContainsFunc(d.grants[request.ID], func(g *ticketclient.Message) bool { return !counted[g.From] })
	return l
}

// granted says where the approval of the plan has come to. By the rules of the broker
// nobody has to approve one of a low tier while no breaker is open, although they were
// asked while one was: it names no grants then, which may be over, and is not made anew
// for that. A denial counts all the same, whatever was granted before: once the gate has
// seen it and said to go on, it is asked again, or the plan made anew.
func (d *decision) granted() standing {
	switch {
	case d.refusal() != nil:
		return standing{}
	case d.request == nil, d.low():
		return standing{enough: d.low()}
	}
	return d.live(d.request)
}

// low reports whether nobody has to approve the plan, by the rules of the broker.
func (d *decision) low() bool {
	return !d.denied && d.plan().Tier <= ticket.TierReversible && len(d.t.Breakers) == 0
}

// unapproved reports whether the gate has to approve the plan, once more or at all, before
// anything more of it is done: it was denied, what was granted does not count any more, or
// a breaker was opened.
func (d *decision) unapproved() bool { return d.plan() != nil && !d.granted().enough }

// refusal is the denial of the plan, nil if nobody has denied it, or the gate has seen
// that and said to go on.
func (v *view) refusal() *ticketclient.Message {
	if v.request == nil {
		return nil
	}
	return v.denies[v.request.ID]
}

// withdrawn deals with a plan that somebody has denied once it was approved, before
// anything of it was begun. What comes of that where the policy does not have it planned
// again is for the gate to say.
func (d *decision) withdrawn(no *ticketclient.Message) {
	if d.rule.OnDenied == ActReplan {
		d.replan(no)
		return
	}
	said := no.Payload.(*ticketclient.ApprovalDeny)
	d.escalate("denied", shortened(fmt.Sprintf("%s has denied the plan after it was approved: %s", said.Approver, said.Reason)), no)
}

// undecided reports whether a request can be granted still. If nobody does, the bus will
// say so.
func (d *decision) undecided(request *ticketclient.Message) bool {
	due, err := request.Due(0)
	used := slices.ContainsFunc(d.grants[request.ID], func(g *ticketclient.Message) bool { return d.bound[g.ID] })
	return err == nil && due.After(d.now) && d.denies[request.ID] == nil && d.lapses[request.ID] == nil && !used && !d.live(request).enough
}

// awaiting moves a ticket on when people have decided. Where what they said does not
// count any more, or they have not answered and then said to go on all the same, they
// are asked again. That a request has expired is for the bus to say.
func (d *decision) awaiting() {
	if deny := d.refusal(); deny != nil {
		d.to("DENIED", deny.Payload.(*ticketclient.ApprovalDeny).ReasonCode, deny)
		return
	}
	switch l := d.live(d.request); {
	case l.enough:
		d.to("APPROVED", "granted", l.grants...)
	case l.lapsed || d.lapses[d.request.ID] != nil:
		d.askApproval("plan", d.last)
	default:
		d.waitFor(d.request, &l)
	}
}

// entitled returns the grants under which something may be executed. Where they do not
// count any more, or are needed since a breaker was opened, the gate is asked, and
// nothing is executed until it has said so.
func (d *decision) entitled() ([]*ticketclient.Message, bool) {
	l := d.granted()
	switch {
	case l.enough:
		return l.grants, true
	case d.request == nil:
		d.askApproval("plan", d.last)
	case d.refusal() != nil:
		d.escalate("approval_lapsed", "The gate has denied to approve what is left of the plan.", d.refusal())
	case l.lapsed || d.lapses[d.request.ID] != nil:
		d.askApproval("plan", d.last)
	default:
		d.waitFor(d.request, &l)
	}
	return nil, false
}

// waitFor has the ticket looked at when a request or the first grant of it is over,
// whoever says so.
func (d *decision) waitFor(request *ticketclient.Message, l *standing) {
	if due, err := request.Due(0); err == nil {
		d.wakeAt(due)
	}
	d.wakeAt(l.until)
}

// wakeAt has the ticket looked at at a time, or before.
func (d *decision) wakeAt(at time.Time) {
	if at.After(d.now) && (d.wake.IsZero() || at.Before(d.wake)) {
		d.wake = at
	}
}
