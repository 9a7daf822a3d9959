// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
)

// checkRefusal: whatever is refused is refused with a code and a bounded,
// readable message.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var e *event.Error
	if !errors.As(err, &e) || e.Code == event.CodeInternal {
		t.Fatalf("refused without a code: %v", err)
	}
	if len(e.Message) > 1000 || len(e.Field) > 200 || !utf8.ValidString(e.Message) || !utf8.ValidString(e.Field) {
		t.Fatalf("unfit message %q, field %q", e.Message, e.Field)
	}
}

// checkEvent: whatever is accepted survives every encoding of it.
func checkEvent(t *testing.T, e *event.Event, decode func([]byte) (*event.Event, error)) {
	t.Helper()
	out := e.AppendJSON(nil)
	// The options of jsontext that are in force by default refuse duplicate names
	// and invalid UTF-8.
	if !jsontext.Value(out).IsValid() {
		t.Fatalf("output is not strict JSON: %q", out)
	}
	f, err := decode(out)
	if err != nil || f.ContentHash() != e.ContentHash() {
		t.Fatalf("%s came back as %v, %v", out, f, err)
	}
	// White space around the JSON of a body is not a part of its value.
	if e.DataKind() != event.JSONData || string(bytes.TrimSpace(e.Data())) == string(e.Data()) {
		if !f.Equal(e) {
			t.Fatalf("%s came back as %v", out, f)
		}
	}
	members, offset, length := e.AppendMembers([]byte("{"))
	if !jsontext.Value(members).IsValid() || (length == 0) != (e.DataKind() == event.NoData) {
		t.Fatalf("members are %q", members)
	}
	if length > 0 && !jsontext.Value(members[offset:offset+length]).IsValid() {
		t.Fatalf("data is said to be %q", members[offset:offset+length])
	}
	if n := e.WireBytes(); n > len(out) {
		t.Fatalf("%d bytes, but %d as JSON", n, len(out))
	}
	event.FoldLines(out)
	if f, err := decode(out); err != nil || bytes.ContainsAny(out, "\r\n") || f.ID() != e.ID() {
		t.Fatalf("folded: %q, %v", out, err)
	}
	if e.Position() != 0 || e.Superseded() || hasEmptyData(e) {
		return // binary mode has no empty data, and its decoder is for producers
	}
	h := http.Header{}
	body := e.EncodeBinary(h)
	for name, values := range h {
		if name != http.CanonicalHeaderKey(name) || strings.Trim(values[0], " ") != values[0] || strings.ContainsFunc(values[0], func(r rune) bool { return r < 0x20 || r > 0x7e }) {
			if name != "Content-Type" {
				t.Fatalf("header %s: %q", name, values)
			}
		}
	}
	if _, ok := e.Attribute("producer"); ok {
		return
	}
	if g, err := event.DecodeBinary(h, body); err != nil || g.ContentHash() != e.ContentHash() {
		t.Fatalf("binary form of %s: %v", out, err)
	}
}

func hasEmptyData(e *event.Event) bool { return e.DataKind() != event.NoData && len(e.Data()) == 0 }

// seeds are events that reach most branches.
func seeds() [][]byte {
	var all [][]byte
	for _, members := range []string{
		``, `"subject":"Bär 🐻\u0041","n":-5,"flag":true,"x":null,"partitionkey":"p"`, `"data":{"a":[1,{"b":"\u00e9"}]}`, `"data":null`,
		`"data_base64":"YQ=="`, `"datacontenttype":"text/plain","data":"a\n"`, `"datacontenttype":"a/b+json; c=\"d\"","data_base64":"MQ=="`,
		`"hlc":"5.1","expiry":3,"expirytime":"2026-01-01T00:00:00Z","time":"1990-12-31T23:59:60Z","dataref":"http://[::1]/x?y#z","dataschema":"urn:x"`,
		`"position":"7","superseded":true,"producer":"p"`, `"id":"2"`, `"a_b":1`, `"n":1.5`, `"data":{"a":1,"a":2}`,
	} {
		all = append(all, structured(members))
	}
	return append(all, sample(1), []byte(" \n{}\t"), []byte("[]"))
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := event.DecodeJSON(in)
		batch, batchErr := event.DecodeBatch(append(append([]byte{'['}, in...), ']'))
		d, deliveredErr := event.DecodeDelivered(in)
		if deliveredErr == nil {
			checkEvent(t, d, event.DecodeDelivered)
		}
		if err != nil {
			checkRefusal(t, err)
			// A batch of one is refused too, unless the input was a list without brackets.
			if batchErr == nil && len(batch) == 1 {
				t.Fatalf("refused alone (%v) but not in a batch", err)
			}
			return
		}
		checkEvent(t, e, event.DecodeJSON)
		if deliveredErr != nil || !d.Equal(e) {
			t.Fatalf("differs from delivered: %v", deliveredErr)
		}
		if batchErr != nil || len(batch) != 1 || !batch[0].Equal(e) {
			t.Fatalf("differs in a batch: %v", batchErr)
		}
		if n := e.WireBytes(); n > len(in) {
			t.Fatalf("%d bytes, but %d on the wire", n, len(in))
		}
		// encoding/json is the second opinion on every value.
		var m map[string]any
		decoder := json.NewDecoder(bytes.NewReader(in))
		decoder.UseNumber()
		if err := decoder.Decode(&m); err != nil {
			t.Fatalf("encoding/json refuses: %v", err)
		}
		for name, v := range m {
			got, ok := e.Attribute(name)
			switch v := v.(type) {
			case string:
				ok = ok && (got.String() == v || name == "data" || name == "data_base64")
			case bool:
				ok = ok && got.Bool() == v && got.Kind() == event.Boolean
			case json.Number:
				n, err := v.Int64()
				ok = ok && err == nil && int64(got.Int()) == n
			}
			if v != nil && !ok && name != "data" && name != "data_base64" {
				t.Fatalf("%s is %v, but %v for encoding/json", name, got, v)
			}
		}
	})
}

func FuzzDecodeBatch(f *testing.F) {
	for _, s := range seeds() {
		f.Add(append(append([]byte{'['}, s...), ']'))
	}
	f.Add(sampleBatch(3))
	f.Fuzz(func(t *testing.T, in []byte) {
		events, err := event.DecodeBatch(in)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		out := []byte{'['}
		for i, e := range events {
			checkEvent(t, e, event.DecodeJSON)
			if i > 0 {
				out = append(out, ',')
			}
			out = e.AppendJSON(out)
		}
		again, err := event.DecodeBatch(append(out, ']'))
		if err != nil || len(again) != len(events) {
			t.Fatalf("came back with %d events: %v", len(again), err)
		}
		for i := range events {
			if !events[i].Equal(again[i]) {
				t.Fatalf("event %d differs", i)
			}
		}
	})
}

func FuzzDecodeBinary(f *testing.F) {
	f.Add("subject", "B%C3%A4r%20%F0%9F%90%BB", "application/json", []byte(`{"a":1}`))
	f.Add("subject", `"a \"b\" c"`, "text/plain; charset=utf-8", []byte("hello\r\n"))
	f.Add("my-ext", "a%2520b", "", []byte("\xff"))
	f.Add("expiry", "30", "application/json", []byte(" {} "))
	f.Add("hlc", "5.1", "image/png", []byte(nil))
	f.Add("time", "100%", "a/b+json", []byte("{"))
	f.Fuzz(func(t *testing.T, name, value, contentType string, body []byte) {
		h := headers()
		h["Ce-"+name] = []string{value}
		if contentType != "" {
			h["Content-Type"] = []string{contentType}
		}
		e, err := event.DecodeBinary(h, body)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkEvent(t, e, event.DecodeJSON)
		if string(e.Data()) != string(body) {
			t.Fatalf("data %q was %q", e.Data(), body)
		}
		if v, ok := e.Attribute(strings.ToLower(name)); !ok || strings.ContainsAny(v.String(), "\r\n") {
			t.Fatalf("attribute %q is %q, %v", name, v, ok)
		}
		if v, _ := e.Attribute(strings.ToLower(name)); !strings.ContainsAny(value, `%"`) && v.String() != value {
			t.Fatalf("plain value %q became %q", value, v)
		}
	})
}

func FuzzParseHLC(f *testing.F) {
	for _, s := range []string{"1764422645000.00001", "1764422645000.1", "0.0", "281474976710656", "18446744073709551615", "1.65536"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]{1,5})?$`)
	f.Fuzz(func(t *testing.T, in string) {
		h, err := event.ParseHLC(in)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if h == 0 || !form.MatchString(in) {
			t.Fatalf("%q is accepted as %v", in, h)
		}
		if back, err := event.ParseHLC(h.String()); err != nil || back != h {
			t.Fatalf("%v came back as %v, %v", h, back, err)
		}
		if next := h.Next(0); next <= h && h != 1<<64-1 {
			t.Fatalf("%v is followed by %v", h, next)
		}
	})
}

func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"@105.k3f9x0ab", "@105", "@0", "@18446744073709551615", "@01", "@1."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		c, err := event.ParseCursor(in)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if c.String() != in || !event.LooksLikeCursor(in) {
			t.Fatalf("%q has a second spelling %q", in, c)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, p := range []string{"a.*", ">", "a.>", "$dlq.*", "*.b.>", "a..b", "a"} {
		for _, topic := range []string{"a.b", "$dlq.x", "a", "a.b.c"} {
			f.Add(p, topic)
		}
	}
	f.Fuzz(func(t *testing.T, in, topic string) {
		p, err := event.ParsePattern(in)
		if err != nil {
			checkRefusal(t, err)
			if event.CheckTopic(in) == nil {
				t.Fatalf("topic %q is no pattern", in)
			}
			return
		}
		if list, err := event.ParsePatterns(in + "," + in); err != nil || len(list) != 2 || list[1] != p {
			t.Fatalf("%q in a list: %v, %v", in, list, err)
		}
		if event.CheckTopic(topic) != nil {
			p.Match(topic) // must not panic
			return
		}
		// The oracle is a regular expression made from the definition.
		token := `[A-Za-z0-9_-]+`
		expr := regexp.QuoteMeta(in)
		expr = strings.ReplaceAll(expr, `\*`, token)
		expr = strings.TrimSuffix(expr, ">")
		if strings.HasSuffix(in, ">") {
			expr += token + `(\.` + token + `)*`
		}
		if want := regexp.MustCompile("^" + expr + "$").MatchString(topic); p.Match(topic) != want {
			t.Fatalf("%q matches %q: %v", in, topic, !want)
		}
	})
}

func FuzzLookupJSON(f *testing.F) {
	f.Add([]byte(`{"order":{"id":"A\u00e9","n":1.5,"ok":true,"nil":null,"list":[1]}}`), "order.id")
	f.Add([]byte(`{"a":1}`), "a")
	f.Add([]byte(`{"items":[[0,{"id":"x"}]]}`), "items[0][1].id")
	f.Add([]byte(`{"a":`), "a")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		got, ok := event.LookupJSON(data, path)
		if event.CheckPath(path) != nil || !jsontext.Value(data).IsValid() {
			return // only that there is no panic
		}
		var v any
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		if decoder.Decode(&v) != nil {
			t.Skip("too deep for encoding/json")
		}
		for _, step := range regexp.MustCompile(`\[\d+\]|[^.\[]+`).FindAllString(path, -1) {
			if step[0] != '[' {
				object, _ := v.(map[string]any)
				v = object[step]
				continue
			}
			array, _ := v.([]any)
			n, err := strconv.Atoi(step[1 : len(step)-1])
			if v = nil; err == nil && n < len(array) {
				v = array[n]
			}
		}
		want, wantOK := "", true
		switch v := v.(type) {
		case string:
			want = v
		case json.Number:
			want = v.String()
		case bool:
			want = strconv.FormatBool(v)
		default:
			wantOK = false
		}
		if got != want || ok != wantOK {
			t.Fatalf("%s in %s is %q, %v, want %q, %v", path, data, got, ok, want, wantOK)
		}
	})
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"cleanup_policy":"compact","retention":null,"delete_retention":"1d12h","key_from":"a.b","require_hlc":true,"max_event_bytes":65536}`))
	f.Add([]byte(`{"retention":"90s","retention":"91s"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := event.ParsePolicy(in)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("accepted but invalid: %v", err)
		}
		out, err := json.Marshal(p)
		if err != nil || !jsontext.Value(out).IsValid() {
			t.Fatalf("%s, %v", out, err)
		}
		if back, err := event.ParsePolicy(out); err != nil || !back.Equal(p) {
			t.Fatalf("%s came back as %+v, %v", out, back, err)
		}
	})
}
