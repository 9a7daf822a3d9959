// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// fact is an event of a compacted topic as the properties see it.
type fact struct {
	topic, key string
	entry      eventlog.Entry
}

func (f *fact) tombstone() bool { return f.entry.Flags&eventlog.FlagBare != 0 }

func (f *fact) liveAt(millis int64) bool {
	return !f.tombstone() && (f.entry.ExpiryMillis == 0 || f.entry.ExpiryMillis > millis)
}

// compare orders facts by (HLC, source, id).
func compare(a, b *fact) int {
	return cmp.Or(cmp.Compare(a.entry.HLC, b.entry.HLC), cmp.Compare(a.entry.Source, b.entry.Source), cmp.Compare(a.entry.ID, b.entry.ID))
}

// horizon is when all that a fact can stamp or expire is over.
const horizon = epoch + 60_000

// drawFacts draws events that collide: few keys, few stamps, so that many are
// equal, few sources and ids, tombstones, and some that expire on the way.
func drawFacts(t *rapid.T) []fact {
	var facts []fact
	used := map[string]bool{}
	for range rapid.IntRange(1, 25).Draw(t, "facts") {
		d := event.Draft{
			ID: fmt.Sprint(rapid.IntRange(1, 12).Draw(t, "id")), Source: rapid.SampledFrom([]string{"/a", "/b"}).Draw(t, "source"), Type: "t",
		}
		topic := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "topic")
		if used[topic+d.Source+d.ID] {
			continue // an id is used once; that it is refused otherwise is a script's
		}
		used[topic+d.Source+d.ID] = true
		key := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "key")
		stamp := event.NewHLC(epoch-1000+int64(rapid.IntRange(0, 3).Draw(t, "ms")), uint16(rapid.IntRange(0, 1).Draw(t, "counter")))
		d.Extensions = map[string]any{"partitionkey": key, "hlc": stamp.String()}
		if expires := rapid.SampledFrom([]int64{0, 0, 0, -5, 10_000, 30_000, 120_000}).Draw(t, "expires"); expires != 0 {
			d.Extensions["expirytime"] = time.UnixMilli(epoch + expires).UTC().Format(time.RFC3339Nano)
		}
		if rapid.IntRange(0, 3).Draw(t, "bare") > 0 {
			d.Data = []byte("1")
		}
		ev, err := d.Event()
		if err != nil {
			t.Fatal(err)
		}
		facts = append(facts, fact{topic, key, entry(ev)})
	}
	return facts
}

// deliver gives a broker the facts in an order of its own, some of them more
// than once, some in batches, while time passes.
func deliver(t *rapid.T, r *rig, facts []fact) {
	r.do(tick(epoch))
	now := int64(epoch)
	order := rapid.Permutation(facts).Draw(t, "order")
	for range rapid.IntRange(0, 6).Draw(t, "repeats") {
		if len(order) > 0 {
			order = append(order, rapid.SampledFrom(order).Draw(t, "again"))
		}
	}
	for len(order) > 0 {
		f := order[0]
		p := &eventlog.Proposal{Kind: eventlog.KindEvents, Topic: f.topic, AdmittedMillis: now}
		for len(order) > 0 && order[0].topic == f.topic && len(p.Entries) < 3 {
			p.Entries = append(p.Entries, order[0].entry)
			order = order[1:]
			if rapid.Bool().Draw(t, "single") {
				break
			}
		}
		p.Batch = len(p.Entries) > 1
		result := r.do(p)
		if p.Batch && result.Err != nil { // the floor refuses some: then each by itself
			for _, e := range p.Entries {
				r.do(&eventlog.Proposal{Kind: eventlog.KindEvents, Topic: f.topic, AdmittedMillis: now, Entries: []eventlog.Entry{e}})
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "tick") == 0 {
			now = min(now+rapid.SampledFrom([]int64{1, 9_000, 25_000}).Draw(t, "later"), horizon)
			r.do(tick(now))
		}
		if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
			r.reopen()
		}
	}
	r.do(tick(horizon))
}

func orderRig(t *rapid.T, deleteRetention time.Duration, window time.Duration) *rig {
	settings := defaultSettings()
	settings.DedupMillis = window.Milliseconds()
	r := newRig(t, settings)
	policy := compacted()
	policy.DeleteRetention = event.Duration(deleteRetention)
	for _, topic := range []string{"p", "q"} {
		r.do(putTopic(topic, policy))
	}
	return r
}

// TestOrderOfArrival is invariant 3, as long as nothing is forgotten: the state
// of every key is the event with the highest (HLC, source, id), whatever came
// first, twice or late, and two brokers that have seen the same agree in the digest.
func TestOrderOfArrival(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := drawFacts(t)
		one, two := orderRig(t, 24*time.Hour, 24*time.Hour), orderRig(t, 24*time.Hour, 24*time.Hour)
		defer one.close()
		defer two.close()
		deliver(t, one, facts)
		deliver(t, two, facts)
		for _, topic := range []string{"p", "q"} {
			var want event.Digest
			live := one.live(topic)
			for key, f := range highestByKey(facts, topic) {
				row, ok := live[key]
				if ok != f.liveAt(horizon) || ok && !isRow(f, row) {
					t.Fatalf("%s/%s: the state is %+v (%t), and the highest event %+v", topic, key, row, ok, f.entry)
				}
				if ok {
					want.Toggle(key, f.entry.HLC, f.entry.Source, f.entry.ID)
				}
				delete(live, key)
			}
			if len(live) > 0 {
				t.Fatalf("%s has keys that nobody published: %v", topic, live)
			}
			if one.digest(topic) != want || two.digest(topic) != want {
				t.Fatalf("%s: the digests differ", topic)
			}
		}
	})
}

func isRow(f *fact, row store.WinnerRow) bool {
	return row.HLC == f.entry.HLC && row.Source == f.entry.Source && row.ID == f.entry.ID
}

// TestFloor is invariant 3 in full, where keys are forgotten soon and ids too:
// above the floor the state is the highest event; below it, it is that or
// nothing, and never an older one.
func TestFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := drawFacts(t)
		r := orderRig(t, 5*time.Second, 10*time.Second)
		defer r.close()
		deliver(t, r, facts)
		for _, topic := range []string{"p", "q"} {
			info, _ := r.topic(topic)
			live := r.live(topic)
			for key, highest := range highestByKey(facts, topic) {
				row, ok := live[key]
				switch {
				case ok && !isRow(highest, row):
					t.Fatalf("%s/%s: the state is %+v, and the highest event %+v", topic, key, row, highest.entry)
				case ok && !highest.liveAt(horizon):
					t.Fatalf("%s/%s: the state is %+v, which was deleted or has expired", topic, key, row)
				case !ok && highest.liveAt(horizon) && highest.entry.HLC > info.Floor:
					t.Fatalf("%s/%s: there is no state, and %+v is above the floor %s", topic, key, highest.entry, info.Floor)
				}
			}
		}
	})
}

func highestByKey(facts []fact, topic string) map[string]*fact {
	highest := map[string]*fact{}
	for i := range facts {
		f := &facts[i]
		if f.topic == topic && (highest[f.key] == nil || compare(f, highest[f.key]) > 0) {
			highest[f.key] = f
		}
	}
	return highest
}
