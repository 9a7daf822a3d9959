// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"maps"
	"slices"

	"signalbox/event"
)

// stepState looks at what is true now, in each of the ways that there are.
func stepState(w *world) {
	list := pick(w.rng, ">", "state.*", "state.kept", "state.lagged,state.both", "state.pathed")
	switch w.rng.IntN(4) {
	case 0:
		w.checkState(list)
	case 1:
		w.checkDigest()
	case 2:
		w.checkKeys()
	default:
		w.checkTopics()
	}
}

// winners are the values of a topic at log time.
func (w *world) winners(t *topic) (list []*item) {
	for _, e := range t.keys {
		if e.live(w.model.millis) {
			list = append(list, e)
		}
	}
	return list
}

func (w *world) compacted() (list []*topic) {
	for _, name := range slices.Sorted(maps.Keys(w.model.topics)) {
		if t := w.model.topics[name]; !t.deleted && t.policy.Compacts() {
			list = append(list, t)
		}
	}
	return list
}

// checkState: the state is of every live key the event with the highest (HLC,
// source, id), in the order of positions.
func (w *world) checkState(list string) {
	selected := &reader{patterns: patterns(list)}
	var want []*item
	for _, t := range w.compacted() {
		if selected.matches(t) {
			want = append(want, w.winners(t)...)
		}
	}
	slices.SortFunc(want, func(a, b *item) int { return cmp.Compare(a.position, b.position) })
	s, err := w.broker.OpenState(selected.patterns, nil)
	if err != nil {
		if got := code(err); got == event.CodeNotCompacted || got == event.CodeTopicUnknown {
			return // a topic that is named was deleted, and perhaps made anew
		}
		w.fail("state of %s: %v", list, err)
	}
	defer s.Close()
	if s.Cursor() != w.cursor(w.model.position) || s.LogMillis() != w.model.millis {
		w.fail("the state of %s is at %s and %d, the model at %d and %d", list, s.Cursor(), s.LogMillis(), w.model.position, w.model.millis)
	}
	for {
		d, ok, err := s.Next()
		switch {
		case ok && d.Position == 0: // of an ephemeral topic
			continue
		case err != nil:
			w.fail("state of %s: %v", list, err)
		case !ok && len(want) > 0:
			w.fail("the state of %s has no %s", list, want[0])
		case !ok:
			w.note("state of %s", list)
			return
		case len(want) == 0:
			w.fail("the state of %s has %s", list, d.JSON())
		}
		w.checkEvent(&d, want[0])
		want = want[1:]
	}
}

func (w *world) checkDigest() {
	ctx, cancel := w.waiting()
	defer cancel()
	for _, t := range w.compacted() {
		var want event.Digest
		winners := w.winners(t)
		for _, e := range winners {
			want.Toggle(e.key, e.hlc, e.source, e.id)
		}
		d, err := w.broker.Digest(ctx, t.name)
		if err != nil || d.Buckets != want || d.Keys != len(winners) || d.LogMillis != w.model.millis {
			w.fail("digest of %s: %v; %d keys at %d, and must be %d at %d", t.name, err, d.Keys, d.LogMillis, len(winners), w.model.millis)
		}
	}
	w.note("digests")
}

func (w *world) checkKeys() {
	for _, t := range w.compacted() {
		for i := range keyCount {
			key := "k" + string(rune('0'+i))
			d, err := w.broker.StateKey(t.name, key)
			e := t.keys[key]
			if e == nil || !e.live(w.model.millis) {
				if code(err) != event.CodeKeyUnknown {
					w.fail("key %s of %s: %v, and must be unknown", key, t.name, err)
				}
				continue
			}
			if err != nil {
				w.fail("key %s of %s: %v, and must be %s", key, t.name, err, e)
			}
			w.checkEvent(&d.Delivery, e)
		}
	}
	w.note("keys")
}

// checkTopics compares the figures of all topics.
func (w *world) checkTopics() {
	for _, name := range slices.Sorted(maps.Keys(w.model.topics)) {
		t := w.model.topics[name]
		if t.policy.Ephemeral() {
			continue
		}
		info, err := w.broker.Topic(name)
		if t.deleted {
			if code(err) != event.CodeTopicUnknown {
				w.fail("topic %s: %v, and must be unknown", name, err)
			}
			continue
		}
		keys := 0
		for _, e := range t.keys {
			if !e.tombstone && !e.hidden {
				keys++
			}
		}
		oldest := t.removedTo
		if t.policy.Compacts() {
			oldest = 0
		}
		if err != nil || info.Published != uint64(t.count) || info.Head.Position != t.last || info.Floor != t.floor || info.Oldest.Position != oldest ||
			info.Keys != uint64(keys) || info.Tombstones != uint64(len(t.keys)-keys) || !info.Policy.Equal(t.policy) {
			w.fail("topic %s is %+v (%v); published %d, last %d, floor %s, oldest %d, keys %d, tombstones %d, policy %+v",
				name, info, err, t.count, t.last, t.floor, oldest, keys, len(t.keys)-keys, t.policy)
		}
	}
	if head := w.broker.Head(); head != w.cursor(w.model.position) {
		w.fail("the head is %s, and must be %d", head, w.model.position)
	}
	w.note("topics")
}
