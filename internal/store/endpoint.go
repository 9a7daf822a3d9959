// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
)

// Endpoint is how it stands between a webhook and the endpoint that it sends to.
type Endpoint struct {
	FailingSince int64  // log time of the first failure after which nothing succeeded; 0: none
	Failures     uint64 // since then
	Trips        uint64 // how often the circuit has opened since then
	HoldMillis   int64  // log time until which nothing is sent
	Consented    bool   // by the webhook handshake
	Rate         uint64 // requests a minute that it allows; 0: any number
}

// Recovered forgets the failures: something succeeded. The endpoint may still
// want to be left alone for a while.
func (e *Endpoint) Recovered() { e.FailingSince, e.Failures, e.Trips = 0, 0, 0 }

func (e *Endpoint) append(dst []byte) []byte {
	for _, v := range []uint64{uint64(e.FailingSince), e.Failures, e.Trips, uint64(e.HoldMillis), e.Rate} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func (r *rowReader) endpoint(consented bool) Endpoint {
	e := Endpoint{Consented: consented}
	e.FailingSince = int64(r.uvarint())
	e.Failures, e.Trips = r.uvarint(), r.uvarint()
	e.HoldMillis = int64(r.uvarint())
	e.Rate = r.uvarint()
	return e
}

// The bits of the first byte of a V row.
const (
	statePaused    = 1 << 0
	stateDisabled  = 1 << 1
	stateWebhook   = 1 << 2 // the row has an Endpoint
	stateConsented = 1 << 3
)

func (s *SubscriptionState) flags() (flags byte) {
	for _, f := range []struct {
		is  bool
		bit byte
	}{{s.Paused, statePaused}, {s.Disabled, stateDisabled}, {s.Webhook, stateWebhook}, {s.Endpoint.Consented, stateConsented}} {
		if f.is {
			flags |= f.bit
		}
	}
	return flags
}

// appendTermKey makes the key of a Y row. No term has a zero byte in it, so no
// term's rows lie among those of another.
func appendTermKey(dst, term []byte, number uint32) []byte {
	dst = append(append(append(dst, prefixTerm), term...), 0)
	return binary.BigEndian.AppendUint32(dst, number)
}

// SetTerm notes that events for which a term holds may concern a webhook.
func (b *Batch) SetTerm(term []byte, number uint32) {
	b.rows.write(kindSet, appendTermKey(nil, term, number), nil)
}

// DeleteTerm takes that back.
func (b *Batch) DeleteTerm(term []byte, number uint32) {
	b.rows.write(kindDelete, appendTermKey(nil, term, number), nil)
}

// Term calls each with the webhooks under a term until it returns false.
func (s *Store) Term(term []byte, each func(number uint32) (more bool)) error {
	start := append(append([]byte{prefixTerm}, term...), 0)
	return scanSome(s.db, start, successor(start), func(key, _ []byte) (bool, error) {
		return each(binary.BigEndian.Uint32(key[len(start):])), nil
	})
}

// Terms calls each with every term under which there is a webhook.
func (s *Store) Terms(each func(term []byte)) error {
	return scanSome(s.db, []byte{prefixTerm}, []byte{prefixTerm + 1}, func(key, _ []byte) (bool, error) {
		if term, _, ok := splitTermKey(key); ok {
			each(term)
		}
		return true, nil
	})
}

func splitTermKey(key []byte) (term []byte, number uint32, ok bool) {
	end := bytes.IndexByte(key, 0)
	if end < 1 || len(key) != end+1+4 {
		return nil, 0, false
	}
	return key[1:end], binary.BigEndian.Uint32(key[end+1:]), true
}

// WebhookStates calls each with the committed states of the webhooks after a
// number, in order, until it returns false.
func (s *Store) WebhookStates(after uint32, each func(number uint32, state SubscriptionState) (more bool)) error {
	return scanSome(s.db, appendUint32Key(nil, prefixSubscriptionState, after+1), []byte{prefixSubscriptionState + 1}, func(key, value []byte) (bool, error) {
		if len(value) < 2 || value[1]&stateWebhook == 0 {
			return true, nil
		}
		state, err := DecodeSubscriptionState(value)
		if err != nil {
			return false, err
		}
		return each(binary.BigEndian.Uint32(key[1:]), state), nil
	})
}

// SubscriptionNumbered returns the committed rows of a subscription.
func (s *Store) SubscriptionNumbered(number uint32) (c SubscriptionConfig, state SubscriptionState, ok bool, err error) {
	c, ok, err = s.SubscriptionConfig(number)
	if err != nil || !ok {
		return c, state, false, err
	}
	ok, err = get(s.db, appendUint32Key(nil, prefixSubscriptionState, number), func(b []byte) (err error) {
		state, err = DecodeSubscriptionState(b)
		return err
	})
	return c, state, ok, err
}

// TermAt is a Y row.
type TermAt struct {
	Term   []byte
	Number uint32
}

// Terms walks the Y rows.
func (in *Inspector) Terms(each func(TermAt, error) error) error {
	return walk(in, prefixTerm, func(key, _ []byte) (TermAt, error) {
		term, number, ok := splitTermKey(key)
		if !ok {
			return TermAt{}, badKey("term", key)
		}
		return TermAt{Term: bytes.Clone(term), Number: number}, nil
	}, each)
}
