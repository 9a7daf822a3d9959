// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"crypto/sha256"
	"fmt"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// answer is where a question to the gate has come to.
type answer int

const (
	answerNone answer = iota // it can still be answered
	answerAsk                // it is to be asked, or asked again
	answerYes
	answerNo // it was denied, or not answered as often as the policy has it asked
)

// heard says what has become of a question, nil if it was not asked: with the grants
// where the gate has agreed, and with the message that whatever follows is to answer.
// That a request has expired is for the bus to say, and not for the clock here.
func (d *decision) heard(q *question) (answer, []*ticketclient.Message, *ticketclient.Message) {
	if q == nil {
		return answerAsk, nil, d.last
	}
	lapse := d.lapses[q.request.ID]
	if no := d.denies[q.request.ID]; no != nil {
		return answerNo, nil, no
	}
	l := d.live(q.request)
	switch {
	case l.enough:
		return answerYes, l.grants, l.grants[len(l.grants)-1]
	case lapse != nil && q.times >= d.askedAtMost():
		return answerNo, nil, lapse
	case lapse != nil:
		return answerAsk, nil, lapse
	case l.lapsed:
		return answerAsk, nil, q.request // before anything was done by them
	}
	d.waitFor(q.request, &l)
	return answerNone, nil, nil
}

// resetting asks the gate to reset the breakers that are open, and closes those that
// it has granted. It reports whether that is under way: if not, the gate does not want
// one of them reset.
func (d *decision) resetting() bool {
	under := false
	for _, b := range d.t.Breakers {
		switch said, grants, by := d.heard(d.asks[aboutBreaker+b.Target]); said {
		case answerNo:
			continue
		case answerAsk:
			d.askReset(b.Target, b.Opened, by)
		case answerYes:
			d.toWith(&ticketclient.State{To: d.state, ReasonCode: "breaker_reset", Breaker: &ticketclient.Breaker{Target: b.Target, Action: "close"}}, grants)
			return true // the next one is closed by a move of its own
		}
		under = true
	}
	return under
}

func (d *decision) askReset(target string, opened time.Time, cause *ticketclient.Message) {
	sum := sha256.Sum256([]byte(target))
	d.say(ticket.TypeApprovalRequest, ticket.RoleGate, cause, fmt.Sprintf("reset/%x/%d", sum[:8], d.asked+1), &ticketclient.ApprovalRequest{
		Kind: "breaker_reset", Target: target, Risk: d.risk(), ApproversRequired: max(1, d.rule.Approvers), ExpiresAt: within(d.now, d.rule.ApproveWithin),
		Summary: shortened(fmt.Sprintf("%s: %s. The breaker of %s is open since %s, for too many verifications of it have failed. If it is reset, the plan goes on by its tier, which is %d; if not, the plan itself is put up for approval.",
			d.rule.Name, d.content.Title, target, opened.UTC().Format(time.RFC3339), d.plan().Tier)),
	})
}

// escalatedTo asks the gate what to do, and does it. It asks until it has an answer:
// nothing else moves the ticket. If that takes too often, platform-ops is told, once.
func (d *decision) escalatedTo() {
	q := d.asks[aboutEscalation]
	said, grants, cause := d.heard(q)
	switch said {
	case answerNone:
		return
	case answerYes:
		d.chosen(grants)
		return
	case answerNo:
		// A denial says that none of the options is right. They are asked about again when
		// the time of the question is over, and not at once.
		if due, err := q.request.Due(0); err == nil && due.After(d.now) && d.denies[q.request.ID] != nil {
			d.wakeAt(due)
			return
		}
	}
	if q != nil && q.times >= d.askedAtMost() {
		d.say(ticket.TypeEscalation, ticket.RolePlatformOps, cause, fmt.Sprintf("unanswered/%d", d.view.moves), &ticketclient.Escalation{
			ReasonCode: "gate_silent", Severity: "critical", Refs: []string{q.request.ID}, ContextRef: q.request.ID,
			Asks: []string{fmt.Sprintf("The gate was asked %d times how the ticket goes on, and has not said. Find somebody who decides.", q.times)},
		})
	}
	request := &ticketclient.ApprovalRequest{
		Kind: "escalation", Summary: d.why(), Risk: d.risk(), ApproversRequired: 1, Options: []string{"resume", "replan", "cancel", "close"},
	}
	if d.rule != nil {
		request.ExpiresAt = within(d.now, d.rule.ApproveWithin)
	}
	d.say(ticket.TypeApprovalRequest, ticket.RoleGate, cause, fmt.Sprintf("ask/%d", d.asked+1), request)
}

// askedAtMost is how often the gate is asked before platform-ops is told. A ticket
// that no rule is for has the default.
func (d *decision) askedAtMost() int {
	if d.rule == nil {
		return asksDefault
	}
	return d.rule.Asks
}

// chosen does what the gate has chosen.
func (d *decision) chosen(grants []*ticketclient.Message) {
	switch grants[0].Payload.(*ticketclient.ApprovalGrant).Choice {
	case "resume":
		d.to(d.resumeTo, reasonResumed, grants...)
	case "replan":
		d.to("PLANNING", reasonReplanned, grants...)
	case "cancel":
		d.to("CANCELLED", "cancelled", grants...)
	default:
		d.to("CLOSED", "closed", grants...)
	}
}

// resumed reports whether the gate has just said to go on.
func (d *decision) resumed() bool {
	s, ok := d.last.Payload.(*ticketclient.State)
	return ok && s.ReasonCode == reasonResumed
}

// why says what the gate is asked about, and what its options come to.
func (d *decision) why() string {
	text := d.content.Title + "."
	if s, ok := d.last.Payload.(*ticketclient.State); ok {
		for _, id := range s.Cause {
			if m := d.t.Message(id); m != nil {
				if e, ok := m.Payload.(*ticketclient.Escalation); ok {
					text += fmt.Sprintf(" It was %s. %s said %s: %s", d.resumeTo, m.From, e.ReasonCode, sentences(e.Asks))
				}
			}
		}
	}
	text += " To resume is to " + d.resumption()
	if d.outdated() {
		text += ", but nothing more of the plan is applied, for it was amended since or its time is over"
	}
	return shortened(text + "; to replan is to ask for another plan; to cancel or to close leaves everything as it is now.")
}

// resumption says what follows if the gate says to go on.
func (d *decision) resumption() string {
	switch {
	case d.rule == nil:
		return "look for a rule in the policy again"
	case d.resumeTo == "PARTIAL" && d.rule.OnPartial == ActAccept:
		return "ask again whether what took effect is accepted"
	case d.resumeTo == "PARTIAL" && d.irreversible() != nil:
		return "ask again, for a part of what took effect has no rollback"
	case d.resumeTo == "PARTIAL" && d.unapproved():
		return "ask for the approval of the plan, and then to undo what took effect"
	case d.resumeTo == "PARTIAL":
		return "undo what took effect"
	case d.resumeTo == "ROLLING_BACK" && d.unapproved():
		return "ask for the approval of the plan, and then to try the rollback again"
	case d.resumeTo == "ROLLING_BACK":
		return "try the rollback again"
	case d.resumeTo == "APPROVED" && (d.unapproved() || d.outdated()) && d.revision >= d.rule.Revisions:
		return "ask this again, for the policy allows no further plan"
	case d.resumeTo == "APPROVED" && (d.denied || d.refusal() != nil):
		return "ask for another plan, for this one was denied"
	case d.resumeTo == "APPROVED" && (d.unapproved() || d.outdated()):
		return "ask for another plan"
	case (d.resumeTo == "EXECUTING" || d.resumeTo == "VERIFYING") && d.unapproved():
		return "ask for the approval of what is left of the plan"
	case d.resumeTo == "AWAITING_APPROVAL" && d.refusal() != nil:
		return "do what the policy says of a plan that was denied"
	case d.resumeTo == "AWAITING_APPROVAL":
		return "ask for the approval of the plan again"
	case d.resumeTo == "FAILED" || d.resumeTo == "ROLLED_BACK" || d.resumeTo == "DENIED":
		return "close the ticket, of which nothing is in effect"
	case d.resumeTo == "PLANNED":
		return "ask for the approval of the plan"
	}
	return "go on where it was, at " + d.resumeTo
}
