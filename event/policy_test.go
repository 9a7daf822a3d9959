// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestPolicyDefaults(t *testing.T) {
	p, err := event.ParsePolicy([]byte(" {} "))
	if err != nil || !p.Equal(event.DefaultPolicy()) {
		t.Errorf("an empty policy is %+v, %v", p, err)
	}
	if p.CleanupPolicy != "delete" || p.Retention.Std() != 7*24*time.Hour || p.DeleteRetention != event.Day || p.MaxEventBytes != 256<<10 || p.Compacts() || !p.Deletes() {
		t.Errorf("the defaults are %+v", p)
	}
}

func TestParsePolicy(t *testing.T) {
	hour := event.Duration(time.Hour)
	for in, want := range map[string]event.Policy{
		`{"cleanup_policy":"compact","retention":null,"delete_retention":"0s","key_from":"order.id","require_hlc":true,"signed":false,"max_event_bytes":65536}`:                         {Durability: "durable", CleanupPolicy: "compact", KeyFrom: "order.id", RequireHLC: true, MaxEventBytes: 65536},
		`{"cleanup_policy":"compact,delete","retention":"60m","retention_bytes":1048576,"min_compaction_lag":"60m","delete_retention":"1h","key_from":null,"max_event_bytes":16777216}`: {Durability: "durable", CleanupPolicy: "compact,delete", Retention: &hour, RetentionBytes: 1 << 20, MinCompactionLag: hour, DeleteRetention: hour, MaxEventBytes: 16 << 20},
		`{"durability":"ephemeral","key_from":"unit","retention":"1h","delete_retention":"24h"}`:                                                                                        {Durability: "ephemeral", CleanupPolicy: "delete", KeyFrom: "unit", Retention: &hour, DeleteRetention: event.Day, MaxEventBytes: 256 << 10},
	} {
		got, err := event.ParsePolicy([]byte(in))
		if err != nil || !got.Equal(want) {
			t.Errorf("%s is %+v, %v", in, got, err)
		}
		out, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var back event.Policy
		if err := json.Unmarshal(out, &back); err != nil || !back.Equal(want) {
			t.Errorf("%s came back as %+v, %v", out, back, err)
		}
	}
	for in, field := range map[string]string{
		``: "", `[]`: "", `null`: "", `{`: "", `{}x`: "", `{"a":}`: "", `{"retention":"7d",}`: "",
		`{"compact":true}`: "compact", `{"Retention":"7d"}`: "Retention", `{"retention":"7d","retention":"8d"}`: "retention",
		`{"cleanup_policy":"delete,compact"}`: "cleanup_policy", `{"cleanup_policy":null}`: "cleanup_policy", `{"cleanup_policy":1}`: "cleanup_policy",
		`{"retention":"0s"}`: "retention", `{"retention":7}`: "retention", `{"retention":"-1h"}`: "retention", `{"retention":""}`: "retention",
		`{"delete_retention":null}`: "delete_retention", `{"delete_retention":"101y"}`: "delete_retention",
		`{"retention_bytes":0}`: "retention_bytes", `{"retention_bytes":-1}`: "retention_bytes", `{"retention_bytes":"1"}`: "retention_bytes", `{"retention_bytes":1125899906842625}`: "retention_bytes", `{"retention_bytes":1.0}`: "retention_bytes",
		`{"min_compaction_lag":null}`: "min_compaction_lag", `{"min_compaction_lag":"101y"}`: "min_compaction_lag", `{"min_compaction_lag":1}`: "min_compaction_lag",
		`{"schema":true}`: "schema", `{"schema":"{}"}`: "schema", `{"schema":[]}`: "schema", `{"schema":{"a":1,"a":2}}`: "schema",
		`{"signed":null}`: "signed", `{"signed":"true"}`: "signed",
		`{"key_from":1}`: "key_from", `{"key_from":"a..b"}`: "key_from", `{"require_hlc":null}`: "require_hlc", `{"require_hlc":"true"}`: "require_hlc",
		`{"max_event_bytes":65535}`: "max_event_bytes", `{"max_event_bytes":16777217}`: "max_event_bytes", `{"max_event_bytes":1e6}`: "max_event_bytes",
		`{"durability":"ephemeral","retention_bytes":1048576}`: "retention_bytes", `{"durability":"volatile"}`: "durability", `{"durability":null}`: "durability", `{"durability":"ephemeral","cleanup_policy":"compact"}`: "cleanup_policy",
		`{"max_event_bytes":"65536"}`: "max_event_bytes", `{"max_event_bytes":-1}`: "max_event_bytes", `{"max_event_bytes":null}`: "max_event_bytes",
	} {
		_, err := event.ParsePolicy([]byte(in))
		if e := wantCode(t, err, event.CodePolicyInvalid); e.Field != field {
			t.Errorf("%s: field %q", in, e.Field)
		}
		if json.Unmarshal([]byte(in), new(event.Policy)) == nil && in != "null" {
			t.Errorf("%s is accepted by encoding/json", in)
		}
	}
}

// TestEphemeralPolicyHasNoLog: what would mean something only for stored events is
// refused, as it would be taken for obeyed; where it was stored before that it has
// no effect and is not damage.
func TestEphemeralPolicyHasNoLog(t *testing.T) {
	for in, field := range map[string]string{
		`{"durability":"ephemeral","min_compaction_lag":"1h"}`: "min_compaction_lag",
		`{"durability":"ephemeral","delete_retention":"1h"}`:   "delete_retention",
		`{"delete_retention":"0s","durability":"ephemeral"}`:   "delete_retention",
	} {
		_, err := event.ParsePolicy([]byte(in))
		if e := wantCode(t, err, event.CodePolicyInvalid); e.Field != field {
			t.Errorf("%s: field %q", in, e.Field)
		}
		var stored event.Policy
		if err := json.Unmarshal([]byte(in), &stored); err != nil || stored.MinCompactionLag != 0 || stored.DeleteRetention != event.Day {
			t.Errorf("%s was stored, and is %+v, %v", in, stored, err)
		}
	}
}

// TestSchemaIsTheSameText however it was written, and after it went through the
// escapes of encoding/json, which the log and the store use.
func TestSchemaIsTheSameText(t *testing.T) {
	const normal = `{"pattern":"<a&b>é","enum":[1.50,null]}`
	for _, in := range []string{normal, ` { "pattern" : "\u003ca\u0026b\u003e\u00e9" , "enum" : [ 1.50 , null ] } `} {
		p, err := event.ParsePolicy([]byte(`{"schema":` + in + `}`))
		if err != nil || p.Schema != normal || event.SchemaHash(in) != event.SchemaHash(normal) {
			t.Errorf("%s is %s, %v", in, p.Schema, err)
		}
		stored, err := json.Marshal(struct{ Policy event.Policy }{p})
		if err != nil {
			t.Fatal(err)
		}
		var back struct{ Policy event.Policy }
		if err := json.Unmarshal(stored, &back); err != nil || !back.Policy.Equal(p) {
			t.Errorf("%s came back as %+v, %v", stored, back, err)
		}
	}
	if event.SchemaHash("") != [16]byte{} || event.SchemaHash("{}") == event.SchemaHash(normal) {
		t.Error("two schemas have the same hash")
	}
	p := event.DefaultPolicy()
	p.Schema = "{"
	if e := wantCode(t, p.Validate(), event.CodePolicyInvalid); e.Field != "schema" {
		t.Errorf("the field is %q", e.Field)
	}
	for _, in := range []string{strings.Repeat(`{"not":`, 129) + "{}" + strings.Repeat("}", 129), `{"title":` + quote(strings.Repeat("x", event.MaxSchemaBytes)) + `}`} {
		_, err := event.ParsePolicy([]byte(`{"schema":` + in + `}`))
		wantCode(t, err, event.CodePolicyInvalid)
	}
}

// TestSignedIsReserved: a topic that says it takes signed events only, and takes
// others, would be worse than one that says nothing.
func TestSignedIsReserved(t *testing.T) {
	_, err := event.ParsePolicy([]byte(`{"signed":true}`))
	if e := wantCode(t, err, event.CodeSignedUnsupported); e.Field != "signed" {
		t.Errorf("the field is %q", e.Field)
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]string{
		"90s": "1m30s", "15m": "15m", "24h": "1d", "7d": "7d", "1d12h": "36h", "1h30m": "1h30m", "500ms": "500ms", "0s": "0s", "0d": "0s",
		"1.5h": "1h30m", "36525d": "36525d", "1h0m1s": "1h0m1s", "876600h": "36525d",
	} {
		d, err := event.ParseDuration(in)
		if err != nil || d.String() != want {
			t.Errorf("%s is %s, %v", in, d, err)
		}
		if back, err := event.ParseDuration(d.String()); err != nil || back != d {
			t.Errorf("%s came back as %s, %v", d, back, err)
		}
	}
	for _, in := range []string{
		"", "d", "7", "7 d", "-7d", "+7d", "07d", "1d-1h", "7dd", "1h7d", "1.5d", "1ns", "1us", "1.0001s", "36526d", "36525d1ms", "876601h", "1e3h", "9223372036854775807d", "2562048h", "x", "7D",
	} {
		_, err := event.ParseDuration(in)
		wantCode(t, err, event.CodePolicyInvalid)
	}
}

func TestReceipt(t *testing.T) {
	r := event.Receipt{
		Outcome: event.OutcomeAccepted, Topic: "fleet.tasks", Source: "/a\"b", ID: "1",
		Position: 105, Cursor: event.Cursor{Position: 105, Incarnation: "k3f9x0ab"}, HLC: event.NewHLC(1764422645000, 1),
	}
	const want = `{"outcome":"accepted","topic":"fleet.tasks","source":"/a\"b","id":"1","position":"105","cursor":"@105.k3f9x0ab","hlc":"1764422645000.00001"}`
	for in, want := range map[event.Receipt]string{
		r: want, {Outcome: event.OutcomeConflict, Topic: "a", Source: "b", ID: "c"}: `{"outcome":"conflict","topic":"a","source":"b","id":"c"}`,
	} {
		out, err := json.Marshal(in)
		if err != nil || string(out) != want {
			t.Errorf("got %s, %v", out, err)
		}
		var back event.Receipt
		if err := json.Unmarshal(out, &back); err != nil || back != in {
			t.Errorf("came back as %+v, %v", back, err)
		}
	}
	var newer event.Receipt
	if err := json.Unmarshal([]byte(`{"outcome":"accepted","unknown":[1]}`), &newer); err != nil {
		t.Errorf("a newer receipt: %v", err)
	}
	if err := newer.UnmarshalJSON([]byte(`{"cursor":"x"}`)); event.AsError(err).Code != event.CodeJSONInvalid {
		t.Errorf("a broken receipt: %v", err)
	}
}

// TestEveryCodeHasAClass walks the table that docs/errors.md is made from.
func TestEveryCodeHasAClass(t *testing.T) {
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[event.Code]bool{}
	for _, code := range event.Codes() {
		c := code.Class()
		if seen[code] {
			t.Errorf("%s is there twice", code)
		}
		seen[code] = true
		if !strings.Contains(string(source), fmt.Sprintf("Code = %q", code)) {
			t.Errorf("%s has no constant", code)
		}
		if c.HTTP < 400 || c.HTTP > 599 || c.Title == "" || !strings.HasSuffix(c.Action, ".") {
			t.Errorf("%s is incomplete: %+v", code, c)
		}
		// Callers retry by any of the three, so they must agree.
		if c.Retryable != (c.Exit == 75) || c.Retryable != (c.HTTP == 503 || c.HTTP == 507) {
			t.Errorf("%s disagrees on retrying: %+v", code, c)
		}
		if (c.HTTP < 500) != (c.Exit == 2) {
			t.Errorf("%s disagrees on whose fault it is: %+v", code, c)
		}
	}
	if got := strings.Count(string(source), "Code = \""); got != len(seen) {
		t.Errorf("%d constants, %d classes", got, len(seen))
	}
	if event.Code("nonsense").Class() != event.CodeInternal.Class() {
		t.Error("an unknown code is not internal")
	}
}
