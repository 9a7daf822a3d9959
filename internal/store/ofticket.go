// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// OfTicketRow is what the row of a ticket's message at a position says of it.
type OfTicketRow struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Topic string `json:"topic"`
}

// OfTicketKey is the key of a row of kind [MessageOfTicket]. Positions have twenty
// digits in it, so that the messages of a ticket stand in order.
func OfTicketKey(ticket string, position uint64) string {
	return fmt.Sprintf("%s\x00%020d", ticket, position)
}

// ParseOfTicketKey takes the key of a row of kind [MessageOfTicket] apart.
func ParseOfTicketKey(key string) (ticket string, position uint64, err error) {
	ticket, digits, ok := strings.Cut(key, "\x00")
	if position, err = strconv.ParseUint(digits, 10, 64); !ok || err != nil || len(digits) != 20 {
		return "", 0, badKey("message", []byte(key))
	}
	return ticket, position, nil
}

// MessagesOf calls each with the messages of a ticket after a position, in order,
// until it returns false.
func (v *View) MessagesOf(ticket string, after uint64, each func(position uint64, row OfTicketRow) (more bool, err error)) error {
	lower := appendMessageKey(nil, MessageOfTicket, OfTicketKey(ticket, after+1))
	upper := successor(appendMessageKey(nil, MessageOfTicket, ticket+"\x00"))
	err := scanRange(v.snapshot, lower, upper, func(key, value []byte) error {
		_, position, err := ParseOfTicketKey(string(key[2:]))
		if err != nil {
			return err
		}
		var row OfTicketRow
		if err := DecodeMessage(MessageOfTicket, value, &row); err != nil {
			return err
		}
		more, err := each(position, row)
		if err == nil && !more {
			err = errStop
		}
		return err
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// LastOf returns the position of a ticket's last message, 0 if it has none.
func (v *View) LastOf(ticket string) (position uint64, err error) {
	lower := appendMessageKey(nil, MessageOfTicket, ticket+"\x00")
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(lower)})
	if err != nil {
		return 0, readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	if !it.Last() {
		return 0, nil
	}
	_, position, err = ParseOfTicketKey(string(bytes.Clone(it.Key()[2:])))
	return position, err
}

// EachMessage calls each with every message that has been committed, by id.
func (s *Store) EachMessage(each func(id string, row MessageRow) error) error {
	return scan(s.db, appendMessageKey(nil, MessageID, ""), func(key, value []byte) error {
		var row MessageRow
		if err := DecodeMessage(MessageID, value, &row); err != nil {
			return err
		}
		return each(string(key[2:]), row)
	})
}

// Message is what is known of a row about messages; ok is false if there is none.
func (in *Inspector) Message(kind MessageKind, key string, into any) (ok bool, err error) {
	return get(in.snapshot, appendMessageKey(nil, kind, key), func(b []byte) error { return DecodeMessage(kind, b, into) })
}
