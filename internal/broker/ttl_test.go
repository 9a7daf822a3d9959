// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
)

// ticks counts the ticks in the log.
func ticks(n *atomic.Int64) func(*eventlog.Proposal) {
	return func(p *eventlog.Proposal) {
		if p.Kind == eventlog.KindTick {
			n.Add(1)
		}
	}
}

// TestTickerByItself: what is due happens though nobody publishes, all of it,
// however much more than one tick may do.
func TestTickerByItself(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", compact)
	const events = 2600 // two ticks and a half
	for i := 0; i < events; {
		var batch []*event.Event
		for ; len(batch) < 650; i++ {
			batch = append(batch, x.draft(fmt.Sprint(i), fmt.Sprint(i), map[string]any{"expiry": 60}))
		}
		x.mustSend("a", batch...)
	}
	x.clock.pass(time.Minute)
	x.eventually("everything has expired", func() bool {
		info, err := x.Topic("a")
		return err == nil && info.Keys == 0 && info.Tombstones == events
	})
	if n := x.eventRows(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	x.clock.pass(24 * time.Hour)
	x.eventually("every key is forgotten", func() bool {
		info, err := x.Topic("a")
		return err == nil && info.Tombstones == 0 && info.Floor != 0
	})
}

// TestNoIdleTicks: while nothing is pending the log stays as it is, however much
// time passes; and when something is, at most one tick a second stands in it.
func TestNoIdleTicks(t *testing.T) {
	var n atomic.Int64
	x := newBox(t, broker.Options{Tap: ticks(&n)})
	defer x.close()
	x.mustSend("a", x.draft("1", "", nil))
	before := n.Load()
	for range 15 {
		x.clock.pass(time.Hour)
		time.Sleep(20 * time.Millisecond)
	}
	if got := n.Load() - before; got != 0 {
		t.Errorf("%d ticks while nothing was pending", got)
	}
	// One that is far from due is nothing to do, either.
	x.mustSend("a", x.draft("2", "", map[string]any{"expiry": 3600}))
	before = n.Load()
	for range 15 {
		x.clock.pass(time.Second)
		time.Sleep(20 * time.Millisecond)
	}
	if got := n.Load() - before; got != 0 {
		t.Errorf("%d ticks while nothing was due", got)
	}
}

// TestLogTimeKeepsUp: log time is never more than a second behind what is
// published, so that nobody compares with a state that expired long ago.
func TestLogTimeKeepsUp(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", compact)
	const lives = 5 * time.Second
	for i := range 30 {
		x.mustSend("a", x.draft(fmt.Sprint(i), "k", map[string]any{"expiry": int(lives.Seconds())}))
		later := time.Duration(i) * 300 * time.Millisecond
		x.clock.pass(later)
		x.mustSend("a", x.draft(fmt.Sprint("new", i), "l", nil))
		d, err := x.Digest(context.Background(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if behind := x.LogMillis() - d.LogMillis; behind > 1000 || behind < 0 {
			t.Errorf("%s later log time is %d ms behind", later, behind)
		}
		switch _, err := x.StateKey("a", "k"); {
		case err != nil && later < lives:
			t.Errorf("%s later a value that lives for %s is gone: %v", later, lives, err)
		case err == nil && later > lives+time.Second:
			t.Errorf("%s later a value that lives for %s is there", later, lives)
		}
	}
}

// TestNothingExpiredIsDelivered: streams go by the clock, so that an event is
// not delivered after its time though no tick has removed it.
func TestNothingExpiredIsDelivered(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	x.mustSend("a", x.draft("short", "", map[string]any{"expiry": 1}), x.draft("stays", "", nil))
	reader := x.follow("a", oldest())
	defer func() { reader.Close() }()
	x.clock.pass(999 * time.Millisecond)
	if got := x.readIDs("a", oldest()); len(got) != 2 {
		t.Errorf("a millisecond before its time: %v", got)
	}
	x.clock.pass(time.Millisecond)
	if got := x.ids(reader); len(got) != 1 {
		t.Errorf("at its time: %v", got)
	}
	reader.Close()
	x.restart()
	reader = x.follow("a", oldest())
	if got := x.ids(reader); len(got) != 1 {
		t.Errorf("after a restart: %v", got)
	}
}
