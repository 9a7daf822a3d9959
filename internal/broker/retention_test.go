// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
)

func keep(d time.Duration, cleanup string) with {
	return func(p *event.Policy) {
		retention := event.Duration(d)
		p.CleanupPolicy, p.Retention = cleanup, &retention
	}
}

// fillUp publishes that many events, in batches, each with a key of its own.
func (x *box) fillUp(topic, prefix string, n int) {
	x.t.Helper()
	for i := 0; i < n; {
		var batch []*event.Event
		for ; len(batch) < 500 && i < n; i++ {
			id := fmt.Sprint(prefix, i)
			batch = append(batch, x.draft(id, id, nil))
		}
		x.mustSend(topic, batch...)
	}
}

// rowsOf counts the event rows in the store, whatever their topic.
func (x *box) eventRows() (n int) {
	x.t.Helper()
	in, err := x.Store().NewInspector()
	if err != nil {
		x.t.Fatal(err)
	}
	defer in.Close()
	err = in.Events(func(_ eventAt, err error) error {
		n++
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// TestRetentionInPortions: what one entry of the log may remove is bounded, and
// the cleaner goes on until all that is too old has gone.
func TestRetentionInPortions(t *testing.T) {
	for _, cleanup := range []string{event.CleanupDelete, event.CleanupCompactDelete} {
		t.Run(cleanup, func(t *testing.T) {
			x := newBox(t, broker.Options{})
			defer func() { x.close() }()
			x.put("a", keep(time.Hour, cleanup))
			x.fillUp("a", "old-", 3500)
			x.pass(30 * time.Minute)
			x.fillUp("a", "new-", 10)
			x.pass(30 * time.Minute)
			if got := x.readIDs("a", oldest()); len(got) != 10 || got[0] != "new-0" {
				t.Errorf("%d events are left", len(got))
			}
			info, err := x.Topic("a")
			if err != nil || info.Events != 10 {
				t.Errorf("the topic is %+v, %v", info, err)
			}
			if cleanup == event.CleanupCompactDelete && info.Keys != 10 {
				t.Errorf("%d keys are left", info.Keys)
			}
			if n := x.eventRows(); n != 10 {
				t.Errorf("%d rows are in the store", n)
			}
			x.restart()
			if got := x.readIDs("a", oldest()); len(got) != 10 {
				t.Errorf("%d events are left after a restart", len(got))
			}
		})
	}
}

// TestTopicIsKeptToItsBytes: a topic of a mebibyte that gets ten keeps the newest
// of them and the space of the others is reclaimed; a cursor from before is told
// so, with the oldest and the newest one, and nothing is delivered until the
// reader chooses.
func TestTopicIsKeptToItsBytes(t *testing.T) {
	for _, cleanup := range []string{event.CleanupDelete, event.CleanupCompactDelete} {
		t.Run(cleanup, func(t *testing.T) {
			x := newBox(t, broker.Options{})
			defer func() { x.close() }()
			x.put("a", func(p *event.Policy) { p.CleanupPolicy, p.Retention, p.RetentionBytes = cleanup, nil, 1<<20 })
			x.fillUp("a", "first-", 1)
			kept := x.Head()
			data := []byte(`"` + strings.Repeat("x", 10_000) + `"`)
			for i := range 1050 {
				id := fmt.Sprint("e", i)
				x.mustSend("a", x.draft(id, id, nil, data...))
			}
			x.settle()
			info, err := x.Topic("a")
			if err != nil || info.Bytes > 1<<20 || info.Bytes < 1<<20-11_000 {
				t.Errorf("the topic is %+v, %v", info, err)
			}
			got := x.readIDs("a", oldest())
			if len(got) != int(info.Events) || got[len(got)-1] != "e1049" || x.eventRows() != len(got) {
				t.Errorf("%d events are left, %d in the store, and the figures have %d", len(got), x.eventRows(), info.Events)
			}
			_, err = x.Read(broker.ReadRequest{Patterns: mustPatterns(t, "a"), Start: dispatch.Start{Cursor: &kept}})
			wantCode(t, "a cursor from before", err, event.CodeCursorExpired)
			if e := event.AsError(err); e.Facts["oldest"] != info.Oldest.String() || e.Facts["head"] != x.Head().String() {
				t.Errorf("the facts are %v", e.Facts)
			}
			x.restart()
			if again := x.readIDs("a", oldest()); len(again) != len(got) {
				t.Errorf("%d events are left after a restart", len(again))
			}
		})
	}
}

// TestRetiredRowsAreReclaimedUnderAnyPolicy: what retention took is reclaimed
// although the topic keeps everything by the time at which that is worth it.
func TestRetiredRowsAreReclaimedUnderAnyPolicy(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", keep(time.Hour, event.CleanupCompactDelete))
	x.fillUp("a", "old-", 10)
	x.pass(30 * time.Minute)
	x.fillUp("a", "new-", 200)
	x.pass(30 * time.Minute)
	if n := x.eventRows(); n != 210 {
		t.Fatalf("%d rows: the few old ones are not worth a deletion yet", n)
	}
	x.put("a", compact)
	for i := range 150 {
		id := fmt.Sprint("new-", i)
		x.mustSend("a", x.draft(id+"-gone", id, map[string]any{"bare": true}))
	}
	x.pass(25 * time.Hour) // the tombstones are purged
	x.settle()
	if n := x.eventRows(); n != 50 {
		t.Errorf("%d rows are left", n)
	}
}

// TestRetentionIsLookedAtAgain: a cleaner that knows when the oldest event will
// be old enough notices that the policy was changed.
func TestRetentionIsLookedAtAgain(t *testing.T) {
	x := newBox(t, broker.Options{CleanEvery: 5 * time.Millisecond})
	defer x.close()
	x.put("a", keep(24*time.Hour, event.CleanupDelete))
	x.put("forever", func(p *event.Policy) { p.Retention = nil })
	x.fillUp("a", "e", 10)
	x.fillUp("forever", "e", 10)
	x.clock.pass(2 * time.Hour)
	x.mustSend("a", x.draft("young", "", nil))
	time.Sleep(20 * time.Millisecond) // the cleaner has been here, and has put a note in its diary
	if got := x.readIDs("a", oldest()); len(got) != 11 {
		t.Fatalf("%d events are left", len(got))
	}
	x.put("a", keep(time.Hour, event.CleanupDelete))
	x.eventually("retention does its work", func() bool {
		return fmt.Sprint(x.readIDs("a", oldest())) == "[young]" && x.eventRows() == 11
	})
	if got := x.readIDs("forever", oldest()); len(got) != 10 {
		t.Errorf("%d events are left where nothing goes", len(got))
	}
}

// eventually waits for what a goroutine of the broker does by itself.
func (x *box) eventually(what string, done func() bool) {
	x.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("in %s not: %s", patience, what)
		}
	}
}

// TestSlowReaderFallsOutOfRetention: a reader that is connected and does not
// read is told, in its stream, when it has lost something; one that reads is not
// held up by it, and a reader in the middle of a window is not disturbed.
func TestSlowReaderFallsOutOfRetention(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", keep(time.Hour, event.CleanupDelete))
	x.fillUp("a", "old-", 100)
	slow, quick := x.follow("a", oldest()), x.follow("a", oldest())
	defer slow.Close()
	defer quick.Close()
	w, err := slow.Poll(dispatch.Limit{Events: 10, Bytes: 1 << 20})
	if err != nil || len(w.Deliveries) != 10 {
		t.Fatal(w, err)
	}
	x.ids(quick)
	x.pass(time.Hour)
	x.fillUp("a", "new-", 5)
	for i := range w.Deliveries { // still its own, though the rows have gone
		deliveredEvent(t, &w.Deliveries[i])
	}
	if got := x.ids(quick); len(got) != 5 {
		t.Errorf("the quick reader got %v", got)
	}
	_, err = slow.Poll(dispatch.Limit{Events: 10, Bytes: 1 << 20})
	wantCode(t, "the slow reader", err, event.CodeCursorExpired)
	e := event.AsError(err)
	again, err := event.ParseCursor(fmt.Sprint(e.Facts["oldest"]))
	if err != nil {
		t.Fatal(err)
	}
	if got := x.readIDs("a", dispatch.Start{Cursor: &again}); len(got) != 5 || e.Facts["head"] != x.Head().String() {
		t.Errorf("from the oldest cursor %s there are %v, and the head is %v", again, got, e.Facts["head"])
	}
}

// TestStateOfALongDownload: a state that is being read is not disturbed by
// retention, deletion and the cleaner.
func TestStateOfALongDownload(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", keep(time.Hour, event.CleanupCompactDelete))
	x.put("b", compact)
	x.fillUp("a", "a", 1500)
	x.fillUp("b", "b", 1500)
	state, err := x.OpenState(mustPatterns(t, "a,b"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for i := range 3000 {
		d, ok, err := state.Next()
		if err != nil || !ok || d.Position != uint64(i)+1 {
			t.Fatalf("winner %d is %d, %t, %v", i, d.Position, ok, err)
		}
		if i == 10 {
			x.pass(2 * time.Hour)
			if err := x.DeleteTopic(context.Background(), identity.Anonymous(), "b"); err != nil {
				t.Fatal(err)
			}
			x.settle()
			if n := x.eventRows(); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
	}
}

// TestHistoryGoesInPortions: what is superseded goes once it is older than the lag,
// however much it is, and its space comes back.
func TestHistoryGoesInPortions(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", func(p *event.Policy) {
		p.CleanupPolicy, p.MinCompactionLag = event.CleanupCompact, event.Duration(time.Hour)
	})
	for round := range 3 {
		for from := 0; from < 1000; from += 500 {
			var batch []*event.Event
			for i := range 500 {
				key := fmt.Sprint(from + i)
				batch = append(batch, x.draft(fmt.Sprint(round, "-", key), key, nil))
			}
			x.mustSend("a", batch...)
		}
	}
	info, err := x.Topic("a")
	if err != nil || info.Events != 3000 || info.Keys != 1000 {
		t.Errorf("the topic is %+v, %v", info, err)
	}
	x.pass(time.Hour)
	info, err = x.Topic("a")
	if err != nil || info.Events != 1000 || info.Keys != 1000 || info.Oldest.Position != 0 {
		t.Errorf("after the lag the topic is %+v, %v", info, err)
	}
	x.wantMetrics("signalbox_cleaner_compacted_events_total", "2000", "signalbox_retained_events", "1000")
	in, err := x.Store().NewInspector()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := in.Histories(func(e eventAt, err error) error {
		t.Errorf("position %d is left, %v", e.Position, err)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
