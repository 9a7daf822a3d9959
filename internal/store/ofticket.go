// SPDX-License-Identifier: Apache-2.0

package store

import (
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
	From  string `json:"from"`
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
	return scanWhile(v.snapshot, lower, upper, func(key, value []byte) (bool, error) {
		_, position, err := ParseOfTicketKey(string(key[2:]))
		if err != nil {
			return false, err
		}
		var row OfTicketRow
		if err := DecodeMessage(MessageOfTicket, value, &row); err != nil {
			return false, err
		}
		return each(position, row)
	})
}

// Tickets calls each with the tickets whose names are after one, by name, until it
// returns false.
func (v *View) Tickets(after string, each func(id string, row *TicketRow) (more bool, err error)) error {
	lower := appendMessageKey(nil, MessageTicket, after)
	if after != "" {
		lower = append(lower, 0)
	}
	return scanWhile(v.snapshot, lower, successor(appendMessageKey(nil, MessageTicket, "")), func(key, value []byte) (bool, error) {
		var row TicketRow
		if err := DecodeMessage(MessageTicket, value, &row); err != nil {
			return false, err
		}
		return each(string(key[2:]), &row)
	})
}

// TicketsIn calls each with the tickets in a state whose names are after one, by name,
// until it returns false.
func (v *View) TicketsIn(state, after string, each func(id string) (more bool, err error)) error {
	lower := appendMessageKey(nil, MessageStanding, StandingKey(state, after))
	if after != "" {
		lower = append(lower, 0)
	}
	return scanWhile(v.snapshot, lower, successor(appendMessageKey(nil, MessageStanding, StandingKey(state, ""))), func(key, _ []byte) (bool, error) {
		_, id, err := ParseStandingKey(string(key[2:]))
		if err != nil {
			return false, err
		}
		return each(id)
	})
}

// StandingKey is the key of a row of kind [MessageStanding].
func StandingKey(state, ticket string) string { return state + "\x00" + ticket }

// ParseStandingKey takes the key of a row of kind [MessageStanding] apart.
func ParseStandingKey(key string) (state, ticket string, err error) {
	state, ticket, ok := strings.Cut(key, "\x00")
	if !ok {
		return "", "", badKey("message", []byte(key))
	}
	return state, ticket, nil
}

// Deadlines calls each with the open deadlines of a ticket: of which message, and
// which member of its payload.
func (v *View) Deadlines(ticket string, each func(id, member string, row *DeadlineRow)) error {
	return scan(v.snapshot, appendMessageKey(nil, MessageDeadline, ticket+"\x00"), func(key, value []byte) error {
		_, rest, _ := strings.Cut(string(key[2:]), "\x00")
		id, member, ok := strings.Cut(rest, "\x00")
		if !ok {
			return badKey("message", key)
		}
		var row DeadlineRow
		if err := DecodeMessage(MessageDeadline, value, &row); err != nil {
			return err
		}
		each(id, member, &row)
		return nil
	})
}

// LastOf returns the position of a ticket's last message, 0 if it has none, and what
// its row says.
func (v *View) LastOf(ticket string) (position uint64, row OfTicketRow, err error) {
	lower := appendMessageKey(nil, MessageOfTicket, ticket+"\x00")
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: successor(lower)})
	if err != nil {
		return 0, row, readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	if !it.Last() {
		return 0, row, nil
	}
	if _, position, err = ParseOfTicketKey(string(it.Key()[2:])); err != nil {
		return 0, row, err
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return 0, row, readError(err)
	}
	return position, row, DecodeMessage(MessageOfTicket, value, &row)
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
