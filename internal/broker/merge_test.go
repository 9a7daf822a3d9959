// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/ticket"
)

// TestListsAreReadAsOne in order, and of each no more than is needed.
func TestListsAreReadAsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfDistinct(rapid.IntRange(0, 200), rapid.ID[int]), 0, 5).Draw(t, "lists")
		most := rapid.IntRange(1, 300).Draw(t, "most")
		var all []int
		for _, list := range lists {
			slices.Sort(list)
			all = append(all, list...)
		}
		slices.Sort(all)
		all = all[:min(most, len(all))]
		var got []int
		read, err := broker.Merged(lists, func(row int) bool {
			got = append(got, row)
			return len(got) < most
		})
		if err != nil || !slices.Equal(got, all) {
			t.Fatalf("%v, want %v, %v", got, all, err)
		}
		if least := 2*len(got) + 2*16*len(lists); read > least {
			t.Errorf("%d rows were read for %d of %d lists", read, len(got), len(lists))
		}
	})
}

// amended opens tickets of one trace, and amends each so many times.
func (s *staff) amended(tickets, from, to int) {
	s.t.Helper()
	for n := range tickets {
		of := func(d *ticket.Draft) { d.TicketID, d.CausationID = fmt.Sprint("INC-", n), ticket.None }
		if from == 0 {
			s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen, of)
		}
		for range to - from {
			s.mustSay("desk", ticket.TypeOpen, "orchestrator", `{"op":"amend","source_ref":"d","title":"t","body_ref":"b","requester":"u","priority":2}`, of)
		}
	}
}

// TestAPageOfATraceCostsWhatIsOnIt, and not what its tickets have behind it.
func TestAPageOfATraceCostsWhatIsOnIt(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	page := func() (cost float64) {
		return testing.AllocsPerRun(5, func() {
			page, err := s.AuditEntries(context.Background(), broker.AuditQuery{As: identity.Named("audit"), Ticket: "trace-1", Limit: 2})
			if err != nil || len(page.Entries) != 2 {
				t.Fatal(page, err)
			}
		})
	}
	s.amended(4, 0, 20)
	short := page()
	s.amended(4, 20, 80)
	// Reading all of them would cost four times as much; the race detector makes pools
	// forget some of what they keep.
	if long := page(); long > 2*short {
		t.Errorf("a page took %.0f allocations of four times as many entries, and %.0f before", long, short)
	}
}

// TestAListByStatePassesOverNoOtherTickets: to find none costs the same, however many are
// in another state.
func TestAListByStatePassesOverNoOtherTickets(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	list := func(states ...string) (ids []string) {
		q := broker.TicketQuery{As: identity.Named("audit"), States: states, Limit: 3}
		for {
			part, next, err := s.Tickets(q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range part {
				ids = append(ids, part[i].ID)
			}
			if q.After = next; next == "" {
				return ids
			}
		}
	}
	none := func() float64 {
		return testing.AllocsPerRun(5, func() { list(ticket.StateClosed, ticket.StateDenied) })
	}
	s.execute() // INC-1
	few := none()
	s.cause = ticket.None
	for n := range 30 {
		s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen, func(d *ticket.Draft) {
			d.TicketID, d.TraceID, d.CausationID = fmt.Sprintf("INC-%02d", n), fmt.Sprint("t", n), ticket.None
		})
	}
	if many := none(); many > 2*few {
		t.Errorf("to find none took %.0f allocations beside 31 tickets, and %.0f beside one", many, few)
	}
	got, all := list(ticket.StateOpen, ticket.StateExecuting, ticket.StateOpen, "NONE"), []string{}
	for n := range 30 {
		all = append(all, fmt.Sprintf("INC-%02d", n))
	}
	all = append(all, "INC-1")
	if slices.Sort(all); !slices.Equal(got, all) {
		t.Errorf("open and executing are %q, want %q", got, all)
	}
	if got := list(ticket.StateExecuting); !slices.Equal(got, []string{"INC-1"}) {
		t.Errorf("executing are %q", got)
	}
}
