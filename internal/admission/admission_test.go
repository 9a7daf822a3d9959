// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/eventlog"
)

// now is 2026-01-01T00:00:00.250Z.
const now = 1_767_225_600_250

func admit(t *testing.T, structured string) (eventlog.Entry, error) {
	t.Helper()
	ev, err := event.DecodeJSON([]byte(structured))
	if err != nil {
		t.Fatalf("%s: %v", structured, err)
	}
	entries, _, err := admission.Admit([]*event.Event{ev}, now, event.Trace{})
	if err != nil {
		return eventlog.Entry{}, err
	}
	return entries[0], nil
}

func structured(members string) string {
	return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + members + `}`
}

// TestMembers is about what is stored and delivered: the event as received,
// with what the broker adds, and without what it writes itself.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		name, members string
		want          map[string]any // beside the four required
		data          string
	}{
		{"nothing", ``, map[string]any{"recordedtime": "2026-01-01T00:00:00.250Z"}, ""},
		{"the producer's own recordedtime", `,"recordedtime":"2020-02-02T02:02:02Z"`, map[string]any{"recordedtime": "2020-02-02T02:02:02Z"}, ""},
		{"a relative expiry becomes absolute", `,"recordedtime":"2020-02-02T02:02:02Z","expiry":90`,
			map[string]any{"recordedtime": "2020-02-02T02:02:02Z", "expirytime": "2026-01-01T00:01:30.250Z"}, ""},
		{"an absolute one stays as it is", `,"recordedtime":"2020-02-02T02:02:02Z","expirytime":"2026-01-01T01:00:00+01:00"`,
			map[string]any{"recordedtime": "2020-02-02T02:02:02Z", "expirytime": "2026-01-01T01:00:00+01:00"}, ""},
		{"the hlc is written on delivery", `,"recordedtime":"2020-02-02T02:02:02Z","hlc":"1767225600000.7"`,
			map[string]any{"recordedtime": "2020-02-02T02:02:02Z"}, ""},
		{"data, with its bytes", `,"recordedtime":"2020-02-02T02:02:02Z","data":{ "n" : 1.50 }`,
			map[string]any{"recordedtime": "2020-02-02T02:02:02Z", "datacontenttype": "application/json"}, `{ "n" : 1.50 }`},
		{"extensions of every kind", `,"recordedtime":"2020-02-02T02:02:02Z","a":"x","b":true,"c":-5,"partitionkey":"k","subject":"s"`,
			map[string]any{"recordedtime": "2020-02-02T02:02:02Z", "a": "x", "b": true, "c": -5.0, "partitionkey": "k", "subject": "s"}, ""},
	} {
		e, err := admit(t, structured(c.members))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(append([]byte("{"), e.Members...), &got); err != nil {
			t.Errorf("%s: %s: %v", c.name, e.Members, err)
			continue
		}
		c.want["specversion"], c.want["id"], c.want["source"], c.want["type"] = "1.0", "1", "/s", "t"
		delete(got, "data")
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: stored are %v, want %v", c.name, got, c.want)
		}
		if data := string(e.Members[e.DataOffset : e.DataOffset+e.DataLength]); data != c.data {
			t.Errorf("%s: the data is %q, want %q", c.name, data, c.data)
		}
	}
}

// TestEntry is about what apply decides by.
func TestEntry(t *testing.T) {
	for _, c := range []struct {
		name, members string
		check         func(e *eventlog.Entry) bool
	}{
		{"no key", ``, func(e *eventlog.Entry) bool { return !e.HasKey && e.Key == "" }},
		{"the subject is the key", `,"subject":"s"`, func(e *eventlog.Entry) bool { return e.HasKey && e.Key == "s" }},
		{"the partitionkey before the subject", `,"subject":"s","partitionkey":"k"`, func(e *eventlog.Entry) bool { return e.HasKey && e.Key == "k" }},
		{"no stamp", ``, func(e *eventlog.Entry) bool { return e.HLC == 0 }},
		{"a stamp", `,"hlc":"1767225600000.7"`, func(e *eventlog.Entry) bool { return e.HLC == event.NewHLC(1767225600000, 7) }},
		{"no expiry", ``, func(e *eventlog.Entry) bool { return e.ExpiryMillis == 0 }},
		{"relative", `,"expiry":1`, func(e *eventlog.Entry) bool { return e.ExpiryMillis == now+1000 }},
		{"relative, the longest", `,"expiry":2147483647`, func(e *eventlog.Entry) bool { return e.ExpiryMillis == now+2147483647000 }},
		{"absolute", `,"expirytime":"2026-01-01T01:00:00.5+01:00"`, func(e *eventlog.Entry) bool { return e.ExpiryMillis == 1_767_225_600_500 }},
		{"absolute, over already", `,"expirytime":"1970-01-01T00:00:01Z"`, func(e *eventlog.Entry) bool { return e.ExpiryMillis == 1000 }},
		{"bare", ``, func(e *eventlog.Entry) bool { return e.Flags == eventlog.FlagBare }},
		{"a claim check is not bare", `,"dataref":"https://store/1"`, func(e *eventlog.Entry) bool { return e.Flags == 0 }},
		{"null is data", `,"data":null`, func(e *eventlog.Entry) bool { return e.Flags == eventlog.FlagJSON && e.DataLength == 4 }},
		{"an empty text is data", `,"datacontenttype":"text/plain","data":""`, func(e *eventlog.Entry) bool { return e.Flags == 0 && e.DataLength == 2 }},
		{"binary data", `,"data_base64":"AAE="`, func(e *eventlog.Entry) bool { return e.Flags == 0 && e.DataLength > 0 }},
		{"lines to fold", ",\"data\":{\n}", func(e *eventlog.Entry) bool { return e.Flags == eventlog.FlagJSON|eventlog.FlagFold }},
		{"an escaped line break is none", `,"data":"\n"`, func(e *eventlog.Entry) bool { return e.Flags == eventlog.FlagJSON }},
		{"an expiry before 1970", `,"expirytime":"1969-12-31T23:59:59Z"`, func(e *eventlog.Entry) bool { return e.ExpiryMillis == 1 }},
		{"an expiry in lower case", `,"expirytime":"1970-01-01t00:00:01z"`, func(e *eventlog.Entry) bool { return e.ExpiryMillis == 1000 }},
		{"the identity", ``, func(e *eventlog.Entry) bool {
			return e.ID == "1" && e.Source == "/s" && e.Identity.ID == event.HashID("1") && e.Identity.Source == event.HashSource("/s")
		}},
		{"the body's hash", `,"data":1`, func(e *eventlog.Entry) bool {
			return e.Body == sha256.Sum256(append(append([]byte(nil), e.Salt[:]...), e.Members...)) && e.Salt != [16]byte{}
		}},
	} {
		if e, err := admit(t, structured(c.members)); err != nil || !c.check(&e) {
			t.Errorf("%s: %+v, %v", c.name, e, err)
		}
	}
}

// TestRefused has what is refused early because no order could change it.
func TestRefused(t *testing.T) {
	for name, members := range map[string]string{
		"both expiries": `,"expiry":5,"expirytime":"2030-01-01T00:00:00Z"`,
	} {
		_, err := admit(t, structured(members))
		if e := event.AsError(err); e == nil || e.Code != event.CodeExpiryInvalid || e.Field == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusedAt: of several events the one at fault is named.
func TestRefusedAt(t *testing.T) {
	var events []*event.Event
	for _, members := range []string{``, `,"expiry":5`, `,"expiry":5,"expirytime":"2030-01-01T00:00:00Z"`, ``} {
		ev, err := event.DecodeJSON([]byte(structured(members)))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	if entries, at, err := admission.Admit(events, now, event.Trace{}); err == nil || at != 2 || entries != nil {
		t.Errorf("%v, %d, %v", entries, at, err)
	}
}

// TestContent: the content hash is of the event as received, so that it does not
// depend on when, or how often, it was admitted. The salt is drawn each time.
func TestContent(t *testing.T) {
	ev, err := event.DecodeJSON([]byte(structured(`,"expiry":60,"data":1`)))
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := admission.Admit([]*event.Event{ev, ev}, now, event.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := admission.Admit([]*event.Event{ev}, now+1000, event.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	if first[0].Content != second[0].Content || first[0].Content != first[1].Content {
		t.Error("the same event has another content hash when it comes again")
	}
	if first[0].Salt == first[1].Salt || first[0].Salt == second[0].Salt {
		t.Error("a salt was used twice")
	}
	if bytes.Equal(first[0].Members, second[0].Members) {
		t.Error("recordedtime and expirytime do not depend on the time of admission")
	}
}

// TestAdmitAnything: whatever the decoder accepts is admitted as one whole JSON
// object, whose parts are where the entry says.
func TestAdmitAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := event.Draft{
			ID: rapid.StringMatching(`[a-zé"\\]{1,9}`).Draw(t, "id"), Source: rapid.StringMatching(`/[a-z]{0,5}`).Draw(t, "source"), Type: "t",
			Subject:         rapid.StringMatching(`[ -~ü]{0,9}`).Draw(t, "subject"),
			DataContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain", "application/x-thing"}).Draw(t, "type"),
			Extensions:      map[string]any{},
		}
		if rapid.Bool().Draw(t, "data") {
			d.Data = []byte(rapid.SampledFrom([]string{"null", "{\"a\":\r\n[1]}", `"<&>"`, "17"}).Draw(t, "json"))
		}
		if rapid.Bool().Draw(t, "expiry") {
			d.Extensions["expiry"] = rapid.IntRange(1, 1<<31-1).Draw(t, "seconds")
		}
		if rapid.Bool().Draw(t, "hlc") {
			d.Extensions["hlc"] = "1767225600000.00001"
		}
		ev, err := d.Event()
		if err != nil {
			t.Skip(err)
		}
		entries, _, err := admission.Admit([]*event.Event{ev}, now, event.Trace{})
		if err != nil {
			t.Fatal(err)
		}
		e := entries[0]
		delivered := append([]byte(`{"position":"1","hlc":"1.00001",`), e.Members...)
		again, err := event.DecodeDelivered(delivered)
		if err != nil {
			t.Fatalf("%s: %v", delivered, err)
		}
		if again.ID() != ev.ID() || again.Subject() != ev.Subject() || !bytes.Equal(bytes.TrimSpace(again.Data()), bytes.TrimSpace(ev.Data())) {
			t.Fatalf("delivered as %s", delivered)
		}
		if strings.Contains(string(e.Members), `"expiry":`) || strings.Contains(string(e.Members), `"hlc":`) {
			t.Fatalf("stored with what the broker writes itself: %s", e.Members)
		}
		if want := e.HasKey && e.Key != "" || d.Subject == ""; !want {
			t.Fatalf("the key of subject %q is %q", d.Subject, e.Key)
		}
		if int(e.WireBytes) != ev.WireBytes() {
			t.Fatalf("%d bytes on the wire, not %d", e.WireBytes, ev.WireBytes())
		}
	})
}
