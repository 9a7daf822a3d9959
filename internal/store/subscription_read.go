// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Pebble's names of the writes that have no bytes of their own to be built.
const (
	kindSet    = pebble.InternalKeyKindSet
	kindDelete = pebble.InternalKeyKindDelete
)

// LoadSubscriptions returns how many subscriptions there are.
func (s *Store) LoadSubscriptions() (n Subscriptions, err error) {
	_, err = get(s.db, appendNameKey(nil, prefixMeta, metaSubscriptions), func(b []byte) error {
		if err := json.Unmarshal(b, &n); err != nil {
			return Damagedf("subscriptions: %w", err)
		}
		return nil
	})
	return n, err
}

// SubscriptionNumber returns the number of a subscription.
func (l *Lookup) SubscriptionNumber(id string) (number uint32, ok bool, err error) {
	l.key = appendNameKey(l.key[:0], prefixSubscriptionID, id)
	value, ok, err := l.get()
	if err == nil && ok {
		number, err = decodeSubscriptionID(value)
	}
	return number, ok, err
}

// SubscriptionConfig returns what its owner says of a subscription.
func (l *Lookup) SubscriptionConfig(number uint32) (c SubscriptionConfig, ok bool, err error) {
	l.key = appendUint32Key(l.key[:0], prefixSubscription, number)
	value, ok, err := l.get()
	if err == nil && ok {
		c, err = decodeSubscriptionConfig(value)
	}
	return c, ok, err
}

// SubscriptionState returns how far a subscription is.
func (l *Lookup) SubscriptionState(number uint32) (s SubscriptionState, ok bool, err error) {
	l.key = appendUint32Key(l.key[:0], prefixSubscriptionState, number)
	value, ok, err := l.get()
	if err == nil && ok {
		s, err = DecodeSubscriptionState(value)
	}
	return s, ok, err
}

// Pending returns a pending event.
func (l *Lookup) Pending(number, epoch uint32, position uint64, parked bool) (p Pending, ok bool, err error) {
	kind := byte(pendingRow)
	if parked {
		kind = parkedRow
	}
	l.key = binary.BigEndian.AppendUint64(appendPendingKey(l.key[:0], number, kind, epoch), position)
	value, ok, err := l.get()
	if err == nil && ok {
		p, err = DecodePending(value)
	}
	return p, ok, err
}

// Letter returns what is known of a dead letter.
func (l *Lookup) Letter(number uint32, position uint64) (letter Letter, ok bool, err error) {
	l.key = appendLetterKey(l.key[:0], number, position)
	value, ok, err := l.get()
	if err == nil && ok {
		letter, err = DecodeLetter(value)
	}
	return letter, ok, err
}

// Subscription returns a subscription's rows as they are committed.
func (s *Store) Subscription(id string) (number uint32, c SubscriptionConfig, state SubscriptionState, ok bool, err error) {
	return subscription(s.db, id)
}

// Subscription is the durable form of [Store.Subscription].
func (v *View) Subscription(id string) (number uint32, c SubscriptionConfig, state SubscriptionState, ok bool, err error) {
	return subscription(v.snapshot, id)
}

func subscription(r pebble.Reader, id string) (number uint32, c SubscriptionConfig, state SubscriptionState, ok bool, err error) {
	ok, err = get(r, appendNameKey(nil, prefixSubscriptionID, id), func(b []byte) (err error) {
		number, err = decodeSubscriptionID(b)
		return err
	})
	if err != nil || !ok {
		return number, c, state, ok, err
	}
	found, err := get(r, appendUint32Key(nil, prefixSubscription, number), func(b []byte) (err error) {
		c, err = decodeSubscriptionConfig(b)
		return err
	})
	if err == nil && found {
		found, err = get(r, appendUint32Key(nil, prefixSubscriptionState, number), func(b []byte) (err error) {
			state, err = DecodeSubscriptionState(b)
			return err
		})
	}
	if err == nil && !found {
		err = Damagedf("subscription %q has a number and no rows", id)
	}
	return number, c, state, true, err
}

// Subscriptions calls each with the documents of subscriptions after a number,
// in the order in which they were created, until it returns false.
func (v *View) Subscriptions(after uint32, each func(number uint32, c SubscriptionConfig) (more bool, err error)) error {
	return scanSome(v.snapshot, appendUint32Key(nil, prefixSubscription, after+1), []byte{prefixSubscription + 1}, func(key, value []byte) (bool, error) {
		c, err := decodeSubscriptionConfig(value)
		if err != nil {
			return false, err
		}
		return each(binary.BigEndian.Uint32(key[1:]), c)
	})
}

// SubscriptionState returns the durable state of a subscription.
func (v *View) SubscriptionState(number uint32) (state SubscriptionState, ok bool, err error) {
	ok, err = get(v.snapshot, appendUint32Key(nil, prefixSubscriptionState, number), func(b []byte) (err error) {
		state, err = DecodeSubscriptionState(b)
		return err
	})
	return state, ok, err
}

// SubscriptionStates calls each with the committed state of every subscription.
func (s *Store) SubscriptionStates(each func(number uint32, state SubscriptionState) error) error {
	return scan(s.db, []byte{prefixSubscriptionState}, func(key, value []byte) error {
		state, err := DecodeSubscriptionState(value)
		if err != nil {
			return err
		}
		return each(binary.BigEndian.Uint32(key[1:]), state)
	})
}

// SubscriptionConfig returns the committed document of a subscription.
func (s *Store) SubscriptionConfig(number uint32) (c SubscriptionConfig, ok bool, err error) {
	ok, err = get(s.db, appendUint32Key(nil, prefixSubscription, number), func(b []byte) (err error) {
		c, err = decodeSubscriptionConfig(b)
		return err
	})
	return c, ok, err
}

// scanSome calls each with the rows of a range until it returns false.
func scanSome(r pebble.Reader, from, to []byte, each func(key, value []byte) (more bool, err error)) (err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for ok := it.First(); ok; ok = it.Next() {
		more, err := each(it.Key(), it.Value())
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Outstanding calls each with the committed events of a subscription that are
// out or ready, in order, until it returns false; Parked with those that wait.
func (s *Store) Outstanding(number, epoch uint32, each func(position uint64, p Pending) (more bool, err error)) error {
	return pending(s.db, number, pendingRow, epoch, each)
}

// Parked is [Store.Outstanding] for parked events.
func (s *Store) Parked(number, epoch uint32, each func(position uint64, p Pending) (more bool, err error)) error {
	return pending(s.db, number, parkedRow, epoch, each)
}

// Outstanding is the durable form of [Store.Outstanding].
func (v *View) Outstanding(number, epoch uint32, each func(position uint64, p Pending) (more bool, err error)) error {
	return pending(v.snapshot, number, pendingRow, epoch, each)
}

func pending(r pebble.Reader, number uint32, kind byte, epoch uint32, each func(uint64, Pending) (bool, error)) error {
	start := appendPendingKey(nil, number, kind, epoch)
	return scanSome(r, start, successor(start), func(key, value []byte) (bool, error) {
		p, err := DecodePending(value)
		if err != nil {
			return false, err
		}
		return each(binary.BigEndian.Uint64(key[len(key)-8:]), p)
	})
}

// Pending returns a committed event that is out or ready.
func (s *Store) Pending(number, epoch uint32, position uint64) (Pending, bool, error) {
	return s.pendingEvent(number, pendingRow, epoch, position)
}

// ParkedEvent returns a committed event that is parked.
func (s *Store) ParkedEvent(number, epoch uint32, position uint64) (Pending, bool, error) {
	return s.pendingEvent(number, parkedRow, epoch, position)
}

func (s *Store) pendingEvent(number uint32, kind byte, epoch uint32, position uint64) (p Pending, ok bool, err error) {
	ok, err = get(s.db, binary.BigEndian.AppendUint64(appendPendingKey(nil, number, kind, epoch), position), func(b []byte) (err error) {
		p, err = DecodePending(b)
		return err
	})
	return p, ok, err
}

// Letter returns what is durable of a dead letter.
func (v *View) Letter(number uint32, position uint64) (l Letter, ok bool, err error) {
	ok, err = get(v.snapshot, appendLetterKey(nil, number, position), func(b []byte) (err error) {
		l, err = DecodeLetter(b)
		return err
	})
	return l, ok, err
}

// Letters calls each with the dead letters of a subscription after a position,
// in order, until it returns false.
func (v *View) Letters(number uint32, after uint64, each func(position uint64, l Letter) (more bool, err error)) error {
	start := appendLetterKey(nil, number, after+1)
	return scanSome(v.snapshot, start, successor(start[:6]), func(key, value []byte) (bool, error) {
		l, err := DecodeLetter(value)
		if err != nil {
			return false, err
		}
		return each(binary.BigEndian.Uint64(key[6:]), l)
	})
}

// Letters calls each for every committed dead letter up to a position.
func (s *Store) Letters(number uint32, to uint64, each func()) error {
	return scanSome(s.db, appendLetterKey(nil, number, 0), appendLetterKey(nil, number, to+1), func(_, _ []byte) (bool, error) {
		each()
		return true, nil
	})
}
