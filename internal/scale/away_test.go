// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"signalbox/event"
)

// awaySlack is what memory may differ by from one look to the next: what was
// published is in memtables, and a collection is never long ago.
const awaySlack = 64 << 20

// TestScaleSlowReaders publishes to a thousand readers that have stopped reading.
// They cost no memory, are cut in the end, and lose nothing: one that comes back
// gets whatever it has not read.
func TestScaleSlowReaders(t *testing.T) {
	t.Parallel()
	readers, events := times(t, 1000), times(t, 400_000)
	p := start(t)
	topic := func(int) string { return "slow" }
	p.publish(topic, "before", 1000)
	streams := make([]*stream, readers)
	p.each(readers, func(i int) (err error) {
		if streams[i], err = p.follow("/v1/topics/slow/events", true); err != nil {
			return err
		}
		return streams[i].until("event: signalbox.sync")
	})
	var memory [steps]int
	for step := range steps {
		p.publish(topic, fmt.Sprint(step), max(1, events/steps))
		memory[step] = p.settled()
	}
	t.Logf("memory, while %d events were published to %d readers that do not read: %s", events, readers, mibs(memory[:]))
	if half, end := memory[steps/2-1], memory[steps-1]; end > half+awaySlack {
		t.Errorf("memory grew from %s to %s", mib(half), mib(end))
	}
	for end := time.Now().Add(3 * time.Minute); p.metric(`signalbox_readers{door="sse",state="live"}`)+p.metric(`signalbox_readers{door="sse",state="catching_up"}`) > 0; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("readers that do not read are still there after three minutes")
		}
	}
	cut := p.metric(`signalbox_reader_cuts_total{door="sse"}`)
	t.Logf("%.0f readers were cut; then %s", cut, mib(p.settled()))
	if cut != float64(readers) {
		t.Errorf("%.0f of %d readers that take nothing are counted as cut", cut, readers)
	}
	last, err := event.ParseCursor(streams[0].last)
	if err != nil {
		t.Fatal(err)
	}
	head := int(p.metric("signalbox_log_head_position"))
	if got := p.count("/v1/topics/slow/events?cursor=" + url.QueryEscape(streams[0].last)); got != head-int(last.Position) {
		t.Errorf("a reader that came back with %s got %d events, and the head is %d", last, got, head)
	}
	for _, s := range streams {
		_ = s.conn.Close()
	}
}

// TestScaleAbandonedCursors leaves a hundred thousand cursors behind, in the hands
// of readers that never come back and as durable subscriptions. Neither costs
// memory, nor does it make a start take longer.
func TestScaleAbandonedCursors(t *testing.T) {
	t.Parallel()
	n := times(t, 100_000)
	const events = 1000
	p := start(t)
	p.publish(func(int) string { return "left" }, "e", events)
	p.abandon("cursors", n, func(i int) error {
		_, err := p.try("GET", fmt.Sprintf("/v1/topics/left/events?cursor=@%d&limit=1", i%events), "", http.StatusOK)
		return err
	})
	p.abandon("subscriptions", n, func(int) error {
		_, err := p.try("POST", "/v1/subscriptions", `{"protocol":"SIGNALBOX","config":{"kind":"pull","topics":["left"],"start":"earliest"}}`, http.StatusCreated, "Content-Type", "application/json")
		return err
	})
	p.restarts("stopped", stopped, func() {})
	p.restarts("killed", killed, func() {})
	if got := p.count("/v1/topics/left/events?cursor=@1"); got != events-1 {
		t.Errorf("a reader that came back got %d events, want %d", got, events-1)
	}
}

// abandon does something n times, after which memory must be what it was after
// half of them.
func (p *process) abandon(what string, n int, do func(i int) error) {
	p.t.Helper()
	var memory [steps]int
	for step := range steps {
		p.each(max(1, n/steps), func(i int) error { return do(step*n/steps + i) })
		memory[step] = p.settled()
	}
	p.t.Logf("memory, while %d %s were abandoned: %s", n, what, mibs(memory[:]))
	if half, end := memory[steps/2-1], memory[steps-1]; end > half+awaySlack {
		p.t.Errorf("%s: memory grew from %s to %s", what, mib(half), mib(end))
	}
}
