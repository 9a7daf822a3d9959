// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"signalbox/event"
)

// TestConformanceHTTP has the cases of cloudevents/conformance,
// features/http-protocol-binding.feature (7a8ee0ac).
func TestConformanceHTTP(t *testing.T) {
	want := map[string]string{
		"id": "1234-1234-1234", "specversion": "1.0", "type": "com.example.someevent",
		"source": "/mycontext/subcontext", "time": "2018-04-05T03:56:24Z",
	}
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8"} {
		t.Run("Binary content mode ("+contentType+")", func(t *testing.T) {
			mode, err := event.DetectMode(contentType)
			if err != nil || mode != event.Binary {
				t.Fatalf("mode %v, %v", mode, err)
			}
			h := http.Header{}
			h.Set("ce-specversion", "1.0")
			h.Set("ce-type", "com.example.someevent")
			h.Set("ce-time", "2018-04-05T03:56:24Z")
			h.Set("ce-id", "1234-1234-1234")
			h.Set("ce-source", "/mycontext/subcontext")
			h.Set("Content-Type", contentType)
			h.Set("Content-Length", "33")
			e := decodeBinary(t, h, "{\n    \"message\": \"Hello World!\"\n}")
			for name, value := range want {
				wantAttribute(t, e, name, value)
			}
			wantAttribute(t, e, "datacontenttype", contentType)
			if got, _ := event.LookupJSON(e.Data(), "message"); got != "Hello World!" {
				t.Errorf("data is %s", e.Data())
			}
		})
	}
	for _, contentType := range []string{"application/cloudevents+json", "application/cloudevents+json; charset=utf-8"} {
		t.Run("Structured content mode ("+contentType+")", func(t *testing.T) {
			mode, err := event.DetectMode(contentType)
			if err != nil || mode != event.Structured {
				t.Fatalf("mode %v, %v", mode, err)
			}
			e := decode(t, []byte(`{
    "specversion": "1.0",
    "type": "com.example.someevent",
    "time": "2018-04-05T03:56:24Z",
    "id": "1234-1234-1234",
    "source": "/mycontext/subcontext",
    "datacontenttype": "application/json",
    "data": {
        "message": "Hello World!"
    }
}`))
			for name, value := range want {
				wantAttribute(t, e, name, value)
			}
			wantAttribute(t, e, "datacontenttype", "application/json")
			if got, _ := event.LookupJSON(e.Data(), "message"); got != "Hello World!" {
				t.Errorf("data is %s", e.Data())
			}
		})
	}
}

// TestPercentDecodingOfHeaders guards against escapes stored literally,
// decoded twice, or decoded into something that is not UTF-8 (HTTP binding 3.1.3.2).
func TestPercentDecodingOfHeaders(t *testing.T) {
	accepted := []struct{ rule, header, want, egress string }{
		{"F01a: UTF-8", `B%C3%A4r%20%F0%9F%90%BB`, "Bär 🐻", `B%C3%A4r%20%F0%9F%90%BB`},
		{"F01b: exactly one round", `a%2520b`, "a%20b", `a%2520b`},
		{"F01c: quoted string", `"a \"b\" c"`, `a "b" c`, `a%20%22b%22%20c`},
		{"the example of the specification", `Euro%20%E2%82%AC%20%F0%9F%98%80`, "Euro € 😀", `Euro%20%E2%82%AC%20%F0%9F%98%80`},
		{"lower-case digits MUST be accepted", `%e2%82%ac`, "€", `%E2%82%AC`},
		{"needless encoding MUST be accepted", `%41%2D`, "A-", `A-`},
		{"unquoting comes before percent-decoding", `"100\%25"`, "100%", `100%25`},
		{"a quoted escape stays after unquoting", `"a\\b"`, `a\b`, `a\b`},
		{"a backslash outside quotes is itself", `a\b`, `a\b`, `a\b`},
		{"plus is not space", `a+b`, "a+b", `a+b`},
		{"plain space of a sender that does not encode", `a b`, "a b", `a%20b`},
		{"plain UTF-8 of a sender that does not encode", "Bär", "Bär", `B%C3%A4r`},
	}
	for _, c := range accepted {
		t.Run(c.rule, func(t *testing.T) {
			e := decodeBinary(t, headers("ce-subject:"+c.header), "")
			wantAttribute(t, e, "subject", c.want)
			h := http.Header{}
			e.EncodeBinary(h)
			if got := h.Get("ce-subject"); got != c.egress {
				t.Errorf("leaves as %q, want %q", got, c.egress)
			}
			if f := toStructured(t, e); !f.Equal(e) {
				t.Errorf("structured form is %s", f.AppendJSON(nil))
			}
		})
	}
	refused := []struct{ rule, header string }{
		{"F01d: overlong", `%C0%A0`}, {"F01e: not UTF-8", `%ff`}, {"F01f: sender that does not encode", `100%`},
		{"a surrogate", `%ED%A0%80`}, {"half an escape", `a%4`}, {"no digits", `%zz`}, {"no sign in digits", `%+1`},
		{"Latin-1", "B\xe4r"}, {"a quote in the middle", `a"b`}, {"quotes around a part", `"a" b`},
		{"an open quote", `"a`}, {"a single quote", `"`}, {"an escape at the end", `"a\`}, {"an escaped end", `"a\"`},
	}
	for _, c := range refused {
		t.Run(c.rule, func(t *testing.T) {
			_, err := event.DecodeBinary(headers("ce-subject:"+c.header), nil)
			if e := wantCode(t, err, event.CodeHeaderInvalid); e.Field != "Ce-Subject" {
				t.Errorf("field %q", e.Field)
			}
		})
	}
	for _, header := range []string{`a%0Ab`, `%7F`, `%C2%85`, `%EF%BF%BE`, ``} {
		_, err := event.DecodeBinary(headers("ce-subject:"+header), nil)
		wantCode(t, err, event.CodeEventInvalid)
	}
}

// TestFalsyAndTypedExtensions guards against false, zero and negative values
// that vanish, gain quotes or become floating-point text.
func TestFalsyAndTypedExtensions(t *testing.T) {
	const members = `"flag":false,"zero":0,"neg":-5,"txt":"false","big":2147483647,"yes":true,"small":-2147483648,"negzero":-0`
	e := decode(t, structured(members))
	h := http.Header{}
	e.EncodeBinary(h)
	for name, want := range map[string]string{
		"flag": "false", "zero": "0", "neg": "-5", "txt": "false", "big": "2147483647", "yes": "true", "small": "-2147483648", "negzero": "0",
	} {
		wantAttribute(t, e, name, want)
		if got := h["Ce-"+strings.ToUpper(name[:1])+name[1:]]; len(got) != 1 || got[0] != want {
			t.Errorf("header ce-%s is %q, want %q", name, got, want)
		}
	}
	if want := required + `,"big":2147483647,"flag":false,"neg":-5,"negzero":0,"small":-2147483648,"txt":"false","yes":true,"zero":0}`; string(e.AppendJSON(nil)) != want {
		t.Errorf("structured form is %s", e.AppendJSON(nil))
	}
	for name, want := range map[string]event.Value{
		"flag": event.BooleanValue(false), "yes": event.BooleanValue(true), "neg": event.IntegerValue(-5), "txt": event.StringValue("false"),
	} {
		if v, _ := e.Attribute(name); !v.Equal(want) || v.Kind() != want.Kind() || v.Int() != want.Int() || v.Bool() != want.Bool() {
			t.Errorf("%s has kind %d, int %d, bool %v", name, v.Kind(), v.Int(), v.Bool())
		}
	}
	// In binary mode they are strings with the same canonical form.
	f := toBinary(t, e)
	if v, _ := f.Attribute("neg"); v.Kind() != event.String || v.String() != "-5" {
		t.Errorf("from a header: %v", v)
	}
	if f.ContentHash() != e.ContentHash() {
		t.Error("modes hash differently")
	}
}

// TestHeaderNames guards the names of attributes in headers (HTTP binding 3.1.3.1).
func TestHeaderNames(t *testing.T) {
	h := headers()
	h["CE-MyExt"] = []string{"1"} // as another transport might hand it over
	wantAttribute(t, decodeBinary(t, h, ""), "myext", "1")
	wantAttribute(t, decodeBinary(t, headers("ce-n: 5"), ""), "n", "5")
	for _, name := range []string{"ce-my-ext", "ce-data", "ce-", "ce-my_ext", "ce-data_base64"} {
		_, err := event.DecodeBinary(headers(name+": 1"), nil)
		wantCode(t, err, event.CodeEventInvalid)
	}
	h = headers()
	h["Ce-Subject"] = []string{"a", "a"}
	_, err := event.DecodeBinary(h, nil)
	wantCode(t, err, event.CodeHeaderInvalid)
	h = headers()
	h["ce-subject"], h["Ce-Subject"] = []string{"a"}, []string{"a"}
	_, err = event.DecodeBinary(h, nil)
	wantCode(t, err, event.CodeEventInvalid)
	for _, reserved := range []string{"position: 1", "superseded: false", "producer: x", "topic: x"} {
		_, err = event.DecodeBinary(headers("ce-"+reserved), nil)
		wantCode(t, err, event.CodeAttributeReserved)
	}
	h = headers()
	h.Set("Cell", "1") // begins with ce but is no attribute
	if e := decodeBinary(t, h, ""); len(e.Attributes()) != 0 {
		t.Errorf("attributes %v", e.Attributes())
	}
	h = headers()
	for i := range 10_000 {
		h["Ce-A"+strings.Repeat("a", i%100)+string(rune('a'+i/100%26))+string(rune('a'+i/2600))] = []string{""}
	}
	_, err = event.DecodeBinary(h, nil)
	wantCode(t, err, event.CodeEventInvalid)
}

// TestExpiryInBinaryMode: a header carries the canonical string of an Integer.
func TestExpiryInBinaryMode(t *testing.T) {
	e := decodeBinary(t, headers("ce-expiry: 30"), "")
	if e.Expiry() != 30 {
		t.Errorf("expiry %d", e.Expiry())
	}
	if f := decode(t, structured(`"expiry":30`)); !f.Equal(e) || f.ContentHash() != e.ContentHash() {
		t.Error("differs from structured mode")
	}
	for _, v := range []string{"0", "-1", "+1", "01", "1.5", "2147483648", "1e3", "x", ""} {
		_, err := event.DecodeBinary(headers("ce-expiry: "+v), nil)
		if event.AsError(err).Code != event.CodeExpiryInvalid {
			t.Errorf("expiry %q: %v", v, err)
		}
	}
}

// TestEmptyBodies guards against data that is invented, and bodies without a
// type that are guessed at.
func TestEmptyBodies(t *testing.T) {
	for _, h := range []http.Header{headers("Content-Type: text/plain"), headers(), headers("Content-Type: application/json"), headers("Content-Type:")} {
		for _, body := range [][]byte{nil, {}} {
			e, err := event.DecodeBinary(h, body)
			if err != nil {
				t.Fatalf("%v: %v", h, err)
			}
			if e.DataKind() != event.NoData || e.Data() != nil {
				t.Errorf("%v: data %q is invented", h, e.Data())
			}
			if out := string(e.AppendJSON(nil)); strings.Contains(out, `"data`+`"`) || strings.Contains(out, "base64") {
				t.Errorf("egress has data: %s", out)
			}
		}
	}
	e := decodeBinary(t, headers(), "hello world")
	if _, ok := e.Attribute("datacontenttype"); ok || e.DataKind() != event.BinaryData || string(e.Data()) != "hello world" {
		t.Errorf("got %s", e.AppendJSON(nil))
	}
	if want := `"data_base64":"` + base64.StdEncoding.EncodeToString([]byte("hello world")) + `"`; !strings.Contains(string(e.AppendJSON(nil)), want) {
		t.Errorf("structured egress is %s", e.AppendJSON(nil))
	}
	h := http.Header{}
	if body := e.EncodeBinary(h); string(body) != "hello world" || h["Content-Type"] != nil {
		t.Errorf("binary egress is %q with type %q", body, h["Content-Type"])
	}
	for _, body := range []string{"", "null"} {
		_, err := event.DecodeJSON([]byte(body))
		wantCode(t, err, event.CodeJSONInvalid)
	}
}

// TestModeDetection guards against a content type that leads to the wrong mode.
func TestModeDetection(t *testing.T) {
	for contentType, want := range map[string]event.Mode{
		"": event.Binary, "application/json": event.Binary, "text/plain; charset=utf-16": event.Binary,
		"application/cloudeventsfoo": event.Binary, "application/cloudeventsfoo+json": event.Binary,
		"text/cloudevents+json": event.Binary, "nonsense": event.Binary, "application/cloudevents-batchx+json": event.Binary,
		"application/cloudevents+json; charset=UTF-8":          event.Structured,
		"Application/CloudEvents+JSON":                         event.Structured,
		`application/cloudevents+json;charset="utf-8"`:         event.Structured,
		"application/cloudevents+json ; charset=us-ascii; a=b": event.Structured,
		"application/cloudevents-batch+json":                   event.Batch,
		"Application/CloudEvents-Batch+JSON; charset=utf-8":    event.Batch,
	} {
		if got, err := event.DetectMode(contentType); err != nil || got != want {
			t.Errorf("%q is mode %d (%v), want %d", contentType, got, err, want)
		}
	}
	for _, contentType := range []string{
		"application/cloudevents+json; charset=iso-8859-1", "application/cloudevents-batch+json; charset=utf-16",
		"application/cloudevents+avro", "application/cloudevents", "application/cloudevents+protobuf", "application/cloudevents-batch",
		"application/cloudevents+xml", "application/cloudevents+json; charset", "application/cloudevents+json; charset=utf-8; charset=utf-8",
		"application/cloudevents+", "application/cloudevents+json+json", "application/cloudevents+json, text/plain",
	} {
		_, err := event.DetectMode(contentType)
		wantCode(t, err, event.CodeMediaTypeUnsupported)
	}
}

// TestConflictingContentTypes guards against a second content type in an attribute.
func TestConflictingContentTypes(t *testing.T) {
	_, err := event.DecodeBinary(headers("Content-Type: application/json", "ce-datacontenttype: text/xml"), []byte("{}"))
	wantCode(t, err, event.CodeHeaderInvalid)
	h := headers()
	h["Content-Type"] = []string{"application/json", "text/xml"}
	_, err = event.DecodeBinary(h, []byte("{}"))
	wantCode(t, err, event.CodeHeaderInvalid)
	_, err = event.DecodeBinary(headers("Content-Type: json"), []byte("{}"))
	wantCode(t, err, event.CodeHeaderInvalid)
	// Step 2: nothing is guessed where the bytes are not UTF-8.
	_, err = event.DecodeJSON([]byte(required + ",\"x\":\"\xe9\"}"))
	wantCode(t, err, event.CodeJSONInvalid)
	// Step 4: a single object is not a batch, and an array not an event.
	_, err = event.DecodeBatch(structured(""))
	wantCode(t, err, event.CodeJSONInvalid)
	_, err = event.DecodeJSON([]byte("[" + string(structured("")) + "]"))
	wantCode(t, err, event.CodeJSONInvalid)
	// Step 7: the type with its parameter and the bytes come out unchanged.
	utf16 := "\xff\xfeh\x00i\x00"
	e := decodeBinary(t, headers("Content-Type: text/plain; charset=utf-16"), utf16)
	out := http.Header{}
	if body := toStructured(t, e).EncodeBinary(out); string(body) != utf16 || out.Get("Content-Type") != "text/plain; charset=utf-16" {
		t.Errorf("came out as %q, %q", body, out.Get("Content-Type"))
	}
}

// TestDataOfBinaryMode: what a body becomes by content type.
func TestDataOfBinaryMode(t *testing.T) {
	cases := []struct {
		contentType, body string
		kind              event.DataKind
	}{
		{"application/json", ` {"a": 1}` + "\r\n", event.JSONData},
		{"application/vnd.x+json; charset=utf-8", `"a"`, event.JSONData},
		{"text/plain", "Bär\nline\t\"\\", event.TextData},
		{"text/html; charset=UTF-8", "<p>", event.TextData},
		{"TEXT/Plain; CharSet=us-ascii", "abc", event.TextData},
		{"text/plain; charset=us-ascii", "ä", event.BinaryData},
		{"text/plain", "\xff", event.BinaryData},
		{"text/plain; charset=iso-8859-1", "abc", event.BinaryData},
		{"text/plain", "\x00", event.BinaryData},
		{"application/xml", "<a/>", event.BinaryData},
		{"image/png", "\x89PNG", event.BinaryData},
	}
	for _, c := range cases {
		e := decodeBinary(t, headers("Content-Type: "+c.contentType), c.body)
		if e.DataKind() != c.kind || string(e.Data()) != c.body {
			t.Errorf("%s: kind %d, data %q", c.contentType, e.DataKind(), e.Data())
		}
		if f := toStructured(t, e); f.ContentHash() != e.ContentHash() || f.DataKind() != e.DataKind() {
			t.Errorf("%s: structured form %s differs", c.contentType, e.AppendJSON(nil))
		}
	}
	for _, body := range []string{"{", `{"a":1,"a":2}`, "\xff", "{}x", strings.Repeat("[", 129) + strings.Repeat("]", 129), "NaN", "'a'"} {
		_, err := event.DecodeBinary(headers("Content-Type: application/json"), []byte(body))
		wantCode(t, err, event.CodeDataInvalid)
	}
}
