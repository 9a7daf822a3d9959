// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"slices"
	"testing"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// messagesOf is what a ticket has, as positions and ids.
func messagesOf(t *testing.T, r *rig, of string, after uint64) (got []string) {
	t.Helper()
	view := r.store.View(func() {})
	defer view.Close()
	err := view.MessagesOf(of, after, func(position uint64, row store.OfTicketRow) (bool, error) {
		got = append(got, fmt.Sprint(position, " ", row.ID, " ", row.Type, " ", row.Topic))
		return len(got) < 3, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestMessagesOfATicketStandInOrder: by position, without those of a ticket whose
// name begins alike, without heartbeats and repetitions.
func TestMessagesOfATicketStandInOrder(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	for _, s := range []said{
		opened(1),
		with(opened(2), func(s *said) { s.Ticket = "T10" }),
		fromOrchestrator(3, 1, ticket.TypePlanRequest, "network"),
		fromOrchestrator(3, 1, ticket.TypePlanRequest, "network"),
		{id: 4, Message: eventlog.Message{Type: ticket.TypeHeartbeat, Ticket: ticket.None, From: "net", To: "platform-ops", Payload: "p"}},
		with(fromOrchestrator(5, 3, ticket.TypePlanRequest, "network"), func(s *said) { s.Asked = &eventlog.Asked{Slice: "s2", Revision: 1} }),
	} {
		if result := r.do(s.proposal(t)); result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	r.reopen()
	open, request, again := "1 "+messageID(1)+" ticket.open bus.main.ticket.orchestrator", "3 "+messageID(3)+" plan.request bus.main.plan.network", "5 "+messageID(5)+" plan.request bus.main.plan.network"
	for after, want := range map[uint64][]string{0: {open, request, again}, 1: {request, again}, 3: {again}, 5: nil} {
		if got := messagesOf(t, r, "T1", after); !slices.Equal(got, want) {
			t.Errorf("after %d: %q, want %q", after, got, want)
		}
	}
	if got := messagesOf(t, r, ticket.None, 0); got != nil {
		t.Errorf("heartbeats are kept as those of a ticket: %q", got)
	}
	view := r.store.View(func() {})
	defer view.Close()
	for of, want := range map[string]uint64{"T1": 5, "T10": 2, "T": 0} {
		if got, _, err := view.LastOf(of); err != nil || got != want {
			t.Errorf("the last message of %s is at %d, %v", of, got, err)
		}
	}
	checkSound(t, r)
}

// TestRaisedLevelFindsOlderMessages: those that a version stored which had no rows
// for them.
func TestRaisedLevelFindsOlderMessages(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	b := r.store.NewBatch() // as that version left it: with the row of its id alone
	b.DeleteMessage(store.MessageOfTicket, store.OfTicketKey("T1", 1))
	b.DeleteMessage(store.MessagePosition, store.PositionKey(1))
	if err := r.store.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if !slices.ContainsFunc(inspect(t, r), func(f projector.Finding) bool { return f.What == "message" && f.Key == messageID(1) }) {
		t.Error("a message that its ticket does not have was not found")
	}
	older := defaultSettings()
	older.FeatureLevel = 2
	r.do(configure(older))
	checkSound(t, r) // of that level nothing is missing
	r.do(configure(defaultSettings()))
	if got, want := messagesOf(t, r, "T1", 0), []string{"1 " + messageID(1) + " ticket.open bus.main.ticket.orchestrator"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	checkSound(t, r)
}
