// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

// The tests here assert rules of CloudEvents that no other test of this package
// does. docs/conformance.md lists every rule with its test. The specification is
// cited as core (spec.md), json (json-format.md) and http
// (http-protocol-binding.md), all in version 1.0.2.

// members reads the structured form of an event without the decoder under test.
func members(t *testing.T, e *event.Event) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(e.AppendJSON(nil), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRequiredAttributesInBinaryMode: core, REQUIRED Attributes, for headers.
// TestRefusedJSON has the same for members.
func TestRequiredAttributesInBinaryMode(t *testing.T) {
	for _, name := range []string{"specversion", "id", "source", "type"} {
		for fault, change := range map[string]func(h http.Header, key string){
			"absent": func(h http.Header, key string) { delete(h, key) },
			"empty":  func(h http.Header, key string) { h[key] = []string{""} },
		} {
			h := headers()
			change(h, http.CanonicalHeaderKey("ce-"+name))
			_, err := event.DecodeBinary(h, nil)
			if e := wantCode(t, err, event.CodeEventInvalid); e.Field != name {
				t.Errorf("%s %s: the field at fault is %q", fault, name, e.Field)
			}
		}
	}
	_, err := event.DecodeBinary(headers("ce-specversion: 0.3"), nil)
	if e := wantCode(t, err, event.CodeEventInvalid); e.Field != "specversion" {
		t.Errorf("version 0.3: the field at fault is %q", e.Field)
	}
}

// TestVersionOfTheSpecification: core, specversion: producers of this version
// write 1.0.
func TestVersionOfTheSpecification(t *testing.T) {
	e, err := event.Draft{Source: "/t", Type: "t"}.Event()
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	e.EncodeBinary(h)
	if m := members(t, e); m["specversion"] != "1.0" || h.Get("ce-specversion") != "1.0" {
		t.Errorf("structured %v, binary %q", m["specversion"], h.Get("ce-specversion"))
	}
}

// TestCanonicalStrings: core, Type System: every type can be had from its
// canonical string and be given as it, in the JSON format as in headers.
func TestCanonicalStrings(t *testing.T) {
	for _, c := range []struct{ kind, member, canonical string }{
		{"Boolean", `true`, "true"},
		{"Boolean", `false`, "false"},
		{"Integer", `-2147483648`, "-2147483648"},
		{"Integer", `0`, "0"},
		{"Integer", `2147483647`, "2147483647"},
		{"String", `"a \"b\" \ud83d\ude00 100% ä"`, `a "b" 😀 100% ä`},
		{"Binary", `"AAECA/+/"`, "AAECA/+/"},
		{"URI", `"https://example.com/a?b=c%20d"`, "https://example.com/a?b=c%20d"},
		{"URI-reference", `"../a#b"`, "../a#b"},
		{"Timestamp", `"2026-01-31T12:34:56.5+01:00"`, "2026-01-31T12:34:56.5+01:00"},
	} {
		e := decode(t, structured(`"x":`+c.member))
		wantAttribute(t, e, "x", c.canonical)
		b := toBinary(t, e)
		wantAttribute(t, b, "x", c.canonical)
		wantAttribute(t, toStructured(t, b), "x", c.canonical)
		if want := c.member; c.kind != "String" && !strings.Contains(string(e.AppendJSON(nil)), `"x":`+want) {
			t.Errorf("%s %s leaves as %s", c.kind, c.member, e.AppendJSON(nil))
		}
	}
	// From the canonical string to the native type, where the type is known.
	e := decodeBinary(t, headers("ce-expiry: 30", "ce-time: 2026-01-31T12:34:56.5+01:00"), "")
	if at, ok := e.Time(); !ok || !at.Equal(time.Date(2026, 1, 31, 11, 34, 56, 500_000_000, time.UTC)) || e.Expiry() != 30 {
		t.Errorf("time %v, expiry %d", at, e.Expiry())
	}
}

// TestTimeIsSetAndSentAsRFC3339: core, Type System, on time in a typed model.
func TestTimeIsSetAndSentAsRFC3339(t *testing.T) {
	const text = "2026-01-31T12:34:56.000000005Z"
	at := time.Date(2026, 1, 31, 12, 34, 56, 5, time.UTC)
	for name, draft := range map[string]event.Draft{
		"by a time":   {Source: "/t", Type: "t", Time: at},
		"by a string": {Source: "/t", Type: "t", Extensions: map[string]any{"time": text}},
	} {
		e, err := draft.Event()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h := http.Header{}
		e.EncodeBinary(h)
		if got, ok := e.Time(); !ok || !got.Equal(at) || h.Get("ce-time") != text || members(t, e)["time"] != text {
			t.Errorf("%s: time %v, header %q", name, got, h.Get("ce-time"))
		}
	}
}

// TestMembersHaveTheirTypes: json 2.2: what is no Integer or Boolean is a string.
func TestMembersHaveTheirTypes(t *testing.T) {
	for _, name := range []string{
		"id", "source", "type", "specversion", "subject", "time", "datacontenttype", "dataschema",
		"partitionkey", "expirytime", "recordedtime", "dataref", "correlationid", "causationid",
	} {
		for _, value := range []string{`1`, `1.0`, `true`, `false`, `{}`, `[]`, `["a"]`} {
			var m map[string]json.RawMessage
			if err := json.Unmarshal(structured(""), &m); err != nil {
				t.Fatal(err)
			}
			m[name] = json.RawMessage(value)
			b, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			_, err = event.DecodeJSON(b)
			if e := wantCode(t, err, event.CodeEventInvalid); e.Field != name {
				t.Errorf("%s %s: the field at fault is %q", name, value, e.Field)
			}
		}
	}
}

// TestAttributesAreTopLevelMembers: json 2 and 3: each attribute, extensions
// included, is one member of the object, under its own name.
func TestAttributesAreTopLevelMembers(t *testing.T) {
	for name, e := range variety(t) {
		m := members(t, e)
		for _, required := range []string{"specversion", "id", "source", "type"} {
			if v, _ := e.Attribute(required); m[required] != v.String() {
				t.Errorf("%s: %s is %v, want %s", name, required, m[required], v)
			}
			delete(m, required)
		}
		for _, a := range e.Attributes() {
			if fmt.Sprint(m[a.Name]) != a.Value.String() {
				t.Errorf("%s: %s is %v, want %s", name, a.Name, m[a.Name], a.Value)
			}
			delete(m, a.Name)
		}
		delete(m, "data")
		delete(m, "data_base64")
		if len(m) != 0 {
			t.Errorf("%s: there are further members: %v", name, m)
		}
	}
}

// TestPayloadSerialization: json 3.1.1, by the kind of data. Both members at
// once are impossible.
func TestPayloadSerialization(t *testing.T) {
	const bytes = "\x00\xff{}"
	for _, c := range []struct {
		rule, contentType, body string
		data, base64            any
	}{
		{"no data, no member", "application/json", "", nil, nil},
		{"binary data is base64 in data_base64", "application/octet-stream", bytes, nil, base64.StdEncoding.EncodeToString([]byte(bytes))},
		{"data of no declared type is base64", "", bytes, nil, base64.StdEncoding.EncodeToString([]byte(bytes))},
		{"a JSON object is a JSON value", "application/json", `{"a":1}`, map[string]any{"a": 1.0}, nil},
		{"a JSON string is a JSON value", "application/json", `"{\"a\":1}"`, `{"a":1}`, nil},
		{"a number under a +json type is a JSON value", "application/x+json;v=1", `1.5`, 1.5, nil},
		{"text is a string", "text/xml", "<a b=\"c\"/>", `<a b="c"/>`, nil},
		{"text that looks like JSON is a string", "text/plain", `{"a":1}`, `{"a":1}`, nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			var lines []string
			if c.contentType != "" {
				lines = append(lines, "Content-Type: "+c.contentType)
			}
			m := members(t, decodeBinary(t, headers(lines...), c.body))
			if fmt.Sprint(m["data"]) != fmt.Sprint(c.data) || m["data_base64"] != c.base64 {
				t.Errorf("data %v, data_base64 %v", m["data"], m["data_base64"])
			}
			if got, _ := m["datacontenttype"].(string); got != c.contentType {
				t.Errorf("datacontenttype %q, want %q", got, c.contentType)
			}
		})
	}
	null := members(t, decode(t, structured(`"data":null`)))
	if v, there := null["data"]; !there || v != nil {
		t.Errorf("null data leaves as %v", null)
	}
}

// TestHeadersArePrintableASCII: http 3.1.3.2: what is encoded, as what, and that
// one round of decoding gives it back.
func TestHeadersArePrintableASCII(t *testing.T) {
	for _, c := range []struct{ rule, value, header string }{
		{"space", "a b", "a%20b"},
		{"double quote", `"a"`, "%22a%22"},
		{"percent", "100%", "100%25"},
		{"a percent sign that looks like an escape", "%20", "%2520"},
		{"two bytes", "\u00a0é", "%C2%A0%C3%A9"},
		{"three bytes", "€", "%E2%82%AC"},
		{"a surrogate pair is one character", "😀", "%F0%9F%98%80"},
		{"the last character", "\U0010fffd", "%F4%8F%BF%BD"},
		{"what needs no encoding", "!#$&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~", "!#$&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			e := decode(t, structured(`"x":`+quote(c.value)))
			h := http.Header{}
			e.EncodeBinary(h)
			if got := h.Get("ce-x"); got != c.header {
				t.Errorf("%q leaves as %q, want %q", c.value, got, c.header)
			}
			wantAttribute(t, toBinary(t, e), "x", c.value)
		})
	}
	for _, contentType := range []string{`text/plain; x="ä"`, "text/plain; x=\"\u00a0\""} {
		// The header takes a media type as it is, so it has to be ASCII before.
		_, err := event.DecodeJSON(structured(`"datacontenttype":` + quote(contentType)))
		wantCode(t, err, event.CodeEventInvalid)
		_, err = event.DecodeBinary(headers("Content-Type: "+contentType), nil)
		wantCode(t, err, event.CodeHeaderInvalid)
	}
}

// TestEveryAttributeHasItsHeader: http 3.1.1 and 3.1.3: each attribute is in one
// header of its own, datacontenttype in Content-Type and nowhere else.
func TestEveryAttributeHasItsHeader(t *testing.T) {
	for name, e := range variety(t) {
		h := http.Header{}
		body := e.EncodeBinary(h)
		if string(body) != string(e.Data()) {
			t.Errorf("%s: the body is %q, the data %q", name, body, e.Data())
		}
		if got := h.Get("Content-Type"); got != e.DataContentType() {
			t.Errorf("%s: Content-Type %q, datacontenttype %q", name, got, e.DataContentType())
		}
		if _, there := h["Content-Type"]; there != (e.DataContentType() != "") {
			t.Errorf("%s: there is a Content-Type without a datacontenttype", name)
		}
		if _, there := h["Ce-Datacontenttype"]; there {
			t.Errorf("%s: there is a ce-datacontenttype", name)
		}
		want := 4 + len(e.Attributes()) // the required ones and the others
		for key, values := range h {
			if len(values) != 1 || key != "Content-Type" && !strings.HasPrefix(key, "Ce-") {
				t.Errorf("%s: header %s has %q", name, key, values)
			}
		}
		if len(h) != want {
			t.Errorf("%s: %d headers for %d attributes", name, len(h), want)
		}
	}
	e := decodeBinary(t, headers("Content-Type: Application/X; a=B"), "x")
	wantAttribute(t, e, "datacontenttype", "Application/X; a=B")
}

// TestProtocolHeadersAreNoAttributes: http 3.1.3: a header that another
// specification also fills from an attribute does not stand in for it.
func TestProtocolHeadersAreNoAttributes(t *testing.T) {
	const hop, start = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-aaaaaaaaaaaaaaaa-01", "00-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-bbbbbbbbbbbbbbbb-01"
	if _, there := decodeBinary(t, headers("traceparent: "+hop), "").Attribute("traceparent"); there {
		t.Error("the trace of the hop became the trace of the event")
	}
	e := decodeBinary(t, headers("traceparent: "+hop, "ce-traceparent: "+start), "")
	wantAttribute(t, e, "traceparent", start)
	h := http.Header{}
	e.EncodeBinary(h)
	if h.Get("ce-traceparent") != start || h.Get("traceparent") != "" {
		t.Errorf("headers %v", h)
	}
}

// TestBatchHasOneVersion: http 3.3.2: events of one batch have one specversion.
func TestBatchHasOneVersion(t *testing.T) {
	good := string(structured(""))
	_, err := event.DecodeBatch([]byte("[" + good + "," + strings.Replace(good, `"1.0"`, `"0.3"`, 1) + "]"))
	e := wantCode(t, err, event.CodeBatchAborted)
	if e.Facts["index"] != 1 || e.Field != "specversion" {
		t.Errorf("facts %v, field %q", e.Facts, e.Field)
	}
	mixed := "[" + string(structured(`"datacontenttype":"text/plain","data":"a"`)) + "," + string(structured(`"data":1`)) + "]"
	if events, err := event.DecodeBatch([]byte(mixed)); err != nil || len(events) != 2 {
		t.Errorf("other attributes may differ: %v", err)
	}
}

// TestExtensionConstraints: what the extensions say about the values of their
// attributes.
func TestExtensionConstraints(t *testing.T) {
	for _, c := range []struct {
		rule, name, value string
		ok                bool
	}{
		{"partitionkey is not empty", "partitionkey", "", false},
		{"partitionkey may be any string", "partitionkey", "ä b/c", true},
		{"correlationid is not empty", "correlationid", "", false},
		{"correlationid may be any string", "correlationid", "txn-1", true},
		{"causationid is not empty", "causationid", "", false},
		{"causationid may be any string", "causationid", "@7", true},
		{"expirytime is a Timestamp", "expirytime", "2026-01-31", false},
		{"recordedtime is a Timestamp", "recordedtime", "31 Jan 2026", false},
		{"recordedtime keeps its spelling", "recordedtime", "2026-01-31t00:00:00.50+01:00", true},
		{"dataref is a URI-reference", "dataref", "a b", false},
		{"dataref is not empty", "dataref", "", false}, // stricter than the extension
		{"dataref may be relative", "dataref", "../a?b#c", true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if got := accepts(c.name, c.value); got != c.ok {
				t.Errorf("%q is accepted: %v", c.value, got)
			}
			h := headers()
			h[http.CanonicalHeaderKey("ce-"+c.name)] = []string{strings.NewReplacer(" ", "%20", "ä", "%C3%A4").Replace(c.value)}
			if _, err := event.DecodeBinary(h, nil); (err == nil) != c.ok {
				t.Errorf("%q in a header: %v", c.value, err)
			}
			if c.ok {
				e := decode(t, structured(quote(c.name)+":"+quote(c.value)))
				out, _, _ := e.AppendMembers([]byte("{"))
				wantAttribute(t, decode(t, out), c.name, c.value)
			}
		})
	}
}

// TestMediaTypesFoldCase: core 1.0.3, datacontenttype (RFC 2045): type, subtype
// and names of parameters in any case mean the same.
func TestMediaTypesFoldCase(t *testing.T) {
	for _, c := range []struct {
		contentType string
		kind        event.DataKind
	}{
		{"text/plain; charset=utf-8", event.TextData}, {"TEXT/Plain; CharSet=utf-8", event.TextData},
		{"text/plain; charset=utf-16", event.BinaryData}, {"Text/PLAIN; CHARSET=UTF-16", event.BinaryData},
		{"application/json", event.JSONData}, {"APPLICATION/JSON", event.JSONData}, {"Image/SVG+JSON", event.JSONData},
	} {
		e := decodeBinary(t, headers("Content-Type: "+c.contentType), "1")
		if e.DataKind() != c.kind {
			t.Errorf("%s: kind %d, want %d", c.contentType, e.DataKind(), c.kind)
		}
		wantAttribute(t, toStructured(t, e), "datacontenttype", c.contentType)
	}
}
