// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

const ephemeral = `{"durability":"ephemeral"}`

// eventOf is the event of a block.
func eventOf(t *testing.T, m message) *event.Event {
	t.Helper()
	e, err := event.DecodeDelivered([]byte(m.data))
	if err != nil {
		t.Fatalf("%q: %v", m.data, err)
	}
	return e
}

func idsOf(t *testing.T, all []message) (ids []string) {
	t.Helper()
	for _, m := range all {
		ids = append(ids, eventOf(t, m).ID())
	}
	return ids
}

// One stream has durable and ephemeral events. The latter have no position and
// no id, so that a reconnection resumes the former and begins the latter anew.
func TestStreamOfDurableAndEphemeralTopics(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	d.structured("d", ev("d1", "", someData)).want(t, 200)
	for _, id := range []string{"a1", "b1", "a2"} {
		r := d.structured("e", ev(id, id[:1], someData)).want(t, 200).object(t)
		eq(t, "outcome", r["outcome"], any("accepted"))
		if r["position"] != nil || r["cursor"] != nil || r["hlc"] == nil {
			t.Errorf("the receipt is %v", r)
		}
	}
	s := d.follow("/v1/events?topics=e,d")
	first, sync := s.untilSync()
	sameList(t, "first", idsOf(t, first), []string{"d1", "b1", "a2"})
	eq(t, "position", eventOf(t, first[1]).Position(), 0)
	eq(t, "topic", eventOf(t, first[1]).Topic(), "e")
	d.structured("e", ev("a3", "a", someData)).want(t, 200)
	m := s.dispatched()
	eq(t, "live", eventOf(t, m).ID(), "a3")
	eq(t, "the last id", m.lastID, sync.lastID)
	d.structured("d", ev("d2", "", someData)).want(t, 200)
	m = s.dispatched()
	eq(t, "durable", eventOf(t, m).ID(), "d2")
	d.batch("e", "["+ev("c1", "c", someData)+","+ev("a4", "a")+"]").want(t, 200)
	eq(t, "of a batch", eventOf(t, s.dispatched()).ID(), "c1")
	eq(t, "a tombstone", eventOf(t, s.dispatched()).DataKind(), event.NoData)
	s.close()
	again, _ := d.follow("/v1/events?topics=e,d", "Last-Event-ID: "+m.lastID).untilSync()
	sameList(t, "after the reconnection", idsOf(t, again), []string{"b1", "c1"})
	d.restart()
	again, _ = d.follow("/v1/events?topics=e,d", "Last-Event-ID: "+sync.lastID).untilSync()
	sameList(t, "after a restart", idsOf(t, again), []string{"d2"})
}

// Heartbeats and named streams treat events without a position as any other.
func TestNamedStreamOfAnEphemeralTopic(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	d.structured("e", ev("a1", "a", "\"data\":{\n}")).want(t, 200)
	m := d.follow("/v1/topics/e/events?named=true").dispatched()
	eq(t, "name", m.name, "t.x")
	eq(t, "id", m.lastID, "")
	eq(t, "data", string(eventOf(t, m).Data()), "{ }")
}

// A poll knows its place on ephemeral topics by a mark beside the cursor.
func TestPollsOfEphemeralTopicsHaveAMark(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	next := func(a answer) string {
		link, _, _ := strings.Cut(strings.TrimPrefix(a.want(t, 200).header.Get("Link"), "<"), ">")
		return link
	}
	for _, id := range []string{"a1", "b1", "c1"} {
		d.structured("e", ev(id, id[:1], someData)).want(t, 200)
	}
	a := d.get("/v1/topics/e/events?limit=2")
	sameList(t, "the first page", a.ids(t), []string{"a1", "b1"})
	eq(t, "synced", a.header.Get("Signalbox-Synced"), "false")
	d.structured("e", ev("a2", "a", someData)).want(t, 200)
	d.structured("e", ev("x1", "", someData)).want(t, 200)
	a = d.get(next(a))
	sameList(t, "the second page", a.ids(t), []string{"c1", "a2"})
	a = d.get(next(a))
	sameList(t, "the third page", a.ids(t), []string{"x1"})
	a = d.get(next(a))
	sameList(t, "the end", a.ids(t), nil)
	mark := a.header.Get("Signalbox-Live")
	d.structured("e", ev("b2", "b", someData)).want(t, 200)
	sameList(t, "later", d.get(next(a)).ids(t), []string{"b2"})

	// Whoever has a cursor and no mark gets what comes, and never the same again.
	cursor := query("cursor", a.cursor())
	sameList(t, "with a cursor", d.get("/v1/topics/e/events"+cursor).ids(t), nil)
	answered := make(chan answer)
	go func() { answered <- d.get("/v1/topics/e/events" + cursor + "&wait=55") }()
	for held := true; held; {
		d.structured("e", ev("a3", "a", someData)).want(t, 200)
		select {
		case a := <-answered:
			sameList(t, "while it waits", a.want(t, 200).ids(t), []string{"a3"})
			held = false
		case <-time.After(10 * time.Millisecond): // it may not have begun to wait yet
		}
	}
	for _, bad := range []string{"", "1", mark + "x", "a.1", strings.Replace(mark, ".", ".0", 1), mark + "99999999999999999999"} {
		d.do(request{path: "/v1/topics/e/events" + query("live", bad), unchecked: true}).refused(t, 400, "parameter_invalid")
	}
	d.get("/v1/topics/e/events"+query("live", mark), "Accept: text/event-stream").refused(t, 400, "parameter_invalid")
	if a := d.get("/v1/topics/d/events"); a.header.Get("Signalbox-Live") != "" || strings.Contains(a.header.Get("Link"), "live") {
		t.Errorf("a poll of other topics has a mark: %v", a.header)
	}

	// A mark of another run begins with what is held.
	d.restart()
	d.structured("e", ev("z1", "z", someData)).want(t, 200)
	sameList(t, "with an old mark", d.get("/v1/topics/e/events"+query("live", mark, "cursor", a.cursor())).ids(t), []string{"z1"})
}

// What a reader may know of a deleted topic is out of date.
func TestStreamOfADeletedEphemeralTopicEnds(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	d.structured("e", ev("a1", "a", someData)).want(t, 200)
	s := d.follow("/v1/topics/e/events")
	s.untilSync()
	d.do(request{method: http.MethodDelete, path: "/v1/topics/e"}).want(t, 204)
	all, err := s.rest()
	if err != nil || len(all) == 0 || all[len(all)-1].comment != "values_reset" || all[len(all)-1].retry == 0 {
		t.Errorf("the stream ended with %+v, %v", all, err)
	}
}

func TestStateOfAnEphemeralTopic(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.structured("s", ev("s1", "k", someData)).want(t, 200)
	d.structured("e", ev("a1", "a", someData)).want(t, 200)
	d.structured("e", ev("b1", "b", someData, `"expiry":1`)).want(t, 200)
	d.structured("e", ev("a2", "a", someData)).want(t, 200)
	state := d.get("/v1/state?topics=*").want(t, 200).lines(t)
	if len(state) < 2 || state[0].Position() != 1 || state[len(state)-1].ID() != "a2" || state[len(state)-1].Position() != 0 {
		t.Fatalf("the state is %v", subjects(state))
	}
	a := d.get("/v1/topics/e/state/a").want(t, 200)
	eq(t, "ETag", a.header.Get("ETag"), "")
	eq(t, "id", a.object(t)["id"], any("a2"))
	eventually(t, "b expires", func() bool { return d.get("/v1/topics/e/state/b").status == 404 })
	eventually(t, "b is not counted", func() bool { return d.get("/v1/topics/e").want(t, 200).object(t)["keys"] == any(1.0) })
	d.get("/v1/topics/e/digest").refused(t, 409, "topic_ephemeral")
	d.structured("e", ev("a3", "a", someData), "If-None-Match: *").refused(t, 409, "topic_ephemeral")
	proof := d.do(request{method: http.MethodPost, path: "/v1/topics/e/events?ack=proof", body: ev("a3", "a", someData), header: []string{"Content-Type: application/cloudevents+json"}})
	eq(t, "field", proof.refused(t, 409, "topic_ephemeral")["field"], any("ack"))
	d.get("/v1/topics/e/events?view=history").refused(t, 400, "view_invalid")
	d.get("/v1/topics/e/events?view=current").want(t, 200)
}

// $presence says who has a stream, under the name that it gave.
func TestPresenceOfStreams(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	watch := d.follow("/v1/topics/$presence/events?agent=/agents/watch")
	self, _ := watch.untilSync()
	if len(self) != 1 || eventOf(t, self[0]).Subject() != "/agents/watch" {
		t.Fatalf("the watcher sees %+v of itself", self)
	}
	beta := d.follow("/v1/events?topics=a.*,b&agent=%2Fagents%2Fbeta")
	e := eventOf(t, watch.dispatched())
	eq(t, "type", e.Type(), "signalbox.presence")
	for path, want := range map[string]string{
		"agent": "/agents/beta", "streams[0].door": "sse", "streams[0].topics[0]": "a.*", "streams[0].topics[1]": "b",
	} {
		if got, _ := event.LookupJSON(e.Data(), path); got != want {
			t.Errorf("%s is %q in %s, want %q", path, got, e.Data(), want)
		}
	}
	nameless := d.follow("/v1/topics/a/events")
	eq(t, "key", eventOf(t, watch.dispatched()).Subject(), "connection:1")
	nameless.close()
	e = eventOf(t, watch.dispatched())
	eq(t, "key", e.Subject(), "connection:1")
	eq(t, "data", e.DataKind(), event.NoData)
	put := func(path, body string) answer {
		return d.do(request{method: "PUT", path: path, body: body, header: []string{"Content-Type: application/json"}, unchecked: true})
	}
	put("/v1/presence/%2Fagents%2Fbeta?ttl=10m", `{"ledger":"diverged"}`).want(t, 204)
	if got, _ := event.LookupJSON(eventOf(t, watch.dispatched()).Data(), "status.ledger"); got != "diverged" {
		t.Errorf("the status is %q", got)
	}
	beta.close()
	e = eventOf(t, watch.dispatched()) // after the grace
	eq(t, "key", e.Subject(), "/agents/beta")
	eq(t, "data", e.DataKind(), event.NoData)

	put("/v1/presence/%2Fagents%2Fbeta?ttl=25h", `{}`).refused(t, 400, "parameter_invalid")
	put("/v1/presence/%2Fagents%2Fbeta?ttl=soon", `{}`).refused(t, 400, "parameter_invalid")
	put("/v1/presence/a%20b", `{}`).refused(t, 400, "parameter_invalid")
	put("/v1/presence/", `{}`).refused(t, 400, "parameter_invalid")
	put("/v1/presence/a", `[]`).refused(t, 400, "data_invalid")
	put("/v1/presence/a", `{"a":1,"a":2}`).refused(t, 400, "data_invalid")
	put("/v1/presence/a", `{"a":"`+strings.Repeat("x", 8<<10)+`"}`).refused(t, 413, "request_too_large")
	d.get("/v1/topics/a/events?agent=x").refused(t, 400, "parameter_invalid")
	d.get("/v1/topics/a/events?agent=a%20b", "Accept: text/event-stream").refused(t, 400, "parameter_invalid")
	d.structured("$presence", ev("p", "/agents/beta", someData)).refused(t, 403, "topic_reserved")
}

// A socket publishes to ephemeral topics and follows them. Their events have no
// cursor, so there is nothing to acknowledge and no window to fill.
func TestSocketOfEphemeralTopics(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	d.structured("e", ev("a1", "a", someData)).want(t, 200)
	p := d.dial("/v1/topics/e/events?window=1&agent=/agents/s", v1)
	ids, _ := p.untilSync()
	sameList(t, "held", ids, []string{"a1"})
	for _, id := range []string{"b1", "c1", "d1"} {
		p.send(`{"op":"publish","ref":%q,"event":%s}`, id, ev(id, id[:1], someData))
		var receipt, event said
		for range 2 {
			if m := p.next(); m.Op == "receipt" {
				receipt = m
			} else {
				event = m
			}
		}
		eq(t, "ref", receipt.Ref, id)
		eq(t, "position", receipt.Receipt.Position, 0)
		eq(t, "event", event.id(), id)
		eq(t, "cursor", event.Cursor, "")
	}
	p.send(`{"op":"publish","ref":"r","idempotency_key":"k","event":%s}`, ev("x", "a", someData))
	eq(t, "code", p.want("refused").Problem["code"], any("topic_ephemeral"))
	present := d.get("/v1/topics/$presence/state").want(t, 200).lines(t)
	if door, _ := event.LookupJSON(present[0].Data(), "streams[0].door"); len(present) != 1 || door != "websocket" {
		t.Errorf("present is %s", present[0].Data())
	}
	plain := d.dial("/v1/topics/e/events", "cloudevents.json")
	ids, _ = plain.untilSync()
	sameList(t, "of the binding", ids, []string{"a1", "b1", "c1", "d1"})
	d.dial("/v1/topics/e/events?agent=/agents/s", v1)
	if _, err := d.tryDial("/v1/topics/e/events?agent=a%20b", v1); err == nil {
		t.Error("a name with a space was accepted")
	}
}
