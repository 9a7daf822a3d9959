// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/store"
	"signalbox/ticket"
)

const (
	// auditTraceMax bounds the tickets of one trace whose entries one query reads as one
	// list. Where there are more, the answer says so.
	auditTraceMax = 1000
	// ticketNameMax is how long what a query by ticket names can be at all.
	ticketNameMax = 128
)

// found is an entry that a row says to be about a ticket.
type found struct {
	index uint64
	of    string
	told  bool // who asks is told of it
}

// ofTicket looks at what the rows of the tickets name that the query may mean: the
// entries of them all in order, and of each no more than the page needs.
func (s *auditSearch) ofTicket(ctx context.Context, to uint64) error {
	if len(s.q.Ticket) > ticketNameMax || strings.ContainsRune(s.q.Ticket, 0) {
		return event.Errorf(event.CodeParameterInvalid, "%.40q is the name of no ticket, trace or message.", s.q.Ticket).With("ticket")
	}
	view := s.b.store.View(func() {})
	defer view.Close()
	r := s.b.reach(s.q.As)
	if err := r.mayAsk(); err != nil {
		return err
	}
	tickets, cut, err := r.tickets(view, s.q.Ticket, s.b.audit.traceMax)
	if err != nil {
		return err
	}
	s.page.TicketsCut = cut
	var parts []part[found]
	for _, t := range tickets {
		parts = append(parts, entriesOf(view, t, s.page.Next))
	}
	end, looked := to, uint64(0)
	err = merged(func(a, b found) int { return cmp.Compare(a.index, b.index) }, parts, func(f found) (bool, error) {
		switch looked++; {
		case f.index >= to:
			return false, nil
		case looked > s.b.audit.scanMax:
			end = max(f.index, s.page.Next) // an entry of several tickets may have been looked at by another of them
			return false, nil
		case !f.told || f.index < s.page.Next: // it is of several tickets, and was looked at
			return true, nil
		}
		more, err := s.lookAt(ctx, f)
		if !more {
			end = s.page.Next
		}
		return more, err
	})
	s.page.Next = end
	return err
}

// lookAt looks at one entry, and reports whether the one behind it is to be looked at.
func (s *auditSearch) lookAt(ctx context.Context, f found) (more bool, err error) {
	more = true
	err = s.b.AuditLines(ctx, f.index, f.index+1, nil, func(l *audit.Line) (_ bool, err error) {
		more, err = s.look(l)
		return false, err
	})
	if len(s.page.Entries) > len(s.page.Tickets) {
		s.page.Tickets = append(s.page.Tickets, f.of)
	}
	return more, err
}

// entriesOf reads the entries of a ticket, from an index on. Whoever sees nothing of
// the ticket is told what its refusals tell everybody.
func entriesOf(view *store.View, t seenTicket, from uint64) part[found] {
	return partOf(func(after *found, each func(found) bool) error {
		if after != nil {
			from = after.index + 1
		}
		return view.EntriesOf(t.id, from, func(index uint64, kind byte) (bool, error) {
			return each(found{index, t.id, t.seen || audit.Kind(kind) == audit.KindRefusal}), nil
		})
	})
}

// seenTicket is a ticket, and whether who asks sees that there is one.
type seenTicket struct {
	id   string
	seen bool
}

// tickets returns what a name may stand for: a ticket, that of a message, and those that
// have it as their trace, by name. Of the last there are no more than so many that are
// seen; cut says that more were left out, or not looked at.
func (r *reach) tickets(view *store.View, name string, most int) (list []seenTicket, cut bool, err error) {
	seen, err := r.sees(view, name)
	if err != nil {
		return nil, false, err
	}
	list = []seenTicket{{name, seen}}
	var row store.MessageRow
	ok, err := view.Message(store.MessageID, name, &row)
	if err != nil {
		return nil, false, err
	}
	var more []string
	if ok && row.Ticket != ticket.None {
		more = append(more, row.Ticket)
	}
	err = view.TicketsOfTrace(name, func(of string) bool {
		cut = len(more) > ticketScanMax
		more = append(more, of)
		return !cut
	})
	if err != nil {
		return nil, false, err
	}
	scanned := 0
	for _, of := range more {
		if slices.ContainsFunc(list, func(t seenTicket) bool { return t.id == of }) {
			continue
		}
		seen, _, err := r.concerned(view, of, "", &scanned)
		switch {
		case err != nil:
			return nil, false, err
		case scanned > ticketScanMax, seen && len(list) > most:
			return list, true, nil
		case seen:
			list = append(list, seenTicket{of, true})
		}
	}
	return list, cut, nil
}

// sees reports whether somebody sees that there is a ticket, see [Broker.Tickets].
func (r *reach) sees(view *store.View, id string) (bool, error) {
	scanned := 0
	seen, _, err := r.concerned(view, id, "", &scanned)
	return seen, err
}
