// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"signalbox/event"
)

// The tests here assert rules of CloudEvents and of server-sent events that no
// other test of this package does. docs/conformance.md lists every rule with
// its test.

// delivered reads an event as a reader would.
func delivered(t *testing.T, b string) *event.Event {
	t.Helper()
	e, err := event.DecodeDelivered([]byte(b))
	if err != nil {
		t.Fatalf("%v: %s", err, clip([]byte(b)))
	}
	return e
}

// everywhere reads the events of a compacted topic by id, through each door
// that delivers events, and checks the media type of each.
func (d *door) everywhere(topic string) map[string]map[string]*event.Event {
	d.t.Helper()
	doors := map[string]map[string]*event.Event{"poll": {}, "stream": {}, "state": {}, "key": {}}
	poll := d.get("/v1/topics/"+topic+"/events?view=history").want(d.t, 200)
	eq(d.t, "Content-Type of a poll", poll.header.Get("Content-Type"), "application/cloudevents-batch+json")
	events, err := event.DecodeDeliveredBatch(poll.body)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range events {
		doors["poll"][e.ID()] = e
	}
	messages, _ := d.follow("/v1/topics/" + topic + "/events?view=history").untilSync()
	for _, m := range messages {
		e := delivered(d.t, m.data)
		doors["stream"][e.ID()] = e
	}
	for _, e := range d.get("/v1/topics/"+topic+"/state").want(d.t, 200).lines(d.t) {
		doors["state"][e.ID()] = e
		key := d.get("/v1/topics/"+topic+"/state/"+e.Subject()).want(d.t, 200)
		eq(d.t, "Content-Type of one event", key.header.Get("Content-Type"), "application/cloudevents+json")
		for name := range key.header {
			if strings.HasPrefix(name, "Ce-") {
				d.t.Errorf("a structured answer has the header %s", name)
			}
		}
		doors["key"][e.ID()] = delivered(d.t, strings.TrimSpace(string(key.body)))
	}
	return doors
}

// TestWhatIsDeliveredIsWhatWasPublished: attributes, extensions included, their
// kinds, and data come out of every door as they went in, in both modes (core,
// Terminology; JSON format 3; HTTP binding 3.1 and 3.2).
func TestWhatIsDeliveredIsWhatWasPublished(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	hlc := fmt.Sprintf("%d.00007", time.Now().Add(-time.Hour).UnixMilli())
	common := `"hlc":"` + hlc + `","recordedtime":"2020-01-31t12:00:00.50+01:00","expirytime":"2999-01-01T00:00:00.0Z",` +
		`"partitionkeys":"x","correlationid":"txn 1","causationid":"0","traceparent":"00-b-b-01","dataref":"../a?b#c","n":-5,"flag":false,"txt":"ä \"😀\" 100%"`
	want := map[string]*event.Event{}
	for id, more := range map[string]string{
		"json":    `"data":{"a":[1.0,"\u00e9",1e400]}`,
		"string":  `"data":"{\"a\":1}"`,
		"null":    `"data":null`,
		"text":    `"datacontenttype":"text/plain","data":"a\r\n\u0001\u2028"`,
		"xml":     `"datacontenttype":"application/xml","data":"<a b=\"c\"/>"`,
		"binary":  `"datacontenttype":"image/png","data_base64":"iVBORw=="`,
		"untyped": `"data_base64":"eyAieHl6IjogMTIzIH0="`,
		"none":    `"datacontenttype":"application/json"`,
	} {
		body := ev(id, id, common, more)
		e, err := event.DecodeJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		d.structured("s", body).want(t, 200)
		want[id] = e
		h := http.Header{}
		content := e.EncodeBinary(h)
		h.Set("ce-subject", "b-"+id) // the key, which is another event's
		var lines []string
		for name, values := range h {
			if name != "Ce-Id" && name != "Ce-Specversion" {
				lines = append(lines, name+": "+values[0])
			}
		}
		d.binary("s", "b-"+id, string(content), lines...).want(t, 200)
	}
	for name, events := range d.everywhere("s") {
		eq(t, "events of door "+name, len(events), 2*len(want))
		for id, w := range want {
			got, binary := events[id], events["b-"+id]
			if got == nil || binary == nil {
				t.Errorf("%s: no event %s", name, id)
				continue
			}
			if got.ContentHash() != w.ContentHash() || got.DataKind() != w.DataKind() {
				t.Errorf("%s: event %s came as %s", name, id, got.AppendJSON(nil))
			}
			for _, a := range w.Attributes() {
				v, _ := binary.Attribute(a.Name)
				if a.Name != "subject" && v.String() != a.Value.String() {
					t.Errorf("%s: %s of b-%s is %q, want %q", name, a.Name, id, v, a.Value)
				}
			}
			eq(t, name+": data of b-"+id, string(binary.Data()), string(w.Data()))
		}
	}
}

// TestTimesOfExtensions: an intermediary does not change recordedtime and does
// not remove expirytime (recordedtime and expirytime extensions, Usage).
func TestTimesOfExtensions(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	const recorded, expires = "2020-01-31t12:00:00.50+01:00", "2999-12-31T23:59:59-00:00"
	began := time.Now().Truncate(time.Millisecond)
	d.structured("s", ev("given", "1", someData, `"recordedtime":"`+recorded+`","expirytime":"`+expires+`"`)).want(t, 200)
	d.structured("s", ev("absent", "2", someData)).want(t, 200)
	d.structured("s", ev("relative", "3", someData, `"expiry":60`)).want(t, 200)
	text := func(e *event.Event, name string) string {
		v, _ := e.Attribute(name)
		return v.String()
	}
	for name, events := range d.everywhere("s") {
		eq(t, name+": recordedtime that was given", text(events["given"], "recordedtime"), recorded)
		eq(t, name+": expirytime that was given", text(events["given"], "expirytime"), expires)
		set, err := time.Parse(time.RFC3339, text(events["absent"], "recordedtime"))
		if err != nil || set.Before(began) || set.After(time.Now()) {
			t.Errorf("%s: recordedtime is set to %v, %v", name, set, err)
		}
		if _, there := events["absent"].Attribute("expirytime"); there {
			t.Errorf("%s: an expirytime was invented", name)
		}
		at, _ := events["relative"].ExpiryTime()
		if wait := at.Sub(began); wait < time.Minute || wait > 2*time.Minute {
			t.Errorf("%s: expiry 60 became expirytime %v", name, at)
		}
		if _, there := events["relative"].Attribute("expiry"); there {
			t.Errorf("%s: expiry is delivered beside expirytime", name)
		}
	}
}

// TestWhatTheBrokerAdds: position and topic to every event, superseded where it
// is true, hlc where it is absent; an hlc in a short spelling gets the canonical one.
func TestWhatTheBrokerAdds(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	ms := time.Now().Add(-time.Hour).UnixMilli()
	d.structured("s", ev("short", "1", someData, fmt.Sprintf(`"hlc":"%d.7"`, ms))).want(t, 200)
	d.structured("s", ev("absent", "2", someData)).want(t, 200)
	d.structured("s", ev("late", "1", someData, fmt.Sprintf(`"hlc":"%d.6"`, ms))).want(t, 200)
	for name, events := range d.everywhere("s") {
		v, _ := events["short"].Attribute("hlc")
		eq(t, name+": hlc", v.String(), fmt.Sprintf("%d.00007", ms))
		if events["absent"].HLC() <= events["short"].HLC() {
			t.Errorf("%s: an event without hlc was given %v", name, events["absent"].HLC())
		}
		eq(t, name+": position", events["absent"].Position(), 2)
		for id, e := range events {
			eq(t, name+": topic of "+id, e.Topic(), "s")
			eq(t, name+": superseded of "+id, e.Superseded(), id == "late")
			if _, there := e.Attribute("superseded"); there != (id == "late") {
				t.Errorf("%s: event %s says superseded: %v", name, id, there)
			}
		}
		history := name == "poll" || name == "stream"
		eq(t, name+": the late event is there", events["late"] != nil, history)
	}
}

// TestBatchesAreSentOnRequestOnly: a reader that takes single events in the JSON
// format only is not sent a batch (JSON format 4, HTTP binding 3), and one that
// takes batches chooses their greatest size.
func TestBatchesAreSentOnRequestOnly(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	d.get("/v1/topics/a/events", "Accept: application/cloudevents+json").refused(t, 406, "not_acceptable")
	messages, _ := d.follow("/v1/topics/a/events").untilSync()
	eq(t, "messages", len(messages), 3)
	for _, m := range messages {
		delivered(t, m.data) // an object, not an array
	}
	a := d.get("/v1/topics/a/events?limit=2", "Accept: application/cloudevents-batch+json").want(t, 200)
	eq(t, "Content-Type", a.header.Get("Content-Type"), "application/cloudevents-batch+json")
	eq(t, "events of a batch of at most two", len(a.list(t)), 2)
}

// TestEventsOf64KiBAreForwarded: core, Size Limits, with the least limit that a
// policy can set, and to readers for whom the event is larger than on its way in.
func TestEventsOf64KiBAreForwarded(t *testing.T) {
	const size = 64 << 10
	d := openDoor(t)
	d.put("a", fmt.Sprintf(`{"max_event_bytes":%d}`, size)).want(t, 201)
	frame := len(ev("structured", "", `"data":""`))
	d.structured("a", ev("structured", "", `"data":"`+strings.Repeat("x", size-frame)+`"`)).want(t, 200)
	const head = 150 // of the ce- headers below
	d.binary("a", "quotes", strings.Repeat(`"`, size-head), "Content-Type: text/plain").want(t, 200)
	d.binary("a", "bytes", strings.Repeat("\xff", size-head), "Content-Type: image/png").want(t, 200)
	d.binary("a", "attribute", "", "ce-x: "+strings.Repeat("y", size-head)).want(t, 200)
	want := map[string]int{"structured": size - frame + 2, "quotes": size - head, "bytes": size - head, "attribute": 0}
	events, err := event.DecodeDeliveredBatch(d.get("/v1/topics/a/events").want(t, 200).body)
	if err != nil {
		t.Fatal(err)
	}
	messages, _ := d.follow("/v1/topics/a/events").untilSync()
	for _, m := range messages {
		events = append(events, delivered(t, m.data))
	}
	eq(t, "events of both doors", len(events), 2*len(want))
	for _, e := range events {
		eq(t, "bytes of data of "+e.ID(), len(e.Data()), want[e.ID()])
	}
	if x, _ := events[3].Attribute("x"); len(x.String()) != size-head {
		t.Errorf("the attribute has %d bytes", len(x.String()))
	}
}

// wholeStreams reads event streams from their first byte to their end in good
// order. HTTP/1.0 has no chunks, so these are the bytes as they are.
func wholeStreams(t *testing.T, paths ...string) []string {
	t.Helper()
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 20 * time.Millisecond })
	for id, more := range map[string]string{
		"lines": "\"data\":{\r\n\"a\" :\r[ 1,\n\n2 ],\"text\":\"x\\r\\ny\"}",
		"text":  `"datacontenttype":"text/plain","data":"data: 1\r\nid: 2\n\nevent: 3\u0000\ufeff\u2028"`,
		"typed": `"subject":"id: 7\u2028data:"`,
		"bytes": `"data_base64":"DQoNCg=="`,
	} {
		d.structured("a", strings.Replace(ev(id, "", more), "t.x", ": com.example;id: 9", 1)).want(t, 200)
	}
	var streams []*bufio.Reader
	for _, path := range paths {
		_, r, head := d.raw("GET "+path+" HTTP/1.0", "Host: localhost", "Accept: text/event-stream")
		if status, _, _ := strings.Cut(head, "\r\n"); !strings.HasSuffix(status, " 200 OK") || !strings.Contains(head, "Content-Type: text/event-stream") {
			t.Errorf("the head of a stream is %s", head)
		}
		streams = append(streams, r)
	}
	out := make([]string, len(streams))
	for i, r := range streams { // up to a heartbeat
		for block := ""; !strings.HasSuffix(block, "\n\n") || !strings.HasPrefix(block, ": \nid: "); {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(block, "\n\n") {
				block = ""
			}
			block += line
			out[i] += line
		}
	}
	d.stop()
	for i, r := range streams {
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[i] += string(rest)
	}
	return out
}

// TestStreamsFollowTheGrammar: the HTML standard, section 9.2.5, on every byte
// of a stream whose events have all that could break it.
func TestStreamsFollowTheGrammar(t *testing.T) {
	paths := []string{"/v1/topics/a/events", "/v1/topics/a/events?named=true"}
	for i, body := range wholeStreams(t, paths...) {
		path := paths[i]
		t.Run("it is UTF-8 without a byte order mark", func(t *testing.T) {
			if !utf8.ValidString(body) || strings.HasPrefix(body, "\ufeff") {
				t.Errorf("stream %q", body)
			}
		})
		t.Run("lines end with LF alone", func(t *testing.T) {
			if strings.ContainsAny(body, "\r\x00") {
				t.Errorf("stream %q", body)
			}
		})
		t.Run("the end is the end of a block", func(t *testing.T) {
			if !strings.HasSuffix(body, "\n\n") {
				t.Errorf("stream %q", body)
			}
		})
		messages, heartbeats := 0, 0
		for block := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
			fields := blockFields(t, block)
			_, hasData := fields["data"]
			_, hasID := fields["id"]
			switch name, named := fields["event"]; {
			case hasData && name == "signalbox.sync":
			case hasData:
				messages++
				e := delivered(t, fields["data"])
				if named != strings.HasSuffix(path, "named=true") || named && name != e.Type() {
					t.Errorf("%s: event field %q (%v)", path, name, named)
				}
				if c, err := event.ParseCursor(fields["id"]); err != nil || c.Position != e.Position() {
					t.Errorf("%s: position %d has id %q", path, e.Position(), fields["id"])
				}
			case hasID:
				heartbeats++
			}
		}
		if messages != 4 || heartbeats == 0 {
			t.Errorf("%s: %d messages and %d heartbeats in %q", path, messages, heartbeats, body)
		}
	}
}

// blockFields reads the fields of one block and fails at any that the standard
// does not have, that is there twice, or that a reader would ignore.
func blockFields(t *testing.T, block string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for line := range strings.SplitSeq(block, "\n") {
		name, value, colon := strings.Cut(line, ":")
		if name == "" && colon {
			continue // a comment
		}
		value, space := strings.CutPrefix(value, " ")
		if _, twice := fields[name]; twice || !space {
			t.Errorf("line %q in block %q", line, block)
		}
		fields[name] = value
		var valid bool
		switch name {
		case "event", "data":
			valid = value != ""
		case "id":
			_, err := event.ParseCursor(value)
			valid = err == nil
		case "retry":
			valid = value != "" && strings.Trim(value, "0123456789") == ""
		}
		if !valid {
			t.Errorf("line %q in block %q", line, block)
		}
	}
	return fields
}
