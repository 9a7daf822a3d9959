// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"signalbox/internal/eventlog"
)

// Lookup answers what apply asks about single rows, as of the moment it was
// made. Most look-ups are for ids and keys that are new, so it is an iterator
// that consults the Bloom filters of every level: Pebble's Get leaves out those
// of the last level, and reads a block there for each miss.
type Lookup struct {
	store    *Store
	it       *pebble.Iterator // nil until something must be looked up
	key      []byte           // scratch
	segments []uint32         // scratch
}

// NewLookup sees what has been committed so far. It must be closed before the
// next commit.
func (s *Store) NewLookup() *Lookup { return &Lookup{store: s} }

// Close releases the iterator.
func (l *Lookup) Close() error {
	if l.it == nil {
		return nil
	}
	return closeIterator(l.it)
}

// get returns the value of the key in scratch, valid until the next look-up.
func (l *Lookup) get() (value []byte, ok bool, err error) {
	if l.it == nil {
		if l.it, err = l.store.db.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, false, readError(err)
		}
	}
	if !l.it.SeekPrefixGE(l.key) || !bytes.Equal(l.it.Key(), l.key) {
		if err := l.it.Error(); err != nil {
			return nil, false, readError(err)
		}
		return nil, false, nil
	}
	value, err = l.it.ValueAndErr()
	if err != nil {
		return nil, false, fmt.Errorf("store: reading a row: %w", readError(err))
	}
	return value, true, nil
}

// Winner returns the winner of a key.
func (l *Lookup) Winner(topic uint32, key string) (row WinnerRow, ok bool, err error) {
	l.key = appendWinnerKey(l.key[:0], topic, key)
	value, ok, err := l.get()
	if err != nil || !ok {
		return row, false, err
	}
	row, err = DecodeWinner(value)
	return row, true, err
}

// Seen returns what is remembered of an event in one generation.
func (l *Lookup) Seen(generation, topic uint32, identity eventlog.IdentityHash) (row SeenRow, ok bool, err error) {
	l.segments = l.store.seen.candidates(l.segments[:0], generation, identityHash(topic, &identity))
	for _, segment := range l.segments {
		l.key = appendSeenKey(l.key[:0], generation, segment, topic, identity.ID[:])
		l.key = append(l.key, identity.Source[:]...)
		value, ok, err := l.get()
		if err != nil {
			return row, false, err
		}
		if ok {
			row, err = decodeSeen(value)
			return row, true, err
		}
	}
	return row, false, nil
}

// Answered returns what an idempotent request was answered with.
func (l *Lookup) Answered(generation uint32, scope [16]byte) (row AnsweredRow, ok bool, err error) {
	l.key = appendAnsweredKey(l.key[:0], generation, scope)
	value, ok, err := l.get()
	if err != nil || !ok {
		return row, false, err
	}
	row, err = decodeAnswered(value)
	return row, true, err
}
