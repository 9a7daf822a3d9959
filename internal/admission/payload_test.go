// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/admission"
	"signalbox/ticket"
)

// TestOrdinaryPayloadsNeedNoLibrary: what agents send is settled by the forms, which
// are what makes messages cheap.
func TestOrdinaryPayloadsNeedNoLibrary(t *testing.T) {
	c := admission.NewMessages()
	for kind, payload := range payloads(t) {
		for _, text := range []string{payload, `{"later_minor":{"x":[1,2.5,null]},` + payload[1:], strings.ReplaceAll(payload, ",", " ,\n\t ")} {
			if got := c.Judge(kind, []byte(text)); got != "keeps" {
				t.Errorf("%s: %s of %s", kind, got, text)
			}
		}
	}
}

// agree holds the form of a type against the library.
func agree(t *testing.T, c *admission.Messages, kind string, payload []byte) (verdict string) {
	t.Helper()
	got, want := c.Judge(kind, payload), c.Keeps(kind, payload)
	if got == "keeps" && !want || got == "breaks" && want {
		t.Errorf("%s: the form says that it %s, the library %v:\n%.2000s", kind, got, want, payload)
	}
	return got
}

// TestFormsAgreeWithTheSchema puts every value in the place of every part of a valid
// payload of each type, and leaves each part out.
func TestFormsAgreeWithTheSchema(t *testing.T) {
	c := admission.NewMessages()
	verdicts := map[string]int{}
	for kind, payload := range payloads(t) {
		var root any
		if err := json.Unmarshal([]byte(payload), &root); err != nil {
			t.Fatal(err)
		}
		changed := func() {
			text, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			verdicts[agree(t, c, kind, text)]++
		}
		values := others()
		if top, ok := root.(map[string]any); ok { // members that some conditions ask for
			for _, name := range []string{"plan_id", "plan_hash", "target", "options", "more"} {
				before, had := top[name]
				for _, other := range values {
					top[name] = other
					changed()
				}
				if top[name] = before; !had {
					delete(top, name)
				}
			}
		}
		change(root, values, func(v any) { root = v }, changed)
	}
	for _, verdict := range []string{"keeps", "breaks", "unsure"} {
		if verdicts[verdict] < 100 {
			t.Errorf("only %d cases are %q", verdicts[verdict], verdict)
		}
	}
}

// change changes a value and its parts in many ways, one at a time.
func change(v any, values []any, set func(any), changed func()) {
	for _, other := range values {
		set(other)
		changed()
	}
	set(v)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			part := v[name]
			delete(v, name)
			changed()
			v[name+"\t"] = part // a name that is written with an escape
			changed()
			delete(v, name+"\t")
			change(part, values, func(other any) { v[name] = other }, changed)
		}
	case []any:
		for i, part := range v {
			change(part, values, func(other any) { v[i] = other }, changed)
		}
		for _, n := range []int{0, 1, 2, 10, 11, 20, 21, 100, 101, 501} {
			set(repeated(v, n, n != 2))
			changed()
		}
		set(v)
	}
}

// repeated is an array of n items that are like the first one.
func repeated(v []any, n int, distinct bool) []any {
	out := []any{}
	for i := range n {
		item := any("fw/1")
		if len(v) > 0 {
			item = v[0]
		}
		if text, ok := item.(string); ok && distinct {
			item = fmt.Sprintf("%s%d", text, i)
		}
		out = append(out, item)
	}
	return out
}

// others are values that some part of some payload may have or just not have.
func others() []any {
	all := []any{
		nil, true, false, map[string]any{}, []any{}, []any{"a", "a"}, []any{map[string]any{"n": 1}, json.Number("2.5")},
		"", "-", "a", "A", "a.b", "ä", "plan", "accept_partial", "breaker_reset", "escalation", "open", "cancel", "verify", "OPEN", "critical",
		"a\nb", "a\"b", "\\", "tab\t", "\u2028", "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA", "msg_81KDTX9K5D8Z3N7QW2R4S6T8VA", "sha256:" + strings.Repeat("0a", 32), "sha256:" + strings.Repeat("0A", 32),
		"2026-02-28T23:59:59Z", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00.123456789Z", "2024-02-29T00:00:00.1234567890Z", "2026-04-31T00:00:00Z", "2026-01-01T24:00:00Z", "2016-12-31T23:59:60Z",
		"2026-01-01T12:00:00", "2026-01-01T12:00:00z", "2026-01-01t12:00:00Z", "2026-01-01T12:00:00+00:00", "2026-01-01T12:00:00.Z", "0000-01-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z",
	}
	for _, number := range []string{
		"0", "-0", "1", "2", "3", "4", "5", "6", "-1", "500", "501", "1000000", "1000001", "9007199254740991", "999999999999999", "-9007199254740991",
		"0.5", "1.0", "0.0", "1.5", "0.9999999999", "1.0000000001", "-0.5", "1e0", "1e2", "5E-1", "100e-2",
	} {
		all = append(all, json.Number(number))
	}
	for _, length := range []int{63, 64, 65, 128, 129, 256, 257, 512, 513, 2048, 2049} {
		all = append(all, strings.Repeat("a", length))
	}
	for _, length := range []int{512, 513, 8192, 8193} {
		all = append(all, strings.Repeat("ä", length))
	}
	wide := map[string]any{}
	for i := range 65 {
		wide[fmt.Sprint("p", i)] = 1
		if i >= 63 {
			all = append(all, maps.Clone(wide))
		}
	}
	return all
}

// TestAKeywordThatNobodyChecksIsRefused: the schema is the one source, so a form is
// never of less than it says.
func TestAKeywordThatNobodyChecksIsRefused(t *testing.T) {
	for _, schema := range []string{
		`{"minContains":1}`, `{"properties":{"a":{"multipleOf":2}}}`, `{"additionalProperties":false}`, `{"$ref":"#/$defs/other"}`, `{"$ref":"https://example.com/"}`, `{"$ref":"#/$defs/x"}`,
		`{"enum":[1]}`, `{"enum":[]}`, `{"const":{}}`, `{"enum":["a","b"],"const":"a"}`, `{"type":["string","null"]}`, `{"type":"text"}`, `{"format":"email"}`, `{"pattern":"("}`, `{"if":{}}`, `{"then":{}}`, `{"minimum":0.5}`, `{"items":true}`, `{"else":{}}`,
	} {
		if err := admission.CompileForm([]byte(`{"$defs":{"x":`+schema+`}}`), "x"); err == nil {
			t.Errorf("%s is taken", schema)
		}
	}
}

// FuzzPayloadForms: what a form takes the library takes, and what it calls broken the
// library does, too, whatever the payload of a message is.
func FuzzPayloadForms(f *testing.F) {
	c := admission.NewMessages()
	for kind, payload := range payloads(f) {
		at := slices.IndexFunc(ticket.Types(), func(t ticket.Type) bool { return t.Name == kind })
		f.Add(uint8(at), []byte(payload))
	}
	f.Fuzz(func(t *testing.T, at uint8, payload []byte) {
		if _, err := ticket.Canonical(payload); err != nil || len(payload) == 0 || payload[0] != '{' {
			return // none that a message has
		}
		agree(t, c, ticket.Types()[int(at)%len(ticket.Types())].Name, payload)
	})
}
