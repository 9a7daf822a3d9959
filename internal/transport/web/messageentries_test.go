// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/audit"
	"signalbox/ticket"
)

// deliveredEntry is the entry of a delivery, as far as these tests look at it.
type deliveredEntry struct {
	Op, Subscription, Principal, Door, Topics, Handed string
	Messages                                          uint64
	From, To                                          string
}

// deliveryEntries are the details of all deliveries in the trail.
func (d *door) deliveryEntries() (out []deliveredEntry) {
	d.t.Helper()
	var page struct {
		Entries []struct{ Detail deliveredEntry }
	}
	if err := json.Unmarshal(d.get("/v1/audit/entries?kind=delivery&limit=1000").want(d.t, 200).body, &page); err != nil {
		d.t.Fatal(err)
	}
	for _, e := range page.Entries {
		out = append(out, e.Detail)
	}
	return out
}

// heartbeats has an agent say that it is alive, and returns the position of the first.
func heartbeats(d *door, n int) (first int) {
	d.t.Helper()
	beat := strings.Replace(beatPayload, `{"execute_id":%q,"progress":0.5}`, "", 1)
	for i := range n {
		a := d.message(envelope(d.t, "net", ticket.TypeHeartbeat, "platform-ops", "", beat)).want(d.t, 200)
		if i == 0 {
			_, _ = fmt.Sscan(a.object(d.t)["position"].(string), &first)
		}
	}
	return first
}

// TestReadersOfMessagesAreEntries: a stream has one entry at its end, whatever it was
// given, and polls of the same topics have one for all of them; of what is no message
// there is none.
func TestReadersOfMessagesAreEntries(t *testing.T) {
	d := openDoor(t, founded, func(o *doorOptions) { o.broker.ReadEntryEvery = time.Hour })
	staffed(d)
	d.publishOne("/v1/topics/log/events", "1")
	first := heartbeats(d, 3)
	d.publishOne("/v1/topics/log/events", "2")
	s := d.follow("/v1/events?topics=bus.%3E,log")
	s.untilSync()
	heartbeats(d, 1)
	s.dispatched()
	s.close()
	p := d.dial("/v1/topics/bus.main.heartbeat.platform-ops/events", "signalbox.v1")
	p.untilSync()
	_ = p.conn.CloseNow()
	quiet := d.follow("/v1/topics/log/events") // is given no message
	quiet.untilSync()
	quiet.close()
	for _, query := range []string{"?limit=2", "?limit=9&cursor=@" + fmt.Sprint(first+1)} {
		d.get("/v1/topics/bus.main.heartbeat.platform-ops/events"+query).want(t, 200)
	}
	eventually(t, "the streams have entries", func() bool { return len(d.deliveryEntries()) == 2 })
	d.restart() // ends what is still open
	last := first + 4
	want := map[string]deliveredEntry{
		"sse": {Op: "read", Principal: "orch", Door: "sse", Topics: "bus.>,log", Handed: fmt.Sprintf("%d-%d,%d", first, first+2, last), Messages: 4, From: fmt.Sprint(first - 1), To: fmt.Sprint(last)},
		"websocket": {Op: "read", Principal: "orch", Door: "websocket", Topics: "bus.main.heartbeat.platform-ops", Handed: fmt.Sprintf("%d-%d,%d", first, first+2, last), Messages: 4,
			From: fmt.Sprint(first - 1), To: fmt.Sprint(last)},
		"poll": {Op: "read", Principal: "orch", Door: "poll", Topics: "bus.main.heartbeat.platform-ops", Handed: fmt.Sprintf("%d-%d,%d", first, first+2, last), Messages: 4,
			From: fmt.Sprint(first - 1), To: fmt.Sprint(last)},
	}
	got := d.deliveryEntries()
	for _, e := range got {
		if e != want[e.Door] {
			t.Errorf("the entry is %+v, want %+v", e, want[e.Door])
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d entries", len(got))
	}
	found := string(d.get(fmt.Sprintf("/v1/audit/entries?kind=delivery&positions=%d", last)).want(t, 200).body)
	if n := strings.Count(found, `"op":"read"`); n != 3 {
		t.Errorf("position %d is in %d entries: %s", last, n, found)
	}
	if n := strings.Count(string(d.get(fmt.Sprintf("/v1/audit/entries?kind=delivery&positions=%d", last-1)).want(t, 200).body), `"op":"read"`); n != 0 {
		t.Errorf("what is no message is in %d entries", n)
	}
}

// TestLongStreamHasEntriesMeanwhile: whoever stays connected is in the trail all the same.
func TestLongStreamHasEntriesMeanwhile(t *testing.T) {
	d := openDoor(t, founded, func(o *doorOptions) { o.broker.ReadEntryEvery = time.Millisecond })
	staffed(d)
	s := d.follow("/v1/events?topics=bus.%3E")
	s.untilSync()
	for n := 1; n <= 3; n++ {
		heartbeats(d, 1)
		eventually(t, "the stream has an entry", func() bool { return len(d.deliveryEntries()) == n })
	}
}

// TestDecisionsOnMessagesAreEntries: what is refused, repeated, handed out to a
// subscription, given up and past its time leaves an entry of its own.
func TestDecisionsOnMessagesAreEntries(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	opened := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload)
	d.message(opened).want(t, 200)
	d.message(opened).want(t, 200)
	d.message(envelope(t, "alice", ticket.TypeOpen, "orchestrator", "", openPayload)).want(t, 403)
	d.message(envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", `{}`)).want(t, 422)
	id := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["bus.>"],"start":"earliest","max_attempts":1}}`)
	var fetched struct {
		Events []handed `json:"events"`
	}
	a := d.call("POST", "/v1/subscriptions/"+id+"/fetch", `{"max":1}`).want(t, 200)
	if err := json.Unmarshal(a.body, &fetched); err != nil || len(fetched.Events) != 1 {
		t.Fatalf("the fetch gives %s, %v", a.body, err)
	}
	d.call("POST", "/v1/subscriptions/"+id+"/reject", fmt.Sprintf(`{"token":%q}`, fetched.Events[0].Token))
	eventually(t, "the message is a dead letter", func() bool {
		return strings.Contains(string(d.get("/v1/audit/entries?kind=delivery").body), `"op":"bury"`)
	})
	all := string(d.get("/v1/audit/entries?limit=1000").want(t, 200).body)
	for _, want := range []string{
		`"topic":"bus.main.ticket.orchestrator","outcome":"duplicate"`, `"code":"not_permitted"`, `"code":"payload_invalid"`,
		`"op":"hand_out","subscription":"` + id, `"op":"bury","subscription":"` + id,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not in the trail: %s", want, all)
		}
	}
}

// TestMessageIsProved: a receipt carries the proof of a message, by either door.
func TestMessageIsProved(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	keys := d.auditKeys()
	opened := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload)
	carried := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"desk","type":"signalbox.ticket.ticket.open","partitionkey":"INC-1","subject":"INC-1","datacontenttype":"application/json","data":%s}`,
		opened.Header().ID, opened.Bytes())
	for _, c := range []struct {
		outcome string
		answer  answer
	}{
		{"accepted", d.call("POST", "/v1/messages?ack=proof", string(opened.Bytes()))},
		{"duplicate", d.do(request{method: "POST", path: "/v1/topics/bus.main.ticket.orchestrator/events?ack=proof", body: carried, header: []string{"Content-Type: application/cloudevents+json"}})},
	} {
		var r struct {
			Outcome  string
			Position uint64 `json:",string"`
			Proof    audit.Proof
		}
		if err := json.Unmarshal(c.answer.want(t, 200).body, &r); err != nil {
			t.Fatal(err)
		}
		l, _, err := r.Proof.Check(keys)
		if err != nil || r.Outcome != c.outcome || !l.Places(r.Position) || !bytes.Contains(l.Body, opened.Bytes()) {
			t.Errorf("%s: the proof of position %d is of entry %d, of position %d: %v", r.Outcome, r.Position, l.Index, l.Position, err)
		}
	}
	d.call("POST", "/v1/messages?ack=none", string(opened.Bytes())).refused(t, 400, "parameter_invalid")
}
