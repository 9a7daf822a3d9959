// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	// connectionBytes is what an idle stream may cost at the most.
	connectionBytes = 32 << 10
	// idleFor is how long streams are idle; heartbeats come every 15 s.
	idleFor = 40 * time.Second
)

// TestScaleConnections has ten thousand streams open at once. They cost no more
// the longer they are idle, the broker still serves others, and each of them gets
// what is published then.
func TestScaleConnections(t *testing.T) {
	t.Parallel()
	n := times(t, 10_000)
	p := start(t)
	p.publish(func(int) string { return "idle" }, "before", 1)
	before := p.settled()
	streams := make([]*stream, n)
	defer func() {
		for _, s := range streams {
			if s != nil {
				_ = s.conn.Close()
			}
		}
	}()
	began := time.Now()
	p.each(n, func(i int) (err error) {
		if streams[i], err = p.follow("/v1/topics/idle/events", false); err != nil {
			return err
		}
		return streams[i].until("event: signalbox.sync")
	})
	connected := time.Since(began)
	all := p.settled()
	time.Sleep(idleFor)
	idle := p.settled()
	t.Logf("%d streams after %.1f s: %s before, %s then (%.1f KiB each), %s after %v", n, connected.Seconds(), mib(before), mib(all), float64(all-before)/float64(n)/1024, mib(idle), idleFor)
	if all > before+n*connectionBytes+(16<<20) {
		t.Errorf("%d streams cost %s", n, mib(all-before))
	}
	if idle > all+all/10+(16<<20) { // of few streams a tenth is less than one collection more or less
		t.Errorf("idle streams took memory from %s to %s", mib(all), mib(idle))
	}
	began = time.Now()
	p.publish(func(int) string { return "idle" }, "after", 1)
	p.each(n, func(i int) error { return streams[i].until("data: {\"position\":\"2\"") })
	t.Logf("an event was at all of them after %d ms", time.Since(began).Milliseconds())
	p.do("GET", "/healthz", "", http.StatusOK)
}

// TestScaleTopics has a hundred thousand topics, which cost what the guarantees
// say, memory in their number, and no more; patterns find what they select, and
// a start is ready as fast as ever.
func TestScaleTopics(t *testing.T) {
	t.Parallel()
	n := times(t, 100_000)
	const groups, topicBytes = 100, 4 << 10
	p := start(t)
	before := p.settled()
	began := time.Now()
	p.each(n, func(i int) error {
		body := fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/scale","type":"made","data":%d}`, i, i)
		_, err := p.try("POST", fmt.Sprintf("/v1/topics/t.%d.n%d/events", i%groups, i), body, http.StatusOK, "Content-Type", "application/cloudevents+json")
		return err
	})
	took, after := time.Since(began), p.settled()
	t.Logf("%d topics after %.1f s: %s before, %s then (%.1f KiB each)", n, took.Seconds(), mib(before), mib(after), float64(after-before)/float64(n)/1024)
	if after > before+n*topicBytes+(128<<20) { // a memtable and what it leaves behind
		t.Errorf("%d topics cost %s", n, mib(after-before))
	}
	check := func() {
		t.Helper()
		if got := p.count("/v1/events?topics=t.*.*"); got != n {
			t.Errorf("a reader of all topics got %d events, want %d", got, n)
		}
		want := (n + groups - 8) / groups
		if got := p.count("/v1/events?topics=t.7.%3E"); got != want {
			t.Errorf("a reader of t.7.> got %d events, want %d", got, want)
		}
	}
	check()
	p.restarts("stopped", stopped, func() {})
	p.restarts("killed", killed, func() {})
	check()
}

// count reads a stream up to its marker.
func (p *process) count(path string) (n int) {
	p.t.Helper()
	s, err := p.follow(path, false)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = s.conn.Close() }()
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			p.t.Fatal(err)
		}
		line, err := s.r.ReadString('\n')
		switch {
		case err != nil:
			p.t.Fatalf("%s after %d events: %v", path, n, err)
		case strings.HasPrefix(line, "event: signalbox.sync"):
			return n
		case strings.HasPrefix(line, `data: {"position"`):
			n++
		}
	}
}
