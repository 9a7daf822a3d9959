// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// Hashes are names in these tests: apply compares them and nothing else.
func sliceHash(slice string) string    { return "slice:" + slice }
func stepsHash(slice string) string    { return "steps:" + slice }
func rollbackHash(slice string) string { return "rollback:" + slice }

const (
	somePlan     = "p1"
	somePlanHash = "plan:p1"
	hour         = 3_600_000
)

// fillNotes gives a message what admission notes of it, if the test has not: the one
// slice s1 of the plan p1 of revision 1, of tier 1 on the target fw/1.
func fillNotes(m *eventlog.Message) {
	switch m.Type {
	case ticket.TypeOpen:
		if m.Requester == "" {
			m.Requester = "u1"
		}
	case ticket.TypePlanRequest:
		if m.Asked == nil {
			m.Asked = &eventlog.Asked{Slice: "s1", Revision: 1, DueMillis: epoch + hour/2}
		}
	case ticket.TypeProposal:
		if m.Proposed == nil {
			m.Proposed = &eventlog.Proposed{
				Slice: "s1", Revision: 1, Hash: sliceHash("s1"), Steps: stepsHash("s1"), Rollback: rollbackHash("s1"), Tier: 1, Targets: []string{"fw/1"}, ValidMillis: epoch + 24*hour,
			}
		}
	case ticket.TypePlan:
		if m.Planned == nil {
			m.Planned = &eventlog.Planned{
				Plan: somePlan, Hash: somePlanHash, Revision: 1, Tier: 1, Slices: []eventlog.PlannedSlice{{ID: "s1", Hash: sliceHash("s1")}}, Frozen: "s1", ValidMillis: epoch + 24*hour,
			}
		}
	case ticket.TypeApprovalRequest:
		if m.Approval == nil {
			m.Approval = &eventlog.Approval{Kind: "plan", Revision: 1, Tier: 1, Approvers: 1, Plan: somePlan, Hash: somePlanHash, ExpiresMillis: epoch + hour}
		}
	case ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		if m.Approval == nil {
			m.Approval = &eventlog.Approval{Request: m.Cause, Plan: somePlan, Hash: somePlanHash, ExpiresMillis: epoch + hour}
		}
	case ticket.TypeExecute:
		if m.Executed == nil {
			m.Executed = &eventlog.Executed{
				Plan: somePlan, Hash: somePlanHash, Slice: "s1", Mode: "apply", Steps: stepsHash("s1"), Numbers: []int{1}, Targets: []string{"fw/1"}, DeliverMillis: epoch + 60_000, CompleteMillis: epoch + hour/2,
			}
		}
	case ticket.TypeResult:
		if m.Resulted == nil {
			m.Resulted = &eventlog.Resulted{Hash: somePlanHash, Slice: "s1", Outcome: "success", Passed: true, Numbers: []int{1}}
		}
	case ticket.TypeState:
		if m.Moved == nil {
			m.Moved = &eventlog.Moved{From: ticket.StatePlanned, To: ticket.StateApproved, Causes: []string{m.Cause}}
		}
	}
}

// fillDeadlines gives a message those deadlines that something follows from, as its
// note has them.
func fillDeadlines(m *eventlog.Message) {
	switch {
	case m.Asked != nil:
		m.Deadlines = []eventlog.Deadline{{Member: "deadline", Millis: m.Asked.DueMillis}}
	case m.Type == ticket.TypeApprovalRequest:
		m.Deadlines = []eventlog.Deadline{{Member: "expires_at", Millis: m.Approval.ExpiresMillis}}
	case m.Executed != nil:
		m.Deadlines = []eventlog.Deadline{{Member: "deliver_by", Millis: m.Executed.DeliverMillis}, {Member: "complete_by", Millis: m.Executed.CompleteMillis}}
	}
}
