// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
)

// live is what must be true of ephemeral topics. Nothing of it outlives the
// broker.
type live struct {
	hlc    event.HLC
	values map[liveKey]*liveValue
	reader *dispatch.Reader
	known  map[liveKey]string // what the reader believes: of each key the id of its event
	polled int64              // when the reader was there last
}

type liveKey struct{ topic, key string }

type liveValue struct {
	item
	tombstone bool
	until     int64 // Unix ms
}

const (
	livePatterns = "live.*"
	// liveGuard is how long a reader may be away and still be told of a removal.
	liveGuard = 60_000
)

func newLive() *live {
	return &live{values: map[liveKey]*liveValue{}, known: map[liveKey]string{}}
}

func (l *live) close() {
	if l.reader != nil {
		l.reader.Close()
		l.reader, l.known = nil, map[liveKey]string{}
	}
}

// stepSignal says something that matters only while it is true.
func stepSignal(w *world) {
	topic := fmt.Sprintf("live.%d", w.rng.IntN(2))
	key := fmt.Sprintf("k%d", w.rng.IntN(keyCount))
	d := event.Draft{ID: fmt.Sprint(w.number), Source: "/p", Type: "signal", Subject: key, Extensions: map[string]any{}, Data: []byte("1")}
	now := w.broker.LogMillis()
	until := now + event.DefaultPolicy().Retention.Std().Milliseconds()
	tombstone := w.rng.IntN(5) == 0
	if tombstone {
		d.Data = nil
		until = now + liveGuard
	} else if w.rng.IntN(2) == 0 {
		seconds := 1 + w.rng.IntN(90)
		d.Extensions["expiry"] = seconds
		until = now + int64(seconds)*1000
	}
	before := w.live.values[liveKey{topic, key}]
	current := before != nil && before.until > now
	stamp := event.HLC(0)
	switch w.rng.IntN(4) {
	case 0:
		if current { // one that was on its way for long; else it may or may not be guarded against
			stamp = before.hlc - 1
		}
	case 1: // its clock is wrong
		stamp = event.NewHLC(now+w.rng.Int64N(2000), 1)
	}
	if stamp != 0 {
		d.Extensions["hlc"] = stamp.String()
	}
	e, err := d.Event()
	if err != nil {
		w.fail("an event: %v", err)
	}
	w.signal(topic, e, &liveValue{item: item{topic: topic, key: key, source: "/p", id: d.ID, hlc: stamp}, tombstone: tombstone, until: until})
}

// signal publishes an event on an ephemeral topic and judges the answer.
func (w *world) signal(topic string, e *event.Event, v *liveValue) {
	l, now := w.live, w.broker.LogMillis()
	l.hlc = max(l.hlc, w.model.hlc)
	at := liveKey{topic, v.key}
	before := l.values[at]
	must, outcome, stamped := event.Code(""), event.OutcomeAccepted, false
	switch {
	case v.hlc == 0:
		l.hlc = l.hlc.Next(now)
		v.hlc, stamped = l.hlc, true
	case v.hlc.Millis() > now+w.model.settings.MaxDriftMillis && v.hlc.Millis() > l.hlc.Millis():
		must = event.CodeHLCDrift
	default:
		l.hlc = max(l.hlc, v.hlc)
	}
	if before != nil && !v.above(&before.item) {
		outcome = event.OutcomeSuperseded
	}
	ctx, cancel := w.waiting()
	defer cancel()
	result, err := w.broker.Publish(ctx, anonymous(), broker.PublishRequest{Topic: topic, Events: []*event.Event{e}})
	w.settle()
	w.note("signal %s %s on %s: %q", v.key, v.id, topic, must)
	if code(err) == event.CodeHLCStale && before != nil && before.until <= now && outcome == event.OutcomeSuperseded {
		return // what guarded the key is forgotten
	}
	if code(err) != must {
		w.fail("signal %s on %s: %v, and must be %q", v.key, topic, err, must)
	}
	if must != "" {
		return
	}
	if at := result.Receipts[0].HLC; stamped && at > v.hlc && at.Millis() == v.hlc.Millis() {
		v.hlc, l.hlc = at, at // what is said on $presence is stamped, too
	}
	if r := result.Receipts[0]; r.Outcome != outcome || r.HLC != v.hlc || r.Position != 0 {
		w.fail("signal %s on %s: %+v, and must be %s %s", v.key, topic, r, outcome, v.hlc)
	}
	if outcome == event.OutcomeAccepted {
		l.values[at] = v
	}
}

// current are the values that ephemeral topics have.
func (w *world) current() map[liveKey]string {
	now, values := w.broker.LogMillis(), map[liveKey]string{}
	for at, v := range w.live.values {
		if !v.tombstone && v.until > now {
			values[at] = v.id
		}
	}
	return values
}

// stepGlance reads ephemeral topics: all of them at once, or as one who follows.
func stepGlance(w *world) {
	if w.rng.IntN(3) == 0 {
		w.checkLiveState()
		return
	}
	l := w.live
	if l.reader == nil {
		var err error
		if l.reader, err = w.broker.Read(broker.ReadRequest{Patterns: patterns(livePatterns)}); err != nil {
			w.fail("a reader of %s: %v", livePatterns, err)
		}
		l.polled = w.broker.LogMillis()
	}
	for caughtUp := false; !caughtUp; {
		window, err := l.reader.Poll(dispatch.Limit{Events: pick(w.rng, 1, 2, 1000), Bytes: 1 << 20})
		now := w.broker.LogMillis()
		if code(err) == event.CodeValuesReset && now-l.polled >= liveGuard {
			w.note("the reader of signals was away for too long")
			l.close()
			return
		}
		if err != nil {
			w.fail("the reader of %s, who was there %d ms ago: %v", livePatterns, now-l.polled, err)
		}
		for i := range window.Deliveries {
			w.learn(w.decode(&window.Deliveries[i]))
		}
		caughtUp = window.CaughtUp
	}
	l.polled = w.broker.LogMillis()
	current := w.current()
	// It knows by itself what has expired. Of what came and expired while it was
	// away it is not told, and may believe what was before.
	maps.DeleteFunc(l.known, func(at liveKey, _ string) bool {
		v := l.values[at]
		return !v.tombstone && v.until <= l.polled
	})
	if !maps.Equal(l.known, current) {
		w.fail("the reader of %s believes %v, and true is %v", livePatterns, l.known, current)
	}
	w.note("signals: %d", len(current))
}

// learn is what a reader does with an event: it must be the last one of its key.
func (w *world) learn(e *event.Event) {
	key, _ := e.Key()
	at := liveKey{e.Topic(), key}
	v := w.live.values[at]
	if v == nil || v.id != e.ID() || v.hlc != e.HLC() || e.Position() != 0 || v.tombstone != (e.DataKind() == event.NoData) {
		w.fail("the reader of %s got %s of %v, which is not its last", livePatterns, e.ID(), at)
	}
	if v.until <= w.broker.LogMillis() && !v.tombstone {
		w.fail("the reader of %s got %s of %v, which has expired", livePatterns, e.ID(), at)
	}
	if v.tombstone {
		delete(w.live.known, at)
	} else {
		w.live.known[at] = e.ID()
	}
}

func (w *world) checkLiveState() {
	s, err := w.broker.OpenState(patterns(livePatterns), nil)
	if err != nil {
		w.fail("the state of %s: %v", livePatterns, err)
	}
	defer s.Close()
	got := map[liveKey]string{}
	for {
		d, ok, err := s.Next()
		if err != nil {
			w.fail("the state of %s: %v", livePatterns, err)
		}
		if !ok {
			break
		}
		e := w.decode(&d)
		key, _ := e.Key()
		got[liveKey{e.Topic(), key}] = e.ID()
	}
	if want := w.current(); !maps.Equal(got, want) {
		w.fail("the state of %s is %v, and must be %v", livePatterns, got, want)
	}
	w.note("state of signals: %v", slices.Sorted(maps.Values(got)))
}
