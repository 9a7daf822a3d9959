// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// entriesOf is what the rows of a ticket name, as kinds and indexes.
func entriesOf(t *testing.T, r *rig, of string, from uint64) (got []string) {
	t.Helper()
	view := r.store.View(func() {})
	defer view.Close()
	err := view.EntriesOf(of, from, func(index uint64, kind byte) (bool, error) {
		got = append(got, fmt.Sprint(audit.Kind(kind), " ", index))
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// detailOf is the detail of an entry.
func detailOf(t *testing.T, r *rig, index uint64) (detail string) {
	t.Helper()
	err := r.store.LeafRows(index, true, func(row store.LeafRow) (bool, error) {
		entries := row.Entries
		for at := row.First; ; at++ {
			e, rest, err := audit.DecodeEntry(entries)
			if err != nil {
				return false, err
			}
			if entries = rest; at == index {
				detail = string(e.Detail)
				return false, nil
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// TestRefusalsNameTheirTicket: in apply and before it, as the message says; whoever signed
// nothing has what they claim noted, and nothing else follows from it.
func TestRefusalsNameTheirTicket(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.say(opened(1))
	first := r.projector.Space().Leaves
	if refused := r.do(fromOrchestrator(2, 9, ticket.TypePlanRequest, "network").proposal(t)).Err; refused == nil {
		t.Fatal("it was not refused")
	}
	r.do(&eventlog.Proposal{
		Kind: eventlog.KindRefusal, RefusedCode: string(event.CodeSignatureInvalid), RefusedCount: 1, Principal: "net",
		Message: &eventlog.Message{Ticket: "T1", ID: messageID(3), Type: "execute", From: "mallory"},
	})
	r.do(&eventlog.Proposal{Kind: eventlog.KindRefusal, RefusedCode: string(event.CodeSignatureInvalid), RefusedCount: 7})
	if got, want := entriesOf(t, r, "T1", first), []string{fmt.Sprint("refusal ", first), fmt.Sprint("refusal ", first+1)}; !slices.Equal(got, want) {
		t.Errorf("of the ticket are %q, want %q", got, want)
	}
	for i, want := range []string{
		`{"code":"correlation_invalid","principal":"orch","count":1,"ticket":"T1","message":"` + messageID(2) + `","type":"plan.request","from":"orch"}`,
		`{"code":"signature_invalid","principal":"net","count":1,"ticket":"T1","message":"` + messageID(3) + `","type":"execute","from":"mallory"}`,
		`{"code":"signature_invalid","count":7}`,
	} {
		if got := detailOf(t, r, first+uint64(i)); got != want {
			t.Errorf("refusal %d says %s, want %s", i, got, want)
		}
	}
	if owing := r.owing(); owing != "" {
		t.Errorf("a refusal that nobody signed obliges the bus to say %s", owing)
	}
	checkSound(t, r)
}

// streamOf makes a subscription that has a cursor only.
func streamOf(id string, topics ...string) *eventlog.Proposal {
	d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	d.Config.Kind, d.Config.Topics = event.KindStream, topics
	return &eventlog.Proposal{Kind: eventlog.KindSubscription, Subscription: &eventlog.Subscription{Op: eventlog.SubscriptionCreate, ID: id, Document: &d, Owner: "net", Now: true}}
}

func acknowledged(id string, to uint64) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindSubscription, Subscription: &eventlog.Subscription{Op: eventlog.SubscriptionAcknowledge, ID: id, Place: &eventlog.Place{Cursor: to}}}
}

// TestEntriesOfATicketDoNotDependOnGroups: also where an acknowledgement is in one group
// with the messages that it acknowledges. Of its range those count that it selects.
func TestEntriesOfATicketDoNotDependOnGroups(t *testing.T) {
	log := func() []*eventlog.Proposal {
		return []*eventlog.Proposal{
			streamOf("s", "bus.main.plan.*"),
			opened(1).proposal(t),
			with(opened(2), func(s *said) { s.Ticket = "T2" }).proposal(t),
			fromOrchestrator(3, 1, ticket.TypePlanRequest, "network").proposal(t),
			acknowledged("s", 3),
			fromOrchestrator(3, 1, ticket.TypePlanRequest, "network").proposal(t),
			{Kind: eventlog.KindReading, Principal: "aud", Reading: &eventlog.Reading{Door: "stream", Topics: ">", Positions: "2-3", Messages: 2, From: 1, To: 3}},
			{Kind: eventlog.KindReading, Reading: &eventlog.Reading{Door: "stream", Messages: 2, From: 1, To: 3}}, // of several readers
		}
	}
	var whole []row
	for _, size := range []int{8, 1, 3} {
		r := staffedRig(t)
		first := r.projector.Space().Leaves
		for group := range slices.Chunk(log(), size) {
			r.stamp(group)
			for _, result := range r.apply(group) {
				if result.Err != nil {
					t.Fatal(result.Err)
				}
			}
		}
		names := func(of string) string {
			var out []string
			for _, line := range entriesOf(t, r, of, first) {
				var index uint64
				kind, digits, _ := strings.Cut(line, " ")
				if _, err := fmt.Sscan(digits, &index); err != nil {
					t.Fatal(err)
				}
				out = append(out, fmt.Sprint(kind, " ", index-first))
			}
			return strings.Join(out, ", ")
		}
		if got, want := names("T1"), "event 1, event 3, delivery 4, event 5, delivery 6"; got != want {
			t.Errorf("in groups of %d the entries of T1 are %s, want %s", size, got, want)
		}
		if got, want := names("T2"), "event 2, delivery 6"; got != want {
			t.Errorf("in groups of %d the entries of T2 are %s, want %s", size, got, want)
		}
		checkSound(t, r)
		if rows := r.rows(); whole == nil {
			whole = rows
		} else if d := diff(whole, rows); d != "" {
			t.Errorf("in groups of %d: %s", size, d)
		}
		r.close()
	}
}

// TestRaisedLevelFindsOlderEntries: of messages that a version stored which had no rows for
// them. What was missing is found by a check.
func TestRaisedLevelFindsOlderEntries(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.say(opened(1), fromOrchestrator(2, 1, ticket.TypePlanRequest, "network"))
	want := entriesOf(t, r, "T1", 0)
	if len(want) != 2 {
		t.Fatal(want)
	}
	for kind, part := range map[store.MessageKind]string{store.MessageEntry: "its entry", store.MessagePosition: "its position"} {
		var keys []string
		b := r.store.NewBatch()
		err := r.store.MessagesOfKind(kind, "", func(key string, _ []byte) (bool, error) {
			keys = append(keys, key)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			b.DeleteMessage(kind, key)
		}
		if err := r.store.Commit(b, func() {}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if !slices.ContainsFunc(inspect(t, r), func(f projector.Finding) bool { return strings.Contains(f.Explanation, part) }) {
			t.Errorf("that messages are not found by %s was not found", part)
		}
	}
	older := defaultSettings()
	older.FeatureLevel = 4
	r.do(configure(older))
	checkSound(t, r) // of that level nothing is missing
	r.do(configure(defaultSettings()))
	if got := entriesOf(t, r, "T1", 0); !slices.Equal(got, want) {
		t.Errorf("the entries of the ticket are %q, want %q", got, want)
	}
	checkSound(t, r)
}

// TestRowsOfEntriesAreChecked: such as name what there is not.
func TestRowsOfEntriesAreChecked(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.say(opened(1))
	b := r.store.NewBatch()
	b.SetMessage(store.MessageEntry, store.OfTicketKey("T1", 1000), store.EntryOf(1))
	for kind, row := range map[store.MessageKind][2]string{
		store.MessagePosition: {store.PositionKey(77), "T1"}, store.MessageTrace: {"other\x00T1", messageID(88)},
	} {
		value, err := json.Marshal(row[1])
		if err != nil {
			t.Fatal(err)
		}
		b.SetMessage(kind, row[0], value)
	}
	b.SetMessage(store.MessageEntry, "T1", store.EntryOf(1)) // no key
	if err := r.store.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	for _, part := range []string{"the entry 1000", "no message at the position 77", messageID(88), "is none of a row"} {
		if !slices.ContainsFunc(inspect(t, r), func(f projector.Finding) bool { return strings.Contains(f.Explanation, part) }) {
			t.Errorf("nothing is found of %q", part)
		}
	}
}

// TestEntryBeyondItsBoundsIsCounted: one that is about more tickets than it is found by.
func TestEntryBeyondItsBoundsIsCounted(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	if result := r.do(streamOf("s", "bus.main.>")); result.Err != nil {
		t.Fatal(result.Err)
	}
	for i := range projector.TicketsOfEntryMax + 1 {
		r.say(with(opened(i+1), func(s *said) { s.Ticket = messageID(i) }))
	}
	for _, step := range []struct{ to, unfound uint64 }{{1, 0}, {projector.TicketsOfEntryMax, 0}, {projector.TicketsOfEntryMax + 1, 0}} {
		if result := r.do(acknowledged("s", step.to)); result.Err != nil {
			t.Fatal(result.Err)
		}
		if n := r.projector.Bus().Unfound; n != step.unfound {
			t.Errorf("after %d: %d entries are not found by all tickets", step.to, n)
		}
	}
	if result := r.do(streamOf("s2", "bus.main.>")); result.Err != nil {
		t.Fatal(result.Err)
	}
	seek := acknowledged("s2", 0)
	seek.Subscription.Op = "seek"
	r.do(seek)
	r.do(acknowledged("s2", projector.TicketsOfEntryMax+1))
	if n := r.projector.Bus().Unfound; n != 1 {
		t.Errorf("%d entries are not found by all tickets, want 1", n)
	}
	if got := entriesOf(t, r, messageID(projector.TicketsOfEntryMax), 0); len(got) != 2 { // its message, and the first acknowledgement
		t.Errorf("the last ticket has the entries %q", got)
	}
	checkSound(t, r)
}
