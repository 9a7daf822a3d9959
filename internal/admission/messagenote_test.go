// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"crypto/ed25519"
	"reflect"
	"strings"
	"testing"
	"time"

	"signalbox/internal/admission"
	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// noted is what admission notes of a message, without what the envelope says.
func noted(t *testing.T, kind, payload string) eventlog.Message {
	t.Helper()
	m := message(t, kind, payload)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	_, note, err := admission.NewMessages().Admit(m, ticket.EncodeKey(key), verbs(t), m.Header().Time.UnixMilli())
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return *note
}

func hashOf(t *testing.T, steps string) string {
	t.Helper()
	s, err := ticket.SliceOf([]byte(`{"steps":` + steps + `}`))
	if err != nil {
		t.Fatal(err)
	}
	hash, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// TestNoteHasWhatDecides: apply parses no payload, so what it decides by is here.
func TestNoteHasWhatDecides(t *testing.T) {
	valid := payloads(t)
	const someID = "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA"
	at := func(text string) int64 {
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return moment.UnixMilli()
	}
	due := func(kind, member, text string) string { return `{"` + member + `":"` + text + `",` + valid[kind][1:] }
	const later = "2030-01-01T00:00:00Z"

	if n := noted(t, ticket.TypeOpen, valid[ticket.TypeOpen]); n.Op != "open" || n.Requester != "u1" {
		t.Errorf("ticket.open: %+v", n)
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"plan.request", noted(t, ticket.TypePlanRequest, valid[ticket.TypePlanRequest]).Asked, &eventlog.Asked{Slice: "s1", Revision: 1, DueMillis: at("2026-01-01T12:30:00Z")}},
		{"proposal", noted(t, ticket.TypeProposal, due(ticket.TypeProposal, "valid_until", later)).Proposed, &eventlog.Proposed{
			Slice: "s1", Revision: 1, Hash: someSlice(t), Steps: hashOf(t, someSteps), Rollback: hashOf(t, someBack), Tier: 1, Targets: []string{"fw/1"}, ValidMillis: at(later),
		}},
		{"plan", noted(t, ticket.TypePlan, due(ticket.TypePlan, "valid_until", later)).Planned, &eventlog.Planned{
			Plan: "p1", Hash: somePlan(t), Revision: 1, Tier: 1, Slices: []eventlog.PlannedSlice{{ID: "s1", Hash: someSlice(t)}}, Frozen: "s1", ValidMillis: at(later),
		}},
		{"approval.request", noted(t, ticket.TypeApprovalRequest, due(ticket.TypeApprovalRequest, "expires_at", later)).Approval, &eventlog.Approval{
			Kind: "plan", Revision: 1, Tier: 2, Approvers: 1, Plan: "p1", Hash: somePlan(t), ExpiresMillis: at(later),
		}},
		{"approval.request of an escalation", noted(t, ticket.TypeApprovalRequest, `{"kind":"escalation","options":["resume","close"],"target":"FW/1","summary":"s","risk":`+someRisk+`,"approvers_required":2,"expires_at":"`+later+`"}`).Approval, &eventlog.Approval{
			Kind: "escalation", Approvers: 2, Options: []string{"resume", "close"}, Target: "fw/1", ExpiresMillis: at(later),
		}},
		{"approval.grant", noted(t, ticket.TypeApprovalGrant, strings.Replace(due(ticket.TypeApprovalGrant, "expires_at", later), `"single_use"`, `"choice":"resume","single_use"`, 1)).Approval, &eventlog.Approval{
			Request: someID, Plan: "p1", Hash: somePlan(t), Choice: "resume", ExpiresMillis: at(later),
		}},
		{"approval.deny", noted(t, ticket.TypeApprovalDeny, valid[ticket.TypeApprovalDeny]).Approval, &eventlog.Approval{Request: someID, Hash: somePlan(t)}},
		{"execute", noted(t, ticket.TypeExecute, strings.Replace(`{"deliver_by":"`+later+`","complete_by":"`+later+`",`+valid[ticket.TypeExecute][1:], `"approval_ids":[]`, `"approval_ids":[`+someMessage+`]`, 1)).Executed, &eventlog.Executed{
			Plan: "p1", Hash: somePlan(t), Slice: "s1", Mode: "apply", Steps: hashOf(t, someSteps), Numbers: []int{1}, Approvals: []string{someID}, Targets: []string{"fw/1"}, DeliverMillis: at(later), CompleteMillis: at(later),
		}},
		{"result", noted(t, ticket.TypeResult, valid[ticket.TypeResult]).Resulted, &eventlog.Resulted{Hash: somePlan(t), Slice: "s1", Outcome: "success", Passed: true, Numbers: []int{1}}},
		{"result in part", noted(t, ticket.TypeResult, strings.Replace(valid[ticket.TypeResult], `"steps":[`, `"steps":[{"n":3,"status":"not_started","evidence_ref":"none"},{"n":2.0,"status":"skipped","evidence_ref":"none"},`, 1)).Resulted, &eventlog.Resulted{
			Hash: somePlan(t), Slice: "s1", Outcome: "success", Passed: true, Numbers: []int{1, 2, 3}, Unfinished: true,
		}},
		{"ticket.state", noted(t, ticket.TypeState, strings.Replace(valid[ticket.TypeState], `"tier":null`, `"tier":2,"breaker":{"target":"FW/1","action":"close"}`, 1)).Moved, &eventlog.Moved{
			From: "OPEN", To: "PLANNING", Causes: []string{someID}, Slices: []eventlog.MovedSlice{{ID: "s1", State: "REQUESTED"}}, Tier: new(2), Target: "fw/1", Action: "close",
		}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.what, c.got, c.want)
		}
	}
	if n := noted(t, ticket.TypeResult, valid[ticket.TypeResult]); n.Execute != someID {
		t.Errorf("result: %+v", n)
	}
	if n := noted(t, ticket.TypeState, valid[ticket.TypeState]); n.Moved.Tier != nil {
		t.Error("a tier that is null is one")
	}
}

// TestNoteOfAProposalIsCautious: a step that cannot be undone, and what the agent asks
// for, raise the tier; targets that differ by case are one.
func TestNoteOfAProposalIsCautious(t *testing.T) {
	valid := payloads(t)[ticket.TypeProposal]
	for _, c := range []struct {
		old, new string
		tier     int
	}{
		{`"reversible":true`, `"reversible":false`, ticket.TierIrreversible},
		{`"suggested_tier":1`, `"suggested_tier":2`, ticket.TierMaterial},
	} {
		if n := noted(t, ticket.TypeProposal, strings.Replace(valid, c.old, c.new, 1)); n.Proposed.Tier != c.tier {
			t.Errorf("%s: tier %d", c.new, n.Proposed.Tier)
		}
	}
	steps := strings.Replace(someSteps, `fw/1`, `FW/1`, 1)
	s, err := ticket.SliceOf([]byte(`{"steps":` + steps + `,"rollback":` + someBack + `}`))
	if err != nil {
		t.Fatal(err)
	}
	hash, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	n := noted(t, ticket.TypeProposal, strings.NewReplacer(someSteps, steps, someSlice(t), hash).Replace(valid))
	if !reflect.DeepEqual(n.Proposed.Targets, []string{"fw/1"}) {
		t.Error(n.Proposed.Targets)
	}
}
