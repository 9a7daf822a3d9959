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

// TestRaisedLevelFindsRequestsThatNobodyWouldMiss: up to level 5 the first grant closed the
// deadline of a request, also where it takes two. Nobody would ever say that the second
// is not there; one that is granted has none.
func TestRaisedLevelFindsRequestsThatNobodyWouldMiss(t *testing.T) {
	for needed, want := range map[int]string{1: "", 2: "expires_at_missed warning to orchestrator about 5 of T1"} {
		r := bussed(t)
		request := due(fromOrchestrator(5, 4, ticket.TypeApprovalRequest, "gate"), 2000)
		request.Approval = &eventlog.Approval{Kind: "plan", Revision: 1, Tier: 2, Approvers: needed, Plan: somePlan, Hash: somePlanHash, ExpiresMillis: epoch + 2000}
		r.say(append(untilPlan(2), request, said{id: 6, Message: eventlog.Message{
			Type: ticket.TypeApprovalGrant, Ticket: "T1", From: "alice", To: "orchestrator", Cause: messageID(5), Payload: "p",
		}})...)
		older := leftUndated(t, r, func(*store.TicketRow) {})
		if n := r.projector.Bus().Open; n != 0 {
			t.Fatalf("%d deadlines are left", n)
		}
		r.do(configure(defaultSettings()))
		checkSound(t, r)
		if n := r.projector.Bus().Open; n != needed-1 {
			t.Errorf("where it takes %d, %d deadlines are open", needed, n)
		}
		r.do(configure(older)) // a start that died before the level was there
		r.do(configure(defaultSettings()))
		r.reopen()
		r.do(tick(epoch + 2000))
		if got := r.owing(); got != want {
			t.Errorf("where it takes %d, the bus says %q, want %q", needed, got, want)
		}
		checkSound(t, r)
		r.close()
	}
}

// leftUndated changes the row of a ticket and closes all deadlines, as level 5 may have left
// them, and returns its settings.
func leftUndated(t *testing.T, r *rig, change func(*store.TicketRow)) (older eventlog.Settings) {
	t.Helper()
	b := r.store.NewBatch()
	defer b.Close()
	err := errors.Join(r.store.MessagesOfKind(store.MessageDeadline, "", func(key string, value []byte) (bool, error) {
		var row store.DeadlineRow
		err := store.DecodeMessage(store.MessageDeadline, value, &row)
		b.DeleteMessage(store.MessageDeadline, key)
		b.DeleteTimer(store.Timer{DueMillis: row.Due, Topic: row.Index, Position: row.Position, Kind: store.TimerMessage, Key: key})
		return true, err
	}), r.store.EachTicket(func(id string, row *store.TicketRow) error {
		change(row)
		value, err := store.EncodeMessage(row)
		b.SetMessage(store.MessageTicket, id, value)
		return err
	}))
	if err := errors.Join(err, r.store.Commit(b, func() {})); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	older = defaultSettings()
	older.FeatureLevel = 5
	r.do(configure(older))
	return older
}

// TestRaisedLevelMissesNothingThatHasNoUse: requests that an older version has not made void
// get no deadline: about a plan that was carried out since, or in a state where nothing follows.
func TestRaisedLevelMissesNothingThatHasNoUse(t *testing.T) {
	ask := func(id int) said {
		request := due(fromOrchestrator(id, 4, ticket.TypeApprovalRequest, "gate"), 2000)
		request.Approval = &eventlog.Approval{Kind: "plan", Revision: 1, Tier: 2, Approvers: 2, Plan: somePlan, Hash: somePlanHash, ExpiresMillis: epoch + 2000}
		return request
	}
	for name, change := range map[string]func(*store.TicketRow){
		"carried out": func(row *store.TicketRow) {
			row.State = ticket.StateExecuting
			row.Requests[1].Grants = []store.GrantRow{{ID: "g1", Approver: "alice", ExpiresMillis: epoch + 9999, Bound: "x"}, {ID: "g2", Approver: "bob", ExpiresMillis: epoch + 9999, Bound: "x"}}
		},
		"of another state": func(row *store.TicketRow) {
			row.State = ticket.StateExecuting
			row.Requests = row.Requests[:1]
			row.Requests[0].Kind = "accept_partial"
		},
	} {
		r := bussed(t)
		r.say(append(untilPlan(2), ask(5), ask(7))...)
		leftUndated(t, r, func(row *store.TicketRow) {
			row.Requests[0].Void = ""
			change(row)
		})
		r.do(configure(defaultSettings()))
		if n := r.projector.Bus().Open; n != 0 {
			t.Errorf("%s: %d deadlines are open", name, n)
		}
		r.close()
	}
}
