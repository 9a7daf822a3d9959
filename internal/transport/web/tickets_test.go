// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/ticket"
)

const (
	someSteps    = `[{"n":1,"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"},"reversible":true,"precheck":"not blocked","postcheck":"blocked"}]`
	someRollback = `[{"action":"acl.unblock","target":"fw/1","params":{"address":"192.0.2.1"}}]`
	someRisk     = `{"blast_radius":"one address","reversibility":"full","data_class":"none"}`

	// someExecute is one of no plan.
	someExecute = `{"plan_id":"p1","plan_hash":"sha256:0000000000000000000000000000000000000000000000000000000000000000","slice_id":"s1","mode":"apply","steps":[{"n":1,"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"}}],"approval_ids":[],"lease_id":"l1","lease_scope":{"plan":"p1","target":"fw/1"}}`
)

func someSliceHash(t testing.TB) string {
	t.Helper()
	s, err := ticket.SliceOf([]byte(`{"steps":` + someSteps + `,"rollback":` + someRollback + `}`))
	if err != nil {
		t.Fatal(err)
	}
	hash, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// planHash is that of the plan of a tier that these tests have.
func planHash(t testing.TB, tier int) string {
	t.Helper()
	hash, err := ticket.Plan{
		TicketID: "INC-1", PlanID: "p1", Revision: 1, Tier: tier, PolicyVersion: "1.0.0", Slices: []ticket.PlanSlice{{ID: "s1", Hash: someSliceHash(t)}},
	}.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// work is a ticket of one slice, played by its agents. Each message answers the one
// before it.
type work struct {
	d    *door
	tier int
	last string // id
}

func (w *work) message(from, kind, to, payload string) *ticket.Message {
	w.d.t.Helper()
	return envelope(w.d.t, from, kind, to, w.last, payload)
}

func (w *work) say(from, kind, to, payload string) *ticket.Message {
	w.d.t.Helper()
	m := w.message(from, kind, to, payload)
	w.d.message(m).want(w.d.t, 200)
	w.last = m.Header().ID
	return m
}

// asked is a ticket with a plan.request.
func asked(d *door) *work {
	d.t.Helper()
	staffed(d)
	w := &work{d: d, last: ticket.None}
	w.say("desk", ticket.TypeOpen, "orchestrator", openPayload)
	w.say("orch", ticket.TypePlanRequest, "network", `{"slice_id":"s1","revision":1,"objective":"Block it","targets":["fw/1"],"constraints":[]}`)
	return w
}

func (w *work) proposal(slice string) string {
	return fmt.Sprintf(`{"slice_id":%q,"revision":1,"steps":%s,"rollback":%s,"risk":%s,"suggested_tier":1,"cross_domain_needs":[],"slice_hash":%q}`, slice, someSteps, someRollback, someRisk, someSliceHash(w.d.t))
}

func (w *work) plan(until string) string {
	return fmt.Sprintf(`{"plan_id":"p1","revision":1,"plan_hash":%q,"policy_version":"1.0.0","slices":[{"slice_id":"s1","slice_hash":%q}],"tier":%d,"tier_reason":"acl.block is of tier 1.","slice":{"slice_id":"s1","steps":%s,"rollback":%s},"depends_on":[],"window":{"start":"2026-01-01T12:00:00Z","end":"2026-01-01T18:00:00Z"}%s}`,
		planHash(w.d.t, w.tier), someSliceHash(w.d.t), w.tier, someSteps, someRollback, until)
}

func (w *work) state(from, to string) string {
	return fmt.Sprintf(`{"from":%q,"to":%q,"reason_code":"next","cause":[%q],"slices":[],"tier":null}`, from, to, w.last)
}

// planned is a ticket with a plan of a tier: approved, if that needs nobody, or
// waiting for the gate.
func planned(d *door, tier int) *work {
	d.t.Helper()
	w := asked(d)
	w.tier = tier
	w.say("net", ticket.TypeProposal, "network", w.proposal("s1"))
	w.say("orch", ticket.TypePlan, "network", w.plan(""))
	if ticket.Approvers(tier) == 0 {
		w.say("orch", ticket.TypeState, "intake", w.state(ticket.StatePlanned, ticket.StateApproved))
		return w
	}
	w.say("orch", ticket.TypeApprovalRequest, "gate", fmt.Sprintf(`{"kind":"plan","plan_id":"p1","revision":1,"plan_hash":%q,"tier":%d,"summary":"Block it","plan_ref":"p1","rollback_ref":"p1","risk":%s,"approvers_required":1}`, planHash(d.t, tier), tier, someRisk))
	return w
}

func (w *work) grant(approver string) string {
	return fmt.Sprintf(`{"request_id":%q,"plan_id":"p1","plan_hash":%q,"approver":%q,"decided_at":"2026-01-01T12:00:00Z","single_use":true}`, w.last, planHash(w.d.t, w.tier), approver)
}

func (w *work) execute() *ticket.Message {
	w.d.t.Helper()
	return w.say("orch", ticket.TypeExecute, "network", fmt.Sprintf(executePayload, planHash(w.d.t, w.tier)))
}

func refusedByTickets() map[event.Code]refusal {
	return map[event.Code]refusal{
		event.CodeTicketMoveIllegal: {409, func(d *door) answer {
			w := asked(d)
			return d.message(w.message("orch", ticket.TypeState, "intake", w.state(ticket.StatePlanning, ticket.StateClosed)))
		}},
		event.CodePlanConflict: {409, func(d *door) answer {
			w := asked(d)
			return d.message(w.message("net", ticket.TypeProposal, "network", w.proposal("s2")))
		}},
		event.CodePlanStale: {409, func(d *door) answer {
			w := asked(d)
			w.tier = 1
			w.say("net", ticket.TypeProposal, "network", w.proposal("s1"))
			return d.message(w.message("orch", ticket.TypePlan, "network", w.plan(`,"valid_until":"2000-01-01T00:00:00Z"`)))
		}},
		event.CodeDeadlineMissed: {409, afterTheDeadline},
		event.CodeApprovalRequired: {403, func(d *door) answer {
			w := planned(d, 2)
			w.say("alice", ticket.TypeApprovalGrant, "orchestrator", w.grant("alice"))
			w.say("orch", ticket.TypeState, "intake", w.state(ticket.StateAwaitingApproval, ticket.StateApproved))
			return d.message(w.message("orch", ticket.TypeExecute, "network", fmt.Sprintf(executePayload, planHash(d.t, 2))))
		}},
		event.CodeApprovalClosed: {409, func(d *door) answer {
			w := planned(d, 2)
			request := w.last
			w.say("alice", ticket.TypeApprovalDeny, "orchestrator", fmt.Sprintf(`{"request_id":%q,"approver":"alice","reason_code":"too_risky","reason":"No."}`, request))
			w.last = request
			return d.message(w.message("alice", ticket.TypeApprovalGrant, "orchestrator", w.grant("alice")))
		}},
		event.CodeGrantBound: {409, func(d *door) answer {
			w := planned(d, 1)
			reset := fmt.Sprintf(`{"kind":"escalation","options":["resume"],"summary":"Stuck","risk":%s,"approvers_required":1}`, someRisk)
			w.say("net", ticket.TypeEscalation, "orchestrator", `{"reason_code":"stuck","severity":"warning","refs":[],"context_ref":"c","asks":["Decide."]}`)
			w.say("orch", ticket.TypeState, "intake", w.state(ticket.StateApproved, ticket.StateEscalated))
			w.say("orch", ticket.TypeApprovalRequest, "gate", reset)
			grant := w.say("alice", ticket.TypeApprovalGrant, "orchestrator", fmt.Sprintf(`{"request_id":%q,"choice":"resume","approver":"alice","decided_at":"2026-01-01T12:00:00Z","single_use":true}`, w.last))
			w.say("orch", ticket.TypeState, "intake", w.state(ticket.StateEscalated, ticket.StateApproved))
			named := strings.Replace(fmt.Sprintf(executePayload, planHash(d.t, 1)), `"approval_ids":[]`, fmt.Sprintf(`"approval_ids":[%q]`, grant.Header().ID), 1)
			return d.message(w.message("orch", ticket.TypeExecute, "network", named))
		}},
		event.CodeSelfApproval: {403, func(d *door) answer {
			w := planned(d, 2)
			request := w.last
			w.say("desk", ticket.TypeOpen, "orchestrator", strings.NewReplacer(`"open"`, `"amend"`, `"u1"`, `"Alice"`).Replace(openPayload))
			w.last = request
			return d.message(w.message("alice", ticket.TypeApprovalGrant, "orchestrator", w.grant("alice")))
		}},
	}
}

// TestTicketIsWhatItsMessagesMadeOfIt: what the broker says of a ticket, before and
// after a restart.
func TestTicketIsWhatItsMessagesMadeOfIt(t *testing.T) {
	d := openDoor(t, founded)
	w := planned(d, 2)
	request := w.last
	grant := w.say("alice", ticket.TypeApprovalGrant, "orchestrator", w.grant("alice"))
	w.say("orch", ticket.TypeState, "intake", w.state(ticket.StateAwaitingApproval, ticket.StateApproved))
	named := strings.Replace(fmt.Sprintf(executePayload, planHash(t, 2)), `"approval_ids":[]`, fmt.Sprintf(`"approval_ids":[%q]`, grant.Header().ID), 1)
	execute := w.say("orch", ticket.TypeExecute, "network", named)
	for range 2 {
		info, err := d.broker.Ticket("INC-1")
		if err != nil {
			t.Fatal(err)
		}
		eq(t, "state", info.State, ticket.StateExecuting)
		eq(t, "trace", info.Trace, "trace-1")
		eq(t, "moved by", info.Moved, execute.Header().ID)
		eq(t, "tier", *info.Tier, 2)
		eq(t, "plan", info.Plan.Hash, planHash(t, 2))
		eq(t, "requesters", strings.Join(info.Requesters, " "), "u1 desk")
		eq(t, "slices", len(info.Slices), 1)
		eq(t, "slice", info.Slices[0].State+" "+info.Slices[0].Execute, ticket.SliceDispatched+" "+execute.Header().ID)
		eq(t, "approval", info.Approvals[0].ID, request)
		eq(t, "grant", info.Approvals[0].Grants[0].Approver+" "+info.Approvals[0].Grants[0].Bound, "alice "+execute.Header().ID)
		d.stop()
		d.start()
	}
	if _, err := d.broker.Ticket("INC-2"); event.AsError(err).Code != event.CodeTicketUnknown {
		t.Error(err)
	}
}
