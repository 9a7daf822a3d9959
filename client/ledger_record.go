// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"time"

	"signalbox/event"
)

func appendPut(dst []byte, key string, r *row) []byte {
	var involved []byte
	if r.involved {
		involved = []byte{'i'}
	}
	return appendStep(dst, stepPut, []byte(key), r.event.AppendJSON(nil), involved)
}

func appendMark(dst []byte, id effectID, m *mark) []byte {
	tag := byte(stepBegun)
	if m.done {
		tag = stepDone
	}
	return appendStep(dst, tag, id[:], number64(uint64(m.stamp)))
}

// replay does again what a record lists.
func (b *book) replay(record []byte) error { return eachStep(record, b.step) }

func (b *book) step(tag byte, f [4][]byte) (err error) {
	switch tag {
	case stepCursor:
		b.cursor, err = event.ParseCursor(string(f[0]))
		return err
	case stepClock, stepLog:
		if len(f[0]) != 8 {
			return fmt.Errorf("%d bytes instead of 8", len(f[0]))
		}
		if n := binary.BigEndian.Uint64(f[0]); tag == stepClock {
			b.clock = event.HLC(n)
		} else {
			b.log = time.UnixMilli(int64(n))
		}
	case stepClear:
		b.clear()
	case stepPut:
		ev, err := event.DecodeDelivered(f[1])
		if err != nil {
			return err
		}
		b.put(string(f[0]), ev, len(f[2]) > 0)
	case stepDrop:
		b.drop(string(f[0]), string(f[1]))
	case stepInvolved:
		if r := b.topics[string(f[0])][string(f[1])]; r != nil {
			r.involved = true
		}
	case stepBegun, stepDone:
		if len(f[0]) != len(effectID{}) || len(f[1]) != 8 {
			return fmt.Errorf("%d and %d bytes instead of %d and 8", len(f[0]), len(f[1]), len(effectID{}))
		}
		b.mark(effectID(f[0]), event.HLC(binary.BigEndian.Uint64(f[1])), tag == stepDone)
	default:
		return fmt.Errorf("the step %q is none of a ledger", tag)
	}
	return nil
}

// snapshotBytes is about how long the records of a snapshot are: few enough for one write, many enough for the heads
// not to count.
const snapshotBytes = 256 << 10

// snapshot gives the whole book as records.
func (b *book) snapshot() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		record := b.appendPlace(nil)
		full := func() bool {
			if len(record) < snapshotBytes {
				return true
			}
			ok := yield(record)
			record = nil
			return ok
		}
		for key, r := range b.all() {
			if record = appendPut(record, key, r); !full() {
				return
			}
		}
		ids := make([]effectID, 0, len(b.marks))
		for id := range b.marks {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, func(x, y effectID) int { return cmp.Compare(b.marks[x].made, b.marks[y].made) })
		for _, id := range ids {
			if record = appendMark(record, id, b.marks[id]); !full() {
				return
			}
		}
		if len(record) > 0 {
			yield(record)
		}
	}
}

// appendPlace appends where the book is: its cursor, its clock and the log's time.
func (b *book) appendPlace(dst []byte) []byte {
	if b.cursor != (event.Cursor{}) {
		dst = appendStep(dst, stepCursor, b.cursor.AppendTo(nil))
	}
	if b.clock != 0 {
		dst = appendStep(dst, stepClock, number64(uint64(b.clock)))
	}
	if !b.log.IsZero() {
		dst = appendStep(dst, stepLog, number64(uint64(b.log.UnixMilli())))
	}
	return dst
}
