// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"signalbox/event"
)

// TestHLCReceiveRule guards against a caused event that sorts before its
// cause because the counter of the received stamp was ignored.
func TestHLCReceiveRule(t *testing.T) {
	const p = int64(1764422645000)
	stamp := event.NewHLC
	cases := []struct{ local, received, want event.HLC }{
		{stamp(p, 5), stamp(p, 9), stamp(p, 10)},
		{stamp(p, 5), stamp(p+2, 3), stamp(p+2, 4)},
		{stamp(p+5, 1), stamp(p, 9), stamp(p+5, 2)},
	}
	for _, c := range cases {
		for _, wall := range []int64{p - 3_600_000, p, max(c.local, c.received).Millis(), 0, -1} {
			if got := max(c.local, c.received).Next(wall); got < c.want || got <= c.local || got <= c.received {
				t.Errorf("%v receives %v at %d: %v, want at least %v", c.local, c.received, wall, got, c.want)
			}
		}
		if got := max(c.local, c.received).Next(p + 50); got != stamp(p+50, 0) {
			t.Errorf("%v receives %v at P+50: %v", c.local, c.received, got)
		}
	}
	// A stamp an hour old changes nothing.
	if got := max(stamp(p, 0), stamp(p-3_600_000, 7)).Next(p + 1); got != stamp(p+1, 0) {
		t.Errorf("after an old stamp: %v", got)
	}
}

// TestHLCStampsAreUnique: stamps differ while the wall clock stands still.
func TestHLCStampsAreUnique(t *testing.T) {
	const workers, each = 20, 5_000 // more than one counter can hold
	var (
		mu    sync.Mutex
		clock event.HLC
		wg    sync.WaitGroup
		all   = make([][]event.HLC, workers)
	)
	for w := range workers {
		wg.Go(func() {
			for range each {
				mu.Lock()
				clock = clock.Next(1764422645000)
				all[w] = append(all[w], clock)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	seen := map[event.HLC]bool{}
	for _, stamps := range all {
		if !slices.IsSorted(stamps) {
			t.Fatal("a worker saw the clock go backwards")
		}
		for _, h := range stamps {
			seen[h] = true
		}
	}
	if len(seen) != workers*each {
		t.Errorf("%d stamps of %d are unique", len(seen), workers*each)
	}
}

func TestHLCEdges(t *testing.T) {
	if got := event.NewHLC(5, math.MaxUint16).Next(5); got != event.NewHLC(6, 0) {
		t.Errorf("a full counter goes to %v", got)
	}
	if got := event.HLC(math.MaxUint64).Next(0); got != math.MaxUint64 {
		t.Errorf("the last stamp goes to %v", got)
	}
	if got := event.NewHLC(-1, 3); got != event.NewHLC(0, 3) {
		t.Errorf("negative time: %v", got)
	}
	if got := event.NewHLC(1<<48, 3).Millis(); got != 1<<48-1 {
		t.Errorf("time beyond 48 bits: %v", got)
	}
	if got := event.NewHLC(1764422645000, 42).String(); got != "1764422645000.00042" {
		t.Errorf("canonical form is %s", got)
	}
}

func TestParseHLC(t *testing.T) {
	for in, want := range map[string]event.HLC{
		"1764422645000.00001":  event.NewHLC(1764422645000, 1),
		"1764422645000.1":      event.NewHLC(1764422645000, 1),
		"1764422645000.0":      event.NewHLC(1764422645000, 0),
		"1764422645000.65535":  event.NewHLC(1764422645000, 65535),
		"281474976710655.1":    event.NewHLC(1<<48-1, 1),
		"0.1":                  event.NewHLC(0, 1),
		"281474976710656":      event.NewHLC(1<<32, 0),
		"18446744073709551615": math.MaxUint64,
		strconv.FormatUint(uint64(event.NewHLC(1764422645000, 7)), 10): event.NewHLC(1764422645000, 7),
	} {
		if got, err := event.ParseHLC(in); err != nil || got != want {
			t.Errorf("%q is %v (%v), want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "0", "0.0", "0.00000", ".", "1.", ".1", "+1.1", "-1.1", "1.+1", " 1.1", "1.1 ", "1 .1", "1.000001", "1.65536", "1.99999",
		"281474976710656.1", "18446744073709551616", "99999999999999999999", "01.1", "1.1.1", "1,1", "1e3", "0x1.1", "١.1", "1.a",
		"1764422645000", "281474976710655", // milliseconds whose counter was forgotten
	} {
		_, err := event.ParseHLC(in)
		wantCode(t, err, event.CodeHLCInvalid)
	}
}

func TestHLCRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		h := event.HLC(r.Uint64() >> r.IntN(48))
		if h == 0 {
			continue
		}
		if got, err := event.ParseHLC(h.String()); err != nil || got != h {
			t.Fatalf("%d: %s is %v, %v", uint64(h), h, got, err)
		}
		text, _ := h.MarshalText()
		var back event.HLC
		if err := back.UnmarshalText(text); err != nil || back != h {
			t.Fatalf("text %s is %v, %v", text, back, err)
		}
	}
	zero := event.HLC(7)
	if text, err := event.HLC(0).MarshalText(); err != nil || len(text) != 0 || zero.UnmarshalText(text) != nil || zero != 0 {
		t.Error("no stamp is not empty text")
	}
	if err := zero.UnmarshalText([]byte("x")); err == nil {
		t.Error("nonsense is accepted as text")
	}
}
