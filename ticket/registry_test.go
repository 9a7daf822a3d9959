// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"signalbox/api"
	"signalbox/event"
	"signalbox/ticket"
)

// TestTwelveTypes is the table of the protocol: who may send what to whom.
func TestTwelveTypes(t *testing.T) {
	want := map[string]string{
		ticket.TypeOpen:            "intake>bus.main.ticket.orchestrator",
		ticket.TypePlanRequest:     "orchestrator>bus.main.plan.network",
		ticket.TypeProposal:        "domain-agent>bus.main.plan.network",
		ticket.TypePlan:            "orchestrator>bus.main.plan.network",
		ticket.TypeApprovalRequest: "orchestrator>bus.main.approval.gate domain-agent>bus.main.approval.orchestrator",
		ticket.TypeApprovalGrant:   "gate>bus.main.approval.orchestrator",
		ticket.TypeApprovalDeny:    "gate>bus.main.approval.orchestrator",
		ticket.TypeExecute:         "orchestrator>bus.main.execute.network",
		ticket.TypeResult:          "domain-agent>bus.main.result.orchestrator",
		ticket.TypeEscalation:      "any but auditor>bus.main.escalation.gate any but auditor>bus.main.escalation.orchestrator any but auditor>bus.main.escalation.platform-ops",
		ticket.TypeHeartbeat:       "any but auditor and bus>bus.main.heartbeat.platform-ops",
		ticket.TypeState:           "orchestrator>bus.main.ticket.intake",
	}
	var roles []string
	for _, r := range ticket.Roles() {
		roles = append(roles, r.Name)
	}
	if len(ticket.Types()) != len(want) {
		t.Errorf("there are %d types", len(ticket.Types()))
	}
	for _, kind := range ticket.Types() {
		var got []string
		for _, to := range []string{"orchestrator", "gate", "network", "identity", "platform-ops", "intake", "auditor", "bus", "domain-agent"} {
			var may []string
			for _, role := range roles {
				if kind.MaySend([]string{role}, []string{"network"}, to) {
					may = append(may, role)
				}
			}
			for _, role := range may {
				if len(may) == len(roles)-1 {
					role = "any but auditor"
				} else if len(may) == len(roles)-2 {
					role = "any but auditor and bus"
				}
				if line := role + ">bus.main." + kind.Family + "." + to; !slices.Contains(got, line) {
					got = append(got, line)
				}
			}
		}
		slices.Sort(got)
		expected := splitLines(want[kind.Name])
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %q, want %q", kind.Name, got, expected)
		}
	}
}

// splitLines splits before each sender, whose name may have spaces.
func splitLines(s string) (out []string) {
	for _, part := range strings.SplitAfter(s, " ") {
		if n := len(out); n > 0 && (!strings.Contains(out[n-1], ">") || !strings.HasSuffix(out[n-1], " ")) {
			out[n-1] += part
		} else {
			out = append(out, part)
		}
	}
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	slices.Sort(out)
	return out
}

func TestNoMessageFromOneDomainToAnother(t *testing.T) {
	for _, kind := range ticket.Types() {
		if kind.MaySend([]string{"domain-agent"}, []string{"network"}, "identity") {
			t.Errorf("%s goes from domain to domain", kind.Name)
		}
		if kind.MaySend([]string{"auditor"}, nil, "gate") {
			t.Errorf("an auditor sends %s", kind.Name)
		}
	}
	plan, _ := ticket.TypeOf(ticket.TypePlan)
	if !plan.MaySend([]string{"orchestrator"}, nil, "identity") || plan.MaySend([]string{"orchestrator"}, nil, "gate") {
		t.Error("an orchestrator's plan goes to every domain and to nobody else")
	}
}

func TestDeadlinesHaveDefaults(t *testing.T) {
	want := map[string]time.Duration{
		"ticket.open ack_by escalation": 10 * time.Minute, "escalation ack_by escalation": 10 * time.Minute, "plan.request deadline escalation": 30 * time.Minute,
		"proposal valid_until ": 24 * time.Hour, "plan valid_until ": 24 * time.Hour, "approval.request expires_at escalation": time.Hour, "approval.grant expires_at ": time.Hour,
		"execute deliver_by dead-letter": time.Minute, "execute complete_by escalation": 30 * time.Minute,
	}
	for _, kind := range ticket.Types() {
		for _, d := range kind.Deadlines {
			name := kind.Name + " " + d.Member + " " + d.Missed
			if time.Duration(d.Default) != want[name] {
				t.Errorf("%s is %v", name, time.Duration(d.Default))
			}
			delete(want, name)
		}
	}
	if len(want) > 0 || ticket.TTL() != 24*time.Hour {
		t.Errorf("not in the registry: %v; the TTL is %v", want, ticket.TTL())
	}
}

func TestDeadlineOfThePayloadCounts(t *testing.T) {
	m := sign(t, open(`{"ack_by":"2026-01-01T13:00:00Z"}`))
	if at, err := m.Expires(); err != nil || !at.Equal(time.Date(2026, 1, 1, 13, 0, 0, 0, time.UTC)) {
		t.Error(at, err)
	}
	for _, bad := range []string{`"soon"`, `"2026-01-01T13:00:00+01:00"`, `"2026-13-01T13:00:00Z"`, `7`} {
		if _, err := sign(t, open(`{"ack_by":`+bad+`}`)).Expires(); code(err) != event.CodeMessageInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSchemaHasTheFormsOfTheDecoder: what the decoder takes or refuses in the
// envelope, the schema for other languages does too.
func TestSchemaHasTheFormsOfTheDecoder(t *testing.T) {
	var schema struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(api.TicketSchema, &schema); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, kind := range ticket.Types() {
		types = append(types, kind.Name)
		if schema.Defs[kind.Name] == nil {
			t.Errorf("there is no schema for %s", kind.Name)
		}
	}
	if !slices.Equal(schema.Properties["type"].Enum, types) {
		t.Errorf("the types of the schema are %v", schema.Properties["type"].Enum)
	}
	if len(schema.Required) != 13 || len(schema.Properties) != 13 {
		t.Errorf("the envelope of the schema has %d members, %d of them required", len(schema.Properties), len(schema.Required))
	}
}

// patterns are those that the schema has for members of the envelope.
func patterns(t testing.TB) map[string]*regexp.Regexp {
	t.Helper()
	type text struct {
		Pattern string `json:"pattern"`
		Ref     string `json:"$ref"`
	}
	var schema struct {
		Properties map[string]text `json:"properties"`
		Defs       map[string]text `json:"$defs"`
	}
	if err := json.Unmarshal(api.TicketSchema, &schema); err != nil {
		t.Fatal(err)
	}
	all := map[string]*regexp.Regexp{"causation_id": regexp.MustCompile("^-$|" + schema.Defs["message_id"].Pattern)}
	for _, member := range []string{"id", "schema_version", "ticket_id", "trace_id", "from", "ts", "nonce", "idempotency_key"} {
		p := schema.Properties[member]
		if p.Ref != "" {
			p = schema.Defs[strings.TrimPrefix(p.Ref, "#/$defs/")]
		}
		if p.Pattern == "" {
			t.Fatalf("the schema has no pattern for %s", member)
		}
		all[member] = regexp.MustCompile(p.Pattern)
	}
	return all
}

// formOf holds the decoder's form of a member against the schema's.
func formOf(t *testing.T, member string, pattern *regexp.Regexp, text string) {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		return // it is not UTF-8
	}
	envelope := regexp.MustCompile(`"`+member+`":"[^"]*"`).ReplaceAllLiteralString(string(envelopeOf("{}")), `"`+member+`":`+string(quoted))
	_, err = ticket.ParseAny([]byte(envelope))
	refused := err != nil && event.AsError(err).Field == member
	want := pattern.MatchString(text)
	if _, fault := time.Parse(time.RFC3339, text); member == "ts" && fault != nil || member == "ticket_id" && text == "-" {
		want = false // no time of the calendar; and only heartbeats have no ticket
	}
	if refused == want {
		t.Errorf("%s %q: %v, and the schema takes it: %v", member, text, err, want)
	}
}

func FuzzFormsOfTheSchema(f *testing.F) {
	all := patterns(f)
	for _, text := range []string{
		"", "-", "a", "A", "0", "_a", "a_", "a-", "a.b", "a:b", "é", "a b", "~", "!", "\x7f", "\n", "a\n", "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA", "msg_81KDTX9K5D8Z3N7QW2R4S6T8VA", "msg_01KDTX9K5D8Z3N7QW2R4S6T8V", "msg_01KDTX9K5D8Z3N7QW2R4S6T8VAA",
		"msg_0IKDTX9K5D8Z3N7QW2R4S6T8VA", "msg_0LKDTX9K5D8Z3N7QW2R4S6T8VA", "msg_0OKDTX9K5D8Z3N7QW2R4S6T8VA", "msg_0UKDTX9K5D8Z3N7QW2R4S6T8VA", "msg_0zKDTX9K5D8Z3N7QW2R4S6T8VA",
		"1.0.0", "0.0.0", "1.999999.0", "1.1000000.0", "1.01.0", "1.0", "1.0.0.0", "1..0", "1.0.0-a", "2026-01-01T12:00:00Z", "2026-01-01T12:00:00.123456789Z", "2026-01-01T12:00:00.1234567890Z", "2026-01-01T12:00:00.Z",
		"2026-01-01T12:00:00", "2026-01-01t12:00:00Z", "2026-01-01T12:00:60Z", "2026-02-30T12:00:00Z", "2026-01-01T12:00:00,5Z", "nonce-0123456789", "nonce-012345678", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 128), strings.Repeat("a", 129),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for member, pattern := range all {
			formOf(t, member, pattern, text)
		}
	})
}
