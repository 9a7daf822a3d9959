// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"strconv"
	"strings"
)

// EntryOf is the value of a row of kind [MessageEntry], whose key is made like that of
// [MessageOfTicket], of a ticket and the index of an entry: the number of its kind.
func EntryOf(kind byte) []byte { return strconv.AppendUint(nil, uint64(kind), 10) }

// PositionKey is the key of a row of kind [MessagePosition]. It has twenty digits, so
// that the messages of all tickets stand in order.
func PositionKey(position uint64) string { return fmt.Sprintf("%020d", position) }

// ParsePositionKey reads the key of a row of kind [MessagePosition].
func ParsePositionKey(key string) (position uint64, err error) {
	if position, err = strconv.ParseUint(key, 10, 64); err != nil || len(key) != 20 {
		return 0, badKey("message", []byte(key))
	}
	return position, nil
}

// EntriesOf calls each with the entries of the audit trail that are about a ticket, from
// an index on, in order, until it returns false.
func (v *View) EntriesOf(ticket string, from uint64, each func(index uint64, kind byte) (more bool, err error)) error {
	lower := appendMessageKey(nil, MessageEntry, OfTicketKey(ticket, from))
	upper := successor(appendMessageKey(nil, MessageEntry, ticket+"\x00"))
	return scanWhile(v.snapshot, lower, upper, func(key, value []byte) (bool, error) {
		_, index, err := ParseOfTicketKey(string(key[2:]))
		if err != nil {
			return false, err
		}
		var kind byte
		if err := DecodeMessage(MessageEntry, value, &kind); err != nil {
			return false, err
		}
		return each(index, kind)
	})
}

// TicketsOfTrace calls each with the tickets that have a trace, by name, until it returns
// false.
func (v *View) TicketsOfTrace(trace string, each func(ticket string) (more bool)) error {
	return v.MessagesOfKind(MessageTrace, trace+"\x00", func(key string, _ []byte) (bool, error) {
		_, of, _ := strings.Cut(key, "\x00")
		return each(of), nil
	})
}

// TicketsAt calls each with the positions in [first, last] that committed messages have,
// and with their tickets, in order, until it returns false.
func (s *Store) TicketsAt(first, last uint64, each func(position uint64, ticket string) (more bool, err error)) error {
	lower := appendMessageKey(nil, MessagePosition, PositionKey(first))
	upper := append(appendMessageKey(nil, MessagePosition, PositionKey(last)), 0)
	return scanWhile(s.db, lower, upper, func(key, value []byte) (bool, error) {
		position, err := ParsePositionKey(string(key[2:]))
		if err != nil {
			return false, err
		}
		var of string
		if err := DecodeMessage(MessagePosition, value, &of); err != nil {
			return false, err
		}
		return each(position, of)
	})
}

// EachTicket calls each with every ticket that has been committed, by name.
func (s *Store) EachTicket(each func(id string, row *TicketRow) error) error {
	return scan(s.db, appendMessageKey(nil, MessageTicket, ""), func(key, value []byte) error {
		var row TicketRow
		if err := DecodeMessage(MessageTicket, value, &row); err != nil {
			return err
		}
		return each(string(key[2:]), &row)
	})
}
