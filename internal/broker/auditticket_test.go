// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/ticket"
)

// trailOf is what a query finds, a word for each entry, page by page.
func (s *staff) trailOf(as string, q broker.AuditQuery) (words []string) {
	s.t.Helper()
	q.As = identity.Named(as)
	for {
		page, err := s.AuditEntries(context.Background(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(page.Tickets) != len(page.Entries) {
			s.t.Fatalf("%d entries and %d tickets", len(page.Entries), len(page.Tickets))
		}
		for i := range page.Entries {
			words = append(words, wordFor(&page.Entries[i]))
		}
		if page.Next >= page.Size {
			return words
		}
		q.From = page.Next
	}
}

// wordFor is what an entry is about.
func wordFor(l *audit.Line) string {
	text := func(path string) string { v, _ := event.LookupJSON(l.Body, path); return v }
	switch l.Kind {
	case audit.KindEvent:
		kind, _ := event.LookupJSON(append([]byte{'{'}, l.Body...), "type")
		return strings.TrimSpace(fmt.Sprint(broker.AuditOutcome(l), " ", strings.TrimPrefix(kind, ticket.EventType)))
	case audit.KindRefusal:
		return "refused " + text("code")
	case audit.KindDelivery:
		return text("op")
	case audit.KindExpiry:
		return strings.TrimSpace("expired " + text("deadline"))
	}
	return l.Kind.String() + " " + text("op")
}

// fixed has a message be the same whenever it is made.
func fixed(id string) func(*ticket.Draft) {
	return func(d *ticket.Draft) { d.ID, d.Nonce, d.IdempotencyKey = id, strings.Repeat(id[4:5], 16)+id[20:], id }
}

// TestTrailOfATicketHasWhatWasRefused: the whole path of decisions, in order, by the
// ticket, by its trace and by one of its messages; of another ticket nothing of it.
func TestTrailOfATicketHasWhatWasRefused(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	ctx, net := context.Background(), identity.Named("net")
	id := s.subscribe("net", "bus.main.>")
	other := func(d *ticket.Draft) { d.TicketID, d.TraceID, d.CausationID = "INC-2", "trace-2", ticket.None }
	s.execute()
	executed := s.cause
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen, other)
	s.cause = executed
	again := fixed("msg_" + strings.Repeat("0", 25) + "7")
	s.mustSay("net", ticket.TypeEscalation, "orchestrator", `{"reason_code":"r","severity":"info","refs":[],"context_ref":"c","asks":["a"]}`, again)
	s.cause = executed
	s.mustSay("net", ticket.TypeEscalation, "orchestrator", `{"reason_code":"r","severity":"info","refs":[],"context_ref":"c","asks":["a"]}`, again) // a duplicate
	for want, refused := range map[event.Code]error{
		event.CodePayloadInvalid:     s.say("orch", ticket.TypePlanRequest, "network", `{}`),                                                     // by admission
		event.CodeCorrelationInvalid: s.say("orch", ticket.TypePlanRequest, "network", busPlan, func(d *ticket.Draft) { d.TraceID = "another" }), // by apply
		event.CodeMessageInvalid:     s.raw(`{"ticket_id":"INC-1","from":"mallory","type":"execute"}`),                                           // not even an envelope
	} {
		wantCode(t, string(want), refused, want)
	}
	handed, err := s.Fetch(ctx, net, id, broker.FetchRequest{Max: 10})
	if err != nil || len(handed) == 0 {
		t.Fatal(len(handed), err)
	}
	s.pass(time.Minute) // nobody acknowledges the execute
	s.wantSaid("platform-ops", "[deliver_by_missed critical]")
	got := s.trailOf("audit", broker.AuditQuery{Ticket: "INC-1"})
	var refused, rest []string
	for _, word := range got {
		if strings.HasPrefix(word, "refused") {
			refused = append(refused, word)
		} else {
			rest = append(rest, word)
		}
	}
	if slices.Sort(refused); !slices.Equal(refused, []string{"refused correlation_invalid", "refused message_invalid", "refused payload_invalid"}) {
		t.Errorf("refused: %q", refused)
	}
	want := []string{
		"accepted ticket.open", "accepted plan.request", "accepted proposal", "accepted plan", "accepted ticket.state", "accepted execute", "accepted escalation", "duplicate", "hand_out",
	}
	if len(rest) < len(want) || !slices.Equal(rest[:len(want)], want) {
		t.Errorf("the trail of the ticket is %q", got)
	}
	for _, word := range []string{"expired deliver_by", "bury"} {
		if !slices.Contains(rest, word) {
			t.Errorf("the trail of the ticket lacks %q: %q", word, got)
		}
	}
	for _, name := range []string{"trace-1", executed} {
		if by := s.trailOf("audit", broker.AuditQuery{Ticket: name, Limit: 2}); !slices.Equal(by, got) {
			t.Errorf("by %s it is %q, want %q", name, by, got)
		}
	}
	if of := s.trailOf("audit", broker.AuditQuery{Ticket: "INC-2", Kind: audit.KindEvent}); !slices.Equal(of, []string{"accepted ticket.open"}) {
		t.Errorf("the trail of the other ticket is %q", of)
	}
	if of := s.trailOf("audit", broker.AuditQuery{Ticket: "INC-1", Kind: audit.KindRefusal}); len(of) != 3 {
		t.Errorf("what was refused of the ticket is %q", of)
	}
	s.restart()
	if after := s.trailOf("audit", broker.AuditQuery{Ticket: "INC-1"}); !slices.Equal(after[:len(got)], got) {
		t.Errorf("after a restart it is %q, want %q", after, got)
	}
}

// raw posts what need be no envelope.
func (s *staff) raw(text string) error {
	_, err := s.PostMessage(context.Background(), anonymous(), []byte(text))
	return err
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// TestTrailOfATicketIsForWhomItConcerns: others are told what its refusals tell
// everybody, as of a ticket that there is not; who says nothing of who they are is refused.
func TestTrailOfATicketIsForWhomItConcerns(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	opened := s.cause
	wantCode(t, "a plan of nothing", s.say("orch", ticket.TypePlanRequest, "network", `{}`), event.CodePayloadInvalid)
	wantCode(t, "of a ticket that there is not", s.say("orch", ticket.TypePlanRequest, "network", busPlan, func(d *ticket.Draft) { d.TicketID = "INC-9" }), event.CodeTicketUnknown)
	for _, c := range []struct{ as, name, want string }{
		{"audit", "INC-1", "[accepted ticket.open refused payload_invalid]"},
		{"desk", "INC-1", "[accepted ticket.open refused payload_invalid]"}, // which has sent it; what was sent is for others
		{"net", "INC-1", "[refused payload_invalid]"},
		{"net", "trace-1", "[]"},
		{"net", opened, "[]"},
		{"audit", "INC-9", "[refused ticket_unknown]"},
		{"audit", "INC-99", "[]"},
	} {
		got := fmt.Sprint(s.trailOf(c.as, broker.AuditQuery{Ticket: c.name}))
		if c.as == "desk" {
			got = strings.Replace(got, "[accepted refused", "[accepted ticket.open refused", 1)
		}
		if got != c.want {
			t.Errorf("%s is told %s of %s, want %s", c.as, got, c.name, c.want)
		}
	}
	_, err := s.AuditEntries(context.Background(), broker.AuditQuery{Ticket: "INC-1"})
	wantCode(t, "by nobody", err, event.CodeUnauthenticated)
	for _, name := range []string{"INC-1\x00", strings.Repeat("x", 129)} {
		_, err := s.AuditEntries(context.Background(), broker.AuditQuery{As: identity.Named("audit"), Ticket: name})
		wantCode(t, "no name", err, event.CodeParameterInvalid)
	}
}

// TestTrailOfATicketHasItsReaders: streams and polls without a subscription, and a
// stream's acknowledgement.
func TestTrailOfATicketHasItsReaders(t *testing.T) {
	s := newStaff(t, func(x *box) { x.options.ReadEntryEvery = time.Millisecond })
	defer s.close()
	d := pullOf("bus.main.plan.network")
	d.Config.Kind = event.KindStream
	sub, err := s.CreateSubscription(context.Background(), identity.Named("net"), d)
	if err != nil {
		t.Fatal(err)
	}
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.mustSay("orch", ticket.TypePlanRequest, "network", busPlan)
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen, func(d *ticket.Draft) {
		d.TicketID, d.TraceID, d.CausationID = "INC-2", "trace-2", ticket.None
	})
	if _, err := s.Acknowledge(context.Background(), identity.Named("net"), sub.Document.ID, s.Head()); err != nil {
		t.Fatal(err)
	}
	patterns := mustPatterns(t, "bus.main.ticket.>")
	reader, err := s.Read(broker.ReadRequest{As: identity.Named("audit"), Patterns: patterns})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	w, err := reader.Poll(limit())
	if err != nil {
		t.Fatal(err)
	}
	s.Recipient(identity.Named("audit"), "poll", patterns, false).Given(&w)
	for of, want := range map[string]string{"INC-1": "[acknowledge read]", "INC-2": "[read]"} {
		deadline := time.Now().Add(patience)
		got := ""
		for got = ""; got != want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = fmt.Sprint(sorted(s.trailOf("audit", broker.AuditQuery{Ticket: of, Kind: audit.KindDelivery})))
		}
		if got != want {
			t.Errorf("the deliveries of %s are %s, want %s", of, got, want)
		}
	}
}

// TestPagesOfATraceHaveEachEntryOnce: also where a query has looked at as much as one may
// between two tickets that an entry is of.
func TestPagesOfATraceHaveEachEntryOnce(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	d := pullOf("bus.main.>")
	d.Config.Kind = event.KindStream
	ctx, audit := context.Background(), identity.Named("audit")
	sub, err := s.CreateSubscription(ctx, audit, d)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		s.amended(2, n, n+1)
		if _, err := s.Acknowledge(ctx, audit, sub.Document.ID, s.Head()); err != nil { // of both tickets
			t.Fatal(err)
		}
	}
	want := s.trailOf("audit", broker.AuditQuery{Ticket: "trace-1"})
	for most := uint64(4); most < 2*uint64(len(want)); most++ {
		s.ScanAtMost(most)
		if got := s.trailOf("audit", broker.AuditQuery{Ticket: "trace-1"}); !slices.Equal(got, want) {
			t.Errorf("%d entries at a time are %q, want %q", most, got, want)
		}
	}
}

// TestTraceOfManyTicketsSaysSo: an answer that leaves tickets of a trace out says that, to
// whoever would see them; the tickets are found by their names all the same.
func TestTraceOfManyTicketsSaysSo(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	s.amended(3, 0, 1)
	found := func(q broker.AuditQuery) (tickets []string, cut bool) {
		page, err := s.AuditEntries(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(page.Tickets)
		return slices.Compact(page.Tickets), page.TicketsCut
	}
	trace := broker.AuditQuery{As: identity.Named("audit"), Ticket: "trace-1", Limit: 1000}
	all, cut := found(trace)
	if len(all) != 3 || cut {
		t.Fatalf("the trace has %q, cut: %t", all, cut)
	}
	s.TicketsOfTraceAtMost(2)
	if some, cut := found(trace); !slices.Equal(some, all[:2]) || !cut {
		t.Errorf("of %q there are %q, cut: %t", all, some, cut)
	}
	if last, cut := found(broker.AuditQuery{As: identity.Named("audit"), Ticket: all[2]}); !slices.Equal(last, all[2:]) || cut {
		t.Errorf("of %q there are %q, cut: %t", all[2], last, cut)
	}
	s.TicketsOfTraceAtMost(3)
	if some, cut := found(trace); !slices.Equal(some, all) || cut {
		t.Errorf("as many as are read at once are %q, cut: %t", some, cut)
	}
}

// TestQueriesOfTheTrailAreBounded: at one time; what is too much is refused with a code
// that says to ask again, and the next may.
func TestQueriesOfTheTrailAreBounded(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	leave := s.OccupyAudit()
	for what, ask := range map[string]func() error{
		"a query": func() error { _, err := s.AuditEntries(context.Background(), broker.AuditQuery{}); return err },
		"a proof": func() error { _, err := s.ProvePosition(context.Background(), anonymous(), 1); return err },
	} {
		wantCode(t, what, ask(), event.CodeOverloaded)
	}
	leave()
	if _, err := s.AuditEntries(context.Background(), broker.AuditQuery{}); err != nil {
		t.Error(err)
	}
}

// TestReadersCannotFloodTheLogWithCheckpoints: each that is forced waits for its turn,
// and those who ask at one time get the same one.
func TestReadersCannotFloodTheLogWithCheckpoints(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	ctx := context.Background()
	count := func() (n int) {
		if err := s.StoredCheckpoints(0, s.AuditSize(), 1000, func(uint64, []byte) { n++ }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	s.SpendAudit() // what readers may have signed at once
	s.mustSend("log", s.draft("1", "k", nil))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := s.Checkpoint(short, true)
	wantCode(t, "a fresh one too many", err, event.CodeOverloaded)
	if _, err := s.ProveReceipt(ctx, s.Head().Position); err != nil { // who publishes need not wait for readers
		t.Fatal(err)
	}
	if c, err := s.Checkpoint(ctx, true); err != nil || c.Size != s.AuditSize() {
		t.Errorf("what was signed for others is over %d entries, %v", c.Size, err)
	}
	if n := count() - before; n != 1 {
		t.Errorf("%d checkpoints were signed", n)
	}
}

// TestLongAcknowledgementIsFoundByEveryTicket: a stream that acknowledges more than one
// entry is found by does so in several, and in none if it says to have what there is not.
func TestLongAcknowledgementIsFoundByEveryTicket(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	ctx := context.Background()
	document := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	document.Config.Kind, document.Config.Topics, document.Config.Start = event.KindStream, []string{"bus.main.>"}, "earliest"
	audit := identity.Named("audit")
	made, err := s.CreateSubscription(ctx, audit, document)
	if err != nil {
		t.Fatal(err)
	}
	const tickets = 2*projector.TicketsOfEntryMax + 100
	name := func(i int) string { return fmt.Sprintf("T-%05d", i) }
	var opening sync.WaitGroup
	for part := range 8 {
		opening.Go(func() {
			for i := part; i < tickets; i += 8 {
				m, err := ticket.Draft{
					Header:  ticket.Header{Type: ticket.TypeOpen, TicketID: name(i), TraceID: "trace-1", From: "desk", To: "orchestrator", Time: s.clock.Wall()},
					Payload: []byte(busOpen),
				}.Sign(nameKey("desk"))
				if err == nil {
					_, err = s.PostMessage(ctx, anonymous(), m.Bytes())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	opening.Wait()
	_, err = s.Acknowledge(ctx, audit, made.Document.ID, event.Cursor{Position: s.Head().Position + 1000})
	wantCode(t, "beyond the head", err, event.CodeCursorForeign)
	if got, err := s.Acknowledge(ctx, audit, made.Document.ID, event.Cursor{}); err != nil || got.Position != 0 {
		t.Fatalf("what was refused has moved the cursor to %s, %v", got, err)
	}
	to := event.Cursor{Position: s.Head().Position}
	if got, err := s.Acknowledge(ctx, audit, made.Document.ID, to); err != nil || got.Position != to.Position {
		t.Fatalf("acknowledged up to %s, %v", got, err)
	}
	for i := 0; i < tickets; i += 50 {
		if got := s.trailOf("audit", broker.AuditQuery{Ticket: name(i)}); len(got) != 2 || got[1] != "acknowledge" {
			t.Fatalf("the trail of %s is %q", name(i), got)
		}
	}
	s.wantMetrics("signalbox_audit_unfound_entries_total", "0")
}
