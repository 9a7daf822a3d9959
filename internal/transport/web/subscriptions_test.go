// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// call sends a JSON body.
func (d *door) call(method, path, body string) answer {
	d.t.Helper()
	return d.do(request{method: method, path: path, body: body, header: []string{"Content-Type: application/json"}})
}

// subscribe creates a subscription and returns its id.
func (d *door) subscribe(document string) string {
	d.t.Helper()
	return d.call("POST", "/v1/subscriptions", document).want(d.t, 201).object(d.t)["id"].(string)
}

func (d *door) status(id string) map[string]any {
	d.t.Helper()
	return d.get("/v1/subscriptions/"+id).want(d.t, 200).object(d.t)["status"].(map[string]any)
}

// handed is an event as a worker gets it.
type handed struct {
	Token    string          `json:"token"`
	Attempt  int             `json:"attempt"`
	Deadline time.Time       `json:"deadline"`
	Event    json.RawMessage `json:"event"`
}

func (h handed) id() string {
	id, _ := event.LookupJSON(h.Event, "id")
	return id
}

func (d *door) fetch(id, body string) []handed {
	d.t.Helper()
	var out struct{ Events []handed }
	a := d.call("POST", "/v1/subscriptions/"+id+"/fetch", body).want(d.t, 200)
	if err := json.Unmarshal(a.body, &out); err != nil {
		d.t.Fatal(err)
	}
	return out.Events
}

func handedIDs(events []handed) string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.id())
	}
	return strings.Join(ids, " ")
}

// settle says something of events and returns how many of the tokens counted.
func (d *door) settle(id, verb, more string, events ...handed) (settled int) {
	d.t.Helper()
	tokens := []string{}
	for _, e := range events {
		tokens = append(tokens, e.Token)
	}
	list, _ := jsonText(tokens)
	a := d.call("POST", "/v1/subscriptions/"+id+"/"+verb, `{"tokens":`+list+more+`}`).want(d.t, 200)
	for _, r := range a.object(d.t)["results"].([]any) {
		if r.(map[string]any)["settled"] == true {
			settled++
		}
	}
	return settled
}

// TestSubscriptionsAPI goes through the CloudEvents Subscriptions API, section
// 3.2.5 and its OpenAPI document.
func TestSubscriptionsAPI(t *testing.T) {
	d := openDoor(t)
	eq(t, "the empty list", strings.TrimSpace(string(d.get("/v1/subscriptions").want(t, 200).body)), "[]")

	a := d.call("POST", "/v1/subscriptions", `{"id":"mine","source":"/t","types":["t.x"],"filters":[],"protocol":"SIGNALBOX","config":{"kind":"stream","topics":["a.>"]}}`).want(t, 201)
	created := a.object(t)
	id := created["id"].(string)
	if id == "mine" {
		t.Error("the input id was not ignored")
	}
	location := a.header.Get("Location")
	eq(t, "Location", location, d.url("/v1/subscriptions/"+id))
	eq(t, "sink", created["sink"], any(location))
	eq(t, "source", created["source"], any("/t"))

	got := d.get("/v1/subscriptions/"+id).want(t, 200).object(t)
	eq(t, "protocol", got["protocol"], any("SIGNALBOX"))
	eq(t, "subscriptions in the list", len(d.get("/v1/subscriptions").want(t, 200).list(t)), 1)

	// What was answered can be put back, and the id in it says nothing.
	back, _ := jsonText(got)
	eq(t, "id after PUT", d.call("PUT", "/v1/subscriptions/"+id, strings.Replace(back, id, "other", 1)).want(t, 200).object(t)["id"], any(id))
	d.call("PUT", "/v1/subscriptions/none", `{"protocol":"SIGNALBOX"}`).refused(t, 404, "subscription_unknown")
	d.call("PUT", "/v1/subscriptions/"+id, `{"protocol":"SIGNALBOX","config":{"kind":"pull"}}`).refused(t, 409, "subscription_conflict")

	for path, allow := range map[string]string{"/v1/subscriptions": "GET,POST,OPTIONS", "/v1/subscriptions/" + id: "GET,PUT,DELETE,OPTIONS"} {
		o := d.do(request{method: http.MethodOptions, path: path}).want(t, 200)
		eq(t, "Allow of "+path, o.header.Get("Allow"), allow)
	}
	deleted := d.call("DELETE", "/v1/subscriptions/"+id, "").want(t, 200).object(t)
	eq(t, "the deleted one", deleted["id"], any(id))
	d.get("/v1/subscriptions/"+id).refused(t, 404, "subscription_unknown")
	d.call("DELETE", "/v1/subscriptions/"+id, "").refused(t, 404, "subscription_unknown")
}

// An unsupported dialect is refused on create and on update (section 3.2.4).
func TestUnsupportedFiltersAreRefused(t *testing.T) {
	d := openDoor(t)
	const filtered = `{"protocol":"SIGNALBOX","filters":[{"regex":{"type":"a.*"}}]}`
	d.call("POST", "/v1/subscriptions", filtered).refused(t, 400, "filter_unsupported")
	id := d.subscribe(`{"protocol":"SIGNALBOX"}`)
	d.call("PUT", "/v1/subscriptions/"+id, filtered).refused(t, 400, "filter_unsupported")
	eq(t, "subscriptions", len(d.get("/v1/subscriptions").list(t)), 1)
}

func TestListOfSubscriptionsIsPaged(t *testing.T) {
	d := openDoor(t)
	var want, got []string
	for range 5 {
		want = append(want, d.subscribe(`{"protocol":"SIGNALBOX"}`))
	}
	for path := "/v1/subscriptions?limit=2"; path != ""; {
		a := d.get(path).want(t, 200)
		got = append(got, a.ids(t)...)
		link := a.header.Get("Link")
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
	sameList(t, "the pages together", got, want)
}

func TestPullHandsOutInOrderOfEachKey(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"pull","topics":["a"],"visibility":"60s"}}`)
	for i, key := range []string{"x", "y", "x", "", "x"} {
		d.structured("a", ev(fmt.Sprint(i+1), key, someData)).want(t, 200)
	}
	first := d.fetch(id, `{"max":10}`)
	eq(t, "the first of each key", handedIDs(first), "1 2 4")
	eq(t, "what others get meanwhile", handedIDs(d.fetch(id, `{"max":10}`)), "")
	eq(t, "acknowledged", d.settle(id, "ack", "", first[0]), 1)
	next := d.fetch(id, `{"max":10}`)
	eq(t, "the next of the key", handedIDs(next), "3")
	eq(t, "a token of before", d.settle(id, "ack", "", first[0]), 0)

	eq(t, "put back", d.settle(id, "nack", `,"reason":"busy"`, next[0]), 1)
	again := d.fetch(id, `{"max":10}`)
	eq(t, "again", handedIDs(again), "3")
	eq(t, "attempts", again[0].Attempt, 2)
	eq(t, "last error", d.status(id)["last_error"], any("busy"))
	eq(t, "extended", d.settle(id, "extend", `,"visibility":"5m"`, again[0]), 1)

	d.restart()
	eq(t, "acknowledged after a restart", d.settle(id, "ack", "", again[0], first[1], first[2]), 3)
	last := d.fetch(id, `{"max":10}`)
	eq(t, "the last of the key", handedIDs(last), "5")
	eq(t, "acknowledged", d.settle(id, "ack", "", last...), 1)
	s := d.status(id)
	eq(t, "outstanding", s["outstanding"], any(0.0))
	eq(t, "parked", s["parked"], any(0.0))
	eq(t, "acknowledged", s["acknowledged"], any(5.0))
}

func TestFetchWaitsForAnEvent(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["a"],"order":"unordered"}}`)
	got := make(chan []handed)
	go func() { got <- d.fetch(id, `{"wait":"50s"}`) }()
	eventually(t, "the fetch waits", func() bool { return d.server.OpenStreams() > 0 })
	d.structured("a", ev("1", "k", someData)).want(t, 200)
	events := <-got
	eq(t, "what came", handedIDs(events), "1")
	// A negative acknowledgement wakes the next worker, too.
	go func() { got <- d.fetch(id, `{"wait":"50s"}`) }()
	eq(t, "put back", d.settle(id, "nack", "", events[0]), 1)
	eq(t, "what came again", handedIDs(<-got), "1")
	eq(t, "an empty fetch", handedIDs(d.fetch(id, `{"wait":"0s"}`)), "")
}

// A deadline that passes without an answer counts as an attempt, and the event
// is handed out again; the count survives a restart.
func TestDeadlinesBringEventsBack(t *testing.T) {
	clock := newSteppedClock()
	d := openDoor(t, func(o *doorOptions) { o.broker.Clock = clock })
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["a"],"visibility":"10s","max_attempts":3}}`)
	d.structured("a", ev("1", "k", someData)).want(t, 200)
	for attempt := 1; attempt <= 3; attempt++ {
		var events []handed
		eventually(t, "the event is handed out", func() bool {
			events = d.fetch(id, `{}`)
			return len(events) > 0
		})
		eq(t, "attempt", events[0].Attempt, attempt)
		if attempt == 2 {
			d.restart()
		}
		clock.advance(11 * time.Second)
	}
	eventually(t, "it is a dead letter", func() bool { return d.status(id)["dead_letters"] == any(1.0) })
	eq(t, "what is left", handedIDs(d.fetch(id, `{}`)), "")
}

// TestDeadLettersKeepTheEvent: the original event, its cause and its attempts
// are in the topic of dead letters, and it can be redriven or discarded.
func TestDeadLettersKeepTheEvent(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["a"]}}`)
	for i := range 3 {
		d.structured("a", ev(fmt.Sprint(i+1), "", someData)).want(t, 200)
	}
	original := d.get("/v1/topics/a/events").list(t)
	events := d.fetch(id, `{"max":3}`)
	eq(t, "rejected", d.settle(id, "reject", `,"reason":"cannot be parsed"`, events[0], events[1]), 2)
	letters := d.get("/v1/subscriptions/"+id+"/dead-letters").want(t, 200).list(t)
	eq(t, "dead letters", len(letters), 2)
	for i, l := range letters {
		was, _ := jsonText(original[i])
		is, _ := jsonText(l["event"])
		eq(t, "the event of a dead letter", is, was)
		eq(t, "cause", l["cause"], any("rejected"))
		eq(t, "error", l["error"], any("cannot be parsed"))
	}
	filtered := func(expression string) int {
		return len(d.get("/v1/subscriptions/"+id+"/dead-letters", "Signalbox-Filter: "+expression).want(t, 200).list(t))
	}
	eq(t, "those that pass a filter", filtered("INT(id) > 1 AND topic = 'a'"), 1)
	eq(t, "those that pass none", filtered("missing = 'x'"), 0)
	d.get("/v1/subscriptions/"+id+"/dead-letters?filter=x+LIKE+1").refused(t, 400, "filter_invalid")
	// What is misspelt would select nothing, and look as if there were none.
	d.get("/v1/subscriptions/"+id+"/dead-letters?cause=atempts").refused(t, 400, "parameter_invalid")
	d.call("POST", "/v1/subscriptions/"+id+"/redrive", `{"cause":"atempts"}`).refused(t, 400, "parameter_invalid")
	d.call("POST", "/v1/subscriptions/"+id+"/redrive", `{"topic":"a..b"}`).refused(t, 400, "topic_invalid")
	d.call("POST", "/v1/subscriptions/"+id+"/discard", `{"topic":"a.>.b","reason":"x"}`).refused(t, 400, "topic_invalid")
	d.call("POST", "/v1/subscriptions/"+id+"/redrive", `{"filter":"x LIKE 1"}`).refused(t, 400, "filter_invalid")
	stored := d.get("/v1/topics/$dlq."+id+"/events").want(t, 200).list(t)
	eq(t, "id", stored[0]["id"], any("1"))
	eq(t, "dlqcause", stored[0]["dlqcause"], any("rejected"))
	eq(t, "dlqattempts", stored[0]["dlqattempts"], any(1.0))
	eq(t, "dlqtopic", stored[0]["dlqtopic"], any("a"))
	eq(t, "dlqposition", stored[0]["dlqposition"], original[0]["position"])
	d.structured("a", ev("forged", "", `"dlqcause":"mine"`)).refused(t, 400, "attribute_reserved")

	moved := d.call("POST", "/v1/subscriptions/"+id+"/redrive", `{"filter":"id = '1'"}`).want(t, 200).object(t)
	eq(t, "redriven", moved["redriven"], any(1.0))
	back := d.fetch(id, `{"max":3}`)
	eq(t, "what came back", handedIDs(back), "1")
	was, _ := jsonText(original[0])
	var is any
	_ = json.Unmarshal(back[0].Event, &is)
	text, _ := jsonText(is)
	eq(t, "the event that came back", text, was)
	eq(t, "taken", d.settle(id, "ack", "", back...), 1)

	d.call("POST", "/v1/subscriptions/"+id+"/discard", `{"cause":"rejected"}`).refused(t, 400, "parameter_invalid")
	moved = d.call("POST", "/v1/subscriptions/"+id+"/discard", `{"cause":"rejected","reason":"a test"}`).want(t, 200).object(t)
	eq(t, "discarded", moved["discarded"], any(1.0))
	eq(t, "dead letters", len(d.get("/v1/subscriptions/"+id+"/dead-letters").list(t)), 0)
	notices := d.get("/v1/topics/$subscriptions/events").want(t, 200).list(t)
	eq(t, "reason", notices[0]["data"].(map[string]any)["reason"], any("a test"))
}

// TestStreamSubscription follows from the durable cursor, which moves only when
// it is acknowledged.
func TestStreamSubscription(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"stream","topics":["a"],"start":"earliest"}}`)
	path := "/v1/subscriptions/" + id + "/events"
	events, _ := d.follow(path).untilSync()
	eq(t, "events", len(events), 3)
	eq(t, "cursor", d.status(id)["cursor"].(string)[:2], "@0")
	events, _ = d.follow(path).untilSync()
	eq(t, "events again", len(events), 3)
	d.call("POST", "/v1/subscriptions/"+id+"/ack", `{"cursor":"`+events[0].lastID+`"}`).want(t, 200)
	events, _ = d.follow(path).untilSync()
	eq(t, "events after an acknowledgement", len(events), 2)
	// An EventSource acknowledges by coming back.
	events, _ = d.follow(path, "Last-Event-ID: "+events[1].lastID).untilSync()
	eq(t, "events after all", len(events), 0)
	eq(t, "cursor", d.status(id)["cursor"].(string)[:2], "@3")
	d.call("POST", "/v1/subscriptions/"+id+"/ack", `{"cursor":"@99"}`).refused(t, 410, "cursor_foreign")
	d.call("POST", "/v1/subscriptions/"+id+"/seek", `{"start":"earliest"}`).want(t, 200)
	events, _ = d.follow(path).untilSync()
	eq(t, "events after a seek", len(events), 3)
}

// TestPlacesThatAreNone: a place to begin at that the log does not have is refused with
// its member, and what to write there instead.
func TestPlacesThatAreNone(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX"}`)
	for _, c := range []struct{ path, body, field string }{
		{"/v1/subscriptions", `{"protocol":"SIGNALBOX","config":{"start":"@99"}}`, "config.start"},
		{"/v1/subscriptions/" + id + "/seek", `{"start":"@1.zzzzzzzz"}`, "start"},
		{"/v1/subscriptions/" + id + "/seek", `{"start":"@99"}`, "start"},
	} {
		p := d.call("POST", c.path, c.body).refused(t, 410, "cursor_foreign")
		eq(t, "field of "+c.body, p["field"], any(c.field))
		if detail := p["detail"].(string); !strings.HasSuffix(detail, "Begin at `earliest`.") {
			t.Errorf("%s: %s", c.body, detail)
		}
	}
	d.put("plain", `{"cleanup_policy":"delete"}`)
	p := d.call("POST", "/v1/subscriptions", `{"protocol":"SIGNALBOX","config":{"view":"current","topics":["plain"]}}`).refused(t, 400, "view_invalid")
	eq(t, "field of a view that is none", p["field"], any("config.view"))
}

// TestNewestStreamWins: a connection that takes the stream ends the one that had it.
func TestNewestStreamWins(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"stream","topics":["a"]}}`)
	path := "/v1/subscriptions/" + id + "/events"
	for _, c := range []struct {
		reason string
		do     func()
	}{
		{broker.EndReplaced, func() { d.follow(path).untilSync() }},
		{broker.EndPaused, func() {
			d.call("POST", "/v1/subscriptions/"+id+"/pause", "").want(t, 200)
			d.structured("a", ev("while paused", "")).want(t, 200)
		}},
		{broker.EndChanged, func() { d.call("POST", "/v1/subscriptions/"+id+"/seek", `{"start":"now"}`).want(t, 200) }},
		{broker.EndDeleted, func() { d.call("DELETE", "/v1/subscriptions/"+id, "").want(t, 200) }},
	} {
		d.call("POST", "/v1/subscriptions/"+id+"/resume", "").want(t, 200)
		s := d.follow(path)
		s.untilSync()
		c.do()
		m := s.dispatched()
		eq(t, "name", m.name, "signalbox.end")
		eq(t, "data", m.data, `{"reason":"`+c.reason+`"}`)
	}
}

func TestShapingDeliversWhatIsSelected(t *testing.T) {
	d := openDoor(t)
	const config = `"topics":["a"],"start":"earliest","select":["subject","data.order.id","data.list"]`
	d.structured("a", ev("1", "k", `"extra":"x","data":{"order":{"id":7,"big":"…"},"list":[1],"other":true}`)).want(t, 200)
	want := func(what string, got []byte) {
		t.Helper()
		var e map[string]any
		if err := json.Unmarshal(got, &e); err != nil {
			t.Fatal(err)
		}
		data, _ := jsonText(e["data"])
		eq(t, what+": data", data, `{"list":[1],"order":{"id":7}}`)
		eq(t, what+": subject", e["subject"], any("k"))
		eq(t, what+": extension", e["extra"], nil)
		if _, err := event.DecodeDelivered(got); err != nil {
			t.Errorf("%s: no event any more: %v", what, err)
		}
	}
	pull := d.subscribe(`{"protocol":"SIGNALBOX","config":{` + config + `}}`)
	want("pull", d.fetch(pull, "")[0].Event)
	stream := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"stream",` + config + `}}`)
	events, _ := d.follow("/v1/subscriptions/" + stream + "/events").untilSync()
	want("stream", []byte(events[0].data))
}

func TestSourceAndTypesSelect(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","source":"/t","types":["t.y","t.z"],"config":{"topics":["a"]}}`)
	for i, typ := range []string{"t.x", "t.y", "t.z"} {
		d.structured("a", strings.Replace(ev(fmt.Sprint(i+1), ""), "t.x", typ, 1)).want(t, 200)
	}
	d.structured("a", strings.Replace(strings.Replace(ev("4", ""), "t.x", "t.y", 1), `"/t"`, `"/u"`, 1)).want(t, 200)
	eq(t, "what is selected", handedIDs(d.fetch(id, `{"max":10}`)), "2 3")
	s := d.status(id)
	eq(t, "matched", s["matched"], any(2.0))
	eq(t, "dropped", s["dropped"], any(2.0))
}

func TestFiltersOfSubscriptions(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	id := d.subscribe(`{"protocol":"SIGNALBOX","filters":[{"prefix":{"type":"t."}},{"sql":"data.n > 2"}],"config":{"topics":["s"]}}`)
	for i := range 4 {
		d.structured("s", ev(fmt.Sprint(i+1), fmt.Sprint("k", i+1), fmt.Sprintf(`"data":{"n":%d}`, i+1))).want(t, 200)
	}
	d.structured("s", ev("5", "k5", `"data":{"n":"none"}`)).want(t, 200)
	d.structured("s", ev("6", "k1")).want(t, 200) // a tombstone, which has no data to ask about
	eq(t, "what is selected", handedIDs(d.fetch(id, `{"max":10}`)), "3 4 6")
	s := d.status(id)
	eq(t, "matched", s["matched"], any(3.0))
	eq(t, "dropped", s["dropped"], any(2.0)) // the first value of k1 was superseded
	eq(t, "filter errors", s["filter_errors"], any(1.0))
	d.call("PUT", "/v1/subscriptions/"+id, `{"protocol":"SIGNALBOX","filters":[{"exact":{"subject":"k7"}}],"config":{"topics":["s"]}}`).want(t, 200)
	d.structured("s", ev("7", "k7", someData)).want(t, 200)
	eq(t, "what the new filter selects", handedIDs(d.fetch(id, `{"max":10}`)), "7")
}

// TestStreamSubscriptionOverASocket: the same stream, acknowledged by a message.
func TestStreamSubscriptionOverASocket(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"stream","topics":["a"],"start":"earliest"}}`)
	path := "/v1/subscriptions/" + id + "/events"
	p := d.dial(path, v1)
	first := p.want("event")
	p.want("event")
	p.send(`{"op":"ack","cursor":%q}`, first.Cursor)
	eventually(t, "the cursor has moved", func() bool { return strings.HasPrefix(d.status(id)["cursor"].(string), "@1.") })
	q := d.dial(path, v1) // takes the stream
	ids, _ := q.untilSync()
	sameList(t, "what the next connection gets", ids, []string{"2", "3"})
	for m := p.next(); m.Op != "end"; m = p.next() {
		if m.Op != "event" && m.Op != "sync" {
			t.Fatalf("the replaced one gets %+v", m)
		}
	}
}

func TestReadsSelectWhatTheyDeliver(t *testing.T) {
	d := openDoor(t)
	d.structured("a", ev("1", "k", `"extra":"x","data":{"n":1,"big":"…"}`)).want(t, 200)
	const path = "/v1/topics/a/events?select=subject,data.n"
	polled := d.get(path).want(t, 200).list(t)[0]
	eq(t, "extra", polled["extra"], nil)
	data, _ := jsonText(polled["data"])
	eq(t, "data", data, `{"n":1}`)
	events, _ := d.follow(path).untilSync()
	streamed, _ := event.LookupJSON([]byte(events[0].data), "data.n")
	eq(t, "data in a stream", streamed, "1")
	c, err := event.ParseCursor(events[0].lastID)
	if err != nil || c.Position != 1 {
		t.Errorf("the id is %q", events[0].lastID)
	}
	d.structured("a", ev("2", "k", someData)).want(t, 200)
	eq(t, "id in a socket", d.dial("/v1/topics/a/events?cursor=@1&select=data.a", v1).want("event").id(), "2")
	d.get("/v1/topics/a/events?select=A").refused(t, 400, "parameter_invalid")

	// The state is shaped as well, of topics and of a key.
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.structured("s", ev("9", "k", `"x":1`, `"data":{"n":1,"big":"blob"}`)).want(t, 200)
	for _, path := range []string{"/v1/topics/s/state", "/v1/state?topics=s", "/v1/topics/s/state/k"} {
		and := "?"
		if strings.Contains(path, "?") {
			and = "&"
		}
		body := string(d.get(path+and+"select=subject,data.n").want(t, 200).body)
		if !strings.Contains(body, `"id":"9"`) || !strings.Contains(body, `"subject":"k"`) || !strings.Contains(body, `"data":{"n":1}}`) || strings.Contains(body, `"x"`) {
			t.Errorf("%s: %s", path, body)
		}
		d.get(path+and+"select=A").refused(t, 400, "parameter_invalid")
	}
}

// TestCallsWithoutParametersRefuseThem, rather than ignore what somebody meant.
func TestCallsWithoutParametersRefuseThem(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"pull","topics":["a"]}}`)
	for _, path := range []string{"/v1/subscriptions/" + id + "/pause", "/v1/subscriptions/" + id + "/resume", "/v1/admin/backup", "/v1/admin/compact"} {
		d.call("POST", path, `{"for":"1h"}`).refused(t, 400, "parameter_invalid")
		d.call("POST", path, `{}`).want(t, 200)
		d.call("POST", path, "").want(t, 200)
	}
}
