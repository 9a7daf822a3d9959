// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/broker"
)

// fact is an event that two brokers get, each in its own order.
type fact struct {
	event  *event.Event
	key    string
	hlc    event.HLC
	expiry time.Time // zero: never
	bare   bool
}

// drawFacts draws events of few keys with few stamps, so that they collide.
func drawFacts(t *rapid.T, x *box) []fact {
	facts := make([]fact, rapid.IntRange(1, 30).Draw(t, "facts"))
	for i := range facts {
		f := &facts[i]
		f.key = rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "key")
		f.hlc = stampAt(-time.Duration(rapid.IntRange(0, 2).Draw(t, "ms"))*time.Millisecond, uint16(rapid.IntRange(0, 1).Draw(t, "counter")))
		attributes := map[string]any{"hlc": f.hlc.String(), "source": rapid.SampledFrom([]string{"/a", "/b"}).Draw(t, "source")}
		if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
			f.expiry = startTime().Add(time.Duration(rapid.IntRange(-5, 90).Draw(t, "seconds")) * time.Second)
			attributes["expirytime"] = f.expiry.Format(time.RFC3339Nano)
		}
		if rapid.IntRange(0, 3).Draw(t, "bare") == 0 {
			attributes["bare"], f.bare = true, true
		}
		f.event = x.draft(fmt.Sprint(i), f.key, attributes)
	}
	return facts
}

// feed publishes the facts in an order of its own, some of them twice, from
// several goroutines at once, while time passes and the broker is restarted.
func feed(t *rapid.T, x *box, facts []fact) {
	order := rapid.Permutation(facts).Draw(t, "order")
	order = append(order, rapid.SliceOfN(rapid.SampledFrom(facts), 0, 8).Draw(t, "again")...)
	for len(order) > 0 {
		n := min(len(order), rapid.IntRange(1, 8).Draw(t, "at once"))
		var publishing sync.WaitGroup
		for _, f := range order[:n] {
			publishing.Go(func() { x.mustSend("a", f.event) })
		}
		publishing.Wait()
		order = order[n:]
		switch rapid.IntRange(0, 5).Draw(t, "then") {
		case 0:
			x.pass(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
		case 1:
			x.restart()
		}
	}
}

// TestTwoBrokersAgree: two brokers that got the same events agree in the digest,
// whatever the order of arrival, and on the event with the highest (HLC, source,
// id) for each key.
func TestTwoBrokersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := newBox(t, broker.Options{}), newBox(t, broker.Options{})
		defer func() { one.close(); two.close() }()
		facts := drawFacts(t, one)
		const end = 2 * time.Hour
		var digests [2]event.Digest
		for i, x := range []*box{one, two} {
			x.put("a", compact)
			feed(t, x, facts)
			x.clock.pass(end - x.clock.Wall().Sub(startTime()))
			x.settle()
			d, err := x.Digest(context.Background(), "a")
			if err != nil {
				t.Fatal(err)
			}
			digests[i] = d.Buckets
		}
		highest := map[string]*fact{}
		for i := range facts {
			if f := &facts[i]; highest[f.key] == nil || f.above(highest[f.key]) {
				highest[f.key] = f
			}
		}
		var want event.Digest
		for key, f := range highest {
			if !f.bare && f.expiry.IsZero() {
				want.Toggle(key, f.hlc, f.event.Source(), f.event.ID())
			}
		}
		if digests[0] != want || digests[1] != want {
			t.Fatalf("the digests are right: %t and %t", digests[0] == want, digests[1] == want)
		}
	})
}

func (f *fact) above(other *fact) bool {
	if f.hlc != other.hlc {
		return f.hlc > other.hlc
	}
	if f.event.Source() != other.event.Source() {
		return f.event.Source() > other.event.Source()
	}
	return f.event.ID() > other.event.ID()
}
