// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// overlay holds the rows that the current group has written, so that later
// proposals of the group see them: the batch itself is not readable, for an
// indexed batch costs more than these maps.
type overlay struct {
	winners  rows[winnerKey, store.WinnerRow]
	seen     rows[seenKey, store.SeenRow]
	answered rows[[16]byte, store.AnsweredRow]
	events   rows[uint64, store.EventRow] // by position, of topics that keep history
	messages rows[string, []byte]         // about ticket messages, by kind and key
}

type winnerKey struct {
	topic uint32
	key   string
}

type seenKey struct {
	topic    uint32
	identity eventlog.IdentityHash
}

func newOverlay() overlay {
	var o overlay
	o.reset()
	return o
}

// overlayKept is the size up to which a map is cleared and used again. Clearing
// costs time in proportion to the largest group it ever held.
const overlayKept = 1024

func (o *overlay) reset() {
	o.winners.reset()
	o.seen.reset()
	o.answered.reset()
	o.events.reset()
	o.messages.reset()
}

// begin starts to record what rollback would have to undo.
func (o *overlay) begin() {
	o.winners.begin()
	o.seen.begin()
	o.answered.begin()
	o.events.begin()
}

// rollback undoes what was set since begin.
func (o *overlay) rollback() {
	o.winners.rollback()
	o.seen.rollback()
	o.answered.rollback()
	o.events.rollback()
}

// rows is one kind of rows. A row of the zero value with present unset in the
// journal was absent before.
type rows[K comparable, V any] struct {
	set     map[K]V
	journal []change[K, V]
}

type change[K comparable, V any] struct {
	key     K
	before  V
	present bool
}

func (r *rows[K, V]) reset() {
	if r.set == nil || len(r.set) > overlayKept {
		r.set = make(map[K]V)
	}
	clear(r.set)
	r.begin()
}

func (r *rows[K, V]) get(k K) (V, bool) {
	v, ok := r.set[k]
	return v, ok
}

func (r *rows[K, V]) put(k K, v V) {
	before, present := r.set[k]
	r.journal = append(r.journal, change[K, V]{k, before, present})
	r.set[k] = v
}

func (r *rows[K, V]) begin() {
	clear(r.journal)
	r.journal = r.journal[:0]
}

func (r *rows[K, V]) rollback() {
	for i := len(r.journal) - 1; i >= 0; i-- {
		c := r.journal[i]
		if c.present {
			r.set[c.key] = c.before
		} else {
			delete(r.set, c.key)
		}
	}
	r.begin()
}
