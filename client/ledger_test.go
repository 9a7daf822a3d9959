// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

// compacted creates a compacted topic.
func compacted(t *testing.T, c *client.Client, topic, keyFrom string) {
	t.Helper()
	policy := event.DefaultPolicy()
	policy.CleanupPolicy, policy.KeyFrom = event.CleanupCompact, keyFrom
	if _, _, err := c.PutTopic(t.Context(), topic, policy); err != nil {
		t.Fatal(err)
	}
}

// shipment publishes a step of a shipment, whose key is in the data.
func shipment(t *testing.T, c *client.Client, source, id, status string) event.Receipt {
	t.Helper()
	r, err := c.Publish(t.Context(), "shipments", event.Draft{
		Source: source, Type: "shipment." + status, Data: fmt.Appendf(nil, `{"shipment_id":%q,"status":%q}`, id, status),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shipper is an agent that ships what is created, and remembers what it did.
type shipper struct {
	mu      sync.Mutex
	shipped []string
}

func (s *shipper) options(store client.LedgerStore) client.LedgerOptions {
	return client.LedgerOptions{
		Topics: []string{"shipments", "presence"}, Store: store,
		Needs: func(e client.Entry) bool { return e.Event.Type() == "shipment.created" },
		Act: func(_ context.Context, e client.Effect) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.shipped = append(s.shipped, e.Key)
			return nil
		},
	}
}

func (s *shipper) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shipped)
}

// until polls for something that happens in another goroutine.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain waited for %s", what)
		}
	}
}

// session runs a ledger until stop is called, which returns why Run ended.
func session(t *testing.T, l *client.Ledger) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

func openLedger(t *testing.T, c *client.Client, o client.LedgerOptions) *client.Ledger {
	t.Helper()
	l, err := client.OpenLedger(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ledgerFile(t *testing.T, path string) *client.LedgerFile {
	t.Helper()
	f, err := client.OpenLedgerFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// An agent that was away settles first: what came and went meanwhile has no effect, what is still open has one, once,
// whatever restarts.
func TestLedgerActsOnWhatIsStillOpenAndOnNothingElse(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "shipments", "shipment_id")
	compacted(t, c, "presence", "")
	path := filepath.Join(t.TempDir(), "ledger")
	agent := &shipper{}

	file := ledgerFile(t, path)
	l := openLedger(t, connect(t, b.url), agent.options(file))
	stop := session(t, l)
	until(t, "the first marker", func() bool { return l.State() == client.LedgerActive })
	shipment(t, c, "/orders", "A", "created")
	until(t, "A", func() bool { return len(agent.list()) == 1 })
	if err := stop(); !errors.Is(err, context.Canceled) || l.State() != client.LedgerSynchronizing {
		t.Fatalf("ended with %v, %s", err, l.State())
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	shipment(t, c, "/orders", "X", "created")
	if _, err := c.Publish(t.Context(), "presence", event.Draft{Source: "/beta", Type: "presence", Subject: "beta", Data: []byte(`1`), Extensions: map[string]any{"expiry": 1}}); err != nil {
		t.Fatal(err)
	}
	shipment(t, c, "/orders", "X", "cancelled")
	shipment(t, c, "/orders", "Y", "created")
	shipment(t, c, "/gamma", "Y", "completed")
	shipment(t, c, "/orders", "Z", "created")
	time.Sleep(1100 * time.Millisecond) // the presence signal expires
	b.restart(t)

	for round := range 2 {
		file = ledgerFile(t, path)
		l = openLedger(t, connect(t, b.url), agent.options(file))
		stop = session(t, l)
		until(t, "Z", func() bool { return l.State() == client.LedgerActive && len(agent.list()) == 2 })
		_ = stop()
		_ = file.Close()
		f := l.Figures()
		if got := agent.list(); !slices.Equal(got, []string{"A", "Z"}) || f.Antecedents != 0 || round == 0 && f.Suppressed != 1 {
			t.Fatalf("round %d: shipped %v, %+v", round, got, f)
		}
		if _, seen := l.Get("presence", "beta"); seen || len(slices.Collect(l.Open())) != 0 {
			t.Errorf("round %d: presence seen %t, open %v", round, seen, slices.Collect(l.Open()))
		}
	}
}

// A cursor that has expired, or is of another log, is answered by starting over from the state. What was done stays done.
func TestLedgerStartsOverFromTheStateAfterAReset(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	agent := &shipper{}
	path := filepath.Join(t.TempDir(), "ledger")
	compacted(t, c, "shipments", "shipment_id")
	compacted(t, c, "presence", "")
	draft := event.Draft{Source: "/orders", ID: "1", Type: "shipment.created", Data: []byte(`{"shipment_id":"A"}`)}
	publish := func() {
		if _, err := c.Publish(t.Context(), "shipments", draft); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	file := ledgerFile(t, path)
	l := openLedger(t, connect(t, b.url), agent.options(file))
	stop := session(t, l)
	until(t, "A", func() bool { return len(agent.list()) == 1 })
	_ = stop()
	_ = file.Close()

	shipment(t, c, "/orders", "B", "created")
	if err := c.DeleteTopic(t.Context(), "shipments"); err != nil {
		t.Fatal(err)
	}
	compacted(t, c, "shipments", "shipment_id")
	draft.Data = []byte(`{"shipment_id":"A","again":true}`)
	publish() // the same event, which a producer sends once more after the loss
	shipment(t, c, "/orders", "C", "created")

	file = ledgerFile(t, path)
	var cause *event.Error
	o := agent.options(file)
	o.OnReset = func(e *event.Error) { cause = e }
	l = openLedger(t, connect(t, b.url), o)
	stop = session(t, l)
	until(t, "C", func() bool { return l.State() == client.LedgerActive && len(agent.list()) == 2 })
	v, err := l.Check(t.Context(), "shipments")
	_ = stop()
	_ = file.Close()
	if err != nil || !v.Agrees || v.Keys != 2 {
		t.Errorf("the verdict is %+v, %v", v, err)
	}
	if got := agent.list(); !slices.Equal(got, []string{"A", "C"}) || cause == nil || cause.Code != event.CodeCursorExpired || l.Figures().Resets != 1 {
		t.Errorf("shipped %v after %v, %+v", got, cause, l.Figures())
	}
}

// A ledger that has diverged is told so, with the keys, and can be mended.
func TestLedgerFindsAndMendsADifference(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	for _, key := range []string{"a", "b", "c"} {
		d := draft
		d.Subject = key
		if _, err := c.Publish(t.Context(), "t", d); err != nil {
			t.Fatal(err)
		}
	}
	l := openLedger(t, connect(t, b.url), client.LedgerOptions{Topics: []string{"t"}})
	// The agent believes in an event that the broker never had, knows an old one, and lacks one.
	wrong := delivered(t, "never", "5000.00000", `,"topic":"t","position":"1","subject":"x","data":1`)
	stale := delivered(t, "old", "5000.00000", `,"topic":"t","position":"1","subject":"a","data":1`)
	head, err := c.Digest(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	for i, ev := range []*event.Event{wrong, stale} {
		cursor := event.Cursor{Position: uint64(i + 1), Incarnation: head.Cursor.Incarnation}
		if err := l.Ingest(t.Context(), client.Item{Kind: client.ItemEvent, Cursor: cursor, Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Ingest(t.Context(), client.Item{Kind: client.ItemSynced, Cursor: head.Cursor}); err != nil {
		t.Fatal(err)
	}
	v, err := l.Check(t.Context(), "t")
	want := []client.Difference{
		{Key: "a", Kind: client.DifferenceStale, Own: 1, Theirs: 1}, {Key: "b", Kind: client.DifferenceMissing, Theirs: 2},
		{Key: "c", Kind: client.DifferenceMissing, Theirs: 3}, {Key: "x", Kind: client.DifferenceExtra, Own: 1},
	}
	if err != nil || v.Agrees || !slices.Equal(v.Differences, want) || len(v.Buckets) != 4 || !l.Status().Diverged {
		t.Fatalf("the verdict is %+v, %v", v, err)
	}
	told, err := json.Marshal(l.Status())
	if err != nil || !strings.Contains(string(told), `"diverged":true`) || !strings.Contains(string(told), `"state":"ACTIVE"`) {
		t.Errorf("the status is %s, %v", told, err)
	}

	stop := session(t, l)
	l.Repair()
	until(t, "the repair", func() bool { return l.Figures().Resets == 1 && l.State() == client.LedgerActive })
	v, err = l.Check(t.Context(), "t")
	_ = stop()
	if err != nil || !v.Agrees || l.Status().Diverged {
		t.Errorf("after the repair the verdict is %+v, %v", v, err)
	}
}

// While a topic is busy, a check is still exact.
func TestLedgerCheckWhileEventsComeIn(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	l := openLedger(t, connect(t, b.url), client.LedgerOptions{Topics: []string{"t"}})
	stop := session(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			d := draft
			d.Subject = fmt.Sprint("k", n%7)
			_, _ = c.Publish(ctx, "t", d)
		}
	})
	for range 5 {
		if v, err := l.Check(t.Context(), "t"); err != nil || !v.Agrees {
			t.Errorf("the verdict is %+v, %v", v, err)
		}
	}
	cancel()
	wg.Wait()
	_ = stop()
}

// A half-open connection shows up as silence. The ledger stops acting, connects again and has lost nothing.
func TestLedgerOnAHalfOpenConnectionStopsActing(t *testing.T) {
	var mu sync.Mutex
	again := false
	release := make(chan struct{})
	c := serve(t, policyServer(func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		if r.Header.Get("Last-Event-ID") == "" {
			send(w, keyed(1, "e1", "k1", 1000)+sync1)
			<-r.Context().Done() // nothing more comes, and nothing ends
			return
		}
		mu.Lock()
		again = true
		mu.Unlock()
		<-release
		send(w, keyed(2, "e2", "k2", 1001)+strings.ReplaceAll(sync1, "@1", "@2"))
		<-r.Context().Done()
	}), client.WithWatchdog(time.Second))
	var acted []string
	l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}, Act: func(_ context.Context, e client.Effect) error {
		mu.Lock()
		defer mu.Unlock()
		acted = append(acted, e.Key)
		return nil
	}})
	stop := session(t, l)
	until(t, "another connection", func() bool { mu.Lock(); defer mu.Unlock(); return again })
	if l.State() != client.LedgerSynchronizing {
		t.Error("ACTIVE on a connection that has brought no marker")
	}
	close(release)
	until(t, "what came later", func() bool { mu.Lock(); defer mu.Unlock(); return len(acted) == 2 })
	_ = stop()
	if f := l.Figures(); !slices.Equal(acted, []string{"k1", "k2"}) || f.Suppressed != 2 {
		t.Errorf("acted on %v, %+v", acted, f)
	}
}

const sync1 = "event: signalbox.sync\nid: @1." + incarnation + "\ndata: {\"cursor\":\"@1." + incarnation + "\",\"log_ms\":5}\n\n"

// After a restart with its ledger file, what an agent publishes is later than everything it ever read, even where the
// wall clock was set back.
func TestLedgerKeepsTheClockAhead(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	r, err := c.Publish(t.Context(), "t", draft)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger")
	past := func() time.Time { return time.Now().Add(-time.Hour) }
	for range 2 {
		file := ledgerFile(t, path)
		k := client.NewClockAt(0, past)
		agent := connect(t, b.url, client.WithClock(k))
		l := openLedger(t, agent, client.LedgerOptions{Topics: []string{"t"}, Store: file})
		if k.Last() == 0 {
			stop := session(t, l)
			until(t, "the marker", func() bool { return l.State() == client.LedgerActive })
			_ = stop()
		}
		_ = file.Close()
		if k.Stamp() <= r.HLC {
			t.Errorf("stamped %s after reading %s", k.Last(), r.HLC)
		}
	}
}

// What a ledger cannot hold it refuses, and names.
func TestLedgerRefusals(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	for i, topic := range []string{"t", "t", "plain"} {
		d := draft
		d.Subject = fmt.Sprint(i)
		if _, err := c.Publish(t.Context(), topic, d); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []struct {
		o    client.LedgerOptions
		code event.Code
	}{
		{client.LedgerOptions{Topics: []string{"t"}, KeysMax: 1}, event.CodeLedgerFull},
		{client.LedgerOptions{Topics: []string{"plain"}}, event.CodeNotCompacted},
	} {
		err := openLedger(t, c, k.o).Run(t.Context())
		if e := (*event.Error)(nil); !errors.As(err, &e) || e.Code != k.code {
			t.Errorf("%v: %v", k.o.Topics, err)
		}
	}
	if _, err := client.OpenLedger(t.Context(), c, client.LedgerOptions{}); event.AsError(err).Code != event.CodeTopicInvalid {
		t.Errorf("without topics: %v", err)
	}
}

// At whatever byte a crash cuts the file: it opens, and its ledger is one that there was.
func TestLedgerFileCutAnywhere(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	path := filepath.Join(quickDir(t), "ledger")
	file := ledgerFile(t, path)
	l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}, Store: file, Act: func(context.Context, client.Effect) error { return nil }})
	for n := range 3 {
		d := draft
		d.Subject = fmt.Sprint(n)
		if _, err := c.Publish(t.Context(), "t", d); err != nil {
			t.Fatal(err)
		}
	}
	stop := session(t, l)
	until(t, "three effects", func() bool { return l.Figures().Effects == 3 })
	_ = stop()
	_ = file.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	acted := -1
	for n := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := client.OpenLedgerFile(path)
		if n < len("signalbox.ledger/1\n") {
			if event.AsError(err).Code != event.CodeJournalDamaged {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		l := openLedger(t, c, client.LedgerOptions{Topics: []string{"t"}, Store: file})
		_ = file.Close()
		now := 0
		for e := range l.Entries() {
			if e.Acted {
				now++
			}
		}
		if now < acted {
			t.Fatalf("%d bytes: %d effects are known, fewer than with one byte less", n, now)
		}
		acted = now
	}
	if acted != 3 {
		t.Errorf("%d effects are known from the whole file", acted)
	}
}
