// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// One socket whose reader takes nothing holds up nobody and is cut in
// bounded time. When its reader comes to it, the last thing it finds is a close
// frame with the cursor, and with that it loses nothing.
func TestStalledSocketIsToldWhereToResume(t *testing.T) {
	t.Parallel()
	// Long enough for the others, also on a machine that is busy.
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = 5 * time.Second })
	stalled := d.line("/v1/topics/a/events", v1)
	_ = stalled.conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	const events = 600
	var others sync.WaitGroup
	for range 9 {
		p := d.dial("/v1/topics/a/events", v1)
		others.Go(func() {
			for n := 0; n < events; {
				if _, b, err := p.conn.Read(p.ctx); err != nil {
					t.Errorf("another reader after %d events: %v", n, err)
					return
				} else if strings.HasPrefix(string(b), `{"op":"event"`) {
					n++
				}
			}
		})
	}
	d.bulk("a", "e", events)
	others.Wait()
	eventually(t, "the stalled socket cut", func() bool { return d.server.OpenStreams() == 9 })

	seen := 0
	var reason string
	for reason == "" {
		op, b, err := stalled.read()
		switch {
		case err != nil:
			t.Fatalf("after %d events: %v", seen, err)
		case op == 8:
			eq(t, "close code", int(binary.BigEndian.Uint16(b)), 1013)
			reason = string(b[2:])
		case strings.HasPrefix(string(b), `{"op":"event"`):
			if !strings.Contains(string(b), fmt.Sprintf(`"id":"e%05d"`, seen)) {
				t.Fatalf("event %d is %.200s", seen, b)
			}
			seen++
		}
	}
	cursor, ok := strings.CutPrefix(reason, "overloaded: resume from ")
	if !ok || !strings.HasPrefix(cursor, "@"+strconv.Itoa(seen)+".") || seen == 0 || seen == events {
		t.Fatalf("after %d events the reason is %q", seen, reason)
	}
	ids, _ := d.dial("/v1/topics/a/events"+query("cursor", cursor), v1).untilSync()
	if len(ids) != events-seen || ids[0] != fmt.Sprintf("e%05d", seen) {
		t.Errorf("resumed with %d events from %s on, want %d", len(ids), ids[0], events-seen)
	}
}

// Readers come and go while events are published, and some of them take
// nothing. Run it under the race detector.
func TestSocketsComeAndGoWhileEventsArePublished(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = 50 * time.Millisecond })
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 15 {
				l := d.line("/v1/topics/a/events", v1)
				if j%2 == i%2 {
					for range 3 {
						_, _, _ = l.read()
					}
				}
				_ = l.conn.Close()
			}
		})
	}
	for i := range 5 {
		d.bulk("a", fmt.Sprint(i), 50)
	}
	all.Wait()
	eventually(t, "every socket gone", func() bool { return d.server.OpenStreams() == 0 && d.server.HeldBytes() == 0 })
}

// Sockets whose other end has vanished take whatever is sent and never say
// anything. They are noticed by that, whether or not there are events.
func TestHalfOpenSocketsAreNoticed(t *testing.T) {
	t.Parallel()
	// Long enough for the answers of the one that is there, also on a machine that is busy.
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 1500 * time.Millisecond })
	var vanished []*line
	for i := range 50 {
		vanished = append(vanished, d.line("/v1/topics/a/events", []string{v1, "cloudevents.json"}[i%2]))
	}
	alive := d.dial("/v1/topics/a/events?cursor=now", v1) // its library answers pings while it reads
	done := make(chan string, 1)
	go func() {
		for {
			_, b, err := alive.conn.Read(alive.ctx)
			if err != nil || strings.Contains(string(b), `"id":"last"`) {
				done <- fmt.Sprintf("%s %v", clip(b), err)
				return
			}
		}
	}()
	for i := range 20 {
		d.structured("a", ev(strconv.Itoa(i), "")).want(t, 200)
	}
	eventually(t, "all but one gone", func() bool { return d.server.OpenStreams() == 1 })
	d.structured("a", ev("last", "")).want(t, 200)
	if last := <-done; !strings.Contains(last, `"id":"last"`) {
		t.Errorf("who answers pings got %s", last)
	}
	for _, l := range vanished {
		if code, reason := l.closedWith(); code != 1008 || !strings.Contains(reason, "ping") {
			t.Errorf("closed with %d %q", code, reason)
		}
	}
}

// A reader that is slow, but takes something, is paced for as long as it likes,
// however late it comes to the pings.
func TestSlowSocketIsPacedAndNotCut(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = 3 * time.Second })
	d.bulk("a", "e", 200)
	l := d.line("/v1/topics/a/events", v1)
	_ = l.conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	events := 0
	for began := time.Now(); time.Since(began) < 8*time.Second; time.Sleep(60 * time.Millisecond) {
		if op, _, err := l.read(); err != nil || op == 8 {
			t.Fatalf("cut after %d events: %v", events, err)
		}
		events++
	}
	for ; events < 200; events++ {
		if _, _, err := l.read(); err != nil {
			t.Fatal(err)
		}
	}
}

// A key is one key, whichever door it comes through.
func TestIdempotencyKeyIsTheSameAtEveryDoor(t *testing.T) {
	d := openDoor(t)
	first := d.structured("a", ev("1", "", someData), "Idempotency-Key: k").want(t, 200).object(t)
	p := d.dial("/v1/topics/a/events?cursor=now", v1)
	p.want("sync")
	p.send(`{"op":"publish","ref":"same","idempotency_key":"k","event":%s}`, ev("1", "", someData))
	m := p.want("receipt")
	if !m.Replayed || m.Receipt.Cursor.String() != first["cursor"] {
		t.Errorf("the same request is answered with %+v", m)
	}
	p.send(`{"op":"publish","ref":"other","idempotency_key":"k","event":%s}`, ev("2", "", someData))
	eq(t, "another request", p.want("refused").Problem["code"], any("idempotency_key_reused"))
}

// An event of exactly 64 KiB passes in both subprotocols.
func TestEventsOf64KiBPassInASocket(t *testing.T) {
	d := openDoor(t)
	for i, subprotocol := range []string{v1, "cloudevents.json"} {
		id := strconv.Itoa(i)
		e := ev(id, "", `"data":""`)
		e = strings.Replace(e, `"data":""`, `"data":"`+strings.Repeat("x", 64<<10-len(e))+`"`, 1)
		eq(t, "size", len(e), 64<<10)
		p := d.dial("/v1/topics/a/events?cursor=now", subprotocol)
		p.next()
		if subprotocol == v1 {
			e = `{"op":"publish","ref":"r","event":` + e + `}`
		}
		p.send("%s", e)
		for {
			if b := string(p.text()); strings.Contains(b, "xxxx") && strings.Contains(b, `"id":"`+id+`"`) {
				break
			}
		}
	}
}
