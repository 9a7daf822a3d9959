// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"signalbox/internal/broker"
	"signalbox/ticket"
)

// likely is what somebody of the crew may well say next about a ticket. Its type is
// "" if it occurs to nobody.
func (w *world) likely(t *broker.TicketInfo) ticket.Draft {
	switch w.rng.IntN(40) {
	case 0:
		return draft(pick(w.rng, "net", "orch", "alice"), "gate", ticket.TypeEscalation, w.some(t), payload{"reason_code": "odd", "severity": "warning", "refs": []any{}, "context_ref": "x", "asks": []any{"look"}})
	case 1:
		return draft("desk", "orchestrator", ticket.TypeOpen, t.Open, opening(pick(w.rng, "cancel", "amend")))
	}
	switch t.State {
	case ticket.StateOpen:
		return w.asks(t, "network")
	case ticket.StatePlanning:
		return w.plans(t)
	case ticket.StatePlanned:
		if d := w.freezes(t); d.Type != "" {
			return d
		}
		if *t.Tier < 2 && w.rng.IntN(4) > 0 {
			return w.moves(t, ticket.StateApproved, t.Plan.Message)
		}
		return w.requests(t, "plan", t.Plan.Message)
	case ticket.StateAwaitingApproval:
		return w.decides(t)
	case ticket.StateApproved:
		return w.executes(t, "apply", ticket.SliceFrozen)
	case ticket.StateExecuting:
		return w.carriesOut(t)
	case ticket.StateVerifying:
		return w.verifies(t)
	case ticket.StateRollingBack:
		return w.undoes(t)
	}
	return w.settles(t)
}

// some is the id of a message of the ticket.
func (w *world) some(t *broker.TicketInfo) string {
	var ids []string
	for _, s := range w.crew.said {
		if s.TicketID == t.ID {
			ids = append(ids, s.ID)
		}
	}
	if len(ids) == 0 {
		return t.Open
	}
	return ids[max(0, len(ids)-1-w.rng.IntN(6))]
}

// unlikely is what nobody should say: some message, or some move.
func (w *world) unlikely(t *broker.TicketInfo) ticket.Draft {
	states := ticket.States()
	switch w.rng.IntN(7) {
	case 0:
		return w.moves(t, states[w.rng.IntN(len(states))].Name, w.some(t))
	case 1:
		return w.asks(t, pick(w.rng, "network", "storage"))
	case 2:
		return w.decides(t)
	case 3:
		return w.executes(t, pick(w.rng, "apply", "verify", "rollback"), "")
	case 4:
		return w.reports(t, "")
	case 5:
		return w.requests(t, pick(w.rng, "plan", "escalation", "accept_partial", "breaker_reset"), w.some(t))
	}
	return w.freezes(t)
}

func (w *world) asks(t *broker.TicketInfo, domain string) ticket.Draft {
	revision := t.Revision
	if len(t.Slices) == 0 {
		revision++
	}
	slice := map[string]string{"network": "s1", "storage": "s2"}[domain]
	return draft("orch", domain, ticket.TypePlanRequest, w.some(t), payload{"slice_id": slice, "revision": revision, "objective": "o", "targets": []any{"fw/1"}, "constraints": []any{}})
}

// plans goes on with a ticket that is being planned.
func (w *world) plans(t *broker.TicketInfo) ticket.Draft {
	if len(t.Slices) == 0 {
		return w.asks(t, "network")
	}
	if len(t.Slices) < 2 && w.rng.IntN(3) == 0 {
		return w.asks(t, "storage")
	}
	for i := range t.Slices {
		s := &t.Slices[i]
		if s.State != ticket.SliceRequested {
			continue
		}
		steps, rollback := done(s.Domain, w.rng.IntN(3))
		p := payload{
			"slice_id": s.ID, "revision": t.Revision, "steps": steps, "rollback": rollback, "suggested_tier": pick(w.rng, 0, 0, 3), "cross_domain_needs": []any{},
			"risk": payload{"blast_radius": "b", "reversibility": "r", "data_class": "d"},
		}
		slice, err := ticket.SliceOf(jsonOf(p))
		if err != nil {
			w.fail("a proposal: %v", err)
		}
		if p["slice_hash"], err = slice.Hash(); err != nil {
			w.fail("a proposal: %v", err)
		}
		return draft(domainAgent(s.Domain), s.Domain, ticket.TypeProposal, s.Request, p)
	}
	return w.freezes(t)
}

// freezes issues the plan to one more domain.
func (w *world) freezes(t *broker.TicketInfo) ticket.Draft {
	var frozen *broker.TicketSlice
	plan := ticket.Plan{TicketID: t.ID, PlanID: fmt.Sprint("p", t.Revision), Revision: t.Revision, PolicyVersion: w.crew.verbs.Version}
	var proposed []ticket.Proposed
	var list []any
	for i := range t.Slices {
		s := &t.Slices[i]
		said := w.crew.byID[s.Proposal]
		if said == nil {
			return ticket.Draft{}
		}
		slice, _ := ticket.SliceOf(jsonOf(said.payload))
		suggested, _ := said.payload["suggested_tier"].(float64)
		proposed = append(proposed, ticket.Proposed{Domain: s.Domain, Slice: slice, Suggested: int(suggested)})
		plan.Slices = append(plan.Slices, ticket.PlanSlice{ID: s.ID, Hash: s.Hash})
		list = append(list, payload{"slice_id": s.ID, "slice_hash": s.Hash})
		if frozen == nil && s.State == ticket.SliceProposed {
			frozen = s
		}
	}
	if frozen == nil {
		return ticket.Draft{}
	}
	var reason string
	plan.Tier, reason = w.crew.verbs.Tier(proposed)
	if t.Plan != nil {
		plan.Tier = t.Plan.Tier
	}
	if w.rng.IntN(10) == 0 {
		plan.Tier = w.rng.IntN(4)
	}
	hash, err := plan.Hash()
	if err != nil {
		w.fail("a plan: %v", err)
	}
	said := w.crew.byID[frozen.Proposal]
	return draft("orch", frozen.Domain, ticket.TypePlan, frozen.Proposal, payload{
		"plan_id": plan.PlanID, "revision": plan.Revision, "plan_hash": hash, "policy_version": plan.PolicyVersion, "slices": list, "tier": plan.Tier, "tier_reason": reason,
		"slice": payload{"slice_id": frozen.ID, "steps": said.payload["steps"], "rollback": said.payload["rollback"]}, "depends_on": []any{},
		"window": payload{"start": "2026-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"},
	})
}

func (w *world) moves(t *broker.TicketInfo, to, cause string) ticket.Draft {
	return draft("orch", "intake", ticket.TypeState, cause, payload{"from": t.State, "to": to, "reason_code": "next", "cause": []any{cause}, "slices": []any{}, "tier": nil})
}

func (w *world) requests(t *broker.TicketInfo, kind, cause string) ticket.Draft {
	p := payload{"kind": kind, "summary": "s", "risk": payload{"blast_radius": "b", "reversibility": "r", "data_class": "d"}, "approvers_required": 1}
	switch kind {
	case "plan", "accept_partial":
		if t.Plan == nil {
			return ticket.Draft{}
		}
		p["plan_id"], p["revision"], p["plan_hash"], p["tier"], p["plan_ref"], p["rollback_ref"] = t.Plan.ID, t.Revision, t.Plan.Hash, t.Plan.Tier, "x", "y"
		if t.Plan.Tier == 3 {
			p["approvers_required"] = 2
		}
	case "breaker_reset":
		p["target"] = "fw/1"
	case "escalation":
		p["options"] = []any{"resume", "replan", "cancel", "close"}
	}
	return draft("orch", "gate", ticket.TypeApprovalRequest, cause, p)
}

// decides has the gate grant or deny what it was asked last, or the orchestrator
// move by that.
func (w *world) decides(t *broker.TicketInfo) ticket.Draft {
	if len(t.Approvals) == 0 {
		return ticket.Draft{}
	}
	a := &t.Approvals[len(t.Approvals)-1]
	switch {
	case a.Denied != "":
		return w.moves(t, ticket.StateDenied, a.Denied)
	case len(a.Grants) >= a.Approvers && w.rng.IntN(4) > 0 && a.Kind == "plan":
		return w.moves(t, ticket.StateApproved, a.Grants[len(a.Grants)-1].ID)
	}
	approver := pick(w.rng, "alice", "bob")
	p := payload{"request_id": a.ID, "approver": approver}
	if a.PlanHash != "" {
		p["plan_hash"] = a.PlanHash
	}
	if w.rng.IntN(8) == 0 {
		p["reason_code"], p["reason"] = "no", "no"
		return draft(approver, "orchestrator", ticket.TypeApprovalDeny, a.ID, p)
	}
	p["decided_at"], p["single_use"] = "2026-01-01T00:00:00Z", true
	if a.PlanHash != "" && t.Plan != nil {
		p["plan_id"] = t.Plan.ID
	}
	if a.Kind == "escalation" {
		p["choice"] = pick(w.rng, "resume", "replan", "replan", "cancel", "close")
	}
	return draft(approver, "orchestrator", ticket.TypeApprovalGrant, a.ID, p)
}

// executes carries out a slice in some state; of any if it is "".
func (w *world) executes(t *broker.TicketInfo, mode, state string) ticket.Draft {
	for i := range t.Slices {
		s := &t.Slices[i]
		said := w.crew.byID[s.Proposal]
		if said == nil || t.Plan == nil || state != "" && s.State != state || state == "" && w.rng.IntN(2) == 0 {
			continue
		}
		steps := said.payload["steps"]
		if mode == "rollback" {
			steps = said.payload["rollback"]
		}
		if list, ok := steps.([]any); !ok || len(list) == 0 {
			continue
		}
		return draft("orch", s.Domain, ticket.TypeExecute, t.Plan.Message, payload{
			"plan_id": t.Plan.ID, "plan_hash": t.Plan.Hash, "slice_id": s.ID, "mode": mode, "steps": steps, "approval_ids": w.approvals(t),
			"lease_id": "l", "lease_scope": payload{"plan": t.Plan.ID, "target": "fw/1"},
		})
	}
	return ticket.Draft{}
}

// approvals are the grants for the plan in force, or at times some others.
func (w *world) approvals(t *broker.TicketInfo) []any {
	ids := []any{}
	other := w.rng.IntN(12) == 0
	for i := range t.Approvals {
		for _, g := range t.Approvals[i].Grants {
			if (t.Approvals[i].PlanHash == t.Plan.Hash && t.Approvals[i].Kind == "plan") != other {
				ids = append(ids, g.ID)
			}
		}
	}
	return ids
}

// reports has a domain agent report on the latest execute of a mode; of any if it
// is "".
func (w *world) reports(t *broker.TicketInfo, mode string) ticket.Draft {
	x := w.crew.last(t.ID, ticket.TypeExecute, func(s *spoken) bool {
		answered := w.crew.last(t.ID, ticket.TypeResult, func(r *spoken) bool { return r.payload.text("execute_id") == s.ID })
		return (mode == "" || s.payload.text("mode") == mode) && (answered == nil || mode == "")
	})
	if x == nil {
		return ticket.Draft{}
	}
	outcome := pick(w.rng, "success", "success", "success", "partial", "failed", "refused")
	if x.payload.text("mode") == "rollback" {
		outcome = pick(w.rng, "rolled_back", "rolled_back", "rolled_back", "rollback_failed")
	}
	steps := []any{}
	for n := range x.payload["steps"].([]any) {
		steps = append(steps, payload{"n": n + 1, "status": "done", "evidence_ref": "none"})
	}
	return draft(domainAgent(x.To), "orchestrator", ticket.TypeResult, x.ID, payload{
		"execute_id": x.ID, "plan_hash": x.payload["plan_hash"], "slice_id": x.payload["slice_id"], "outcome": outcome, "steps": steps,
		"verification": payload{"passed": w.rng.IntN(4) > 0, "checks": []any{}}, "changed": []any{}, "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:00Z",
	})
}

// carriesOut goes on with a ticket that is executing.
func (w *world) carriesOut(t *broker.TicketInfo) ticket.Draft {
	if d := w.reports(t, "apply"); d.Type != "" && w.rng.IntN(3) > 0 {
		return d
	}
	if d := w.executes(t, "apply", ticket.SliceFrozen); d.Type != "" {
		return d
	}
	to := pick(w.rng, ticket.StateVerifying, ticket.StateVerifying, ticket.StatePartial, ticket.StateFailed, ticket.StateRolledBack)
	return w.moves(t, to, w.some(t))
}

func (w *world) verifies(t *broker.TicketInfo) ticket.Draft {
	if d := w.reports(t, "verify"); d.Type != "" {
		return d
	}
	if w.rng.IntN(2) == 0 {
		return w.executes(t, "verify", ticket.SliceSucceeded)
	}
	return w.moves(t, pick(w.rng, ticket.StateResolved, ticket.StateResolved, ticket.StatePartial), w.some(t))
}

func (w *world) undoes(t *broker.TicketInfo) ticket.Draft {
	if d := w.reports(t, "rollback"); d.Type != "" {
		return d
	}
	if w.rng.IntN(2) == 0 {
		return w.executes(t, "rollback", pick(w.rng, ticket.SliceSucceeded, ticket.SlicePartial))
	}
	return w.moves(t, pick(w.rng, ticket.StateRolledBack, ticket.StateEscalated), w.some(t))
}

// settles goes on with a ticket whose execution is over, or that was stopped.
func (w *world) settles(t *broker.TicketInfo) ticket.Draft {
	switch t.State {
	case ticket.StatePartial:
		return w.moves(t, pick(w.rng, ticket.StateRollingBack, ticket.StateRollingBack, ticket.StatePlanning, ticket.StateEscalated), w.some(t))
	case ticket.StateEscalated:
		if n := len(t.Approvals); n == 0 || t.Approvals[n-1].Kind != "escalation" || w.rng.IntN(5) == 0 {
			return w.requests(t, "escalation", w.some(t))
		}
		a := &t.Approvals[len(t.Approvals)-1]
		if len(a.Grants) == 0 || w.rng.IntN(4) == 0 {
			return w.decides(t)
		}
		g := &a.Grants[0]
		to := map[string]string{"resume": t.ResumeTo, "replan": ticket.StatePlanning, "cancel": ticket.StateCancelled, "close": ticket.StateClosed}[g.Choice]
		if to == "" {
			return ticket.Draft{}
		}
		return w.moves(t, to, g.ID)
	}
	return w.moves(t, pick(w.rng, ticket.StateClosed, ticket.StatePlanning), w.some(t))
}
