// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/broker"
)

// TestLogClock: whatever is done to the wall clock, log time never moves back
// and runs within one part in a hundred of the monotonic clock, and once nobody
// meddles it finds the wall clock again.
func TestLogClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := newStepClock()
		log := startTime().UnixMilli() + rapid.Int64Range(-5000, 5000).Draw(t, "log")
		clock := broker.NewLogClock(source, log)
		first := clock.Millis()
		if want := max(log, startTime().UnixMilli()); first != want {
			t.Fatalf("it begins at %d, not at %d", first, want)
		}
		begin, told := source.Mono(), first
		read := func() {
			millis := clock.Millis()
			if millis < told {
				t.Fatalf("it says %d after %d", millis, told)
			}
			told = millis
			elapsed := (source.Mono() - begin).Milliseconds()
			// Below a millisecond it does not slew, and answers are rounded down.
			if off := (millis - first) - elapsed; off > elapsed/100+2 || off < -elapsed/100-2 {
				t.Fatalf("after %d ms it is off by %d ms", elapsed, off)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				source.step(time.Duration(rapid.Int64Range(-1e13, 1e13).Draw(t, "by")))
			case 1:
				source.pass(time.Duration(rapid.Int64Range(0, 3e6).Draw(t, "little")))
			default:
				source.pass(time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "while")))
			}
			read()
		}
		skew := clock.Skew().Abs()
		source.pass(101 * skew)
		read()
		if left := clock.Skew().Abs(); left > 2*time.Millisecond {
			t.Fatalf("it was off by %s, and %s later still is by %s", skew, 101*skew, left)
		}
	})
}

// TestLogClockOften: polled every few microseconds it is as exact as polled
// rarely, for what is too short to slew is not thrown away.
func TestLogClockOften(t *testing.T) {
	source := newStepClock()
	clock := broker.NewLogClock(source, 0)
	source.step(-time.Hour)
	first := clock.Millis()
	for range 200_000 {
		source.pass(7 * time.Microsecond)
		clock.Millis()
	}
	// 1.4 s less one part in a hundred, for the wall clock is behind.
	if got := clock.Millis() - first; got < 1384 || got > 1388 {
		t.Errorf("1.4 s take %d ms", got)
	}
}

// TestLogClockConcurrently: no two callers see time go backwards.
func TestLogClockConcurrently(t *testing.T) {
	source := newStepClock()
	clock := broker.NewLogClock(source, 0)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			told := int64(0)
			for i := range 5000 {
				if i%10 == 0 {
					source.pass(333 * time.Microsecond)
					source.step(time.Duration(i%7-3) * time.Minute)
				}
				if millis := clock.Millis(); millis < told {
					t.Errorf("%d after %d", millis, told)
				} else {
					told = millis
				}
			}
		})
	}
	callers.Wait()
}

// TestHLCReceiveRule has the vectors of the receive rule: the next stamp is
// above both the broker's own and the received one, counters included.
func TestHLCReceiveRule(t *testing.T) {
	const p = 100 * time.Second
	for _, c := range []struct {
		name            string
		local, received event.HLC
		wall            time.Duration
		want            event.HLC
	}{
		{"equal times, a greater counter", stampAt(p, 5), stampAt(p, 9), 0, stampAt(p, 10)},
		{"a greater time, a smaller counter", stampAt(p, 5), stampAt(p+2*time.Millisecond, 3), 0, stampAt(p+2*time.Millisecond, 4)},
		{"a smaller time, a greater counter", stampAt(p+5*time.Millisecond, 1), stampAt(p, 9), 0, stampAt(p+5*time.Millisecond, 2)},
		{"equal times, the clock ahead", stampAt(p, 5), stampAt(p, 9), p + 50*time.Millisecond, stampAt(p+50*time.Millisecond, 0)},
		{"a greater time, the clock ahead", stampAt(p, 5), stampAt(p+2*time.Millisecond, 3), p + 50*time.Millisecond, stampAt(p+50*time.Millisecond, 0)},
		{"a smaller time, the clock ahead", stampAt(p+5*time.Millisecond, 1), stampAt(p, 9), p + 50*time.Millisecond, stampAt(p+50*time.Millisecond, 0)},
		{"an hour ago", stampAt(p, 5), stampAt(p-time.Hour, 7), 0, stampAt(p, 6)},
		{"a full counter carries", stampAt(p, 5), stampAt(p, 65535), 0, stampAt(p+time.Millisecond, 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newBox(t, broker.Options{MaxDrift: time.Hour})
			defer x.close()
			x.mustSend("a", x.draft("local", "", map[string]any{"hlc": c.local.String()}))
			x.mustSend("a", x.draft("received", "", map[string]any{"hlc": c.received.String()}))
			x.clock.pass(c.wall)
			if got := x.mustSend("a", x.draft("next", "", nil))[0].HLC; got != c.want {
				t.Errorf("%s receives %s: the next stamp is %s, not %s", sinceStart(c.local), sinceStart(c.received), sinceStart(got), sinceStart(c.want))
			}
		})
	}
}

// TestStampsAreUnique: stamps that are given in parallel, on one wall time, are
// all different and rise with the positions; after a restart with the clock two
// seconds back they go on above the last one.
func TestStampsAreUnique(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	const callers, each = 20, 100
	var mu sync.Mutex
	stamps := map[uint64]event.HLC{}
	publish := func() {
		var publishing sync.WaitGroup
		for range callers {
			publishing.Go(func() {
				for range each / 10 {
					var batch []*event.Event
					for range 10 {
						batch = append(batch, x.draft("", "", nil, '1'))
					}
					result, err := x.send(broker.PublishRequest{Topic: "a", Events: batch, Batch: true})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, r := range result.Receipts {
						stamps[r.Position] = r.HLC
					}
					mu.Unlock()
				}
			})
		}
		publishing.Wait()
	}
	publish()
	before := stamps[callers*each]
	x.close()
	x.clock.step(-2 * time.Second)
	x.open()
	publish()
	for p := uint64(2); p <= 2*callers*each; p++ {
		if stamps[p] <= stamps[p-1] {
			t.Fatalf("position %d has the stamp %s after %s", p, stamps[p], stamps[p-1])
		}
	}
	if first := stamps[callers*each+1]; first != before+1 {
		t.Errorf("the first stamp after the restart is %s, the last before it was %s", first, before)
	}
}

// TestTimeGoesOnAfterRestart: log time does not wait for a wall clock that is
// behind it, nor does it go back to it.
func TestTimeGoesOnAfterRestart(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	x.pass(time.Hour)
	x.close()
	x.clock.step(-30 * time.Minute)
	x.open()
	if got, want := x.LogMillis(), startTime().Add(time.Hour).UnixMilli(); got != want {
		t.Errorf("after the restart it is %d, not %d", got, want)
	}
	x.mustSend("a", x.draft("short", "", map[string]any{"expiry": 60}))
	x.pass(59 * time.Second)
	if got := x.readIDs("a", oldest()); len(got) != 1 {
		t.Errorf("before its time the event is gone: %v", got)
	}
	x.pass(2 * time.Second)
	if got := x.readIDs("a", oldest()); len(got) != 0 {
		t.Errorf("after its time there is %v", got)
	}
}

// TestTheMachinesClockRunsOn checks that readings go on, and never back,
// whether the system is asked or not.
func TestTheMachinesClockRunsOn(t *testing.T) {
	clock := broker.NewSystemClock()
	first := clock.Mono()
	deadline := time.Now().Add(patience)
	for last := first; last-first < 3*broker.BootEvery; {
		now := clock.Mono()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		if time.Now().After(deadline) {
			t.Fatalf("only %v have passed in %v", now-first, patience)
		}
		last = now
	}
}
