// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/event"
)

func TestStreamBeginsAtOnceAndSyncsOnce(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 2)
	s := d.follow("/v1/topics/a/events")
	eq(t, "Cache-Control", s.res.Header.Get("Cache-Control"), "no-cache, no-store, no-transform")
	eq(t, "X-Accel-Buffering", s.res.Header.Get("X-Accel-Buffering"), "no")
	eq(t, "Content-Encoding", s.res.Header.Get("Content-Encoding"), "")
	first, _ := s.next()
	if first.retry < 1000 || first.retry > 3000 || first.hasData {
		t.Errorf("the stream begins with %+v, want a retry of 1 to 3 s", first)
	}
	events, sync := s.untilSync()
	eq(t, "events before the marker", len(events), 2)
	for i, m := range events {
		eq(t, "name of a data event", m.name, "message")
		e, err := event.DecodeDelivered([]byte(m.data))
		if err != nil {
			t.Fatal(err)
		}
		eq(t, "id", e.ID(), strconv.Itoa(i+1))
		if c, err := event.ParseCursor(m.lastID); err != nil || c.Position != e.Position() {
			t.Errorf("event at %d has id %q", e.Position(), m.lastID)
		}
	}
	var marker struct {
		Cursor event.Cursor `json:"cursor"`
		LogMS  int64        `json:"log_ms"`
	}
	if err := json.Unmarshal([]byte(sync.data), &marker); err != nil {
		t.Fatal(err)
	}
	eq(t, "id of the marker", sync.lastID, marker.Cursor.String())
	eq(t, "cursor of the marker", marker.Cursor.Position, 2)
	if skew := time.Since(time.UnixMilli(marker.LogMS)).Abs(); skew > time.Minute {
		t.Errorf("log_ms is %v away from now", skew)
	}
	for i := 3; i < 6; i++ { // live events come one by one and without another marker
		d.structured("a", ev(strconv.Itoa(i), "")).want(t, 200)
		m := s.dispatched()
		eq(t, "name of a live event", m.name, "message")
		if !strings.Contains(m.data, `"id":"`+strconv.Itoa(i)+`"`) {
			t.Errorf("live event %d is %s", i, m.data)
		}
	}
}

func TestNamedStreamCarriesTheType(t *testing.T) {
	d := openDoor(t)
	d.structured("a", strings.Replace(ev("1", ""), "t.x", "com.example.ordered: now", 1)).want(t, 200)
	events, _ := d.follow("/v1/topics/a/events?named=true").untilSync()
	eq(t, "name", events[0].name, "com.example.ordered: now")
	events, _ = d.follow("/v1/topics/a/events?named=false").untilSync()
	eq(t, "name", events[0].name, "message")
}

// Data is one line, whatever line ends the producer put between JSON tokens.
func TestLineEndsInJSONDoNotBreakTheStream(t *testing.T) {
	d := openDoor(t)
	data := "{\r\n\"a\" :\r[ 1,\n\n2 ],\"text\":\"x\\ny\"}"
	d.structured("a", ev("1", "", `"data":`+data)).want(t, 200)
	events, _ := d.follow("/v1/topics/a/events").untilSync()
	e, err := event.DecodeDelivered([]byte(events[0].data))
	if err != nil {
		t.Fatal(err)
	}
	eq(t, "data", string(e.Data()), strings.NewReplacer("\r", " ", "\n", " ").Replace(data))
	if body := string(d.get("/v1/topics/a/events").body); !strings.Contains(body, data) {
		t.Errorf("a poll changed the bytes of data: %s", body)
	}
}

// A quiet stream shows that it is alive, and moves its reader forward.
func TestHeartbeatsCarryTheCursor(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 30 * time.Millisecond })
	s := d.follow("/v1/topics/quiet/events?cursor=now")
	s.untilSync()
	d.structured("busy", ev("1", "")).want(t, 200)
	eventually(t, "a heartbeat with the new position", func() bool {
		m, _ := s.next()
		if m.hasData {
			t.Fatalf("a heartbeat is dispatched: %+v", m)
		}
		return strings.HasPrefix(m.lastID, "@1.")
	})
	d.structured("quiet", ev("2", "")).want(t, 200)
	if m := s.dispatched(); !strings.Contains(m.data, `"id":"2"`) {
		t.Errorf("after heartbeats came %+v", m)
	}
}

// A reader for whom much was passed over is told the cursor even if it is not
// idle long enough for a heartbeat.
func TestSkippedPositionsAreTold(t *testing.T) {
	d := openDoor(t)
	d.structured("quiet", ev("q1", "")).want(t, 200)
	s := d.follow("/v1/topics/quiet/events")
	s.untilSync()
	d.fill("busy", 10_500)
	d.structured("quiet", ev("q2", "")).want(t, 200) // wakes the reader
	m := s.dispatched()
	eq(t, "cursor of the event", m.lastID[:7], "@10502.")
	// Another quiet topic's reader starts far behind and is synced at the head.
	_, sync := d.follow("/v1/topics/none/events?cursor=@1").untilSync()
	eq(t, "cursor of the marker", sync.lastID[:7], "@10502.")
}

// Neither the read timeout of the server nor anything else cuts a quiet
// stream, a held poll or a compressed-minded client.
func TestQuietStreamsOutliveTheReadTimeout(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.ReadTimeout = 2 * time.Second }) // for requests, on a busy machine
	s := d.follow("/v1/topics/a/events?cursor=now", "Accept-Encoding: gzip")
	s.untilSync()
	polled := make(chan answer)
	go func() { polled <- d.get("/v1/topics/a/events?cursor=@0&wait=60") }()
	eventually(t, "the poll is there", func() bool { return d.server.OpenStreams() == 2 })
	time.Sleep(3 * time.Second)
	d.structured("a", ev("1", "")).want(t, 200)
	if m := s.dispatched(); !strings.Contains(m.data, `"id":"1"`) {
		t.Errorf("the quiet stream carried %+v", m)
	}
	sameList(t, "the held poll", (<-polled).want(t, 200).ids(t), []string{"1"})
}

func TestStreamLifeEndsInGoodOrder(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.StreamLife = 100 * time.Millisecond })
	d.fill("a", 3)
	all, err := d.follow("/v1/topics/a/events").rest()
	if err != nil {
		t.Errorf("the stream broke: %v", err)
	}
	eq(t, "blocks with data", len(withData(all)), 4)
	eventually(t, "the stream is gone from the server", func() bool { return d.server.OpenStreams() == 0 })
}

func withData(all []message) []message {
	var out []message
	for _, m := range all {
		if m.hasData {
			out = append(out, m)
		}
	}
	return out
}

// A restart is an end in good order with a spread retry, and the reader that
// comes back with its last id misses nothing and sees nothing twice.
func TestStreamGoesOnAcrossARestart(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	s := d.follow("/v1/topics/a/events")
	events, sync := s.untilSync()
	eq(t, "events", len(events), 3)
	d.restart()
	all, err := s.rest()
	if err != nil {
		t.Errorf("the stream broke at the restart: %v", err)
	}
	if len(all) != 1 || all[0].retry < 1000 || all[0].retry > 5000 || all[0].hasData {
		t.Errorf("the stream ended with %+v, want a retry of 1 to 5 s", all)
	}
	d.structured("a", ev("4", "")).want(t, 200)
	events, _ = d.follow("/v1/topics/a/events", "Last-Event-ID: "+sync.lastID).untilSync()
	if len(events) != 1 || !strings.Contains(events[0].data, `"id":"4"`) {
		t.Errorf("after the restart came %+v", events)
	}
}

func TestHeldPollEndsWithTheBroker(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	polled := make(chan answer)
	go func() { polled <- d.get("/v1/topics/a/events?cursor=now&wait=60") }()
	eventually(t, "the poll is there", func() bool { return d.server.OpenStreams() == 1 })
	d.stop()
	select {
	case a := <-polled:
		if a.want(t, 200).cursor() == "" {
			t.Error("the poll ended without a cursor")
		}
	case <-time.After(patience):
		t.Fatal("the poll was not ended")
	}
}

// A reset is said in the stream, with status 200 and without an id, for
// an EventSource gives up for good at anything else.
func TestResetIsSaidInTheStream(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	c1 := d.get("/v1/topics/a/events?limit=1").cursor()
	d.do(request{method: http.MethodDelete, path: "/v1/topics/a"}).want(t, 204)
	d.structured("a", ev("4", "")).want(t, 200)
	for start, code := range map[string]string{c1: "cursor_expired", "@99": "cursor_foreign", "@1.zzzzzzzz": "cursor_foreign", "no-such-id": "cursor_unknown"} {
		all, err := d.follow("/v1/topics/a/events", "Last-Event-ID: "+start).rest()
		if err != nil {
			t.Errorf("%s: the stream broke: %v", start, err)
		}
		dispatched := withData(all)
		if len(dispatched) != 1 || dispatched[0].name != "signalbox.reset" {
			t.Fatalf("%s: the stream carried %+v, want one reset", start, all)
		}
		m := dispatched[0]
		eq(t, "retry of the reset", m.retry, 60_000)
		eq(t, "last id after the reset", m.lastID, "")
		var facts map[string]any
		if err := json.Unmarshal([]byte(m.data), &facts); err != nil {
			t.Fatal(err)
		}
		eq(t, "code", facts["code"], any(code))
		for _, name := range []string{"oldest", "head", "topics", "detail"} {
			if facts[name] == nil {
				t.Errorf("the reset %s has no %s", m.data, name)
			}
		}
		events, sync := d.follow("/v1/topics/a/events?on_reset=earliest", "Last-Event-ID: "+start).untilSync()
		if len(events) != 1 || !strings.Contains(events[0].data, `"id":"4"`) || !strings.HasPrefix(sync.lastID, "@4.") {
			t.Errorf("on_reset=earliest gave %+v", events)
		}
	}
	// What is wrong with the request itself is no reset.
	d.get("/v1/topics/a/events?view=current", "Accept: text/event-stream").refused(t, 400, "view_invalid")
	d.get("/v1/topics/a/events?cursor=x", "Accept: text/event-stream").refused(t, 400, "cursor_invalid")
}

// Replay and live are one; nobody's reconnection loses, repeats or takes
// an event.
func TestNothingIsLostBetweenReplayAndLive(t *testing.T) {
	t.Parallel()
	const events, clients, at = 4000, 8, 10
	d := openDoor(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= events; i += at {
			body := make([]string, at)
			for j := range body {
				body[j] = ev(strconv.Itoa(i+j), "", `"n":`+strconv.Itoa(i+j))
			}
			d.batch("a", "["+strings.Join(body, ",")+"]").want(t, 200)
		}
	})
	for c := range clients {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 1))
			lastID, next := "", 1
			for next <= events {
				s, err := d.tryFollow("/v1/topics/a/events", "Last-Event-ID: "+lastID)
				if err != nil {
					t.Error(err)
					return
				}
				steps := 1 + rnd.IntN(500)
				if c < 2 { // these stay connected
					steps = events
				}
				for ; steps > 0 && next <= events; steps-- {
					m := s.dispatched()
					lastID = m.lastID
					if m.name != "message" {
						continue
					}
					if !strings.Contains(m.data, fmt.Sprintf(`"n":%d,`, next)) && !strings.Contains(m.data, fmt.Sprintf(`"n":%d}`, next)) {
						t.Errorf("client %d: want n %d, got %s", c, next, m.data)
						s.close()
						return
					}
					next++
				}
				s.close()
			}
		})
	}
	wg.Wait()
	eventually(t, "all streams are gone from the server", func() bool { return d.server.OpenStreams() == 0 })
}
