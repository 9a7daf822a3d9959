// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"errors"
	"fmt"
	"testing"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// TestRaisedLevelIsWrittenInPortions: however long the log is, the commit that raises the
// level is small, and so is each portion before it; and a start that dies before it, or
// between two portions, is followed by one that raises it whole.
func TestRaisedLevelIsWrittenInPortions(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	older := defaultSettings()
	older.FeatureLevel = 2
	r.do(configure(older))
	r.say(opened(1))
	const tickets = 10_000
	setTickets(t, r, tickets)
	r.reopen()
	const portionsMin = 2
	for _, dies := range []string{"between two portions", "before the commit", ""} {
		portions, died := 0, errors.New("died")
		r.projector.BeforeWriteAhead(func(rows, bytes int) error {
			if rows > projector.PortionRowsMax || bytes > projector.PortionBytesMax+1<<10 {
				t.Errorf("a portion has %d rows of %d bytes", rows, bytes)
			}
			if portions++; dies == "between two portions" && portions == portionsMin {
				return died
			}
			return nil
		})
		group := []*eventlog.Proposal{configure(defaultSettings()), tick(epoch)}
		r.stamp(group)
		out, err := r.projector.Apply(group)
		if dies == "between two portions" {
			if !errors.Is(err, died) {
				t.Fatalf("with %d portions: %v", portions, err)
			}
			r.reopen()
			wantLevel(t, r, 2)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if rows, bytes := out.Batch.Size(); rows > 100 || bytes > 1<<16 || out.Taken != 1 || portions < portionsMin {
			t.Errorf("the commit that raises the level has %d rows of %d bytes, and %d proposals, behind %d portions", rows, bytes, out.Taken, portions)
		}
		if dies == "" {
			err = r.store.Commit(out.Batch, func() {})
		}
		out.Batch.Close()
		if err != nil {
			t.Fatal(err)
		}
		r.reopen()
		wantLevel(t, r, map[bool]int{true: defaultSettings().FeatureLevel, false: 2}[dies == ""])
	}
	for i := 0; i < tickets; i += tickets / 10 {
		of := fmt.Sprintf("T-%05d", i)
		if got := messagesOf(t, r, of, 0); len(got) != 1 {
			t.Errorf("%s has the messages %q", of, got)
		}
		if got := entriesOf(t, r, of, 0); len(got) != 1 {
			t.Errorf("%s has the entries %q", of, got)
		}
	}
	view := r.store.View(func() {})
	defer view.Close()
	traced := 0
	if err := view.TicketsOfTrace("trace", func(string) bool { traced++; return true }); err != nil || traced != tickets+1 {
		t.Errorf("%d tickets have the trace, %v", traced, err)
	}
}

func wantLevel(t *testing.T, r *rig, want int) {
	t.Helper()
	if got := r.projector.Settings().FeatureLevel; got != want {
		t.Fatalf("the level is %d, want %d", got, want)
	}
}

// setTickets stores tickets that were opened, each in the place of the one message, whose
// event there is.
func setTickets(t *testing.T, r *rig, tickets int) {
	t.Helper()
	b := r.store.NewBatch()
	set := func(kind store.MessageKind, key string, row any) {
		value, err := store.EncodeMessage(row)
		if err != nil {
			t.Fatal(err)
		}
		b.SetMessage(kind, key, value)
	}
	for i := range tickets {
		of := fmt.Sprintf("T-%05d", i)
		set(store.MessageID, messageID(100+i), store.MessageRow{Ticket: of, Type: ticket.TypeOpen, From: "desk", Topic: "bus.main.ticket.orchestrator", Position: 1})
		set(store.MessageTicket, of, store.TicketRow{Trace: "trace", Open: messageID(100 + i)})
	}
	if err := r.store.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
	b.Close()
}
