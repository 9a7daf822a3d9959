// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

// policyServer answers what a ledger asks about a topic, and leaves the stream to the test.
func policyServer(stream http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			stream(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"name":"t","policy":{"cleanup_policy":"compact"},"oldest":"@0","head":"@0"}`))
	}
}

// keyed is an event of topic t as a stream carries it.
func keyed(position int, id, key string, hlc int) string {
	return fmt.Sprintf("id: @%d.%s\ndata: "+`{"position":"%d","topic":"t","hlc":"%d.00001","specversion":"1.0","id":%q,"source":"/s","type":"t.x","subject":%q,"data":1}`+"\n\n",
		position, incarnation, position, hlc, id, key)
}

// A broker cuts a reader that takes nothing for too long. However often that happens to an agent whose actions take their
// time, it loses nothing and does nothing twice.
func TestLedgerCutForBeingSlowLosesNothing(t *testing.T) {
	const n = 12
	c := serve(t, policyServer(func(w http.ResponseWriter, r *http.Request) {
		from, _ := event.ParseCursor(r.Header.Get("Last-Event-ID"))
		stream(w)
		send(w, "retry: 1\n\n"+fmt.Sprintf("event: signalbox.sync\nid: @%d.%s\ndata: {\"log_ms\":5}\n\n", from.Position, incarnation))
		for p := int(from.Position) + 1; p <= min(n, int(from.Position)+3); p++ {
			send(w, keyed(p, fmt.Sprint("e", p), fmt.Sprint("k", p), 1000+p))
		}
		drop(w) // in the middle of an action
	}))
	var mu sync.Mutex
	var acted []string
	l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}, Act: func(_ context.Context, e client.Effect) error {
		mu.Lock()
		defer mu.Unlock()
		acted = append(acted, e.Event.ID())
		return nil
	}})
	stop := session(t, l)
	until(t, "the last event", func() bool { return l.Figures().Effects == n })
	_ = stop()
	for i, id := range acted {
		if id != fmt.Sprint("e", i+1) {
			t.Fatalf("acted on %v", acted)
		}
	}
}

// An event that is older than what the ledger holds of its key is rejected, counted and reported. It has no effect,
// though the ledger is ACTIVE.
func TestLedgerRejectsAntecedentEvents(t *testing.T) {
	c := serve(t, policyServer(func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		send(w, keyed(1, "new", "k", 2000)+sync1+keyed(2, "old", "k", 1000)+keyed(3, "newest", "k", 3000)+keyed(3, "newest", "k", 3000))
		<-r.Context().Done()
	}))
	var acted, rejected []string
	l := openLedger(t, c, client.LedgerOptions{
		Topics: []string{"t"},
		OnAntecedent: func(ev *event.Event, winner client.Entry) {
			rejected = append(rejected, ev.ID()+" for "+winner.Event.ID())
		},
		Act: func(_ context.Context, e client.Effect) error {
			acted = append(acted, e.Event.ID())
			if e.Event.ID() == "newest" && (!e.Involved || e.Acted) {
				t.Errorf("the entry is %+v", e.Entry)
			}
			return nil
		},
	})
	stop := session(t, l)
	until(t, "the newest event", func() bool { return l.Figures().Effects == 2 })
	_ = stop()
	if f := l.Figures(); !slices.Equal(acted, []string{"new", "newest"}) || !slices.Equal(rejected, []string{"old for new"}) || f.Antecedents != 1 || f.Taken != 2 {
		t.Errorf("acted on %v, rejected %v, %+v", acted, rejected, f)
	}
}

// lying is a database whose commit succeeds and whose answer is lost.
type lying struct {
	memory
	lies int
}

// memory keeps records as long as the process lives.
type memory struct{ records [][]byte }

func (m *memory) Load(_ context.Context, each func([]byte) error) error {
	for _, r := range m.records {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Append(_ context.Context, record []byte) error {
	m.records = append(m.records, slices.Clone(record))
	return nil
}

func (m *memory) Replace(_ context.Context, records iter.Seq[[]byte]) error {
	m.records = slices.Collect(records)
	return nil
}

func (l *lying) Transact(ctx context.Context, record []byte, act func(context.Context) error) error {
	if err := act(ctx); err != nil {
		return err
	}
	_ = l.Append(ctx, record)
	if l.lies--; l.lies >= 0 {
		return errors.New("the connection to the database is gone")
	}
	return nil
}

// Whether a transaction took effect, only the database knows: a ledger that lost the answer asks it, and does not go by
// what it remembers.
func TestLedgerAsksItsDatabaseAfterALostCommit(t *testing.T) {
	c := serve(t, policyServer(func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		if r.Header.Get("Last-Event-ID") == "" {
			send(w, keyed(1, "e1", "k1", 1000))
		}
		send(w, sync1)
		<-r.Context().Done()
	}))
	acted := 0
	l := openLedger(t, c, client.LedgerOptions{
		Topics: []string{"t"}, Store: &lying{lies: 1},
		Act: func(context.Context, client.Effect) error { acted++; return nil },
	})
	if err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "database is gone") {
		t.Fatalf("ended with %v", err)
	}
	stop := session(t, l)
	until(t, "the marker", func() bool { return l.State() == client.LedgerActive && len(slices.Collect(l.Open())) == 0 })
	_ = stop()
	if acted != 1 {
		t.Errorf("acted %d times", acted)
	}
}

// An action that failed is asked for again, with the same name and the same stamp, and with the warning that it may have
// happened.
func TestLedgerRepeatsAFailedActionWithAWarning(t *testing.T) {
	c := serve(t, policyServer(func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		if r.Header.Get("Last-Event-ID") == "" {
			send(w, keyed(1, "e1", "k1", 1000))
		}
		send(w, sync1)
		<-r.Context().Done()
	}))
	for name, store := range map[string]client.LedgerStore{"in memory": nil, "stored": &memory{}} {
		var tries []client.Effect
		l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}, Store: store, Act: func(_ context.Context, e client.Effect) error {
			if tries = append(tries, e); len(tries) == 1 {
				return errors.New("the arm is stuck")
			}
			return nil
		}})
		if err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Fatalf("%s: ended with %v", name, err)
		}
		stop := session(t, l)
		until(t, "the second try", func() bool { return l.Figures().Effects == 1 })
		_ = stop()
		first, second := tries[0], tries[1]
		if len(tries) != 2 || first.Uncertain || !second.Uncertain || first.ID() != second.ID() || first.Stamp != second.Stamp || first.Stamp == 0 {
			t.Errorf("%s: %+v, then %+v", name, first, second)
		}
		x, err := c.Prepare(first.Draft(draft))
		y, err2 := c.Prepare(second.Draft(draft))
		if err != nil || err2 != nil || !x.Equal(y) || x.ID() != first.ID() || x.HLC() != first.Stamp {
			t.Errorf("%s: the drafts differ: %v, %v", name, err, err2)
		}
	}
}

// What is sent once more from before the cursor does not come back, even where its tombstone is long forgotten.
func TestLedgerRepetitionDoesNotReviveAForgottenKey(t *testing.T) {
	c := serve(t, policyServer(http.NotFound))
	l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}})
	old := client.Item{Kind: client.ItemEvent, Cursor: at(1), Event: delivered(t, "e1", "1000.00000", `,"topic":"t","position":"1","subject":"k","data":1`)}
	gone := client.Item{Kind: client.ItemEvent, Cursor: at(2), Event: delivered(t, "e2", "2000.00000", `,"topic":"t","position":"2","subject":"k"`)}
	for _, item := range []client.Item{old, gone, {Kind: client.ItemSynced, Cursor: at(2)}, old} {
		if err := l.Ingest(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.Status(); s.Keys != 0 || s.Figures.Duplicates != 1 || len(slices.Collect(l.Entries())) != 0 {
		t.Errorf("%+v", s)
	}
}

// Not every door tells of a reset within a stream: a plain 410 is answered in the same way.
func TestLedgerStartsOverAfterAPlain410(t *testing.T) {
	state := delivered(t, "e7", "7000.00000", `,"topic":"t","position":"7","subject":"k","data":1`)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch from := r.Header.Get("Last-Event-ID"); {
		case strings.HasSuffix(r.URL.Path, "/state"):
			w.Header().Set("Signalbox-Cursor", at(9).String())
			_, _ = w.Write(append(state.AppendJSON(nil), '\n'))
		case !strings.HasSuffix(r.URL.Path, "/events"):
			policyServer(nil)(w, r)
		case from == at(9).String():
			stream(w)
			send(w, strings.ReplaceAll(sync1, "@1", "@9"))
			<-r.Context().Done()
		default:
			problem(w, event.CodeCursorExpired, false, map[string]any{"oldest": "@8." + incarnation})
		}
	})
	var causes []event.Code
	l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}, OnReset: func(e *event.Error) { causes = append(causes, e.Code) }})
	stale := client.Item{Kind: client.ItemEvent, Cursor: at(1), Event: delivered(t, "e1", "1000.00000", `,"topic":"t","position":"1","subject":"gone","data":1`)}
	if err := l.Ingest(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	stop := session(t, l)
	until(t, "the marker", func() bool { return l.State() == client.LedgerActive })
	_, kept := l.Get("t", "gone")
	e, _ := l.Get("t", "k")
	_ = stop()
	if kept || e.Event == nil || e.Event.ID() != "e7" || !slices.Equal(causes, []event.Code{event.CodeCursorExpired}) || l.Cursor() != at(9) {
		t.Errorf("kept what is gone: %t, holds %+v at %s after %v", kept, e, l.Cursor(), causes)
	}
}
