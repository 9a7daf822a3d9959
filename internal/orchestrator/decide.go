// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// patience is how long a ticket waits in silence after the gate has said to go on,
// where the policy has no complete_within: the protocol's default for that.
const patience = 30 * time.Minute

// Why a ticket is moved. What is read again when the ticket is looked at after a
// restart has a name here.
const (
	reasonResumed     = "resumed"
	reasonReplanned   = "replanned"
	reasonUndelivered = "deliver_by_missed" // of the bus: an execute did not reach its domain
	reasonUnanswered  = "expires_at_missed" // of the bus: nobody has answered a request for approval
)

// Decide says what an orchestrator says next about a ticket, and when it wants to be
// asked again if nothing is said until then.
func (p *Policy) Decide(me string, t *ticketclient.Ticket, now time.Time) ([]ticketclient.Move, time.Time) {
	v := look(p, me, t)
	if v.open == nil {
		return nil, time.Time{} // it was opened before the log that is retained begins
	}
	d := &decision{p: p, view: v, now: now}
	if v.state != "ESCALATED" && d.interrupted() {
		return d.moves, d.wake
	}
	switch v.state {
	case "OPEN", "PLANNING":
		d.planning()
	case "PLANNED":
		d.planned()
	case "AWAITING_APPROVAL":
		d.awaiting()
	case "APPROVED":
		d.approved()
	case "EXECUTING":
		d.executing()
	case "VERIFYING":
		d.verifying()
	case "PARTIAL":
		d.partial()
	case "ROLLING_BACK":
		d.rollingBack()
	case "DENIED":
		d.after(v.rule.OnDenied, "denied")
	case "FAILED":
		d.after(v.rule.OnFailed, "failed")
	case "ROLLED_BACK":
		d.after(v.rule.OnRolledBack, "rolled_back")
	case "RESOLVED":
		d.resolved()
	case "ESCALATED":
		d.escalatedTo()
	}
	if len(d.moves) == 0 && d.wake.IsZero() && d.resumed() && !d.awaited() {
		d.watch()
	}
	return d.moves, d.wake
}

// watch asks the gate again if it has said to go on, and nothing came of that: the
// deadlines that were missed before are nobody's any more.
func (d *decision) watch() {
	last := d.t.Messages[len(d.t.Messages)-1]
	due := last.Time.Add(cmp.Or(time.Duration(d.rule.CompleteWithin), patience))
	if due.After(d.now) {
		d.wake = due
		return
	}
	d.escalate("no_progress", fmt.Sprintf("The gate has said to go on, and nothing was said since %s.", last.Time.UTC().Format(time.RFC3339)), d.last)
}

// awaited reports whether there is a deadline of which the bus will say that it was
// missed.
func (d *decision) awaited() bool {
	open := func(m *ticketclient.Message, n int) bool {
		due, err := m.Due(n)
		return err == nil && due.After(d.now)
	}
	for _, q := range d.asks {
		if d.undecided(q.request) {
			return true
		}
	}
	for _, s := range d.slices {
		if s.request != nil && s.proposal == nil && open(s.request, 0) {
			return true
		}
		for _, r := range s.runs {
			if r.result == nil && !r.dead && open(r.execute, 1) {
				return true
			}
		}
	}
	return d.request != nil && d.undecided(d.request)
}

// decision is the making of the next moves.
type decision struct {
	p *Policy
	*view
	now   time.Time
	moves []ticketclient.Move
	wake  time.Time
}

// interrupted deals with what stops a ticket wherever it is.
func (d *decision) interrupted() bool {
	switch {
	case d.state == "CLOSED" || d.state == "CANCELLED":
	case len(d.stops) > 0:
		d.to("ESCALATED", d.stops[0].Payload.(*ticketclient.Escalation).ReasonCode, d.stops[0])
	case d.cancel != nil && d.beforeWork():
		d.to("CANCELLED", "cancelled", d.cancel)
	case d.rule == nil:
		d.escalate("no_rule", "The policy has no rule for this ticket.", d.open)
	case d.amended != nil && d.state != "OPEN" && d.state != "APPROVED" && d.state != "RESOLVED":
		d.escalate("amended", "The ticket was amended while it was worked on.", d.amended)
	default:
		return false
	}
	return true
}

func (d *decision) beforeWork() bool {
	switch d.state {
	case "OPEN", "PLANNING", "PLANNED", "AWAITING_APPROVAL", "APPROVED", "DENIED":
		return true
	}
	return false
}

// say adds a move.
func (d *decision) say(kind, to string, cause *ticketclient.Message, key string, payload any) {
	d.moves = append(d.moves, ticketclient.Move{Type: kind, To: to, Cause: cause.ID, Key: key, Payload: payload})
}

// to moves the ticket, for the reason that messages give.
func (d *decision) to(state, reason string, causes ...*ticketclient.Message) {
	d.toWith(&ticketclient.State{To: state, ReasonCode: reason}, causes)
}

func (d *decision) toWith(s *ticketclient.State, causes []*ticketclient.Message) {
	s.From = d.state
	for _, c := range causes {
		s.Cause = append(s.Cause, c.ID)
	}
	for _, x := range d.slices {
		if x.request == nil {
			continue // nobody was asked for it yet
		}
		s.Slices = append(s.Slices, ticketclient.SliceState{ID: x.rule.ID, State: x.state()})
	}
	if plan := d.plan(); plan != nil {
		s.Tier = &plan.Tier
	}
	d.say(ticket.TypeState, ticket.RoleIntake, causes[len(causes)-1], fmt.Sprintf("state/%d", d.view.moves+1), s)
}

// escalate asks the gate, by way of the state ESCALATED.
func (d *decision) escalate(reason, text string, cause *ticketclient.Message) {
	d.say(ticket.TypeEscalation, ticket.RoleGate, cause, fmt.Sprintf("escalation/%s/%d", reason, d.view.moves), &ticketclient.Escalation{
		ReasonCode: reason, Severity: "warning", Refs: []string{cause.ID}, ContextRef: cause.ID, Asks: []string{text},
	})
}

// replan begins another revision, unless there were as many as the rule allows.
func (d *decision) replan(cause *ticketclient.Message) {
	if d.revision >= d.rule.Revisions {
		d.escalate("revisions_exhausted", fmt.Sprintf("Revision %d of the plan did not come to its end.", d.revision), cause)
		return
	}
	d.to("PLANNING", reasonReplanned, cause)
}

// after does what the rule says about a plan that has come to an end. Once the gate
// was asked about it and has said to go on, that is to close the ticket.
func (d *decision) after(act, reason string) {
	if d.cancel != nil || d.resumed() {
		act = ActClose
	}
	switch act {
	case ActReplan:
		d.replan(d.last)
	case ActEscalate:
		d.escalate(reason, "The plan has come to nothing.", d.last)
	default:
		d.close(reason)
	}
}

func (d *decision) close(reason string) {
	text := map[string]string{
		"denied": "The plan was denied.", "failed": "Nothing was changed.", "rolled_back": "What was changed is undone.", "resolved": "Done and verified.",
	}[reason]
	if no := d.refusal(); no != nil && reason == "denied" {
		said := no.Payload.(*ticketclient.ApprovalDeny)
		text = shortened(fmt.Sprintf("%s denied it: %s", said.Approver, said.Reason))
	}
	d.toWith(&ticketclient.State{To: "CLOSED", ReasonCode: reason, Resolution: text}, []*ticketclient.Message{d.last})
}

// resolved closes a ticket, or opens it again.
func (d *decision) resolved() {
	if d.amended != nil {
		d.to("OPEN", "amended", d.amended)
		return
	}
	d.close("resolved")
}

// summaryMax is how much of a text a summary has: what a payload may have of it, with
// room for what is not ASCII.
const summaryMax = 2000

// shortened keeps a text within what a payload may have of it.
func shortened(text string) string {
	if runes := []rune(text); len(runes) > summaryMax {
		return string(runes[:summaryMax-1]) + "…"
	}
	return text
}

func sentences(texts []string) string { return strings.Join(texts, " ") }

// within is a deadline so long from now, zero for that of the protocol.
func within(now time.Time, d Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(d)).UTC()
}
