// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"

	"signalbox/event"
	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// State is the state of compacted topics on one snapshot: of every live key
// its winner, in the order of their positions; and after that what ephemeral
// topics hold, which has none. It belongs to one goroutine and must be closed
// soon, for its snapshot holds back the reclaiming of space.
type State struct {
	d      *Dispatch
	view   *store.View
	topics []*store.Topic
	merge  merge
	cursor uint64         // at which the state is exact
	millis int64          // log time at which it is exact
	filter *filter.Filter // nil: everything
	after  uint64         // what was read so far
	done   bool
	chunk  []Delivery // read and not yet returned
	arena  []byte     // of chunk
	held   []*held    // what is left of ephemeral topics
}

// OpenState takes a snapshot of the topics that match. A topic named without
// wildcards must exist and have a state; of the others those count that have one.
// With a filter, only those events count that pass it.
func (d *Dispatch) OpenState(patterns []event.Pattern, f *filter.Filter) (*State, error) {
	for _, p := range patterns {
		if name, exact := p.Exact(); exact {
			if _, err := d.withState(name); err != nil {
				return nil, err
			}
		}
	}
	s := &State{d: d, filter: f}
	var live []*view
	s.view = d.store.View(func() {
		d.mu.RLock()
		defer d.mu.RUnlock()
		s.cursor, s.millis = d.head, d.space.LogMillis
		for _, v := range d.match(patterns) {
			switch t := v.info.Load(); {
			case t.Deleted:
			case t.Policy.Compacts():
				s.topics = append(s.topics, t)
			case t.Policy.Ephemeral():
				live = append(live, v)
			}
		}
	})
	if live != nil {
		s.held = sieveHeld(f, d.hub.values(live, d.LogMillis()))
	}
	return s, nil
}

// withState returns a topic that is compacted or ephemeral.
func (d *Dispatch) withState(name string) (store.Topic, error) {
	if t, err := d.Topic(name); err != nil || t.Policy.Ephemeral() {
		return t, err
	}
	return d.compacted(name)
}

func (d *Dispatch) compacted(name string) (store.Topic, error) {
	t, err := d.Topic(name)
	if err != nil {
		return t, err
	}
	if t.Policy.Ephemeral() {
		return t, event.Errorf(event.CodeTopicEphemeral, "Topic %q is ephemeral, so it has no digest. Read what it holds at its state.", name)
	}
	if !t.Policy.Compacts() {
		return t, event.Errorf(event.CodeNotCompacted, "Topic %q is not compacted, so it has no state. Read its events instead.", name)
	}
	return t, nil
}

// Cursor is the cursor at which the state is exact: following from it misses
// nothing and repeats nothing.
func (s *State) Cursor() event.Cursor { return s.d.cursor(s.cursor) }

// LogMillis is the log time at which the state is exact.
func (s *State) LogMillis() int64 { return s.millis }

// Close releases the snapshot.
func (s *State) Close() { s.view.Close() }

const (
	stateChunkEvents = 1000
	stateChunkBytes  = 1 << 20
)

// Next returns the next winner; ok is false after the last. The delivery is
// valid until the next call. One without a frame has no event: it says how far
// winners were passed over that the filter does not let through.
func (s *State) Next() (delivery Delivery, ok bool, err error) {
	for len(s.chunk) == 0 {
		if s.done && len(s.held) == 0 {
			return Delivery{}, false, nil
		}
		if s.done {
			delivery, s.held = *s.held[0].frame(), s.held[1:]
			return delivery, true, nil
		}
		if err := s.read(); err != nil {
			return Delivery{}, false, err
		}
		if len(s.chunk) == 0 && s.filter != nil {
			return Delivery{Position: s.after}, true, nil
		}
	}
	delivery, s.chunk = s.chunk[0], s.chunk[1:]
	return delivery, true, nil
}

func (s *State) read() (err error) {
	s.arena = s.arena[:0]
	scanned := 0
	var v *evaluator
	if s.filter != nil {
		v = s.d.evaluator()
		defer v.release()
	}
	s.after, s.done, err = s.merge.step(s.view, s.topics, s.after, s.cursor, stateChunkEvents, func(t *store.Topic, position uint64, row *store.EventRow) bool {
		scanned++
		if row.Flags&store.EventTombstone == 0 && (row.ExpiryMillis == 0 || row.ExpiryMillis > s.millis) {
			e := projector.Applied{Topic: t.Name, Position: position, HLC: row.HLC, Flags: row.Flags, Members: row.Members}
			if s.filter != nil && !v.passes(s.filter, &e) {
				return scanned < stateChunkEvents && !v.late()
			}
			start := len(s.arena)
			var json int
			s.arena, json = appendFrame(s.arena, s.d.cursor(position), &e)
			s.chunk = append(s.chunk, Delivery{Position: position, Frame: s.arena[start:len(s.arena):len(s.arena)], json: json})
		}
		return scanned < stateChunkEvents && len(s.arena) < stateChunkBytes && !v.late()
	})
	return err
}

// KeyState is the winner of a key, and where that is exact.
type KeyState struct {
	Delivery
	Cursor    event.Cursor
	LogMillis int64
}

// StateKey returns the winner of a key.
func (d *Dispatch) StateKey(topic, key string) (state KeyState, err error) {
	if found, ok := d.ephemeral.Load(topic); ok {
		return d.heldKey(found.(*view), key)
	}
	var t store.Topic
	view := d.store.View(func() {
		t, err = d.compacted(topic) // the one of the snapshot, not one deleted before it
		d.mu.RLock()
		defer d.mu.RUnlock()
		state.Cursor, state.LogMillis = d.cursor(d.head), d.space.LogMillis
	})
	defer view.Close()
	if err != nil {
		return state, err
	}
	winner, ok, err := view.Winner(t.Number, key)
	if err != nil {
		return state, err
	}
	if !ok || !winner.Live(state.LogMillis) {
		return state, keyUnknown(topic, key)
	}
	ok, err = view.Event(t.Number, winner.Position, func(row store.EventRow) error {
		state.Delivery = deliver(d.cursor(winner.Position), &projector.Applied{Topic: topic, Position: winner.Position, HLC: row.HLC, Flags: row.Flags, Members: row.Members})
		return nil
	})
	if err == nil && !ok {
		err = store.Damagedf("the winner of key %q has no event", key)
	}
	return state, err
}

// heldKey is StateKey of an ephemeral topic.
func (d *Dispatch) heldKey(v *view, key string) (state KeyState, err error) {
	state.Cursor, state.LogMillis = d.Head(), d.LogMillis()
	e := d.hub.value(v, key, state.LogMillis)
	if e == nil {
		return state, keyUnknown(v.name, key)
	}
	state.Delivery = *e.frame()
	return state, nil
}

func keyUnknown(topic, key string) error {
	return event.Errorf(event.CodeKeyUnknown, "Topic %q has no value for key %q.", topic, key).With("key")
}

// Digest is a topic's digest and where it is exact.
type Digest struct {
	Topic     string
	Cursor    event.Cursor
	LogMillis int64
	Keys      int
	Buckets   event.Digest
}

// Digest computes the digest of a compacted topic.
func (d *Dispatch) Digest(ctx context.Context, topic string) (out Digest, err error) {
	var t store.Topic
	view := d.store.View(func() {
		t, err = d.compacted(topic) // as in StateKey
		d.mu.RLock()
		defer d.mu.RUnlock()
		out.Cursor, out.LogMillis = d.cursor(d.head), d.space.LogMillis
	})
	defer view.Close()
	if err != nil {
		return out, err
	}
	out.Topic = topic
	err = view.Winners(t.Number, func(key string, row store.WinnerRow) error {
		if !row.Live(out.LogMillis) {
			return nil
		}
		out.Keys++
		out.Buckets.Toggle(key, row.HLC, row.Source, row.ID)
		return ctx.Err()
	})
	return out, err
}
