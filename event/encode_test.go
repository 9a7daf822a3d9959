// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"signalbox/event"
)

// variety has one event of each kind of data and many kinds of attributes.
func variety(t *testing.T) map[string]*event.Event {
	return map[string]*event.Event{
		"bare":      decode(t, structured("")),
		"json":      decode(t, structured(`"subject":"Bär 🐻","n":5,"flag":false,"x":"\"\\","expiry":30,"hlc":"5.1","data":{"a" : [1.0,"\u00e9"]}`)),
		"json null": decode(t, structured(`"data":null`)),
		"text":      decode(t, structured(`"datacontenttype":"text/plain","data":"a\n\u0001\"\\é\u2028"`)),
		"xml":       decode(t, structured(`"datacontenttype":"application/xml","data":"<a/>"`)),
		"binary":    decode(t, structured(`"datacontenttype":"image/png","data_base64":"iVBORw=="`)),
		"untyped":   decode(t, structured(`"data_base64":"eyAieHl6IjogMTIzIH0="`)),
		"body json": decodeBinary(t, headers("Content-Type: application/json", "ce-x: a%20b"), " {\r\n \"a\":\n1}\n"),
		"body text": decodeBinary(t, headers("Content-Type: text/plain"), "a\r\nb"),
		"body none": decodeBinary(t, headers("Content-Type: text/plain", "ce-e:"), ""),
	}
}

// TestRoundTrips: an event keeps its meaning through any sequence of modes.
func TestRoundTrips(t *testing.T) {
	for name, e := range variety(t) {
		t.Run(name, func(t *testing.T) {
			want := e.ContentHash()
			for path, f := range map[string]*event.Event{
				"structured":                     toStructured(t, e),
				"binary":                         toBinary(t, e),
				"structured, binary":             toBinary(t, toStructured(t, e)),
				"binary, structured":             toStructured(t, toBinary(t, e)),
				"binary, structured, binary":     toBinary(t, toStructured(t, toBinary(t, e))),
				"structured, binary, structured": toStructured(t, toBinary(t, toStructured(t, e))),
			} {
				if f.ContentHash() != want {
					t.Errorf("%s: %s became %s", path, e.AppendJSON(nil), f.AppendJSON(nil))
				}
			}
			members, _, _ := e.AppendMembers([]byte("{"))
			if f := decode(t, members); f.Position() != 0 || f.HLC() != 0 {
				t.Error("the members have what the broker writes")
			}
		})
	}
}

// TestContentHashAcrossModes: one event, sent in both modes.
func TestContentHashAcrossModes(t *testing.T) {
	s := decode(t, []byte(`{"data":{"a": 1},"type":"t.x","n":5,"subject":"a b","id":"1","flag":true,"source":"/t","specversion":"1.0"}`))
	b := decodeBinary(t, headers("ce-subject: a%20b", "ce-n: 5", "ce-flag: true", "Content-Type: application/json"), `{"a": 1}`)
	if s.ContentHash() != b.ContentHash() {
		t.Error("the modes hash differently")
	}
	seen := map[[32]byte]string{}
	for _, members := range []string{
		``, `"subject":"a"`, `"subject":"b"`, `"a":"subject"`, `"ab":"c"`, `"a":"bc"`, `"a":"","b":""`, `"ab":""`, `"hlc":"5.00001"`, `"hlc":"5.1"`,
		`"expiry":5`, `"data":null`, `"data":"null"`, `"data":0`, `"data_base64":""`, `"data_base64":"AA=="`, `"data_base64":"bnVsbA=="`,
		`"datacontenttype":"text/plain","data":""`, `"datacontenttype":"text/plain"`, `"data":{"a":1}`, `"data":{"a": 1}`,
	} {
		h := decode(t, structured(members)).ContentHash()
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", members, other)
		}
		seen[h] = members
	}
	big := decode(t, structured(`"data":"`+strings.Repeat("x", 10_000)+`"`))
	if big.ContentHash() == decode(t, structured(`"data":"`+strings.Repeat("x", 9_999)+`y"`)).ContentHash() {
		t.Error("the end of large data is not hashed")
	}
	// The value is stored by brokers, so it must not change.
	if got := fmt.Sprintf("%x", s.ContentHash()); got != contentHashOfSample {
		t.Errorf("the hash of the sample is %s", got)
	}
}

// contentHashOfSample was computed independently, by a script from the doc comment.
const contentHashOfSample = "0c465786436bbdb42161f43303ad7555007e55e915e95e33c8564d57243fc44e"

// TestAppendMembers: the order of members, what is left out, and where data is.
func TestAppendMembers(t *testing.T) {
	e, err := event.DecodeDelivered(structured(`"zz":"1","hlc":"5.1","expiry":3,"position":"9","superseded":false,"producer":"p","topic":"a.b","expirytime":"2026-01-01T00:00:00Z","datacontenttype":"application/json","aa":true,"data": {"a":1} `))
	if err != nil {
		t.Fatal(err)
	}
	prefix := `"specversion":"1.0","id":"1","source":"/t","type":"t.x"`
	const suffix = `,"datacontenttype":"application/json","data":{"a":1}}`
	str := func(name, v string) event.Attribute { return event.Attribute{Name: name, Value: event.StringValue(v)} }
	cases := []struct {
		extra []event.Attribute
		want  string
	}{
		{nil, `,"aa":true,"expirytime":"2026-01-01T00:00:00Z","zz":"1"`},
		{[]event.Attribute{str("recordedtime", "r")}, `,"aa":true,"expirytime":"2026-01-01T00:00:00Z","recordedtime":"r","zz":"1"`},
		{[]event.Attribute{str("recordedtime", "r"), str("expirytime", "e")}, `,"aa":true,"expirytime":"e","recordedtime":"r","zz":"1"`},
		{[]event.Attribute{str("zzz", "3"), str("a", "1"), {Name: "zz", Value: event.IntegerValue(-2)}}, `,"a":"1","aa":true,"expirytime":"2026-01-01T00:00:00Z","zz":-2,"zzz":"3"`},
	}
	for _, c := range cases {
		given := append([]event.Attribute(nil), c.extra...)
		out, offset, length := e.AppendMembers([]byte("{"), c.extra...)
		if want := "{" + prefix + c.want + suffix; string(out) != want {
			t.Errorf("got  %s\nwant %s", out, want)
		}
		if string(out[offset:offset+length]) != `{"a":1}` {
			t.Errorf("data is said to be %s", out[offset:offset+length])
		}
		for i := range given {
			if given[i] != c.extra[i] {
				t.Error("the arguments of the caller were sorted")
			}
		}
	}
	for members, want := range map[string]string{
		``: "", `"data":null`: "null", `"data_base64":"YQ=="`: `"YQ=="`, `"data_base64":""`: `""`,
		`"datacontenttype":"text/plain","data":"a\"\u0001"`: `"a\"\u0001"`,
	} {
		out, offset, length := decode(t, structured(members)).AppendMembers(nil)
		if string(out[offset:offset+length]) != want {
			t.Errorf("%s: data is said to be %q", members, out[offset:offset+length])
		}
	}
}

// TestFoldLines: line breaks between tokens go, those in strings were escapes.
func TestFoldLines(t *testing.T) {
	e := decodeBinary(t, headers("Content-Type: application/json"), "{\r\n\"a\":\n\t\"x\\ny\"\r}")
	out := e.AppendJSON(nil)
	if !event.NeedsLineFold(out) {
		t.Fatal("line breaks are not seen")
	}
	event.FoldLines(out)
	if event.NeedsLineFold(out) || bytes.ContainsAny(out, "\r\n") {
		t.Errorf("line breaks are left in %q", out)
	}
	if got, _ := event.LookupJSON(decode(t, out).Data(), "a"); got != "x\ny" {
		t.Errorf("the data became %q", got)
	}
	if event.NeedsLineFold(decode(t, structured(`"datacontenttype":"text/plain","data":"a\r\nb"`)).AppendJSON(nil)) {
		t.Error("text has raw line breaks")
	}
}

// TestWireBytesIsNeverMoreThanTheWire: an event of 64 KiB on the wire, in any
// mode, must pass a limit of 64 KiB (core, Size Limits).
func TestWireBytesIsNeverMoreThanTheWire(t *testing.T) {
	check := func(what string, e *event.Event, wire int) {
		t.Helper()
		if n := e.WireBytes(); n > wire {
			t.Errorf("%s: %d bytes, but %d on the wire", what, n, wire)
		}
	}
	binary := func(h http.Header, body string) int {
		n := len(body)
		for name, values := range h {
			n += len(name) + len(": \r\n") + len(values[0])
		}
		return n
	}
	for _, members := range []string{``, `"a":1`, `"a":true,"b":""`, `"data":1`, `"data_base64":"AA=="`, `"data":"\u0001"`} {
		in := structured(members)
		check(members, decode(t, in), len(in))
	}
	for name, e := range variety(t) {
		h := http.Header{}
		body := e.EncodeBinary(h)
		check(name+" structured", e, len(e.AppendJSON(nil)))
		check(name+" binary", e, binary(h, string(body)))
	}
	for _, contentType := range []string{"application/octet-stream", "text/plain", "application/json"} {
		h := headers("Content-Type: " + contentType)
		body := `"` + strings.Repeat("\x7f", 64<<10-2-binary(h, "")) + `"`
		e := decodeBinary(t, h, body)
		check(contentType, e, 64<<10)
		if n := e.WireBytes(); n < len(body) {
			t.Errorf("%s: %d bytes do not count the data", contentType, n)
		}
	}
}

// TestOutputIsReadable: encoding/json agrees with what is written.
func TestOutputIsReadable(t *testing.T) {
	for name, e := range variety(t) {
		var m map[string]any
		if err := json.Unmarshal(e.AppendJSON(nil), &m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, a := range e.Attributes() {
			if got := fmt.Sprint(m[a.Name]); got != a.Value.String() {
				t.Errorf("%s: %s is %s, want %s", name, a.Name, got, a.Value)
			}
		}
	}
}
