// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"signalbox/internal/eventlog"
)

const (
	metaSpace    = "space"
	metaSettings = "settings"

	metaSubscriptions = "subscriptions" // written when one is created or ends
	metaRegistry      = "registry"      // of agents; written when it changes
	metaVerbs         = "verbs"         // the catalogue in force; written when it changes
)

// get calls use with the value of a key, and reports whether there was one.
func get(r pebble.Reader, key []byte, use func(value []byte) error) (bool, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, readError(err)
	}
	err = use(value)
	return true, errors.Join(err, closer.Close())
}

func readError(err error) error {
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) {
		return Damagedf("%w", err)
	}
	return fmt.Errorf("store: reading: %w", err)
}

// LoadSpace returns the space's state and settings; ok is false for a new store.
func (s *Store) LoadSpace() (space Space, settings eventlog.Settings, ok bool, err error) {
	ok, err = get(s.db, appendNameKey(nil, prefixMeta, metaSpace), func(b []byte) (err error) {
		space, err = decodeSpace(b)
		return err
	})
	if err == nil && !ok {
		err = s.mustBeEmpty()
	}
	if err != nil || !ok {
		return space, settings, ok, err
	}
	found, err := get(s.db, appendNameKey(nil, prefixMeta, metaSettings), func(b []byte) error {
		if err := json.Unmarshal(b, &settings); err != nil {
			return Damagedf("settings: %w", err)
		}
		return nil
	})
	if err == nil && !found {
		err = Damagedf("there is a space but there are no settings")
	}
	return space, settings, true, err
}

// mustBeEmpty fails if there are rows. Without the space's row they are what is
// left of a space, which a new one must not be written over.
func (s *Store) mustBeEmpty() error {
	return scan(s.db, nil, func(key, _ []byte) error {
		return Damagedf("there are rows, such as %x, but the space's own is missing", key)
	})
}

// LoadTopics calls each with every topic, deleted ones too.
func (s *Store) LoadTopics(each func(Topic) error) error {
	// Two scans cost a small part of a look-up for each topic.
	figures := map[uint32]Figures{}
	err := scan(s.db, []byte{prefixFigures}, func(key, value []byte) error {
		f, err := decodeFiguresAt(key, value)
		figures[f.Topic] = f.Figures
		return err
	})
	if err != nil {
		return err
	}
	return scan(s.db, []byte{prefixName}, func(key, value []byte) error {
		t, err := decodeName(string(key[1:]), value)
		if err != nil {
			return err
		}
		var found bool
		if t.Figures, found = figures[t.Number]; !found {
			return Damagedf("topic %q has no figures", t.Name)
		}
		return each(t)
	})
}

// scan calls each with every row whose key has the prefix.
func scan(r pebble.Reader, prefix []byte, each func(key, value []byte) error) error {
	return scanRange(r, prefix, successor(prefix), each)
}

// scanRange calls each with every row in [lower, upper).
func scanRange(r pebble.Reader, lower, upper []byte, each func(key, value []byte) error) error {
	return scanWhile(r, lower, upper, func(key, value []byte) (bool, error) {
		err := each(key, value)
		return err == nil, err
	})
}

// scanWhile calls each with the rows in [lower, upper), until it returns false.
func scanWhile(r pebble.Reader, lower, upper []byte, each func(key, value []byte) (more bool, err error)) (err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for ok := it.First(); ok; ok = it.Next() {
		if more, err := each(it.Key(), it.Value()); err != nil || !more {
			return err
		}
	}
	return nil
}

// firstKey returns the first key in [lower, upper), or nil.
func firstKey(r pebble.Reader, lower, upper []byte) (key []byte, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, readError(err)
	}
	if it.First() {
		key = bytes.Clone(it.Key())
	}
	return key, closeIterator(it)
}

// closeIterator also reports the error that ended the iteration.
func closeIterator(it *pebble.Iterator) error {
	if err := it.Close(); err != nil {
		return readError(err)
	}
	return nil
}

// Event calls use with the row of a position. The row is valid during the call.
func (s *Store) Event(topic uint32, position uint64, use func(EventRow) error) (bool, error) {
	return getEvent(s.db, topic, position, use)
}

func getEvent(r pebble.Reader, topic uint32, position uint64, use func(EventRow) error) (bool, error) {
	return getEventRow(r, appendEventKey(nil, topic, position), use)
}

func getEventRow(r pebble.Reader, key []byte, use func(EventRow) error) (bool, error) {
	return get(r, key, func(b []byte) error {
		row, err := DecodeEvent(b)
		if err != nil {
			return err
		}
		return use(row)
	})
}

func getWinner(r pebble.Reader, topic uint32, key string) (row WinnerRow, ok bool, err error) {
	var scratch [256]byte
	ok, err = get(r, appendWinnerKey(scratch[:0], topic, key), func(b []byte) (err error) {
		row, err = DecodeWinner(b)
		return err
	})
	return row, ok, err
}

// Timers calls each with the timers in order of due time until it returns false.
func (s *Store) Timers(each func(Timer) (more bool, err error)) error {
	prefix := []byte{prefixTimer}
	return scanWhile(s.db, prefix, successor(prefix), func(key, value []byte) (bool, error) {
		t, err := decodeTimer(key, value)
		if err != nil {
			return false, err
		}
		return each(t)
	})
}

// Garbage returns the topic numbers to be reclaimed.
func (s *Store) Garbage() (topics []uint32, err error) {
	err = scan(s.db, []byte{prefixGarbage}, func(key, _ []byte) error {
		topics = append(topics, binary.BigEndian.Uint32(key[1:]))
		return nil
	})
	return topics, err
}

// MinuteAtOrBefore returns the first position of the latest recorded minute
// that is not after the given one.
func (s *Store) MinuteAtOrBefore(minute int64) (position uint64, ok bool, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixMinute}, UpperBound: []byte{prefixMinute + 1}})
	if err != nil {
		return 0, false, readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	if !it.SeekLT(appendUint64Key(nil, prefixMinute, uint64(minute)+1)) {
		return 0, false, nil
	}
	if len(it.Value()) != 8 {
		return 0, false, Damagedf("a minute row has %d bytes", len(it.Value()))
	}
	return binary.BigEndian.Uint64(it.Value()), true, nil
}

// EventAtOrBefore calls use with the last committed row of a topic that is not
// after the position.
func (s *Store) EventAtOrBefore(topic uint32, position uint64, use func(position uint64, row EventRow) error) (ok bool, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendEventKey(nil, topic, 0), UpperBound: appendEventKey(nil, topic, position+1)})
	if err != nil {
		return false, readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	if !it.Last() {
		return false, nil
	}
	row, err := DecodeEvent(it.Value())
	if err != nil {
		return false, err
	}
	return true, use(binary.BigEndian.Uint64(it.Key()[5:]), row)
}

// Events calls each with the committed rows after a position and up to
// another, in order, until it returns false. A row is valid during the call.
func (s *Store) Events(topic uint32, after, to uint64, each func(position uint64, row EventRow) (more bool, err error)) error {
	return events(s.db, topic, after, to, each)
}

func events(r pebble.Reader, topic uint32, after, to uint64, each func(uint64, EventRow) (bool, error)) error {
	return eventRows(r, appendEventKey(nil, topic, after+1), appendEventKey(nil, topic, to+1), each)
}

func eventRows(r pebble.Reader, lower, upper []byte, each func(uint64, EventRow) (bool, error)) (err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for ok := it.First(); ok; ok = it.Next() {
		row, err := DecodeEvent(it.Value())
		if err != nil {
			return err
		}
		more, err := each(positionOf(it), row)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// SeenByID calls each with what is remembered of an event id in a topic,
// whatever its source, in one generation.
func (s *Store) SeenByID(generation, topic uint32, id [16]byte, each func(SeenRow)) (err error) {
	start := appendUint32Key(nil, prefixSeen, generation)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: successor(start)})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	// One segment after the other, the last one first, as there is no filter by id.
	for ok := it.Last(); ok; {
		k, err := decodeSeenKey(it.Key())
		if err != nil {
			return err
		}
		prefix := appendSeenKey(nil, generation, k.segment, topic, id[:])
		for ok = it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return readError(err)
			}
			row, err := decodeSeen(value)
			if err != nil {
				return err
			}
			each(row)
		}
		if err := it.Error(); err != nil { // which the next seek would forget
			return readError(err)
		}
		ok = it.SeekLT(appendSegmentKey(nil, prefixSeen, generation, k.segment))
	}
	return nil
}

// Events is the durable form of [Store.Events].
func (v *View) Events(topic uint32, after, to uint64, each func(position uint64, row EventRow) (more bool, err error)) error {
	return events(v.snapshot, topic, after, to, each)
}

// Event is the durable form of [Store.Event].
func (v *View) Event(topic uint32, position uint64, use func(EventRow) error) (bool, error) {
	return getEvent(v.snapshot, topic, position, use)
}

// Positions finds where topics have events, without reading them. It is fastest if
// the topics' numbers ascend, and must be closed.
type Positions struct {
	it   *pebble.Iterator
	from []byte // scratch
}

// WinnerPositions finds the events that are not superseded.
func (v *View) WinnerPositions() (*Positions, error) { return v.positions(prefixEvent) }

func (v *View) positions(prefix byte) (*Positions, error) {
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return nil, readError(err)
	}
	return &Positions{it, []byte{prefix}}, nil
}

// Each calls each with the positions of a topic in (after, to], until it returns
// false.
func (p *Positions) Each(topic uint32, after, to uint64, each func(position uint64) (more bool)) error {
	p.from = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(p.from[:1], topic), after+1)
	for ok := p.it.SeekGE(p.from); ok && bytes.Equal(p.it.Key()[:5], p.from[:5]); ok = p.it.Next() {
		if position := positionOf(p.it); position > to || !each(position) {
			return nil
		}
	}
	if err := p.it.Error(); err != nil {
		return readError(err)
	}
	return nil
}

// Close ends it.
func (p *Positions) Close() error { return closeIterator(p.it) }

// PositionsBack calls each with the positions of a topic in (after, to], from the
// last one back, until it returns false.
func (v *View) PositionsBack(topic uint32, after, to uint64, each func(position uint64) (more bool)) (err error) {
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: appendEventKey(nil, topic, after+1), UpperBound: appendEventKey(nil, topic, to+1)})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for ok := it.Last(); ok && each(binary.BigEndian.Uint64(it.Key()[5:])); ok = it.Prev() {
	}
	return nil
}

// Winner is the durable form of [Store.Winner].
func (v *View) Winner(topic uint32, key string) (row WinnerRow, ok bool, err error) {
	return getWinner(v.snapshot, topic, key)
}

// Winners calls each with every winner of a topic in key order.
func (v *View) Winners(topic uint32, each func(key string, row WinnerRow) error) error {
	return scan(v.snapshot, appendUint32Key(nil, prefixWinner, topic), func(key, value []byte) error {
		row, err := DecodeWinner(value)
		if err != nil {
			return err
		}
		return each(string(key[5:]), row)
	})
}
