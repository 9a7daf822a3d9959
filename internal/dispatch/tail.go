// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync"
	"sync/atomic"

	"signalbox/internal/projector"
)

// The tail holds the most recent events, so that live readers need no read
// from the store. Both limits bound its memory; a reader that falls behind it
// goes on from the store.
const (
	tailEvents = 8192 // a power of two
	tailBytes  = 32 << 20
)

// tail is a ring of the events at positions (oldest-1, newest]. Every position
// is in it, superseded ones too.
type tail struct {
	ring   []*item
	oldest uint64 // position of the oldest item; newest+1 when empty
	newest uint64
	bytes  int
}

// item is one event in the tail.
type item struct {
	projector.Applied
	view         *view
	forgotten    bool          // nothing is left of its key; guarded by Dispatch.mu
	supersededBy atomic.Uint64 // position of the event that won over it; 0: none
	once         sync.Once
	delivery     Delivery // built by the first reader that needs it, shared by all
}

func (i *item) frame(d *Dispatch) *Delivery {
	i.once.Do(func() { i.delivery = deliver(d.cursor(i.Position), &i.Applied) })
	return &i.delivery
}

func (t *tail) reset(head uint64, events int) {
	t.ring = make([]*item, events)
	t.oldest, t.newest, t.bytes = head+1, head, 0
}

// push appends the event at the next position.
func (t *tail) push(v *view, e *projector.Applied) {
	for t.newest+1-t.oldest >= uint64(len(t.ring)) || (t.bytes > tailBytes && t.oldest <= t.newest) {
		t.bytes -= cost(t.at(t.oldest))
		t.ring[t.oldest&t.mask()] = nil
		t.oldest++
	}
	t.newest++
	i := &item{Applied: *e, view: v}
	t.ring[t.newest&t.mask()] = i
	t.bytes += cost(i)
	if e.Replaces >= t.oldest && e.Replaces != 0 {
		t.at(e.Replaces).supersededBy.Store(e.Position)
	}
}

// forget marks the events of keys of which nothing is left. A reader of history
// would get their old values from here, which the store has not any more.
func (t *tail) forget(keys []projector.Key) {
	gone := make(map[projector.Key]bool, len(keys))
	for _, k := range keys {
		gone[k] = true
	}
	for position := t.oldest; position <= t.newest; position++ {
		if i := t.at(position); i.Key != "" && gone[projector.Key{Topic: i.Number, Key: i.Key}] {
			i.forgotten = true
		}
	}
}

func (t *tail) at(position uint64) *item { return t.ring[position&t.mask()] }

func (t *tail) mask() uint64 { return uint64(len(t.ring) - 1) }

// cost is the memory that an item holds: its members, and again its frame.
func cost(i *item) int { return 256 + 2*len(i.Members) }
