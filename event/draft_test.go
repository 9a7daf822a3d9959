// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

func TestDraft(t *testing.T) {
	data := []byte(`{"a":1}`)
	e, err := event.Draft{
		ID: "7", Source: "/agents/beta", Type: "task.done", Subject: "T-998", DataSchema: "http://a/b",
		Time:       time.Date(2026, 1, 31, 13, 0, 0, 5, time.FixedZone("", 3600)),
		Extensions: map[string]any{"s": "x y", "yes": true, "no": false, "i": 1, "i32": int32(-2), "i64": int64(3), "hlc": "5.1", "expiry": 9},
		Data:       data,
	}.Event()
	if err != nil {
		t.Fatal(err)
	}
	data[2] = 'X'
	const want = `{"specversion":"1.0","id":"7","source":"/agents/beta","type":"task.done","dataschema":"http://a/b","expiry":9,"hlc":"5.1",` +
		`"i":1,"i32":-2,"i64":3,"no":false,"s":"x y","subject":"T-998","time":"2026-01-31T12:00:00.000000005Z","yes":true,"datacontenttype":"application/json","data":{"a":1}}`
	if got := string(e.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if f := decode(t, []byte(want)); !f.Equal(e) {
		t.Error("differs from the same event decoded")
	}
}

func TestDraftData(t *testing.T) {
	for _, c := range []struct {
		contentType string
		data        []byte
		kind        event.DataKind
		want        string
	}{
		{"", nil, event.NoData, ""},
		{"", []byte("null"), event.JSONData, "application/json"},
		{"", []byte("hello"), event.BinaryData, ""},
		{"", []byte{}, event.BinaryData, ""},
		{"text/plain", []byte("hello"), event.TextData, "text/plain"},
		{"text/plain", []byte{}, event.TextData, "text/plain"},
		{"text/plain", nil, event.NoData, "text/plain"},
		{"a/b+json", []byte("1"), event.JSONData, "a/b+json"},
	} {
		e, err := event.Draft{Source: "/t", Type: "t", DataContentType: c.contentType, Data: c.data}.Event()
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if e.DataKind() != c.kind || e.DataContentType() != c.want || (e.Data() == nil) != (c.data == nil) {
			t.Errorf("%+v: kind %d, type %q", c, e.DataKind(), e.DataContentType())
		}
	}
}

func TestDraftRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		draft event.Draft
		code  event.Code
	}{
		"no source":         {event.Draft{Type: "t"}, event.CodeEventInvalid},
		"no type":           {event.Draft{Source: "/t"}, event.CodeEventInvalid},
		"id like a cursor":  {event.Draft{ID: "@1", Source: "/t", Type: "t"}, event.CodeIDReserved},
		"our type":          {event.Draft{Source: "/t", Type: "signalbox.x"}, event.CodeAttributeReserved},
		"not JSON":          {event.Draft{Source: "/t", Type: "t", DataContentType: "application/json", Data: []byte("{")}, event.CodeDataInvalid},
		"empty JSON":        {event.Draft{Source: "/t", Type: "t", DataContentType: "application/json", Data: []byte{}}, event.CodeDataInvalid},
		"float":             {event.Draft{Source: "/t", Type: "t", Extensions: map[string]any{"f": 1.5}}, event.CodeEventInvalid},
		"nil extension":     {event.Draft{Source: "/t", Type: "t", Extensions: map[string]any{"f": nil}}, event.CodeEventInvalid},
		"large integer":     {event.Draft{Source: "/t", Type: "t", Extensions: map[string]any{"f": int64(1) << 31}}, event.CodeEventInvalid},
		"core as extension": {event.Draft{Source: "/t", Type: "t", Subject: "a", Extensions: map[string]any{"subject": "b"}}, event.CodeEventInvalid},
		"bad name":          {event.Draft{Source: "/t", Type: "t", Extensions: map[string]any{"A": "b"}}, event.CodeEventInvalid},
		"not UTF-8":         {event.Draft{Source: "/t", Type: "t", Extensions: map[string]any{"a": "\xff"}}, event.CodeEventInvalid},
		"year 10000":        {event.Draft{Source: "/t", Type: "t", Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, event.CodeEventInvalid},
	} {
		_, err := c.draft.Event()
		if event.AsError(err) == nil || event.AsError(err).Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// TestDrawnIDs: RFC 9562 section 5.7.
func TestDrawnIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	before := time.Now().UnixMilli()
	for range 1000 {
		e, err := event.Draft{Source: "/t", Type: "t"}.Event()
		if err != nil {
			t.Fatal(err)
		}
		if !form.MatchString(e.ID()) || seen[e.ID()] {
			t.Fatalf("id %s", e.ID())
		}
		seen[e.ID()] = true
		var ms int64
		for _, c := range strings.ReplaceAll(e.ID()[:13], "-", "") {
			ms = ms<<4 | int64(strings.IndexRune("0123456789abcdef", c))
		}
		if ms < before || ms > time.Now().UnixMilli() {
			t.Fatalf("id %s is of %d", e.ID(), ms)
		}
	}
}

func TestAccessors(t *testing.T) {
	for members, want := range map[string]string{
		`"subject":"s","partitionkey":"p"`: "p", `"subject":"s"`: "s", `"partitionkey":"p"`: "p",
	} {
		if got, ok := decode(t, structured(members)).Key(); !ok || got != want {
			t.Errorf("key of %s is %q", members, got)
		}
	}
	e := decode(t, structured(`"b":"2","a":"1","partitionkey":"p","subject":"s","datacontenttype":"text/plain"`))
	if e.ID() != "1" || e.Source() != "/t" || e.Type() != "t.x" || e.Subject() != "s" || e.Partitionkey() != "p" || e.DataContentType() != "text/plain" {
		t.Error("an accessor is wrong")
	}
	for name, want := range map[string]string{"specversion": "1.0", "id": "1", "source": "/t", "type": "t.x", "a": "1"} {
		wantAttribute(t, e, name, want)
	}
	if _, ok := e.Attribute("c"); ok {
		t.Error("there is an attribute c")
	}
	if _, ok := decode(t, structured("")).Key(); ok {
		t.Error("an event without key has one")
	}
	names := ""
	for _, a := range e.Attributes() {
		names += a.Name + " "
	}
	if names != "a b datacontenttype partitionkey subject " {
		t.Errorf("the order is %s", names)
	}
}
