// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// approved has the plan carried out, in its window, or made anew if it is over.
func (d *decision) approved() {
	l := d.granted()
	switch start := d.plan().Window.Start; {
	case d.amended != nil:
		d.replan(d.amended)
	case d.outdated():
		d.replan(d.last)
	case d.refusal() != nil:
		d.withdrawn(d.refusal())
	case !l.enough:
		d.replan(d.last)
	case start.After(d.now):
		d.wakeAt(start)
		d.wakeAt(l.until)
	default:
		d.dispatch(l.grants)
	}
}

// outdated reports whether nothing more of the plan is applied, by the rules of the
// broker: its time is over, another catalogue of verbs is in force than the one that it
// was made with, or the ticket was amended since.
func (d *decision) outdated() bool {
	plan := d.plan()
	return plan != nil && (!plan.ValidUntil.After(d.now) || plan.PolicyVersion != d.t.Verbs.Version || d.unplanned)
}

// dispatch has all slices applied that can be: those whose dependencies have
// succeeded.
func (d *decision) dispatch(grants []*ticketclient.Message) {
	for _, s := range d.slices {
		if s.runs[ticketclient.ModeApply] == nil && d.free(s) {
			d.execute(s, ticketclient.ModeApply, grants)
		}
	}
}

// free reports whether what a slice depends on has succeeded.
func (d *decision) free(s *slice) bool {
	return !slices.ContainsFunc(s.plan.Payload.(*ticketclient.Plan).DependsOn, func(id string) bool {
		return !slices.ContainsFunc(d.slices, func(other *slice) bool { return other.rule.ID == id && other.state() == "SUCCEEDED" })
	})
}

// execute has the domain of a slice do one mode of it.
func (d *decision) execute(s *slice, mode string, grants []*ticketclient.Message) {
	plan := s.plan.Payload.(*ticketclient.Plan)
	steps := plan.Slice.Steps
	if mode == ticketclient.ModeRollback {
		steps = plan.Slice.Rollback
	}
	ids := make([]string, len(grants))
	for i, g := range grants {
		ids[i] = g.ID
	}
	d.say(ticket.TypeExecute, s.plan.To, d.last, fmt.Sprintf("r%d/execute/%s/%s/%d", d.revision, s.rule.ID, mode, s.tries[mode]+1), &ticketclient.Execute{
		PlanID: plan.PlanID, PlanHash: plan.PlanHash, SliceID: s.rule.ID, Mode: mode, Steps: steps, ApprovalIDs: ids,
		LeaseID: d.lease(s), LeaseScope: ticketclient.LeaseScope{Plan: plan.PlanID, Target: scope(s, plan)},
		DeliverBy: within(d.now, d.rule.DeliverWithin), CompleteBy: within(d.now, d.rule.CompleteWithin),
	})
}

// lease names the lease by which the agent gets its credentials where it has to have
// them: the name says nothing, and whoever issues leases knows it by plan and target.
func (d *decision) lease(s *slice) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", d.t.ID, d.revision, s.rule.ID))
	return "lease-" + hex.EncodeToString(sum[:10])
}

// scope is the target of a slice; one that has several is named by itself.
func scope(s *slice, plan *ticketclient.Plan) string {
	target := plan.Slice.Steps[0].Target
	for _, step := range plan.Slice.Steps {
		if step.Target != target {
			return s.rule.Domain + "/" + s.rule.ID
		}
	}
	return target
}

// executing goes on with the slices, and says what has become of them when none is
// under way. After the end of the window, or a cancellation, none is begun, and none of
// a plan that is outdated.
func (d *decision) executing() {
	ready := slices.ContainsFunc(d.slices, func(s *slice) bool { return s.runs[ticketclient.ModeApply] == nil && d.free(s) })
	if ready && d.cancel == nil && d.plan().Window.End.After(d.now) && !d.outdated() {
		if grants, ok := d.entitled(); ok {
			d.dispatch(grants)
		}
		return
	}
	d.settle()
}

// settle says what has become of the slices, once none is under way.
func (d *decision) settle() {
	var results []*ticketclient.Message
	succeeded, applied, undone := 0, 0, 0
	for _, s := range d.slices {
		r := s.runs[ticketclient.ModeApply]
		switch {
		case r == nil:
			continue
		case r.result != nil:
			results = append(results, r.result)
		case r.dead:
			results = append(results, r.execute)
		default:
			return // it is under way
		}
		if s.state() == "SUCCEEDED" {
			succeeded++
		}
		if s.applied() {
			applied++
		}
		if s.state() == "ROLLED_BACK" {
			undone++
		}
	}
	if len(results) == 0 {
		results = append(results, d.last)
	}
	switch {
	case succeeded == len(d.slices):
		d.to("VERIFYING", "all_succeeded", results...)
	case applied > 0:
		d.to("PARTIAL", "mixed", results...)
	case undone > 0:
		d.to("ROLLED_BACK", "undone", results...)
	default:
		d.to("FAILED", "nothing_applied", results...)
	}
}

// verifying has every slice verified, and says whether that passed.
func (d *decision) verifying() {
	mode := ticketclient.ModeVerify
	if d.rule.SkipVerify {
		mode = ticketclient.ModeApply
	}
	var results []*ticketclient.Message
	var dead *ticketclient.Message // an execute that was not delivered
	passed := true
	for _, s := range d.slices {
		r := s.runs[mode]
		switch {
		case r == nil:
			if grants, ok := d.entitled(); ok {
				d.execute(s, mode, grants)
				continue
			}
			return
		case r.result != nil:
			results = append(results, r.result)
			passed = passed && s.result(mode).Verification.Passed
		case r.dead:
			dead = r.execute
		}
	}
	switch {
	case passed && dead != nil:
		d.escalate("verification_undelivered", "A slice was not verified, for nobody took that on.", dead)
	case len(d.moves) > 0 || len(results) == 0 || passed && len(results) < len(d.slices):
	case passed:
		d.to("RESOLVED", "verified", results...)
	default:
		d.to("PARTIAL", "not_verified", results...)
	}
}

// partial does what the rule says about a plan of which a part took effect. Once the
// gate was asked about it and has said to go on, that is to undo it.
func (d *decision) partial() {
	act := d.rule.OnPartial
	if d.cancel != nil || d.resumed() && act != ActAccept {
		act = ActRollback
	}
	switch act {
	case ActRollback:
		d.undo(d.last)
	case ActReplan:
		d.replan(d.last)
	case ActAccept:
		d.accepting()
	default:
		d.escalate("partial", "The plan took effect in part.", d.last)
	}
}

// undo begins the rollback, or asks what to do where there is none.
func (d *decision) undo(cause *ticketclient.Message) {
	if s := d.irreversible(); s != nil {
		d.escalate("no_rollback", fmt.Sprintf("The slice %s has no rollback.", s.rule.ID), cause)
		return
	}
	d.to("ROLLING_BACK", "rollback", cause)
}

// irreversible returns a slice that took effect and cannot be undone.
func (d *decision) irreversible() *slice {
	for _, s := range d.slices {
		if s.applied() && len(s.plan.Payload.(*ticketclient.Plan).Slice.Rollback) == 0 {
			return s
		}
	}
	return nil
}

// accepting asks the gate to take what is there as it is.
func (d *decision) accepting() {
	q := d.asks[aboutPartial]
	switch said, grants, by := d.heard(q); said {
	case answerAsk:
		d.askApproval("accept_partial", by)
	case answerYes:
		d.to("RESOLVED", "accepted", grants...)
	case answerNo:
		reason, text := "partial_denied", "The gate does not accept what took effect in part."
		if d.denies[q.request.ID] == nil {
			reason, text = "partial_unanswered", fmt.Sprintf("The gate was asked %d times to accept what took effect in part, and has not answered.", q.times)
		}
		if d.rule.OnUnaccepted == ActRollback {
			d.undo(by)
			return
		}
		d.escalate(reason, text, by)
	}
}

// rollingBack undoes what took effect, what came last first.
func (d *decision) rollingBack() {
	var results []*ticketclient.Message
	for _, s := range slices.Backward(d.slices) {
		r := s.runs[ticketclient.ModeRollback]
		switch {
		case r == nil && s.applied():
			if grants, ok := d.entitled(); ok {
				d.execute(s, ticketclient.ModeRollback, grants)
			}
			return // one after another
		case r == nil:
		case r.dead:
			d.to("ESCALATED", "rollback_failed", r.execute)
			return
		case r.result == nil:
			return // it is under way
		case s.state() != "ROLLED_BACK":
			d.to("ESCALATED", "rollback_failed", r.result)
			return
		default:
			results = append(results, r.result)
		}
	}
	if len(results) == 0 {
		results = append(results, d.last)
	}
	d.to("ROLLED_BACK", "undone", results...)
}
