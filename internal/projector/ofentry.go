// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// The audit trail of a ticket is found by rows, of which each entry that is about a
// ticket has one beside it. An entry of deliveries may be about several: it names
// positions, and a row of each message says whose it is.

// levelOfEntry is the feature level from which on entries that are about a ticket are
// found by it.
const levelOfEntry = 5

const (
	// TicketsOfEntryMax bounds the tickets that one entry is found by. Whoever proposes
	// keeps to both bounds; an entry beyond them is counted, see [BusCounts].
	TicketsOfEntryMax = 1000
	// MessagesOfEntryMax bounds the messages that are looked at for its tickets.
	MessagesOfEntryMax = 10_000
)

// placed is a message of a ticket that got its position in the current group.
type placed struct {
	position uint64
	of       string
}

// concern notes that the entry which was added last is about a ticket.
func (p *Projector) concern(kind audit.Kind, tickets ...string) {
	for _, of := range tickets {
		if of != "" && of != ticket.None {
			p.batch.SetMessage(store.MessageEntry, store.OfTicketKey(of, p.space.Leaves-1), store.EntryOf(byte(kind)))
		}
	}
}

// placeMessage stores whose message is at a position.
func (p *Projector) placeMessage(of string, position uint64) {
	if of == ticket.None {
		return
	}
	p.setMessageRow(store.MessagePosition, store.PositionKey(position), of)
	p.placed = append(p.placed, placed{position, of})
}

// ticketsAt returns the tickets whose messages are at positions in ranges, both ends
// included, by name. Of the topics that they are on only those count that match a
// pattern; without patterns all do. What is beyond the bounds is left out.
func (p *Projector) ticketsAt(ranges [][2]uint64, patterns []event.Pattern) (tickets []string, err error) {
	left, cut := MessagesOfEntryMax, false
	for _, r := range ranges {
		each := func(position uint64, of string) (bool, error) {
			if position < r[0] || position > r[1] {
				return true, nil
			}
			if cut = cut || left == 0; cut {
				return false, nil
			}
			left--
			at, known := slices.BinarySearch(tickets, of)
			if known {
				return true, nil
			}
			selected, err := p.selected(of, position, patterns)
			if err != nil || !selected {
				return true, err
			}
			if cut = len(tickets) == TicketsOfEntryMax; cut {
				return false, nil
			}
			tickets = slices.Insert(tickets, at, of)
			return true, nil
		}
		if err := p.store.TicketsAt(r[0], r[1], each); err != nil {
			return nil, err
		}
		for _, m := range p.placed { // of the group, and so behind what is committed
			if _, err := each(m.position, m.of); err != nil {
				return nil, err
			}
		}
		if cut {
			p.bus.counts.Unfound++
			break
		}
	}
	return tickets, nil
}

// selected reports whether a message of a ticket is on a topic that a pattern matches.
func (p *Projector) selected(of string, position uint64, patterns []event.Pattern) (bool, error) {
	if patterns == nil {
		return true, nil
	}
	var row store.OfTicketRow
	if ok, err := p.messageRow(store.MessageOfTicket, store.OfTicketKey(of, position), &row); err != nil || !ok {
		return false, err
	}
	return slices.ContainsFunc(patterns, func(pattern event.Pattern) bool { return pattern.Match(row.Topic) }), nil
}

// concernPositions is concern for the tickets whose messages are at positions.
func (p *Projector) concernPositions(kind audit.Kind, positions ...uint64) error {
	ranges := make([][2]uint64, len(positions))
	for i, position := range positions {
		ranges[i] = [2]uint64{position, position}
	}
	tickets, err := p.ticketsAt(ranges, nil)
	p.concern(kind, tickets...)
	return err
}

// raiseEntries makes what a level has by which entries of tickets are found. Of what was
// decided before it, that is the messages themselves: other entries did not name their
// ticket.
func (p *Projector) raiseEntries(r *raise) error {
	err := p.store.EachMessage(func(_ string, row store.MessageRow) error {
		t := p.topics[row.Topic]
		if row.Ticket == ticket.None || t == nil {
			return nil
		}
		if err := r.row(store.MessagePosition, store.PositionKey(row.Position), encoded(row.Ticket)); err != nil {
			return err
		}
		leaf := uint64(0)
		stored, err := p.store.Event(t.Number, row.Position, func(e store.EventRow) error {
			leaf = e.Leaf
			return nil
		})
		if err != nil || !stored {
			return err
		}
		return r.row(store.MessageEntry, store.OfTicketKey(row.Ticket, leaf), store.EntryOf(byte(audit.KindEvent)))
	})
	if err != nil {
		return err
	}
	return p.store.EachTicket(func(id string, row *store.TicketRow) error {
		return r.row(store.MessageTrace, joined(row.Trace, id), encoded(row.Open))
	})
}

// ofEntry checks a row by which entries of tickets are found.
func (v *verifier) ofEntry(m *store.MessageAt) (bool, error) {
	bad := func(format string, args ...any) {
		v.found(Finding{What: "message", Key: m.Key, Explanation: sprintf(format, args...)})
	}
	switch m.Kind {
	case store.MessageEntry:
		var kind byte
		if err := store.DecodeMessage(m.Kind, m.Value, &kind); err != nil {
			return true, err
		}
		of, index, err := store.ParseOfTicketKey(m.Key)
		if err == nil && index >= v.space.Leaves {
			bad("The ticket %q has the entry %d, and the audit trail has %d.", of, index, v.space.Leaves)
		}
		return true, err
	case store.MessagePosition:
		var of string
		if err := store.DecodeMessage(m.Kind, m.Value, &of); err != nil {
			return true, err
		}
		position, err := store.ParsePositionKey(m.Key)
		if err != nil {
			return true, err
		}
		var row store.OfTicketRow
		ok, err := v.in.Message(store.MessageOfTicket, store.OfTicketKey(of, position), &row)
		if err == nil && !ok {
			bad("The ticket %q has no message at the position %d.", of, position)
		}
		return true, err
	case store.MessageTrace:
		var id string
		if err := store.DecodeMessage(m.Kind, m.Value, &id); err != nil {
			return true, err
		}
		known, err := v.in.HasMessage(id)
		if err == nil && !known {
			bad("The message %q, which a trace is known by, is not there.", id)
		}
		return true, err
	}
	return false, nil
}

// foundBy checks that a message of a ticket is found by its position, and the entry of it
// by its ticket.
func (v *verifier) foundBy(id string, row *store.MessageRow, t *verified) error {
	if row.Ticket == ticket.None || v.tally.Settings.FeatureLevel < levelOfEntry {
		return nil
	}
	bad := func(what string) {
		v.found(Finding{What: "message", Topic: row.Topic, Position: row.Position, Key: id, Explanation: sprintf("The message is not found by %s.", what)})
	}
	var of string
	ok, err := v.in.Message(store.MessagePosition, store.PositionKey(row.Position), &of)
	if err != nil {
		return err
	}
	if !ok || of != row.Ticket {
		bad("its position")
	}
	leaf, stored, err := v.in.EventLeaf(t.Number, row.Position)
	if err != nil || !stored {
		return err
	}
	var kind byte
	ok, err = v.in.Message(store.MessageEntry, store.OfTicketKey(row.Ticket, leaf), &kind)
	if err == nil && !ok {
		bad(sprintf("its entry in the audit trail, %d", leaf))
	}
	return err
}
