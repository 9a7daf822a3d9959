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

// The steps of a record: a tag, then fields, each preceded by its length. A record is replayed step by step, and lists
// what happened in the order in which it did.
const (
	stepCursor   = 'C' // cursor
	stepClock    = 'H' // HLC, 8 bytes
	stepLog      = 'L' // log time in Unix milliseconds, 8 bytes
	stepClear    = 'X'
	stepPut      = 'E' // key, event, and "i" or nothing: involved
	stepDrop     = 'D' // topic, key
	stepInvolved = 'I' // topic, key
	stepBegun    = 'B' // effect, stamp of 8 bytes
	stepDone     = 'F' // effect, stamp of 8 bytes
)

// stepFields is how many fields follow each tag; 0 stands for a tag that is none.
func stepFields(tag byte) (n int, known bool) {
	switch tag {
	case stepClear:
		return 0, true
	case stepCursor, stepClock, stepLog:
		return 1, true
	case stepDrop, stepInvolved, stepBegun, stepDone:
		return 2, true
	case stepPut:
		return 3, true
	}
	return 0, false
}

func appendStep(dst []byte, tag byte, fields ...[]byte) []byte {
	dst = append(dst, tag)
	for _, f := range fields {
		dst = append(binary.AppendUvarint(dst, uint64(len(f))), f...)
	}
	return dst
}

func number64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

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
func (b *book) replay(record []byte) error {
	for len(record) > 0 {
		tag := record[0]
		count, known := stepFields(tag)
		if !known {
			return fmt.Errorf("client: a ledger's record has a step %q, which this version does not know", tag)
		}
		record = record[1:]
		var fields [3][]byte
		for i := range count {
			length, n := binary.Uvarint(record)
			if n <= 0 || length > uint64(len(record)-n) {
				return fmt.Errorf("client: a ledger's record ends within a step %q", tag)
			}
			fields[i], record = record[n:n+int(length)], record[n+int(length):]
		}
		if err := b.step(tag, fields); err != nil {
			return fmt.Errorf("client: a ledger's record has an unreadable step %q: %w", tag, err)
		}
	}
	return nil
}

func (b *book) step(tag byte, f [3][]byte) (err error) {
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
