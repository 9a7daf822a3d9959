// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
)

// traffic is a broker under writers, readers, time, the cleaner and restarts,
// all at once. What the readers saw is compared with the receipts afterwards.
type traffic struct {
	*box
	t        *testing.T
	turn     sync.RWMutex // held for writing while the broker is restarted
	life     int          // counts the restarts; guarded by turn
	mu       sync.Mutex
	accepted map[uint64]written // by position; guarded by mu
	over     atomic.Bool        // nothing more is written
}

// written is an event as its writer knows it.
type written struct {
	topic, key, id string
	hlc            event.HLC
	bare           bool
}

// client is a reader of some topics: what it got, and what it made of it at each
// sync marker.
type client struct {
	list   string
	cursor event.Cursor
	got    []uint64
	fold   map[string]uint64 // by topic and key
	synced []moment
}

type moment struct {
	cursor uint64
	fold   map[string]uint64
}

// TestReadersMissNothing: each reader gets each event of its topics once and in
// order, wherever it resumes and however far it falls behind; and what it holds
// of compacted topics at a sync marker is their state at that cursor.
func TestReadersMissNothing(t *testing.T) {
	x := &traffic{box: newBox(t, broker.Options{}), t: t, accepted: map[uint64]written{}}
	for _, topic := range []string{"log", "x.log"} {
		x.put(topic, func(p *event.Policy) { p.Retention = nil })
	}
	x.put("tasks", compact)
	x.put("x.tasks", compact)

	var readers, writers, upkeep sync.WaitGroup
	clients := []*client{}
	for i, list := range []string{"log", "tasks", "x.*", ">", "log,x.tasks", "tasks", "log", ">"} {
		c := &client{list: list, fold: map[string]uint64{}}
		clients = append(clients, c)
		readers.Go(func() { x.readAll(c, rand.New(rand.NewPCG(uint64(i), 1)), i >= 6) })
	}
	for i := range 4 {
		writers.Go(func() { x.write(i) })
	}
	upkeep.Go(x.upkeep)
	writers.Wait()
	x.over.Store(true)
	upkeep.Wait()
	readers.Wait()
	defer x.close()
	for _, c := range clients {
		x.check(c)
	}
}

// write publishes single events and batches, late ones and tombstones among them.
func (x *traffic) write(writer int) {
	rng := rand.New(rand.NewPCG(uint64(writer), 2))
	topics := []string{"log", "x.log", "tasks", "x.tasks"}
	for round := range 70 {
		topic := topics[rng.IntN(len(topics))]
		var batch []*event.Event
		bare := map[string]bool{}
		for i := range 1 + rng.IntN(3)*rng.IntN(40) {
			id := fmt.Sprintf("%d.%d.%d", writer, round, i)
			attributes := map[string]any{}
			if rng.IntN(3) == 0 {
				attributes["hlc"] = event.NewHLC(x.LogMillis()-rng.Int64N(5000), uint16(rng.IntN(3))).String()
			}
			if rng.IntN(5) == 0 {
				attributes["bare"], bare[id] = true, true
			}
			batch = append(batch, x.draft(id, fmt.Sprint("k", rng.IntN(12)), attributes))
		}
		x.turn.RLock()
		result, err := x.send(broker.PublishRequest{Topic: topic, Events: batch, Batch: true})
		x.turn.RUnlock()
		if err != nil {
			x.t.Errorf("writer %d, round %d: %v", writer, round, err)
			return
		}
		x.mu.Lock()
		for i, r := range result.Receipts {
			key, _ := batch[i].Key()
			x.accepted[r.Position] = written{topic, key, r.ID, r.HLC, bare[r.ID]}
		}
		x.mu.Unlock()
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
}

// upkeep lets time pass, cleans, and restarts the broker now and then.
func (x *traffic) upkeep() {
	for i := 1; !x.over.Load(); i++ {
		time.Sleep(10 * time.Millisecond)
		if i%6 > 0 {
			x.clock.pass(700 * time.Millisecond)
			x.settle()
			continue
		}
		x.renew()
	}
}

func (x *traffic) renew() {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.restart()
	x.life++
}

// readAll follows to the end, with windows of all sizes, coming back with its
// cursor every so often; a lazy one begins to read when all is written.
func (x *traffic) readAll(c *client, rng *rand.Rand, lazy bool) {
	var reader *dispatch.Reader
	life := -1
	for lazy && !x.over.Load() {
		time.Sleep(time.Millisecond)
	}
	for {
		last := x.over.Load()
		w, changed, ok := x.poll(c, rng, &reader, &life)
		switch {
		case !ok:
			return
		case w.CaughtUp && last:
			reader.Close()
			return
		case w.CaughtUp && len(w.Deliveries) == 0:
			select {
			case <-changed:
			case <-time.After(20 * time.Millisecond): // or a restart took the reader
			}
		}
	}
}

// poll takes a window, after it has come back with its cursor if it must or,
// sometimes, wants to.
func (x *traffic) poll(c *client, rng *rand.Rand, reader **dispatch.Reader, life *int) (w dispatch.Window, changed <-chan struct{}, ok bool) {
	x.turn.RLock()
	defer x.turn.RUnlock()
	if *life != x.life || rng.IntN(20) == 0 {
		if *reader != nil {
			(*reader).Close()
		}
		again, err := x.Read(broker.ReadRequest{Patterns: mustPatterns(x.t, c.list), Start: dispatch.Start{Cursor: &c.cursor}})
		if err != nil {
			x.t.Errorf("a reader of %s comes back with %s: %v", c.list, c.cursor, err)
			return w, nil, false
		}
		*reader, *life = again, x.life
	}
	changed = (*reader).Changed()
	w, err := (*reader).Poll(dispatch.Limit{Events: 1 + rng.IntN(300), Bytes: 1 << (4 + rng.IntN(16))})
	if err != nil {
		x.t.Errorf("a reader of %s: %v", c.list, err)
		return w, nil, false
	}
	x.take(c, &w)
	return w, changed, true
}

func (x *traffic) take(c *client, w *dispatch.Window) {
	for i := range w.Deliveries {
		ev := deliveredEvent(x.t, &w.Deliveries[i])
		c.got = append(c.got, ev.Position())
		key, _ := ev.Key()
		if ev.Superseded() {
			x.t.Errorf("a reader of %s got %d, which was superseded on arrival", c.list, ev.Position())
		}
		c.fold[ev.Topic()+" "+key] = ev.Position()
	}
	c.cursor = w.Cursor
	if w.CaughtUp && (len(c.synced) == 0 || c.synced[len(c.synced)-1].cursor != w.Cursor.Position) {
		c.synced = append(c.synced, moment{w.Cursor.Position, maps.Clone(c.fold)})
	}
}

// check compares what a client saw with what was accepted.
func (x *traffic) check(c *client) {
	if !slices.IsSorted(c.got) || len(slices.Compact(slices.Clone(c.got))) != len(c.got) {
		x.t.Errorf("a reader of %s got positions out of order or twice", c.list)
	}
	got := map[uint64]bool{}
	for _, p := range c.got {
		got[p] = true
	}
	patterns := mustPatterns(x.t, c.list)
	matches := func(topic string) bool {
		return slices.ContainsFunc(patterns, func(p event.Pattern) bool { return p.Match(topic) })
	}
	for p, w := range x.accepted {
		log := w.topic == "log" || w.topic == "x.log"
		if matches(w.topic) && log && !got[p] {
			x.t.Errorf("a reader of %s missed %d, an event of %s", c.list, p, w.topic)
		}
		if got[p] && !matches(w.topic) {
			x.t.Errorf("a reader of %s got %d, an event of %s", c.list, p, w.topic)
		}
		delete(got, p)
	}
	if len(got) > 0 {
		x.t.Errorf("a reader of %s got what nobody published: %v", c.list, got)
	}
	if len(c.synced) == 0 {
		x.t.Errorf("a reader of %s never caught up", c.list)
	}
	x.checkSynced(c, matches)
}

// checkSynced computes the state at each sync marker from the receipts alone.
func (x *traffic) checkSynced(c *client, matches func(string) bool) {
	order := slices.Sorted(maps.Keys(x.accepted))
	winners := map[string]uint64{}
	for _, m := range c.synced {
		for len(order) > 0 && order[0] <= m.cursor {
			p := order[0]
			order = order[1:]
			w := x.accepted[p]
			if w.topic != "tasks" && w.topic != "x.tasks" || !matches(w.topic) {
				continue
			}
			name := w.topic + " " + w.key
			if before, ok := winners[name]; !ok || above(w, x.accepted[before]) {
				winners[name] = p
			}
		}
		for name, p := range winners {
			if m.fold[name] != p {
				x.t.Errorf("at %d a reader of %s holds %d for %s, and the state is %d", m.cursor, c.list, m.fold[name], name, p)
			}
		}
	}
}

func above(a, b written) bool {
	return cmp.Or(cmp.Compare(a.hlc, b.hlc), cmp.Compare(a.id, b.id)) > 0
}
