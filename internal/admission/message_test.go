// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"crypto/ed25519"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/ticket"
)

const (
	someMessage = `"msg_01KDTX9K5D8Z3N7QW2R4S6T8VA"`
	someSteps   = `[{"n":1,"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"},"reversible":true,"precheck":"not blocked","postcheck":"blocked"}]`
	someBack    = `[{"action":"acl.unblock","target":"fw/1","params":{"address":"192.0.2.1"}}]`
	someRisk    = `{"blast_radius":"one address","reversibility":"full","data_class":"none"}`
)

func someSlice(t testing.TB) string {
	t.Helper()
	s, err := ticket.SliceOf([]byte(`{"steps":` + someSteps + `,"rollback":` + someBack + `}`))
	if err != nil {
		t.Fatal(err)
	}
	hash, err := s.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func somePlan(t testing.TB) string {
	t.Helper()
	p := ticket.Plan{TicketID: "INC-1", PlanID: "p1", Revision: 1, Tier: 1, PolicyVersion: "1.0.0", Slices: []ticket.PlanSlice{{ID: "s1", Hash: someSlice(t)}}}
	hash, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// payloads has a valid payload of each type.
func payloads(t testing.TB) map[string]string {
	slice, plan := someSlice(t), somePlan(t)
	return map[string]string{
		ticket.TypeOpen:            `{"op":"open","source_ref":"desk:1","title":"Web is slow","body_ref":"desk:1/body","requester":"u1","priority":2}`,
		ticket.TypePlanRequest:     `{"slice_id":"s1","revision":1,"objective":"Block it","targets":["fw/1"],"constraints":[],"deadline":"2026-01-01T12:30:00Z"}`,
		ticket.TypeProposal:        `{"slice_id":"s1","revision":1,"steps":` + someSteps + `,"rollback":` + someBack + `,"risk":` + someRisk + `,"suggested_tier":1,"cross_domain_needs":[],"slice_hash":"` + slice + `"}`,
		ticket.TypePlan:            `{"plan_id":"p1","revision":1,"plan_hash":"` + plan + `","policy_version":"1.0.0","slices":[{"slice_id":"s1","slice_hash":"` + slice + `"}],"tier":1,"tier_reason":"acl.block is of tier 1.","slice":{"slice_id":"s1","steps":` + someSteps + `,"rollback":` + someBack + `},"depends_on":[],"window":{"start":"2026-01-01T12:00:00Z","end":"2026-01-01T18:00:00Z"}}`,
		ticket.TypeApprovalRequest: `{"kind":"plan","plan_id":"p1","revision":1,"plan_hash":"` + plan + `","tier":2,"summary":"Block it","plan_ref":"p1","rollback_ref":"p1","risk":` + someRisk + `,"approvers_required":1}`,
		ticket.TypeApprovalGrant:   `{"request_id":` + someMessage + `,"plan_id":"p1","plan_hash":"` + plan + `","approver":"sender","decided_at":"2026-01-01T12:00:00Z","single_use":true}`,
		ticket.TypeApprovalDeny:    `{"request_id":` + someMessage + `,"plan_hash":"` + plan + `","approver":"sender","reason_code":"too_risky","reason":"No."}`,
		ticket.TypeExecute:         `{"plan_id":"p1","plan_hash":"` + plan + `","slice_id":"s1","mode":"apply","steps":` + someSteps + `,"approval_ids":[],"lease_id":"l1","lease_scope":{"plan":"p1","target":"fw/1"}}`,
		ticket.TypeResult:          `{"execute_id":` + someMessage + `,"plan_hash":"` + plan + `","slice_id":"s1","outcome":"success","steps":[{"n":1,"status":"done","evidence_ref":"e"}],"verification":{"passed":true,"checks":["blocked"]},"changed":["fw/1"],"started_at":"2026-01-01T12:00:00Z","ended_at":"2026-01-01T12:00:01Z"}`,
		ticket.TypeEscalation:      `{"reason_code":"stuck","severity":"warning","refs":[],"context_ref":"c","asks":["Decide."]}`,
		ticket.TypeHeartbeat:       `{"agent":"sender","accepts":">=1.0.0 <2.0.0","domains":["network"],"capabilities":["acl.block"],"inflight":[{"execute_id":` + someMessage + `,"progress":0.5}],"capacity":1,"seq":1}`,
		ticket.TypeState:           `{"from":"OPEN","to":"PLANNING","reason_code":"planned","cause":[` + someMessage + `],"slices":[{"id":"s1","state":"REQUESTED"}],"tier":null}`,
	}
}

func message(t testing.TB, kind, payload string) *ticket.Message {
	t.Helper()
	of, ok := ticket.TypeOf(kind)
	if !ok {
		t.Fatal(kind)
	}
	d := ticket.Draft{Header: ticket.Header{Type: kind, TicketID: "INC-1", TraceID: "t1", From: "sender", To: of.Routes[0].To[0]}, Payload: []byte(payload)}
	if d.To == ticket.Domain {
		d.To = "network"
	}
	if kind == ticket.TypeHeartbeat {
		d.TicketID = ticket.None
	}
	m, err := d.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return m
}

func verbs(t testing.TB) *ticket.Catalogue {
	t.Helper()
	c, err := ticket.ParseCatalogue(api.Verbs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func codeOf(err error) event.Code {
	if err == nil {
		return ""
	}
	return event.AsError(err).Code
}

// TestPayloadOfEachType: a valid one passes, also with members that a later minor
// version adds; without any one of its members it is refused, or means the same
// with its default.
func TestPayloadOfEachType(t *testing.T) {
	check, catalogue := admission.NewMessages(), verbs(t)
	valid := payloads(t)
	for _, kind := range ticket.Types() {
		payload := valid[kind.Name]
		for _, text := range []string{payload, `{"later_minor":{"x":1},` + payload[1:]} {
			if err := check.Check(message(t, kind.Name, text), catalogue); err != nil {
				t.Errorf("%s: %v", kind.Name, err)
			}
		}
		if err := check.Check(message(t, kind.Name, "{}"), catalogue); codeOf(err) != event.CodePayloadInvalid {
			t.Errorf("%s without anything: %v", kind.Name, err)
		}
		for _, d := range kind.Deadlines {
			for _, when := range []string{`"tomorrow"`, `"2026-02-30T12:00:00Z"`} {
				text := strings.Replace(payload, `"deadline":"2026-01-01T12:30:00Z",`, "", 1)
				text = fmt.Sprintf(`{%q:%s,%s`, d.Member, when, strings.Replace(text, `,"deadline":"2026-01-01T12:30:00Z"`, "", 1)[1:])
				err := check.Check(message(t, kind.Name, text), catalogue)
				if c := codeOf(err); c != event.CodePayloadInvalid && c != event.CodeMessageInvalid {
					t.Errorf("%s with %s at %s: %v", kind.Name, d.Member, when, err)
				}
			}
		}
	}
}

// TestTimesAreOnes: a time that no clock shows is refused wherever it stands, because
// readers that parse it would refuse the whole message.
func TestTimesAreOnes(t *testing.T) {
	check, catalogue := admission.NewMessages(), verbs(t)
	for kind, payload := range payloads(t) {
		for _, when := range []string{"2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z", "2026-01-01T24:00:00Z", "2016-12-31T23:59:60Z"} {
			text := anyTime.ReplaceAllString(payload, `"`+when+`"`)
			if text == payload {
				continue
			}
			if err := check.Check(message(t, kind, text), catalogue); codeOf(err) != event.CodePayloadInvalid && codeOf(err) != event.CodeMessageInvalid {
				t.Errorf("%s with %s: %v", kind, when, err)
			}
		}
	}
}

var anyTime = regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"`)

// TestPayloadContradictsItself: hashes are of what stands beside them, and nobody
// speaks for another.
func TestPayloadContradictsItself(t *testing.T) {
	check, catalogue := admission.NewMessages(), verbs(t)
	valid := payloads(t)
	for _, c := range []struct {
		kind, old, new string
		want           event.Code
		field          string
	}{
		{ticket.TypeProposal, `192.0.2.1`, `192.0.2.2`, event.CodePayloadInvalid, "payload/slice_hash"},
		{ticket.TypePlan, `192.0.2.1`, `192.0.2.2`, event.CodePayloadInvalid, "payload/slice_hash"},
		{ticket.TypePlan, `"tier":1`, `"tier":0`, event.CodePayloadInvalid, "payload/tier"},
		{ticket.TypePlan, `"tier":1`, `"tier":2`, event.CodePayloadInvalid, "payload/plan_hash"},
		{ticket.TypePlan, `"policy_version":"1.0.0"`, `"policy_version":"1.0.1"`, event.CodePayloadInvalid, "payload/policy_version"},
		{ticket.TypePlan, `"slice":{"slice_id":"s1"`, `"slice":{"slice_id":"s2"`, event.CodePayloadInvalid, "payload/slice/slice_id"},
		{ticket.TypeApprovalGrant, `"approver":"sender"`, `"approver":"other"`, event.CodePayloadInvalid, "payload/approver"},
		{ticket.TypeApprovalDeny, `"approver":"sender"`, `"approver":"other"`, event.CodePayloadInvalid, "payload/approver"},
		{ticket.TypeApprovalGrant, `"single_use":true`, `"single_use":false`, event.CodePayloadInvalid, "payload/single_use"},
		{ticket.TypeHeartbeat, `"agent":"sender"`, `"agent":"other"`, event.CodePayloadInvalid, "payload/agent"},
		{ticket.TypeExecute, `acl.block`, `shell.run`, event.CodeVerbUnknown, "steps[0]"},
		{ticket.TypeExecute, `"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"}`, `"action":"firmware.wipe","target":"fw/1","params":{}`, event.CodeVerbDenied, "steps[0]"},
		{ticket.TypeProposal, `acl.unblock`, `account.lock`, event.CodeVerbUnknown, "rollback[0]"}, // of another domain
		{ticket.TypeExecute, `"target":"fw/1","params"`, `"target":"*","params"`, event.CodePayloadInvalid, "payload/steps/0/target"},
		{ticket.TypeEscalation, `"context_ref":"c"`, `"context_ref":"https://u:hunter2@h/"`, event.CodeSecretRefused, "payload/context_ref"},
	} {
		text := strings.Replace(valid[c.kind], c.old, c.new, 1)
		if text == valid[c.kind] {
			t.Fatalf("%s has no %s", c.kind, c.old)
		}
		err := check.Check(message(t, c.kind, text), catalogue)
		if codeOf(err) != c.want || event.AsError(err).Field != c.field {
			t.Errorf("%s with %s: %v, field %s", c.kind, c.new, err, event.AsError(err).Field)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	check, catalogue := admission.NewMessages(), verbs(b)
	raw := message(b, ticket.TypeProposal, payloads(b)[ticket.TypeProposal]).Bytes()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m, err := ticket.Parse(raw)
			if err == nil {
				err = m.Verify(key)
			}
			if err == nil {
				err = check.Check(m, catalogue)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
