// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/store"
	"signalbox/ticket"
)

const (
	// auditTicketMax bounds the entries of each ticket that one query by ticket looks
	// at, and auditTraceMax the tickets of one trace.
	auditTicketMax = 10_000
	auditTraceMax  = 100
	// ticketNameMax is how long what a query by ticket names can be at all.
	ticketNameMax = 128
)

// found is an entry that a row says to be about a ticket.
type found struct {
	index uint64
	of    string
}

// ofTicket looks at what the rows of tickets name.
func (s *auditSearch) ofTicket(ctx context.Context, to uint64) error {
	list, next, err := s.listed(to)
	if err != nil {
		return err
	}
	more := true
	for i := 0; i < len(list) && more; i++ {
		err := s.b.AuditLines(ctx, list[i].index, list[i].index+1, nil, func(l *audit.Line) (_ bool, err error) {
			more, err = s.look(l)
			return false, err
		})
		if err != nil {
			return err
		}
		if len(s.page.Entries) > len(s.page.Tickets) {
			s.page.Tickets = append(s.page.Tickets, list[i].of)
		}
	}
	if more {
		s.page.Next = next
	}
	return nil
}

// listed returns the entries, in order, of what the query names, and up to where these
// are all that there are.
func (s *auditSearch) listed(to uint64) (list []found, next uint64, err error) {
	if len(s.q.Ticket) > ticketNameMax || strings.ContainsRune(s.q.Ticket, 0) {
		return nil, 0, event.Errorf(event.CodeParameterInvalid, "%.40q is the name of no ticket, trace or message.", s.q.Ticket).With("ticket")
	}
	view := s.b.store.View(func() {})
	defer view.Close()
	r := s.b.reach(s.q.As)
	if err := r.mayAsk(); err != nil {
		return nil, 0, err
	}
	tickets, err := r.tickets(view, s.q.Ticket)
	if err != nil {
		return nil, 0, err
	}
	next = to
	for _, of := range tickets {
		// Whoever sees nothing of a ticket is told what its refusals tell everybody.
		seen, err := r.sees(view, of)
		if err != nil {
			return nil, 0, err
		}
		count := 0
		err = view.EntriesOf(of, s.page.Next, func(index uint64, kind byte) (bool, error) {
			if index >= next {
				return false, nil
			}
			if count++; count > auditTicketMax {
				next = index
				return false, nil
			}
			if seen || audit.Kind(kind) == audit.KindRefusal {
				list = append(list, found{index, of})
			}
			return true, nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	slices.SortStableFunc(list, func(a, b found) int { return int(a.index) - int(b.index) })
	list = slices.DeleteFunc(list, func(f found) bool { return f.index >= next })
	return slices.CompactFunc(list, func(a, b found) bool { return a.index == b.index }), next, nil
}

// tickets returns what a name may stand for: a ticket, those that have it as their trace,
// and that of a message.
func (r *reach) tickets(view *store.View, name string) ([]string, error) {
	list := []string{name}
	add := func(of string) error {
		seen, err := r.sees(view, of)
		if err == nil && seen && !slices.Contains(list, of) {
			list = append(list, of)
		}
		return err
	}
	var row store.MessageRow
	ok, err := view.Message(store.MessageID, name, &row)
	if err == nil && ok && row.Ticket != ticket.None {
		err = add(row.Ticket)
	}
	if err != nil {
		return nil, err
	}
	var traced []string
	err = view.TicketsOfTrace(name, func(of string) bool {
		traced = append(traced, of)
		return len(traced) < auditTraceMax
	})
	if err != nil {
		return nil, err
	}
	for _, of := range traced {
		if err := add(of); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// sees reports whether somebody sees that there is a ticket, see [Broker.Tickets].
func (r *reach) sees(view *store.View, id string) (bool, error) {
	scanned := 0
	seen, _, err := r.concerned(view, id, "", &scanned)
	return seen, err
}
