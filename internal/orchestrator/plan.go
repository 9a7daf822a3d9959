// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

// validFor is how long a plan is good for where no window ends it.
const validFor = 24 * time.Hour

// planning asks for proposals, and plans when all are there.
func (d *decision) planning() {
	cause := d.last
	if d.state == "PLANNING" && cause.Type == ticket.TypePlanRequest {
		cause = d.open
	}
	for _, s := range d.slices {
		if s.request == nil {
			d.say(ticket.TypePlanRequest, s.rule.Domain, cause, fmt.Sprintf("r%d/plan.request/%s", d.revision, s.rule.ID), &ticketclient.PlanRequest{
				SliceID: s.rule.ID, Revision: d.revision, Objective: d.fill(s.rule.Objective), Targets: filled(s.rule.Targets, d.star),
				Constraints: filled(s.rule.Constraints, d.star), Deadline: within(d.now, d.rule.PlanWithin),
			})
		}
	}
	if len(d.moves) == 0 && !slices.ContainsFunc(d.slices, func(s *slice) bool { return s.proposal == nil }) {
		d.freeze()
	}
}

func (d *decision) fill(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "{*}", d.star), "{title}", d.content.Title)
}

// freeze makes the plan of all proposals, or escalates a proposal that has verbs in
// it which the rule does not allow.
func (d *decision) freeze() {
	for _, s := range d.slices {
		for _, a := range slices.Concat(proposalOf(s).Steps, proposalOf(s).Rollback) {
			if len(s.rule.Verbs) > 0 && !slices.Contains(s.rule.Verbs, a.Verb) {
				d.escalate("verb_not_in_policy", fmt.Sprintf("%s proposes %s, which the policy does not allow it here.", s.rule.Domain, a.Verb), s.proposal)
				return
			}
		}
	}
	plan, err := d.draw()
	if err != nil {
		d.escalate("plan_impossible", err.Error(), d.slices[0].proposal)
		return
	}
	for _, s := range d.slices {
		if s.plan == nil {
			own := *plan
			own.Slice, own.DependsOn = proposalOf(s).Freeze(), d.dependsOn(s)
			d.say(ticket.TypePlan, s.rule.Domain, s.proposal, fmt.Sprintf("r%d/plan/%s", d.revision, s.rule.ID), &own)
		}
	}
}

func proposalOf(s *slice) *ticketclient.Proposal { return s.proposal.Payload.(*ticketclient.Proposal) }

// dependsOn leaves out what has succeeded under an earlier revision.
func (d *decision) dependsOn(s *slice) []string {
	return slices.DeleteFunc(slices.Clone(s.rule.DependsOn), func(id string) bool { return slices.Contains(d.done, id) })
}

// draw makes the plan but for what is each slice's own. All of it follows from the
// proposals, the window from when the last of them came.
func (d *decision) draw() (*ticketclient.Plan, error) {
	hashed := ticket.Plan{TicketID: d.t.ID, PlanID: fmt.Sprintf("plan-%d", d.revision), Revision: d.revision, PolicyVersion: d.t.Verbs.Version}
	var proposed []ticket.Proposed
	var at, until time.Time
	for _, s := range d.slices {
		p := proposalOf(s)
		hashed.Slices = append(hashed.Slices, ticket.PlanSlice{ID: s.rule.ID, Hash: p.SliceHash})
		proposed = append(proposed, ticket.Proposed{
			Domain: s.proposal.To, Slice: p.Slice(), Suggested: p.Tier,
			Irreversible: slices.ContainsFunc(p.Steps, func(x ticketclient.Step) bool { return x.Reversible != nil && !*x.Reversible }),
		})
		if s.proposal.Time.After(at) {
			at = s.proposal.Time
		}
		if valid, err := s.proposal.Due(0); err != nil {
			return nil, err
		} else if until.IsZero() || valid.Before(until) {
			until = valid
		}
	}
	window := ticketclient.Window{Start: at.UTC(), End: at.Add(validFor).UTC()}
	if w := d.rule.Window; w != nil {
		window.Start, window.End, _ = w.at(at) // it was parsed when the policy was
	}
	if window.End.Before(until) {
		until = window.End
	}
	if !until.After(window.Start) {
		return nil, event.Errorf(event.CodePayloadInvalid, "The proposals are valid until %s, and the window starts at %s", until.Format(time.RFC3339), window.Start.Format(time.RFC3339))
	}
	var reason string
	hashed.Tier, reason = d.t.Verbs.Tier(proposed)
	hash, err := hashed.Hash()
	return &ticketclient.Plan{
		PlanID: hashed.PlanID, Revision: hashed.Revision, PlanHash: hash, PolicyVersion: hashed.PolicyVersion, Slices: hashed.Slices,
		Tier: hashed.Tier, TierReason: reason, Window: window, ValidUntil: until.UTC(),
	}, err
}

// plan returns the plan of the revision, nil while there is none.
func (v *view) plan() *ticketclient.Plan {
	for _, s := range v.slices {
		if s.plan != nil {
			return s.plan.Payload.(*ticketclient.Plan)
		}
	}
	return nil
}

// plans returns the messages by which the slices were frozen.
func (v *view) plans() (all []*ticketclient.Message) {
	for _, s := range v.slices {
		if s.plan != nil {
			all = append(all, s.plan)
		}
	}
	return all
}

// planned has a plan approved: by its tier, or by people. Under an open breaker any
// plan needs people, unless they reset it.
func (d *decision) planned() {
	if d.freeze(); len(d.moves) > 0 {
		return
	}
	plan := d.plan()
	switch {
	case len(d.t.Breakers) > 0 && d.rule.OnBreaker == ActReset && d.resetting():
	case len(d.t.Breakers) > 0 && d.rule.OnBreaker == ActEscalate && !d.resumed():
		d.escalate("breaker_open", fmt.Sprintf("The breaker of %s is open.", d.t.Breakers[0].Target), d.last)
	case plan.Tier <= ticket.TierReversible && len(d.t.Breakers) == 0:
		d.to("APPROVED", "tier_low", d.plans()...)
	default:
		d.askApproval("plan", d.slices[len(d.slices)-1].plan)
	}
}

// askApproval asks the gate about the plan.
func (d *decision) askApproval(kind string, cause *ticketclient.Message) {
	plan := d.plan()
	approvers := max(1, d.rule.Approvers)
	if plan.Tier >= ticket.TierIrreversible {
		approvers = 2
	}
	first := d.slices[0].plan.ID
	d.say(ticket.TypeApprovalRequest, ticket.RoleGate, cause, fmt.Sprintf("r%d/approval/%s/%d", d.revision, kind, d.requests+1), &ticketclient.ApprovalRequest{
		Kind: kind, PlanID: plan.PlanID, Revision: plan.Revision, PlanHash: plan.PlanHash, Tier: &plan.Tier,
		Summary: fmt.Sprintf("%s: %s. Tier %d: %s", d.rule.Name, d.content.Title, plan.Tier, plan.TierReason),
		PlanRef: first, RollbackRef: first, Risk: d.risk(), ApproversRequired: approvers, ExpiresAt: within(d.now, d.rule.ApproveWithin),
	})
}

// risk says what the proposals say, each of its domain.
func (v *view) risk() ticketclient.Risk {
	var blast, reversible, data []string
	for _, s := range v.slices {
		if s.proposal != nil {
			r := proposalOf(s).Risk
			blast = append(blast, s.rule.Domain+": "+r.BlastRadius)
			reversible = append(reversible, s.rule.Domain+": "+r.Reversibility)
			data = append(data, s.rule.Domain+": "+r.DataClass)
		}
	}
	joined := func(texts []string) string { return cmp.Or(strings.Join(texts, "; "), "not known") }
	return ticketclient.Risk{BlastRadius: joined(blast), Reversibility: joined(reversible), DataClass: joined(data)}
}
