// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/ticket"
)

// TestCanonicalTextKeepsWhatOthersEscape: an encoder that is made for pages
// escapes <, > and & and, whatever it is told, U+2028 and U+2029. The canonical
// form has them as they are (RFC 8785 section 3.2.2.2).
func TestCanonicalTextKeepsWhatOthersEscape(t *testing.T) {
	for input, want := range map[string]string{
		`"\u003ca\u0026b\u003e"`:        `"<a&b>"`,
		`"\u2028\u2029"`:                "\"\u2028\u2029\"",
		`"\/\u00e9\t\u0009"`:            `"/é\t\t"`,
		`"\u0000\u001f\b\f\n\r"`:        `"\u0000\u001f\b\f\n\r"`,
		`"\u005C\u0022\u007f"`:          "\"\\\\\\\"\u007f\"",
		`"\ud83d\ude00"`:                `"😀"`,
		"\"e\u0301\"":                   "\"e\u0301\"", // not composed
		`{"\u20ac":1,"\r":2,"1":3}`:     "{\"\\r\":2,\"1\":3,\"€\":1}",
		`{"\ufb33":1,"\ud83d\ude00":2}`: "{\"😀\":2,\"\ufb33\":1}", // by UTF-16, not by code point
		` { "b" : [ ] , "a" : { } } `:   `{"a":{},"b":[]}`,
	} {
		got, err := ticket.Canonical([]byte(input))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", input, got, err, want)
		}
	}
}

// TestOtherSpellingsOfOneEnvelopeVerify: the order of members, white space and
// the style of escapes are the sender's affair; the value is what is signed.
func TestOtherSpellingsOfOneEnvelopeVerify(t *testing.T) {
	d := open(`{"text":"<a&b> \u2028\u2029 é/\t\u0000","n":4.5}`)
	m := sign(t, d)
	sig, _ := event.LookupJSON(m.Bytes(), "sig")
	text := fmt.Sprintf(`{"type":"ticket.open", "sig" : %q, "payload":{"n" : 45e-1,
		"text":"\u003Ca\u0026b\u003e \u2028\u2029 \u00E9\/\u0009\u0000"}, "ts":"2026-01-01T12:00:00.5Z",
		"\u0069d":"msg_01KDTX9K5D8Z3N7QW2R4S6T8VA", "schema_version":%q, "ticket_id":"INC-1", "trace_id":"trace-1", "causation_id":"-",
		"from":"desk", "to":"orchestrat\u006fr", "nonce":"nonce-0123456789", "idempotency_key":"open-INC-1"}`, sig, ticket.SchemaVersion())
	other, err := ticket.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := other.Verify(publicOf("desk")); err != nil {
		t.Error(err)
	}
	if bytes.Equal(other.Bytes(), m.Bytes()) || string(other.Bytes()) != text {
		t.Error("the bytes are not the sender's")
	}
	if !bytes.Contains(m.Signed(), []byte("<a&b> \u2028\u2029 é/\\t\\u0000")) {
		t.Errorf("signed is %s", m.Signed())
	}
}

func TestNumbersThatADoubleDoesNotHoldAreRefused(t *testing.T) {
	for input, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "0e99": "0", "1": "1", "1.0": "1", "10e-1": "1", "1E3": "1000", "1e+3": "1000", "4.50": "4.5", "2e-3": "0.002", "0.000001": "0.000001",
		"1e-7": "1e-7", "0.000000000000000000000000001": "1e-27", "9007199254740991": "9007199254740991", "-9007199254740991": "-9007199254740991",
		"0.1": "0.1", "1e-300": "1e-300", "123456789.125": "123456789.125", "5e-324": "5e-324",
	} {
		if got, err := ticket.Canonical([]byte(input)); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", input, got, err, want)
		}
	}
	for _, input := range []string{
		"9007199254740992", "9007199254740993", "-9007199254740993", "1e16", "1e400", "-1e400", "1e-400", "3.141592653589793238462643383279", "333333333.33333329",
		"0.1000000000000000055511151231257827", "9007199254740991.5", "18446744073709551615", "1" + strings.Repeat("0", 400), "0." + strings.Repeat("0", 400) + "1", "1e99999999999999999999",
		"01", "+1", ".5", "5.", "1_000", "NaN", "Infinity", "0x10",
	} {
		for _, text := range []string{input, `{"a":[` + input + `]}`} {
			if got, err := ticket.Canonical([]byte(text)); code(err) != event.CodeMessageInvalid {
				t.Errorf("%s: got %s, %v", text, got, err)
			}
		}
	}
}

// TestNamesThatDifferByCaseAreRefused: a reader that ignores case, as some do by
// default, would see other steps than the broker checked.
func TestNamesThatDifferByCaseAreRefused(t *testing.T) {
	for _, input := range []string{
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":1,"A":2}`, `[{"x":{"Key":1,"kEY":2}}]`, `{"é":1,"É":2}`, `{"k":1,"\u212a":2}`, `{"s":1,"\u017f":2}`,
		`{"Steps":[]}`, `{"STEPS":[]}`, `{"\u017fteps":[]}`, `{"a":{"Action":"x"}}`, `{"Rollback":[]}`,
	} {
		if got, err := ticket.Canonical([]byte(input)); code(err) != event.CodeMessageInvalid {
			t.Errorf("%s: got %s, %v", input, got, err)
		}
	}
	for _, input := range []string{`{"a":{"x":1},"b":{"X":1}}`, `{"ss":1,"ß":2}`, `{"maxReplicas":1}`, `[{"a":1},{"A":1}]`} {
		if _, err := ticket.Canonical([]byte(input)); err != nil {
			t.Errorf("%s: %v", input, err)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`[{"a":`, depth/2) + "1" + strings.Repeat("}]", depth/2))
	}
	if _, err := ticket.Canonical(nested(ticket.MaxNesting)); err != nil {
		t.Error(err)
	}
	if _, err := ticket.Canonical(nested(ticket.MaxNesting + 2)); code(err) != event.CodeMessageInvalid {
		t.Error(err)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":[1e-7,-0,"\u2028<"],"a":null}`, `"\ud83d\ude00"`, "4.50", `{"A":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := ticket.Canonical(b)
		if err != nil {
			if code(err) != event.CodeMessageInvalid {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := ticket.Canonical(first)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("%q becomes %q and then %q, %v", b, first, again, err)
		}
	})
}
