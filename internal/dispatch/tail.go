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

// item is one event in the tail. It never changes, but for supersededBy.
type item struct {
	projector.Applied
	view         *view
	supersededBy atomic.Uint64 // position of the event that won over it; 0: none
	once         sync.Once
	delivery     Delivery // built by the first reader that needs it, shared by all
}

func (i *item) frame(d *Dispatch) *Delivery {
	i.once.Do(func() { i.delivery = d.deliver(&i.Applied) })
	return &i.delivery
}

func (t *tail) reset(head uint64) {
	t.ring = make([]*item, tailEvents)
	t.oldest, t.newest, t.bytes = head+1, head, 0
}

// push appends the event at the next position.
func (t *tail) push(v *view, e *projector.Applied) {
	for t.newest+1-t.oldest >= tailEvents || (t.bytes > tailBytes && t.oldest <= t.newest) {
		t.bytes -= cost(t.at(t.oldest))
		t.ring[t.oldest%tailEvents] = nil
		t.oldest++
	}
	t.newest++
	i := &item{Applied: *e, view: v}
	t.ring[t.newest%tailEvents] = i
	t.bytes += cost(i)
	if e.Replaces >= t.oldest && e.Replaces != 0 {
		t.at(e.Replaces).supersededBy.Store(e.Position)
	}
}

func (t *tail) at(position uint64) *item { return t.ring[position%tailEvents] }

// cost is the memory that an item holds: its members, and again its frame.
func cost(i *item) int { return 256 + 2*len(i.Members) }
