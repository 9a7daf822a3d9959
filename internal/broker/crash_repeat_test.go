// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
	"signalbox/internal/broker"
)

// powerCut ends the broker as a power cut does, and opens what is left.
func (r *rig) powerCut() {
	r.t.Helper()
	mem := r.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	r.close()
	r.fs = mem
	if err := r.open(); err != nil {
		r.t.Fatalf("opening after a power cut: %v", err)
	}
}

// TestRepetitionIsRecognisedWhateverHappenedSince: within the window a
// repetition is answered with the first receipt, after restarts, power cuts,
// and after the event itself is gone; after the window it is new.
func TestRepetitionIsRecognisedWhateverHappenedSince(t *testing.T) {
	clock := newStepClock()
	r := newRig(t, vfs.NewCrashableMem(), func(o *broker.Options) { o.Clock, o.DedupWindow, o.CleanEvery = clock, time.Hour, time.Hour })
	second := event.Duration(time.Second)
	r.putTopic("state", func(p *event.Policy) { p.CleanupPolicy, p.DeleteRetention = event.CleanupCompact, second })
	r.putTopic("log", func(p *event.Policy) { p.Retention = &second })
	settle := func(d time.Duration) {
		t.Helper()
		clock.pass(d)
		if err := r.b.Tick(); err != nil {
			t.Fatal(err)
		}
		if err := r.b.Clean(); err != nil {
			t.Fatal(err)
		}
	}
	events := map[string]*event.Event{
		"log":   r.event("/a", "1", "", `{"n":1}`, map[string]any{"expiry": 2}),
		"state": r.event("/a", "1", "key", `{"n":1}`, nil),
	}
	first := map[string]event.Receipt{}
	for topic, ev := range events {
		first[topic] = r.mustPublish(topic, ev)[0]
	}
	r.mustPublish("log", r.event("/a", "later", "", "1", nil))
	again := func(when string) {
		t.Helper()
		for topic, ev := range events {
			got := r.mustPublish(topic, ev)[0]
			if got.Outcome != event.OutcomeDuplicate || got.Position != first[topic].Position || got.HLC != first[topic].HLC || got.Cursor != first[topic].Cursor {
				t.Errorf("%s the repetition in %s is answered %+v, the first was %+v", when, topic, got, first[topic])
			}
		}
	}
	again("at once")
	r.reopen()
	again("after a restart")
	r.powerCut()
	again("after a power cut")
	r.mustPublish("state", r.event("/a", "newer", "key", `{"n":2}`, nil))
	again("after it was superseded")
	r.mustPublish("state", r.event("/a", "tombstone", "key", "", nil))
	settle(3 * time.Second)
	settle(3 * time.Second)
	if info, err := r.b.Topic("state"); err != nil || info.Tombstones+info.Keys != 0 {
		t.Fatalf("the key is not forgotten: %+v, %v", info, err)
	}
	if got := r.read("log", ""); len(got) != 0 {
		t.Fatalf("retention left %d events", len(got))
	}
	again("after expiry, retention and the purge of the tombstone")
	r.powerCut()
	again("after that and a power cut")
	settle(59 * time.Minute)
	again("near the end of the window")
	r.reopen()
	settle(time.Minute)
	if got := r.mustPublish("log", events["log"])[0]; got.Outcome != event.OutcomeAccepted || got.Position == first["log"].Position {
		t.Errorf("after the window the repetition is answered %+v", got)
	}
	r.close()
	r.mustVerify()
}

// TestIdentityIsSourceAndIDWithinATopic guards what makes two events one.
func TestIdentityIsSourceAndIDWithinATopic(t *testing.T) {
	r := newRig(t, vfs.NewCrashableMem(), nil)
	r.mustPublish("one", r.event("/a", "1", "", "1", nil))
	for _, restart := range []bool{false, true} {
		if restart {
			r.powerCut()
		}
		for _, c := range []struct{ topic, source, id string }{{"one", "/b", "1"}, {"one", "/a", "2"}, {"two", "/a", "1"}} {
			want := event.OutcomeAccepted
			if restart {
				want = event.OutcomeDuplicate
			}
			if got := r.mustPublish(c.topic, r.event(c.source, c.id, "", "1", nil))[0]; got.Outcome != want {
				t.Errorf("%s %s in topic %s, restart %v: %s", c.source, c.id, c.topic, restart, got.Outcome)
			}
		}
		_, err := r.publish("one", r.event("/a", "1", "", "2", nil))
		if errorCode(err) != event.CodeIDReused {
			t.Errorf("the same id with other data, restart %v: %v", restart, err)
		}
	}
	if got := r.read("one", ""); len(got) != 3 || string(got[0].Data()) != "1" {
		t.Errorf("topic one holds %d events, first %s", len(got), got[0].json)
	}
	r.close()
}

// TestWindowCountsFromTheFirstSight: repetitions do not prolong it.
func TestWindowCountsFromTheFirstSight(t *testing.T) {
	clock := newStepClock()
	r := newRig(t, vfs.NewCrashableMem(), func(o *broker.Options) { o.Clock, o.DedupWindow = clock, 2*time.Minute })
	ev := r.event("/a", "1", "", "1", nil)
	for minute := range 61 {
		if minute%7 == 3 {
			r.reopen()
		}
		if err := r.b.Tick(); err != nil {
			t.Fatal(err)
		}
		want := event.OutcomeAccepted
		if minute%2 == 1 {
			want = event.OutcomeDuplicate
		}
		if got := r.mustPublish("log", ev)[0]; got.Outcome != want {
			t.Errorf("minute %d: %s, want %s", minute, got.Outcome, want)
		}
		clock.pass(time.Minute)
	}
	r.close()
	r.mustVerify()
}

// TestRequestThatWasNotDurableLeavesNoTrace: its id was noted in the same
// commit as the event, so that neither is there without the other, and the
// retry is new.
func TestRequestThatWasNotDurableLeavesNoTrace(t *testing.T) {
	mem, fatal := vfs.NewCrashableMem(), newFatalCalls()
	f := &fault{match: faultAt(".log", errorfs.OpFileSync, errorfs.OpFileSyncData), err: syscall.EIO}
	x := newRig(t, errorfs.Wrap(mem, f), func(o *broker.Options) { o.Fatal = fatal.fatal })
	ev := x.event("/a", "1", "", "1", nil)
	f.on.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan error, 1)
	go func() {
		_, err := x.b.Publish(ctx, anonymous(), broker.PublishRequest{Topic: "log", Events: []*event.Event{ev}})
		answer <- err
	}()
	<-fatal.called
	cancel()
	if err := <-answer; errorCode(err) != event.CodeOverloaded {
		t.Errorf("the publish whose sync failed is answered %v", err)
	}
	for _, percent := range []int{0, 100} {
		r := &rig{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})}
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
		there := len(r.read("log", ""))
		got := r.mustPublish("log", ev)[0]
		if (there == 1) != (got.Outcome == event.OutcomeDuplicate) || len(r.read("log", "")) != 1 {
			t.Errorf("with %d%% of what was unsynced: %d events are there, and the retry is %s", percent, there, got.Outcome)
		}
		r.close()
		r.mustVerify()
	}
}

// TestRetriedRequestIsAnsweredAsTheFirst: an idempotent request is answered
// again, not done again, after a power cut too; its key with other events is
// refused.
func TestRetriedRequestIsAnsweredAsTheFirst(t *testing.T) {
	r := newRig(t, vfs.NewCrashableMem(), nil)
	request := broker.PublishRequest{Topic: "log", Batch: true, IdempotencyKey: "once"}
	for i := range 3 {
		request.Events = append(request.Events, r.event("/a", fmt.Sprint(i), "", "1", nil))
	}
	ctx := context.Background()
	first, err := r.b.Publish(ctx, anonymous(), request)
	if err != nil {
		t.Fatal(err)
	}
	r.powerCut()
	again, err := r.b.Publish(ctx, anonymous(), request)
	if err != nil || !again.Replayed || fmt.Sprint(again.Receipts) != fmt.Sprint(first.Receipts) {
		t.Errorf("the retry is answered %+v, %v; the first was %+v", again, err, first)
	}
	request.Events = request.Events[:2]
	if _, err := r.b.Publish(ctx, anonymous(), request); errorCode(err) != event.CodeIdempotencyKeyReused {
		t.Errorf("the key with other events: %v", err)
	}
	if n := len(r.read("log", "")); n != 3 {
		t.Errorf("%d events are there", n)
	}
	r.close()
}
