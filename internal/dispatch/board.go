// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"signalbox/event"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// held is an event on an ephemeral topic, or the guard of a key whose value has
// expired. It does not change once it is placed, but for its place among what
// is due, so that readers need no lock to send it.
type held struct {
	projector.Applied // without a position
	board             *board
	sequence          uint64 // 0: a guard, which is not delivered
	source, id        string
	due               int64 // when it expires, or when a guard or tombstone is forgotten, Unix ms
	heap              int   // index in hub.due; guarded by hub.mu
	once              sync.Once
	delivery          Delivery // built by the first reader that needs it, shared by all
}

func (v *held) frame() *Delivery {
	v.once.Do(func() { v.delivery = deliver(event.Cursor{}, &v.Applied) })
	return &v.delivery
}

func (v *held) tombstone() bool { return v.Flags&store.EventTombstone != 0 }

// value reports whether it is what its key is worth.
func (v *held) value() bool { return v.sequence != 0 && v.Key != "" && !v.tombstone() }

// beats compares (HLC, source, id), as the state of a compacted topic does.
func (v *held) beats(w *held) bool {
	return cmp.Or(cmp.Compare(v.HLC, w.HLC), cmp.Compare(v.source, w.source), cmp.Compare(v.id, w.id)) > 0
}

// heldOverhead is what an event takes in memory beside its bytes: itself, a
// slot, a place among what is due, an entry in the map of keys.
const heldOverhead = 512

// cost is the memory that it takes: its members, and again its frame.
func (v *held) cost() int { return heldOverhead + len(v.Key) + 2*len(v.Members) }

// board is what an ephemeral topic holds: of each key the newest event, and the
// newest of those without a key, in the order in which they were placed. There
// is nothing else to conflate for a slow reader: whatever it has not got yet
// and has been replaced is not here any more. All fields are guarded by hub.mu.
type board struct {
	view    *view
	slots   []slot // by sequence; one whose event was replaced is empty
	empty   int    // slots
	keys    map[string]*held
	keyless []*held // oldest first
	values  int     // keys that have one
	bytes   int     // of what keys hold
	loose   int     // bytes of keyless
	floor   event.HLC
	// forgotten is the sequence of the newest tombstone that is not known any
	// more. A reader before it may hold a value that is gone.
	forgotten uint64
}

type slot struct {
	sequence uint64
	held     *held // nil: empty
}

// put appends a new event.
func (b *board) put(v *held) {
	b.slots = append(b.slots, slot{v.sequence, v})
	if v.Key == "" {
		b.keyless = append(b.keyless, v)
		b.loose += v.cost()
		return
	}
	b.setKey(v)
}

func (b *board) setKey(v *held) {
	b.keys[v.Key] = v
	b.bytes += v.cost()
	if v.value() {
		b.values++
	}
}

// remove takes an event out; the key is free after that.
func (b *board) remove(v *held) {
	if v.sequence != 0 {
		b.slots[b.find(v.sequence-1)].held = nil
		b.empty++
		b.pack()
	}
	if v.Key == "" {
		at := slices.Index(b.keyless, v) // it is nearly always the first
		b.keyless = slices.Delete(b.keyless, at, at+1)
		b.loose -= v.cost()
		return
	}
	delete(b.keys, v.Key)
	b.bytes -= v.cost()
	if v.value() {
		b.values--
	}
}

// pack drops the empty slots once they are the greater part.
func (b *board) pack() {
	if b.empty < 64 || 2*b.empty < len(b.slots) {
		return
	}
	kept := make([]slot, 0, 2*(len(b.slots)-b.empty))
	for _, s := range b.slots {
		if s.held != nil {
			kept = append(kept, s)
		}
	}
	b.slots, b.empty = kept, 0
}

// find returns the index of the first slot after a sequence.
func (b *board) find(after uint64) int {
	return sort.Search(len(b.slots), func(i int) bool { return b.slots[i].sequence > after })
}

// since appends up to n events that were placed after a reader's place. What
// was there when the reader began comes as values only: a tombstone of then
// tells it nothing, and events without a key are for those who were there.
func (b *board) since(p spot, now int64, n int, events []*held) (_ []*held, more bool) {
	for _, s := range b.slots[b.find(p.after):] {
		v := s.held
		if v == nil || v.sequence <= p.began && !v.value() || v.expired(now) {
			continue
		}
		if n == 0 {
			return events, true
		}
		events = append(events, v)
		n--
	}
	return events, false
}

func (v *held) expired(now int64) bool {
	if v.tombstone() {
		return v.ExpiryMillis != 0 && v.ExpiryMillis <= now
	}
	return v.due <= now
}
