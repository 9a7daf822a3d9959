// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
)

// putEphemeral makes a topic ephemeral.
func (r *rig) putEphemeral(topic string) {
	r.t.Helper()
	policy := event.DefaultPolicy()
	policy.Durability = event.DurabilityEphemeral
	r.do(&eventlog.Proposal{Kind: eventlog.KindControl, Topic: topic, Control: eventlog.Control{Op: eventlog.OpPutTopic, Topic: topic, Policy: &policy}})
}

// place publishes events to an ephemeral topic.
func (r *rig) place(events ...publishing) ([]dispatch.Placed, error) {
	r.t.Helper()
	placed, _, err := r.dispatch.Place(events[0].topic, r.publish(events...).Entries, r.now)
	return placed, err
}

func (r *rig) mustPlace(events ...publishing) {
	r.t.Helper()
	if _, err := r.place(events...); err != nil {
		r.t.Fatal(err)
	}
}

// fact is what is known of a key.
type fact struct {
	id, source string
	hlc        event.HLC
	expires    int64
	bare       bool
}

func (f fact) beats(g fact) bool {
	if f.hlc != g.hlc {
		return f.hlc > g.hlc
	}
	return f.source+"\x00"+f.id > g.source+"\x00"+g.id
}

// observer is a reader and what it believes.
type observer struct {
	*dispatch.Reader
	topics string
	knows  map[string]fact // by topic and key
}

// world is what a reader of a hub could know.
type world struct {
	*rig
	t         *rapid.T
	last      map[string]fact // the newest accepted event of each key
	facts     map[string]fact // all accepted events, by id
	observers []*observer
}

// TestObserversOfEphemeralTopics lets readers of any pace follow events of any
// kind. Each of them ends with the last value of each key, never gets an older
// one after a newer one of the same key, and never one that has expired.
func TestObserversOfEphemeralTopics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: newRig(t, 64), t: t, last: map[string]fact{}, facts: map[string]fact{}}
		defer w.close()
		for _, topic := range []string{"a", "b"} {
			w.putEphemeral(topic)
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) { w.publishSome(t) },
			"log":     func(*rapid.T) { w.do(w.publish(publishing{topic: "d"})) },
			"pass": func(t *rapid.T) {
				w.tick(rapid.SampledFrom([]int64{1, 2000, 30_000, 61_000}).Draw(t, "ms"))
				if rapid.Bool().Draw(t, "upkeep") {
					w.dispatch.Expire()
				}
			},
			"open": func(t *rapid.T) {
				if len(w.observers) < 5 {
					w.openObserver(rapid.SampledFrom([]string{"a", "b", "a,b", ">"}).Draw(t, "topics"))
				}
			},
			"poll": func(t *rapid.T) {
				if len(w.observers) > 0 {
					w.poll(rapid.SampledFrom(w.observers).Draw(t, "who"), rapid.IntRange(1, 5).Draw(t, "limit"))
				}
			},
			"": func(t *rapid.T) { w.checkHeld() },
		})
		for _, f := range w.observers {
			for !w.poll(f, 3) {
			}
			w.checkKnowledge(f)
			f.Close()
		}
	})
}

func (w *world) publishSome(t *rapid.T) {
	events := make([]publishing, rapid.IntRange(1, 3).Draw(t, "events"))
	topic := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic")
	for i := range events {
		w.n++
		e := publishing{topic: topic, id: fmt.Sprint("e", w.n), source: rapid.SampledFrom([]string{"/s", "/t"}).Draw(t, "source")}
		e.key = rapid.SampledFrom([]string{"", "k", "l", "m"}).Draw(t, "key")
		e.bare = rapid.IntRange(0, 4).Draw(t, "bare") == 0
		if rapid.Bool().Draw(t, "stamped") {
			e.hlc = event.NewHLC(w.now+rapid.SampledFrom([]int64{-200_000, -62_000, -1000, 0, 400}).Draw(t, "ahead"), uint16(rapid.IntRange(0, 1).Draw(t, "counter")))
		}
		if rapid.IntRange(0, 2).Draw(t, "expires") == 0 {
			e.expiresMillis = w.now + rapid.Int64Range(-10, 4000).Draw(t, "after")
		}
		events[i] = e
	}
	placed, err := w.place(events...)
	if err != nil {
		if code := event.AsError(err).Code; code != event.CodeHLCStale {
			w.t.Fatal(err)
		}
		return
	}
	for i, p := range placed {
		if p.Superseded {
			continue
		}
		e := events[i]
		f := fact{id: e.id, source: e.source, hlc: p.HLC, expires: e.expiresMillis, bare: e.bare}
		w.facts[e.id] = f
		if e.key == "" {
			continue
		}
		name := topic + "/" + e.key
		if last, ok := w.last[name]; ok && !f.beats(last) {
			w.t.Fatalf("%s was accepted after %+v", e.id, last)
		}
		w.last[name] = f
	}
}

func (w *world) openObserver(topics string) {
	w.observers = append(w.observers, &observer{Reader: w.mustOpen(topics, dispatch.Start{}, ""), topics: topics, knows: map[string]fact{}})
}

// poll takes a window, and reports whether there is nothing more.
func (w *world) poll(f *observer, limit int) bool {
	window, err := f.Poll(dispatch.Limit{Events: limit, Bytes: 1 << 20})
	if err != nil {
		if event.AsError(err).Code != event.CodeValuesReset {
			w.t.Fatal(err)
		}
		f.Close() // it connects again, and forgets what it believed
		f.Reader, f.knows = w.mustOpen(f.topics, dispatch.Start{}, ""), map[string]fact{}
		return false
	}
	if len(window.Deliveries) > limit {
		w.t.Fatalf("%d events in a window of %d", len(window.Deliveries), limit)
	}
	for i := range window.Deliveries {
		e := decode(w.t, &window.Deliveries[i])
		if e.Position != 0 {
			continue
		}
		got, ok := w.facts[e.ID]
		if !ok || got.expires != 0 && got.expires <= w.now {
			w.t.Fatalf("%s was not accepted or has expired", e.ID)
		}
		if e.Key == "" {
			continue
		}
		name := e.Topic + "/" + e.Key
		if had, ok := f.knows[name]; ok && !got.beats(had) {
			w.t.Fatalf("%+v came after %+v", got, had)
		}
		f.knows[name] = got
	}
	return window.CaughtUp
}

// checkKnowledge compares what an observer believes with what is so.
func (w *world) checkKnowledge(f *observer) {
	for name, last := range w.last {
		topic, _, _ := strings.Cut(name, "/")
		if f.topics != ">" && !strings.Contains(f.topics, topic) {
			continue
		}
		knows, ok := f.knows[name]
		expired := last.expires != 0 && last.expires <= w.now
		switch {
		case expired && (!ok || last == knows || last.beats(knows)):
		case last.bare && !ok:
		case !ok || knows != last:
			w.t.Fatalf("a reader of %s believes %+v of %s, which is %+v", f.topics, knows, name, last)
		}
	}
}

// checkHeld compares what is held with the last accepted events, and the hub's
// accounts with each other.
func (w *world) checkHeld() {
	state, err := w.dispatch.OpenState(patterns(w.t, "a,b"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer state.Close()
	held := map[string]bool{}
	for {
		d, ok, err := state.Next()
		if err != nil {
			w.t.Fatal(err)
		}
		if !ok {
			break
		}
		e := decode(w.t, &d)
		if last := w.last[e.Topic+"/"+e.Key]; last.id != e.ID {
			w.t.Fatalf("%s is held, and %+v is the last", e.ID, last)
		}
		held[e.Topic+"/"+e.Key] = true
	}
	for name, last := range w.last {
		if live := !last.bare && (last.expires == 0 || last.expires > w.now); live != held[name] {
			w.t.Fatalf("%s is held: %t, and it is %+v", name, held[name], last)
		}
	}
	if _, _, bytes, boards := w.dispatch.Held(); bytes != boards {
		w.t.Fatalf("the hub counts %d bytes, its boards %d", bytes, boards)
	}
}

// What a hub takes depends on what it holds, not on what went through it nor on
// who is behind: a thousand readers that stopped reading cost nothing.
func TestStalledReadersOfEphemeralTopicsCostNothing(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.putEphemeral("e")
	readers := make([]*dispatch.Reader, 1000)
	for i := range readers {
		readers[i] = r.mustOpen("e", dispatch.Start{}, "")
		defer readers[i].Close()
		drain(t, readers[i], unlimited())
	}
	const keys, rounds = 100, 300
	for n := range rounds {
		for k := range keys {
			r.mustPlace(publishing{topic: "e", key: fmt.Sprint("k", k), id: fmt.Sprintf("%d-%d", n, k)})
		}
		r.mustPlace(publishing{topic: "e", id: fmt.Sprint("x", n)})
	}
	slots, due, bytes, _ := r.dispatch.Held()
	if most := keys + 1024; slots > 2*most+64 || due > most || bytes > 2000*most {
		t.Errorf("there are %d slots, %d due and %d bytes", slots, due, bytes)
	}
	for _, reader := range readers[:3] {
		got := strings.Fields(drain(t, reader, unlimited()))
		if len(got) != keys+rounds || got[len(got)-1] != fmt.Sprint("x", rounds-1) {
			t.Fatalf("a reader that comes back gets %d events", len(got))
		}
	}
	// Removed keys are forgotten in the end.
	for k := range keys {
		r.mustPlace(publishing{topic: "e", key: fmt.Sprint("k", k), bare: true})
	}
	r.tick(8 * 24 * 3600 * 1000)
	r.dispatch.Expire()
	if _, due, bytes, _ := r.dispatch.Held(); due != 0 || bytes != 0 {
		t.Errorf("%d entries and %d bytes are left", due, bytes)
	}
}

// Upkeep expires values while others are placed and read, as it does in a broker;
// the accounts agree afterwards. The race detector holds the locks to it, too.
func TestUpkeepAmongPlacesAndReads(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.putEphemeral("e")
	const placers, each = 4, 300
	batches := make([][]eventlog.Entry, placers*each)
	for i := range batches {
		batches[i] = r.publish(publishing{topic: "e", key: fmt.Sprint("k", i%97), expiresMillis: r.now + 1},
			publishing{topic: "e", expiresMillis: r.now + 1}).Entries
	}
	placedAt := r.now
	r.tick(1000) // all that is placed is due at once
	var placing, others sync.WaitGroup
	for p := range placers {
		placing.Go(func() {
			for _, entries := range batches[p*each : (p+1)*each] {
				if _, _, err := r.dispatch.Place("e", entries, placedAt); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	whileTheyPlace := func(step func()) {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					step()
				}
			}
		})
	}
	reader := r.mustOpen("e", dispatch.Start{}, "")
	defer reader.Close()
	whileTheyPlace(func() { drain(t, reader, unlimited()) })
	whileTheyPlace(r.dispatch.Expire)
	whileTheyPlace(r.dispatch.Expire)
	placing.Wait()
	close(done)
	others.Wait()
	if _, _, bytes, boards := r.dispatch.Held(); bytes != boards {
		t.Errorf("the hub counts %d bytes, its boards %d", bytes, boards)
	}
	r.dispatch.Expire() // what was placed last leaves a guard
	r.tick(8 * 24 * 3600 * 1000)
	r.dispatch.Expire()
	if _, due, bytes, _ := r.dispatch.Held(); due != 0 || bytes != 0 {
		t.Errorf("%d entries and %d bytes are left", due, bytes)
	}
}

// Each limit is a refusal, and what makes room always passes.
func TestLimitsOfEphemeralTopics(t *testing.T) {
	big := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		limits  dispatch.HeldLimits
		fits    []publishing
		refused publishing
		passes  []publishing
	}{
		"keys": {dispatch.HeldLimits{Keys: 2}, []publishing{{topic: "e", key: "a"}, {topic: "e", key: "b"}},
			publishing{topic: "e", key: "c"}, []publishing{{topic: "e", key: "a", data: `"` + big + `"`}, {topic: "e", key: "b", bare: true}, {topic: "e"}}},
		"topic bytes": {dispatch.HeldLimits{TopicBytes: 3000}, []publishing{{topic: "e", key: "a", data: `"` + big + `"`}},
			publishing{topic: "e", key: "b", data: `"` + big + `"`}, []publishing{{topic: "e", key: "a", bare: true}, {topic: "f", key: "a", data: `"` + big + `"`}}},
		"bytes": {dispatch.HeldLimits{Bytes: 4000}, []publishing{{topic: "e", key: "a", data: `"` + big + `"`}},
			publishing{topic: "f", key: "b", data: `"` + big + `"`}, []publishing{{topic: "e", key: "a", bare: true}}},
		"keyless bytes of all": {dispatch.HeldLimits{Bytes: 4000}, []publishing{{topic: "e", data: `"` + big + `"`}},
			publishing{topic: "f", data: `"` + big + `"`}, []publishing{{topic: "e", data: `"` + big + `"`}}},
		"topics": {dispatch.HeldLimits{Topics: 1}, []publishing{{topic: "e", key: "a"}},
			publishing{topic: "f", key: "a"}, []publishing{{topic: "e", key: "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{}
			*r = *newRig(t, 64)
			r.close()
			r.held = c.limits
			r.open()
			defer r.close()
			r.putEphemeral("e")
			r.putEphemeral("f")
			for _, e := range c.fits {
				r.mustPlace(e)
			}
			before := r.heldIDs("e,f")
			_, err := r.place(c.refused)
			if e := event.AsError(err); e == nil || e.Code != event.CodeTopicFull {
				t.Errorf("beyond the limit: %v", err)
			}
			if after := r.heldIDs("e,f"); after != before {
				t.Errorf("the refused event changed %q to %q", before, after)
			}
			for _, e := range c.passes {
				r.mustPlace(e)
			}
		})
	}
}

func (r *rig) heldIDs(list string) string {
	r.t.Helper()
	reader := r.mustOpen(list, dispatch.Start{}, "")
	defer reader.Close()
	return drain(r.t, reader, unlimited())
}

// A reader that has both shares its windows between them, so that neither
// starves the other.
func TestWindowsHaveRoomForBoth(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.putEphemeral("e")
	reader := r.mustOpen(">", dispatch.Start{}, "")
	defer reader.Close()
	for range 8 {
		r.do(r.publish(publishing{topic: "d"}))
		r.mustPlace(publishing{topic: "e"})
	}
	for range 3 {
		w, err := reader.Poll(dispatch.Limit{Events: 4, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		live := 0
		for i := range w.Deliveries {
			if w.Deliveries[i].Position == 0 {
				live++
			}
		}
		if len(w.Deliveries) != 4 || live != 2 || w.CaughtUp {
			t.Errorf("%d events, %d of them live, caught up: %t", len(w.Deliveries), live, w.CaughtUp)
		}
	}
}

// Filters select events of ephemeral topics as any others, and a tombstone
// passes where a value might have.
func TestFiltersOnEphemeralTopics(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.putEphemeral("e")
	reader := r.mustOpenFiltered("e,d", dispatch.Start{}, `EXISTS position OR data.n > 1`)
	defer reader.Close()
	other := r.mustOpenFiltered("e,d", dispatch.Start{}, `EXISTS position OR data.n > 1`)
	defer other.Close()
	r.mustPlace(publishing{topic: "e", key: "a", id: "a1", data: `{"n":1}`}, publishing{topic: "e", key: "b", id: "b2", data: `{"n":2}`})
	r.do(r.publish(publishing{topic: "d", id: "d1"}))
	for _, f := range []*dispatch.Reader{reader, other} {
		if got := drain(t, f, dispatch.Limit{Events: 1, Bytes: 1 << 20}); got != "b2 d1" && got != "d1 b2" {
			t.Errorf("live: %q", got)
		}
	}
	r.dispatch.Sort() // or the reader is woken for what it has
	changed := reader.Changed()
	r.mustPlace(publishing{topic: "e", key: "a", id: "a0", data: `{"n":0}`})
	r.dispatch.Sort()
	if closed(changed, 0) {
		t.Error("a reader was woken by a value that does not pass")
	}
	r.mustPlace(publishing{topic: "e", key: "a", id: "a2", bare: true})
	if !closed(changed, patience) {
		t.Error("a reader sleeps through a tombstone")
	}
	if got := drain(t, reader, unlimited()); got != "a2" {
		t.Errorf("a tombstone: %q", got)
	}
	state, err := r.dispatch.OpenState(patterns(t, "e"), mustFilter(t, `data.n = 3`))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if d, ok, err := state.Next(); ok && d.Frame != nil || err != nil {
		t.Errorf("the state has %s, %v", d.Frame, err)
	}
}

// TestOffersAreBounded: events of ephemeral topics wait to be matched for a while
// and no longer; of more, all readers with a filter are woken.
func TestOffersAreBounded(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.putEphemeral("e")
	r.dispatch.HoldSorter()
	reader := r.mustOpenFiltered("e", dispatch.Start{}, `id = 'none'`)
	defer reader.Close()
	drain(t, reader, unlimited())
	changed := reader.Changed()
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	for range 20 {
		r.mustPlace(publishing{topic: "e", key: "k", data: large})
		if bytes := r.dispatch.Offered(); bytes > 8<<20 {
			t.Fatalf("%d bytes wait to be matched", bytes)
		}
	}
	r.dispatch.Sort()
	if !closed(changed, patience) {
		t.Error("a reader sleeps through what was not matched")
	}
	if bytes := r.dispatch.Offered(); bytes != 0 {
		t.Errorf("%d bytes are left", bytes)
	}
}

// An event that is on its way to the log when its topic becomes ephemeral is
// refused in apply, and one that is on its way to memory goes to the log.
func TestTopicChangesDurabilityUnderway(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	late := r.publish(publishing{topic: "e", key: "a"})
	r.putEphemeral("e")
	if result := r.do(late)[0]; result.Err == nil || result.Err.Code != event.CodeTopicEphemeral {
		t.Errorf("a durable event on an ephemeral topic: %+v", result)
	}
	r.mustPlace(publishing{topic: "e", key: "a"})
	r.do(r.put("e", event.CleanupDelete, 1000, 1000))
	if _, err := r.place(publishing{topic: "e", key: "a"}); err != dispatch.ErrNotEphemeral {
		t.Errorf("an event in memory on a durable topic: %v", err)
	}
	if result := r.do(r.publish(publishing{topic: "e"}))[0]; result.Err != nil || result.Verdicts[0].Outcome != projector.Accepted {
		t.Errorf("a durable event: %+v", result)
	}
}

func FuzzParseMark(f *testing.F) {
	for _, s := range []string{"abcdefgh.0", "abcdefgh.18446744073709551615", "abcdefgh.01", ".1", "abcdefgh.", "abcdefgh.+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := dispatch.ParseMark(s); err == nil && m.String() != s {
			t.Errorf("%q is %q", s, m)
		}
	})
}
