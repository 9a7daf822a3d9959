// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/uuid"
)

// order has escapes, a number that a float would change, and members in no
// alphabetical order.
const order = `{"zone":"Bär 🐻 \"q\" \\ \u2028 <&>", "big":9007199254740993,"pi":3.10,"none":null,"list":[1,[],{}]}`

// newEvent sets the time, for the SDK's client would fill it in anew at each
// Send, and an event sent twice would be another one under the same id.
func newEvent() cloudevents.Event {
	e := cloudevents.NewEvent()
	e.SetTime(time.Now())
	e.SetID(uuid.NewString())
	e.SetType("interop.go")
	e.SetSource("/interop/go")
	return e
}

func newJSONEvent(t *testing.T) cloudevents.Event {
	t.Helper()
	e := newEvent()
	if err := e.SetData(cloudevents.ApplicationJSON, json.RawMessage(order)); err != nil {
		t.Fatal(err)
	}
	return e
}

var hlcForm = regexp.MustCompile(`^[0-9]{13}\.[0-9]{5}$`)

func (p *topic) checkReceipt(got receipt, sent cloudevents.Event, outcome string) {
	p.t.Helper()
	want := receipt{outcome, p.name, sent.Source(), sent.ID(), got.Position, got.Cursor, got.HLC}
	if got != want || !strings.HasPrefix(got.Cursor, "@"+got.Position+".") || !hlcForm.MatchString(got.HLC) {
		p.t.Errorf("receipt %+v for %v", got, sent)
	}
}

// checkDelivered: poll and stream bring every event, in order, as the SDK sent
// it; what the broker added is taken off first.
func (p *topic) checkDelivered(sent []cloudevents.Event, receipts []receipt) []json.RawMessage {
	p.t.Helper()
	polled, raw := p.poll()
	streamed, ids := p.follow()
	for i, r := range receipts {
		if i >= len(ids) || ids[i] != r.Cursor {
			p.t.Fatalf("the stream's ids are %v, the receipts %+v", ids, receipts)
		}
	}
	for name, got := range map[string][]cloudevents.Event{"poll": polled, "stream": streamed} {
		if len(got) != len(sent) {
			p.t.Fatalf("%s brought %d events, %d were sent", name, len(got), len(sent))
		}
		for i, e := range got {
			x := e.Extensions()
			if x["topic"] != p.name || x["position"] != receipts[i].Position || x["hlc"] != receipts[i].HLC || x["recordedtime"] == nil {
				p.t.Errorf("%s: extensions %v, receipt %+v", name, x, receipts[i])
			}
			for _, added := range []string{"topic", "position", "hlc", "recordedtime"} {
				e.SetExtension(added, nil)
			}
			if !bytes.Equal(e.Data(), sent[i].Data()) {
				p.t.Errorf("%s: data\n%q, sent\n%q", name, e.Data(), sent[i].Data())
			}
			if got, want := attributes(e), attributes(sent[i]); !maps.Equal(got, want) {
				p.t.Errorf("%s: attributes\n%#v, sent\n%#v", name, got, want)
			}
		}
	}
	return raw
}

// attributes are an event's, each with the Go type that the SDK gave it.
func attributes(e cloudevents.Event) map[string]any {
	a := map[string]any{"id": e.ID(), "source": e.Source(), "type": e.Type(), "specversion": e.SpecVersion(),
		"time": e.Time().UTC().Round(0), "subject": e.Subject(), "dataschema": e.DataSchema(), "datacontenttype": e.DataContentType()}
	maps.Copy(a, e.Extensions())
	return a
}

func eachMode(t *testing.T, f func(t *testing.T, p *topic, mode string)) {
	for mode := range modes {
		t.Run(mode, func(t *testing.T) { f(t, newTopic(t), mode) })
	}
}

func TestPublish(t *testing.T) {
	eachMode(t, func(t *testing.T, p *topic, mode string) {
		e := newJSONEvent(t)
		e.SetSubject("order-1")
		e.SetTime(time.Date(2026, 2, 3, 4, 5, 6, 789123456, time.FixedZone("", 2*60*60)))
		e.SetDataSchema("https://example.com/order.json")
		e.SetExtension("partitionkey", "k/1")
		r := p.send(mode, e)
		p.checkReceipt(r, e, "accepted")
		raw := p.checkDelivered([]cloudevents.Event{e}, []receipt{r})
		// What the SDK put on the wire, not only what it means, is kept.
		wire := p.last.request
		if mode == "structured" {
			wire = dataMember(p, wire)
		}
		if got := dataMember(p, raw[0]); !bytes.Equal(got, wire) {
			t.Errorf("data on the wire was\n%s and is\n%s", wire, got)
		}
	})
}

func dataMember(p *topic, b []byte) []byte {
	var members struct{ Data json.RawMessage }
	p.decode(b, &members)
	return members.Data
}

func TestBatch(t *testing.T) {
	p := newTopic(t)
	sent := make([]cloudevents.Event, 5)
	for i := range sent {
		sent[i] = newJSONEvent(t)
		sent[i].SetExtension("sequence", string(rune('a'+i)))
	}
	request, err := cehttp.NewHTTPRequestFromEvents(p.ctx, p.url+"/events", sent)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s %v", resp.Status, b, err)
	}
	var receipts []receipt
	p.decode(b, &receipts)
	if len(receipts) != len(sent) {
		t.Fatalf("%d receipts for %d events", len(receipts), len(sent))
	}
	for i, r := range receipts {
		p.checkReceipt(r, sent[i], "accepted")
	}
	p.checkDelivered(sent, receipts)
}

func TestBytes(t *testing.T) {
	data := make([]byte, 256)
	for i := range data {
		data[i] = byte(i)
	}
	eachMode(t, func(t *testing.T, p *topic, mode string) {
		e := newEvent()
		if err := e.SetData("application/octet-stream", data); err != nil {
			t.Fatal(err)
		}
		r := p.send(mode, e)
		p.checkDelivered([]cloudevents.Event{e}, []receipt{r})
	})
}

func TestText(t *testing.T) {
	eachMode(t, func(t *testing.T, p *topic, mode string) {
		e := newEvent()
		if err := e.SetData(cloudevents.TextPlain, "line 1\r\nline 2 — ∞\n"); err != nil {
			t.Fatal(err)
		}
		p.checkDelivered([]cloudevents.Event{e}, []receipt{p.send(mode, e)})
	})
}

func TestTypedExtensions(t *testing.T) {
	p := newTopic(t)
	e := newJSONEvent(t)
	for name, value := range map[string]any{
		"flag": true, "off": false, "zero": 0, "negative": -5, "most": 1<<31 - 1, "least": -1 << 31,
		"digits": "0042", "word": "false", "uni": "Größe ≥ 3 🐻",
	} {
		e.SetExtension(name, value)
	}
	p.checkDelivered([]cloudevents.Event{e}, []receipt{p.send("structured", e)})
}

// Headers have no types: what the broker does not know arrives as a String in
// the type system's canonical form.
func TestBinaryExtensionsAreStrings(t *testing.T) {
	p := newTopic(t)
	e := newJSONEvent(t)
	for name, value := range map[string]any{"flag": true, "off": false, "zero": 0, "negative": -5} {
		e.SetExtension(name, value)
	}
	p.send("binary", e)
	events, _ := p.poll()
	for name, want := range map[string]any{"flag": "true", "off": "false", "zero": "0", "negative": "-5"} {
		if got := events[0].Extensions()[name]; got != want {
			t.Errorf("%s is %v (%[2]T), want %v", name, got, want)
		}
	}
}

// The SDK percent-encodes nothing (HTTP binding 3.1.3.2 asks for it) and sends
// plain UTF-8. That has one meaning and is taken; a literal "%20" has the
// encoded one for every conforming receiver; and what has none is refused.
func TestUnencodedHeaders(t *testing.T) {
	for sent, want := range map[string]string{
		"Bär 🐻":    "Bär 🐻",
		"a%20b":    "a b",
		"a%2520b":  "a%20b",
		"100%":     "",
		`say "hi"`: "",
	} {
		t.Run(sent, func(t *testing.T) {
			p := newTopic(t)
			e := newJSONEvent(t)
			e.SetSubject(sent)
			if want == "" {
				if got := p.refused("binary", e); got.Status != 400 || got.Code != "header_invalid" || !strings.EqualFold(got.Field, "ce-subject") {
					t.Errorf("refused with %+v", got)
				}
			} else {
				p.send("binary", e)
				if events, _ := p.poll(); events[0].Subject() != want {
					t.Errorf("the subject is %q, want %q", events[0].Subject(), want)
				}
			}
			// In structured mode there is nothing to encode.
			e.SetID(uuid.NewString())
			p.send("structured", e)
			if events, _ := p.poll(); events[len(events)-1].Subject() != sent {
				t.Errorf("in structured mode the subject is %q", events[len(events)-1].Subject())
			}
		})
	}
}

func TestDuplicateInEitherMode(t *testing.T) {
	p := newTopic(t)
	e := newJSONEvent(t)
	e.SetSubject("s")
	e.SetExtension("count", 7)
	first := p.send("binary", e)
	p.checkReceipt(first, e, "accepted")
	for mode := range modes {
		want := first
		want.Outcome = "duplicate"
		if got := p.send(mode, e); got != want {
			t.Errorf("%s: %+v, want %+v", mode, got, want)
		}
	}
	e.SetSubject("other")
	if got := p.refused("binary", e); got.Status != 409 || got.Code != "id_reused" {
		t.Errorf("the same id with other content: %+v", got)
	}
}

func TestStateAndTombstone(t *testing.T) {
	eachMode(t, func(t *testing.T, p *topic, mode string) {
		if resp := p.do(http.MethodPut, "", `{"cleanup_policy":"compact"}`, ""); resp.StatusCode != 201 {
			t.Fatal(resp.Status)
		}
		e := newJSONEvent(t)
		e.SetSubject("T/998")
		r := p.send(mode, e)
		resp := p.do(http.MethodGet, "/state/T%2F998", "", "")
		now, err := cehttp.NewEventFromHTTPResponse(resp)
		if err != nil || resp.Header.Get("ETag") != `"@`+r.Position+`"` {
			t.Fatalf("%v, ETag %s, receipt %+v", err, resp.Header.Get("ETag"), r)
		}
		if now.ID() != e.ID() || !bytes.Equal(now.Data(), e.Data()) {
			t.Errorf("the state is\n%v, sent was\n%v", now, e)
		}
		tombstone := newEvent()
		tombstone.SetSubject("T/998")
		p.send(mode, tombstone)
		if resp := p.do(http.MethodGet, "/state/T%2F998", "", ""); resp.StatusCode != 404 {
			t.Errorf("the state of a removed key: %s", resp.Status)
		}
	})
}
