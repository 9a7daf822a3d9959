// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/client"
	"signalbox/event"
)

// errCrash stands for the end of the process: what had the error in its hands is gone.
var errCrash = errors.New("the process died")

// fate decides, each time it is asked, whether the process dies here.
type fate struct {
	t     *rapid.T
	alive bool // for the rest of the run nothing dies
}

func (f *fate) strikes(where string) bool {
	return !f.alive && rapid.IntRange(0, 7).Draw(f.t, where) == 0
}

// world is what agents change: it counts the actions, and nothing resets it.
type world struct {
	acted map[string]int
}

// disk is a store that dies at any instant: before or after a record is there.
type disk struct {
	records [][]byte
	fate    *fate
}

func (d *disk) Load(_ context.Context, each func([]byte) error) error {
	for _, r := range d.records {
		if err := each(slices.Clone(r)); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) Append(_ context.Context, record []byte) error {
	return d.write(func() { d.records = append(d.records, slices.Clone(record)) })
}

func (d *disk) Replace(_ context.Context, records iter.Seq[[]byte]) error {
	var all [][]byte
	for r := range records {
		all = append(all, slices.Clone(r))
	}
	return d.write(func() { d.records = all })
}

func (d *disk) write(commit func()) error {
	if d.fate.strikes("before the write") {
		return errCrash
	}
	commit()
	if d.fate.strikes("after the write") {
		return errCrash
	}
	return nil
}

// database is a disk whose transactions the agent's actions take part in.
type database struct {
	disk
	world *world
}

type txKey struct{}

func (d *database) Transact(ctx context.Context, record []byte, act func(context.Context) error) error {
	var actions []string
	if err := act(context.WithValue(ctx, txKey{}, &actions)); err != nil {
		return err
	}
	return d.write(func() {
		d.records = append(d.records, slices.Clone(record))
		for _, id := range actions {
			d.world.acted[id]++
		}
	})
}

// simLog is a log that can be lost and restored: events in order of arrival, whatever their stamps.
type simLog struct {
	mu          sync.Mutex
	incarnation string
	events      []*event.Event
}

func (g *simLog) add(id, key string, hlc int, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	data := `,"data":1`
	if gone {
		data = ""
	}
	text := fmt.Sprintf(`{"specversion":"1.0","source":"/s","type":"t.x","topic":"t","id":%q,"subject":%q,"hlc":"%d.00000","position":"%d"%s`,
		id, key, time.Now().Truncate(24*time.Hour).UnixMilli()+int64(hlc), len(g.events)+1, data)
	ev, err := event.DecodeDelivered([]byte(text + "}"))
	if err == nil && !wins(ev, g.last()[key]) {
		ev, err = event.DecodeDelivered([]byte(text + `,"superseded":true}`))
	}
	if err != nil {
		panic(err)
	}
	g.events = append(g.events, ev)
}

func wins(ev, over *event.Event) bool {
	return over == nil || cmp.Or(cmp.Compare(ev.HLC(), over.HLC()), cmp.Compare(ev.ID(), over.ID())) > 0
}

// last is of every key the event with the highest stamp, tombstones included.
func (g *simLog) last() map[string]*event.Event {
	out := map[string]*event.Event{}
	for _, ev := range g.events {
		if key, _ := ev.Key(); wins(ev, out[key]) {
			out[key] = ev
		}
	}
	return out
}

func (g *simLog) cursor(n int) event.Cursor {
	return event.Cursor{Position: uint64(n), Incarnation: g.incarnation}
}

// winners is the state by its definition.
func (g *simLog) winners() map[string]*event.Event {
	out := g.last()
	maps.DeleteFunc(out, func(_ string, ev *event.Event) bool { return ev.DataKind() == event.NoData })
	return out
}

// ServeHTTP is the part of a broker that a ledger asks: the policy of its topic, and the state.
func (g *simLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, "/state") {
		_, _ = w.Write([]byte(`{"name":"t","policy":{"cleanup_policy":"compact"},"oldest":"@0","head":"@0"}`))
		return
	}
	w.Header().Set("Signalbox-Cursor", g.cursor(len(g.events)).String())
	state := slices.SortedFunc(maps.Values(g.winners()), func(a, b *event.Event) int { return cmp.Compare(a.Position(), b.Position()) })
	for _, ev := range state {
		_, _ = w.Write(append(ev.AppendJSON(nil), '\n'))
	}
}

// play has a ledger live through a random history of events, repetitions, disconnections, resets and crashes.
type play struct {
	*rapid.T
	log    *simLog
	store  client.LedgerStore
	fate   *fate
	act    func(context.Context, client.Effect) error
	client *client.Client
	ledger *client.Ledger
	resets int
	made   []func() // the events so far, to be published once more after a reset
}

func (p *play) open() {
	var err error
	p.ledger, err = client.OpenLedger(context.Background(), p.client, client.LedgerOptions{Topics: []string{"t"}, Store: p.store, Act: p.act})
	if err != nil {
		p.Fatal(err)
	}
}

// survive opens the ledger anew if the process died.
func (p *play) survive(err error) {
	switch {
	case errors.Is(err, errCrash):
		p.open()
	case err != nil:
		p.Fatal(err)
	}
}

func (p *play) publish(n int) {
	id := fmt.Sprint("e", n)
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(p.T, "key")
	hlc := rapid.IntRange(0, 30).Draw(p.T, "hlc")
	gone := rapid.IntRange(0, 3).Draw(p.T, "gone") == 0
	add := func() { p.log.add(id, key, hlc, gone) }
	add()
	p.made = append(p.made, add)
}

// read is a connection: from the ledger's cursor, or from before it, up to somewhere; perhaps to the marker.
func (p *play) read(whole bool) {
	p.ledger.Disconnected()
	from := int(p.ledger.Cursor().Position)
	to := len(p.log.events)
	if !whole {
		from = rapid.IntRange(0, from).Draw(p.T, "from")
		to = rapid.IntRange(from, to).Draw(p.T, "to")
	}
	repeats := rapid.IntRange(0, 2).Draw(p.T, "repeats")
	for n := from; n < to; n++ {
		err := p.ledger.Ingest(context.Background(), client.Item{Kind: client.ItemEvent, Cursor: p.log.cursor(n + 1), Event: p.log.events[n]})
		if p.survive(err); err != nil {
			return
		}
		if repeats > 0 && rapid.Bool().Draw(p.T, "repeat") {
			repeats--
			n -= rapid.IntRange(0, n+1).Draw(p.T, "back")
		}
	}
	if to == len(p.log.events) && uint64(to) >= p.ledger.Cursor().Position {
		p.survive(p.ledger.Ingest(context.Background(), client.Item{Kind: client.ItemSynced, Cursor: p.log.cursor(to)}))
	}
}

// live publishes and delivers at once, to a ledger that may be ACTIVE.
func (p *play) live(n int) {
	if p.ledger.Cursor().Position != uint64(len(p.log.events)) {
		return
	}
	p.publish(n)
	last := len(p.log.events)
	p.survive(p.ledger.Ingest(context.Background(), client.Item{Kind: client.ItemEvent, Cursor: p.log.cursor(last), Event: p.log.events[last-1]}))
}

// reset restores the log from a backup, and has producers send again some of what was lost.
func (p *play) reset() {
	p.resets++
	kept := rapid.IntRange(0, len(p.log.events)).Draw(p.T, "kept")
	p.log.mu.Lock()
	p.log.incarnation = fmt.Sprintf("i%07d", p.resets)
	p.log.events = p.log.events[:kept]
	p.log.mu.Unlock()
	have := map[string]bool{}
	for _, ev := range p.log.events {
		have[ev.ID()] = true
	}
	p.ledger.Disconnected()
	p.bootstrap()
	for i, add := range p.made {
		if !have[fmt.Sprint("e", i)] && rapid.Bool().Draw(p.T, "again") {
			add()
		}
	}
}

// bootstrap is what Run does at a reset; a process that dies over it is told again.
func (p *play) bootstrap() {
	for p.ledger.Cursor().Incarnation != p.log.incarnation {
		p.survive(p.ledger.Bootstrap(context.Background()))
	}
}

func (p *play) run() {
	p.open()
	n := 0
	for range rapid.IntRange(1, 25).Draw(p.T, "steps") {
		switch rapid.IntRange(0, 6).Draw(p.T, "step") {
		case 0, 1, 2:
			p.publish(n)
			n++
		case 3:
			before := len(p.made)
			if p.live(n); len(p.made) > before {
				n++
			}
		case 4, 5:
			p.read(false)
		case 6:
			p.reset()
		}
	}
	p.fate.alive = true
	p.read(true)
	if p.ledger.State() != client.LedgerActive {
		p.Fatal("not ACTIVE at the end")
	}
}

// check compares the ledger with the state by its definition, and the world with it.
func (p *play) check(w *world) {
	want := p.log.winners()
	got := map[string]*event.Event{}
	for e := range p.ledger.Entries() {
		got[e.Key] = e.Event
	}
	if !maps.EqualFunc(got, want, func(a, b *event.Event) bool { return a.ID() == b.ID() }) {
		p.Fatalf("the ledger holds %v, the state is %v", ids(got), ids(want))
	}
	for id, n := range w.acted {
		if n != 1 {
			p.Fatalf("%s was done %d times", id, n)
		}
	}
	for _, ev := range want {
		if w.acted[ev.ID()] != 1 {
			p.Fatalf("%s is open and was done %d times", ev.ID(), w.acted[ev.ID()])
		}
	}
}

func ids(m map[string]*event.Event) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+"="+m[key].ID())
	}
	return out
}

// Whatever arrives in whatever order and however often, whenever the process dies, and whatever the log forgets: the
// ledger ends as the state, and nothing was done twice by an agent that looks before it repeats.
func TestLedgerIsTheStateAndActsOnce(t *testing.T) {
	log := &simLog{}
	srv := httptest.NewServer(log)
	t.Cleanup(srv.Close)
	c := connect(t, srv.URL)
	rapid.Check(t, func(rt *rapid.T) {
		log.mu.Lock()
		log.incarnation, log.events = incarnation, nil
		log.mu.Unlock()
		w, f := &world{acted: map[string]int{}}, &fate{t: rt}
		p := &play{T: rt, log: log, store: &disk{fate: f}, fate: f, client: c}
		p.act = func(_ context.Context, e client.Effect) error {
			if f.strikes("before the action") {
				return errCrash
			}
			if !e.Uncertain || w.acted[e.Event.ID()] == 0 {
				w.acted[e.Event.ID()]++
			}
			if f.strikes("after the action") {
				return errCrash
			}
			return nil
		}
		p.run()
		p.check(w)
	})
}

// Where the action is in the same transaction, it happens once without looking.
func TestLedgerInATransactionActsExactlyOnce(t *testing.T) {
	log := &simLog{}
	srv := httptest.NewServer(log)
	t.Cleanup(srv.Close)
	c := connect(t, srv.URL)
	rapid.Check(t, func(rt *rapid.T) {
		log.mu.Lock()
		log.incarnation, log.events = incarnation, nil
		log.mu.Unlock()
		w, f := &world{acted: map[string]int{}}, &fate{t: rt}
		p := &play{T: rt, log: log, store: &database{disk: disk{fate: f}, world: w}, fate: f, client: c}
		p.act = func(ctx context.Context, e client.Effect) error {
			if f.strikes("within the action") {
				return errCrash
			}
			actions, _ := ctx.Value(txKey{}).(*[]string)
			*actions = append(*actions, e.Event.ID())
			return nil
		}
		p.run()
		p.check(w)
	})
}
