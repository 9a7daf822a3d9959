// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// History rows are the events of a compacted topic that are superseded and still
// younger than its min_compaction_lag. They stand apart from the E rows, which
// are the winners and nothing else, so that reading what is current costs the
// same whatever history is kept.

func appendHistoryKey(dst []byte, topic uint32, position uint64) []byte {
	dst = append(dst, prefixHistory)
	dst = binary.BigEndian.AppendUint32(dst, topic)
	return binary.BigEndian.AppendUint64(dst, position)
}

// SetHistory keeps a superseded event. It is called once for each position.
func (b *Batch) SetHistory(topic uint32, position uint64, row *EventRow) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendHistoryKey(w.data, topic, position)
	w.end(at)
	at = w.length()
	w.data = row.append(w.data)
	w.end(at)
}

// DeleteHistory removes one superseded event.
func (b *Batch) DeleteHistory(topic uint32, position uint64) {
	b.removed.write(pebble.InternalKeyKindDelete, appendHistoryKey(nil, topic, position), nil)
}

// DeleteHistories removes the superseded events after and up to the given
// positions, which retention has passed.
func (b *Batch) DeleteHistories(topic uint32, after, to uint64) {
	b.rows.deleteRange(appendHistoryKey(nil, topic, after+1), appendHistoryKey(nil, topic, to+1))
}

// HistoryEvent calls use with the committed row of a superseded event. The row is
// valid during the call.
func (s *Store) HistoryEvent(topic uint32, position uint64, use func(EventRow) error) (bool, error) {
	return getEventRow(s.db, appendHistoryKey(nil, topic, position), use)
}

// HistoryEvent is the durable form of [Store.HistoryEvent].
func (v *View) HistoryEvent(topic uint32, position uint64, use func(EventRow) error) (bool, error) {
	return getEventRow(v.snapshot, appendHistoryKey(nil, topic, position), use)
}

// Histories calls each with the committed superseded events after a position and
// up to another, in order, until it returns false. A row is valid during the call.
func (s *Store) Histories(topic uint32, after, to uint64, each func(position uint64, row EventRow) (more bool, err error)) error {
	return eventRows(s.db, appendHistoryKey(nil, topic, after+1), appendHistoryKey(nil, topic, to+1), each)
}

// AllEvents calls each with the committed events of a topic that it still has
// after a position and up to another, winners and superseded ones, in order, until
// it returns false. A row is valid during the call.
func (s *Store) AllEvents(t *Topic, after, to uint64, each func(position uint64, row EventRow, superseded bool) (more bool, err error)) error {
	return allEvents(s.db, t, after, to, each)
}

// AllEvents is the durable form of [Store.AllEvents].
func (v *View) AllEvents(t *Topic, after, to uint64, each func(position uint64, row EventRow, superseded bool) (more bool, err error)) error {
	return allEvents(v.snapshot, t, after, to, each)
}

// HistoryFrom is the position after which a topic's superseded events are still
// there.
func (t *Topic) HistoryFrom() uint64 { return max(t.RetiredTo, t.CompactedTo) }

// Past reports whether a superseded event that is still there is no history any more
// at a log time: it is older than the lag, or was older than a shorter one.
func (t *Topic) Past(position uint64, row *EventRow, logMillis int64) bool {
	return position <= t.GivenUpTo || row.LogMillis <= logMillis-t.Policy.MinCompactionLag.Std().Milliseconds()
}

// HistoryUntil returns the position of the last committed superseded event of a topic
// that was applied at or before a log time, 0 if there is none. It looks at few of
// them, since log time never goes back.
func (s *Store) HistoryUntil(t *Topic, logMillis int64) (last uint64, err error) {
	before, end := t.HistoryFrom(), t.Last // all up to before are as old, and none after end
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendHistoryKey(nil, t.Number, before+1), UpperBound: appendHistoryKey(nil, t.Number, end+1)})
	if err != nil {
		return 0, readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for before < end {
		middle := before + (end-before+1)/2
		if !it.SeekLT(appendHistoryKey(nil, t.Number, middle+1)) || positionOf(it) <= before {
			before = middle
			continue
		}
		row, err := DecodeEvent(it.Value())
		if err != nil {
			return 0, err
		}
		if row.LogMillis <= logMillis {
			last, before = positionOf(it), middle
		} else {
			end = positionOf(it) - 1
		}
	}
	return last, nil
}

func allEvents(r pebble.Reader, t *Topic, after, to uint64, each func(uint64, EventRow, bool) (bool, error)) (err error) {
	var from [2]uint64
	from[0], from[1] = max(after, t.RetiredTo), max(after, t.HistoryFrom())
	if t.History == 0 {
		return events(r, t.Number, from[0], to, func(position uint64, row EventRow) (bool, error) { return each(position, row, false) })
	}
	var its [2]*pebble.Iterator // winners and superseded
	for i, key := range [...]func([]byte, uint32, uint64) []byte{appendEventKey, appendHistoryKey} {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: key(nil, t.Number, from[i]+1), UpperBound: key(nil, t.Number, to+1)})
		if err != nil {
			return readError(err)
		}
		defer func() { err = errors.Join(err, closeIterator(it)) }()
		it.First()
		its[i] = it
	}
	for its[0].Valid() || its[1].Valid() {
		next := 0
		if !its[0].Valid() || its[1].Valid() && positionOf(its[1]) < positionOf(its[0]) {
			next = 1
		}
		row, err := DecodeEvent(its[next].Value())
		if err != nil {
			return err
		}
		more, err := each(positionOf(its[next]), row, next == 1)
		if err != nil || !more {
			return err
		}
		its[next].Next()
	}
	return nil
}

func positionOf(it *pebble.Iterator) uint64 { return binary.BigEndian.Uint64(it.Key()[5:]) }

// HistoryPositions is WinnerPositions of superseded events.
func (v *View) HistoryPositions() (*Positions, error) { return v.positions(prefixHistory) }

// Histories walks the H rows. A row is valid during the call.
func (in *Inspector) Histories(each func(EventAt, error) error) error {
	return walk(in, prefixHistory, decodeEventAt, each)
}
