// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// reference applies the recorded proposals afresh, in groups of its own, over a
// store of its own. It is the judge of what a recovered store must hold.
type reference struct {
	t        *testing.T
	rng      *rand.Rand
	store    *store.Store
	p        *projector.Projector
	dedup    int64                // the window, ms
	done     int                  // proposals applied
	verdicts map[string][]answer  // by topic, source and id
	applied  map[uint64]delivered // by position
}

// delivered is what a reader may get of an event.
type delivered struct {
	topic      string
	hlc        event.HLC
	superseded bool
	members    string
}

// is reports whether a reader that got this JSON got this event.
func (d *delivered) is(position uint64, json string) bool {
	head, ok := strings.CutSuffix(json, d.members)
	return ok && strings.HasPrefix(head, fmt.Sprintf(`{"position":"%d",`, position)) &&
		strings.Contains(head, fmt.Sprintf(`"hlc":"%s"`, d.hlc)) && strings.Contains(head, `"superseded":true`) == d.superseded
}

type answer struct {
	verdict store.Verdict
	millis  int64 // log time
}

func newReference(t *testing.T, rng *rand.Rand, dedup time.Duration) *reference {
	s, err := store.Open(store.Options{Dir: "reference", FS: vfs.NewMem(), CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &reference{
		t: t, rng: rng, dedup: dedup.Milliseconds(), store: s, p: must(projector.Open(s)),
		verdicts: map[string][]answer{}, applied: map[uint64]delivered{},
	}
}

func (r *reference) close() {
	if err := r.store.Close(); err != nil {
		r.t.Error(err)
	}
}

func verdictKey(topic, source, id string) string { return topic + "\x00" + source + "\x00" + id }

// apply applies what was recorded since.
func (r *reference) apply(encoded [][]byte) {
	r.t.Helper()
	for r.done < len(encoded) {
		size := min(1+r.rng.IntN(1+r.rng.IntN(64)), len(encoded)-r.done)
		group := make([]*eventlog.Proposal, size)
		for i := range group {
			group[i] = must(eventlog.DecodeProposal(encoded[r.done+i]))
		}
		r.done += size
		for len(group) > 0 {
			out, err := r.p.Apply(group)
			if err != nil {
				r.t.Fatalf("applying afresh: %v", err)
			}
			if err := r.store.Commit(out.Batch, func() {}); err != nil {
				r.t.Fatal(err)
			}
			r.note(group[:out.Taken], &out)
			out.Batch.Close()
			group = group[out.Taken:]
		}
	}
}

func (r *reference) note(group []*eventlog.Proposal, out *projector.Output) {
	for i, p := range group {
		if out.Results[i].Err != nil || out.Results[i].Replayed {
			continue
		}
		for n, verdict := range out.Results[i].Verdicts {
			key := verdictKey(p.Topic, p.Entries[n].Source, p.Entries[n].ID)
			first, known := r.first(p.Topic, p.Entries[n].Source, p.Entries[n].ID)
			kept := strings.HasPrefix(p.Topic, "log.") || strings.HasPrefix(p.Topic, "state.") // never deleted
			if known && kept && verdict.Outcome != projector.Duplicate && out.Space.LogMillis-first.millis < r.dedup {
				r.t.Errorf("event %s has positions %d and %d, %d ms of log time apart", p.Entries[n].ID, first.verdict.Position, verdict.Position, out.Space.LogMillis-first.millis)
			}
			r.verdicts[key] = append(r.verdicts[key], answer{verdict, out.Space.LogMillis})
		}
	}
	for _, a := range out.Applied {
		r.applied[a.Position] = delivered{a.Topic, a.HLC, a.Flags&store.EventSuperseded != 0, string(a.Members)}
	}
}

// first returns the verdict that gave an event its position, the last if its
// topic was deleted in between.
func (r *reference) first(topic, source, id string) (answer, bool) {
	answers := r.verdicts[verdictKey(topic, source, id)]
	for i := len(answers) - 1; i >= 0; i-- {
		if answers[i].verdict.Outcome != projector.Duplicate {
			return answers[i], true
		}
	}
	return answer{}, false
}

var outcomes = map[event.Outcome]uint8{
	event.OutcomeAccepted: projector.Accepted, event.OutcomeSuperseded: projector.Superseded, event.OutcomeDuplicate: projector.Duplicate,
}

// checkLedger checks everything that was acknowledged or shown before the crash.
func (r *reference) checkLedger(l *ledger) {
	r.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.attempts {
		if a.resolved && a.refused == "" {
			r.checkReceipts(l, a)
		}
		if a.queued && !a.volatile {
			for _, ev := range a.request.Events {
				if _, ok := r.first(a.request.Topic, ev.Source(), ev.ID()); !ok {
					l.fault("event %s was queued before one that is there, and is not", ev.ID())
				}
			}
		}
	}
	head := r.p.Space().Position
	for position, json := range l.seen {
		if position > head {
			l.fault("a reader saw position %d and the log recovered up to %d: %s", position, head, json)
		} else if is := r.applied[position]; !is.is(position, json) {
			l.fault("a reader saw at position %d: %s; it is: %+v", position, json, is)
		}
	}
	for _, fault := range l.faults {
		r.t.Error(fault)
	}
}

func (r *reference) checkReceipts(l *ledger, a *attempt) {
	for i, receipt := range a.result.Receipts {
		ev := a.request.Events[i]
		answers := r.verdicts[verdictKey(a.request.Topic, ev.Source(), ev.ID())]
		found := slices.ContainsFunc(answers, func(have answer) bool {
			return have.verdict.Position == receipt.Position && have.verdict.HLC == receipt.HLC &&
				(a.result.Replayed || have.verdict.Outcome == outcomes[receipt.Outcome])
		})
		if !found {
			l.fault("event %s was acknowledged as %s at position %d, hlc %s; what recovered says %v", ev.ID(), receipt.Outcome, receipt.Position, receipt.HLC, answers)
		}
	}
}

// recovered counts those of the requests that had taken effect although nobody
// was answered. Their repetitions are judged like every other: the reference
// gives an event a second position only after the window.
func (r *reference) recovered(requests []*attempt) (n int) {
	for _, a := range requests {
		ev := a.request.Events[0]
		if _, ok := r.first(a.request.Topic, ev.Source(), ev.ID()); ok {
			n++
		}
	}
	return n
}

// checkState compares every row of a store with the reference's.
func (r *reference) checkState(s *store.Store) {
	r.t.Helper()
	got, want := digestRows(s), digestRows(r.store)
	for i := range want {
		if got[i].sum == want[i].sum {
			continue
		}
		r.t.Errorf("the rows of kind %s (%d) are not those of the same proposals applied afresh (%d):", want[i].kind, got[i].n, want[i].n)
		have, expect := listRows(s)[i], listRows(r.store)[i]
		shown := 0
		for n := 0; n < max(len(have), len(expect)) && shown < 4; n++ {
			a, b := "nothing", "nothing"
			if n < len(have) {
				a = have[n]
			}
			if n < len(expect) {
				b = expect[n]
			}
			if a != b {
				shown++
				r.t.Errorf("  recovered: %.600s\n  afresh:    %.600s", a, b)
			}
		}
	}
}

// kindSum is a digest of the rows of one kind.
type kindSum struct {
	kind string
	n    int
	sum  string
}

func digestRows(s *store.Store) (sums []kindSum) {
	for _, k := range rowKinds() {
		h, n := sha256.New(), 0
		k.walk(s, func(row string) { n++; fmt.Fprintln(h, row) })
		sums = append(sums, kindSum{k.name, n, fmt.Sprintf("%x", h.Sum(nil))})
	}
	return sums
}

func listRows(s *store.Store) (kinds [][]string) {
	for _, k := range rowKinds() {
		var rows []string
		k.walk(s, func(row string) { rows = append(rows, row) })
		kinds = append(kinds, rows)
	}
	return kinds
}

type rowKind struct {
	name string
	walk func(s *store.Store, each func(string))
}

// rowKinds walks the state in a form that does not depend on how proposals were
// grouped into commits, nor on what the cleaner has reclaimed: leaves one by
// one, and no events that are declared gone.
func rowKinds() []rowKind {
	kind := func(name string, walk func(s *store.Store, in *store.Inspector, each func(string)) error) rowKind {
		return rowKind{name, func(s *store.Store, each func(string)) {
			in := must(s.NewInspector())
			if err := walk(s, in, each); err != nil {
				panic(err)
			}
			if err := in.Close(); err != nil {
				panic(err)
			}
		}}
	}
	return []rowKind{
		kind("space", func(s *store.Store, _ *store.Inspector, each func(string)) error {
			space, settings, _, err := s.LoadSpace()
			each(fmt.Sprintf("%+v %+v", space, settings))
			return err
		}),
		kind("topics", func(s *store.Store, _ *store.Inspector, each func(string)) error {
			return s.LoadTopics(func(t store.Topic) error {
				policy := must(t.Policy.MarshalJSON())
				t.Policy = event.Policy{}
				each(fmt.Sprintf("%+v %s", t, policy))
				return nil
			})
		}),
		kind("leaves", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Leaves(func(l store.LeavesAt, err error) error {
				for i := 0; i < len(l.Leaves); i += 32 {
					each(fmt.Sprintf("%d %x", l.First+uint64(i/32), l.Leaves[i:i+32]))
				}
				return err
			})
		}),
		kind("events", walkEvents),
		kind("history", walkHistory),
		kind("winners", func(s *store.Store, in *store.Inspector, each func(string)) error {
			live := liveTopics(s)
			return in.Winners(func(w store.WinnerAt, err error) error {
				if live[w.Topic] != nil {
					each(fmt.Sprintf("%+v", w))
				}
				return err
			})
		}),
		kind("seen", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Seen(func(v store.SeenAt, err error) error { each(fmt.Sprintf("%+v", v)); return err })
		}),
		kind("answered", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Answered(func(a store.AnsweredAt, err error) error { each(fmt.Sprintf("%+v", a)); return err })
		}),
		kind("timers", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Timers(func(t store.Timer, err error) error { each(fmt.Sprintf("%+v", t)); return err })
		}),
		kind("minutes", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Minutes(func(m store.MinuteAt, err error) error { each(fmt.Sprintf("%+v", m)); return err })
		}),
	}
}

func liveTopics(s *store.Store) map[uint32]*store.Topic {
	topics := map[uint32]*store.Topic{}
	if err := s.LoadTopics(func(t store.Topic) error { topics[t.Number] = &t; return nil }); err != nil {
		panic(err)
	}
	return topics
}

func walkEvents(s *store.Store, in *store.Inspector, each func(string)) error {
	return in.Events(eachEvent(s, func(t *store.Topic) uint64 { return t.RetiredTo }, each))
}

func walkHistory(s *store.Store, in *store.Inspector, each func(string)) error {
	return in.Histories(eachEvent(s, (*store.Topic).HistoryFrom, each))
}

// eachEvent passes on the rows that are after where their topic's begin.
func eachEvent(s *store.Store, from func(*store.Topic) uint64, each func(string)) func(store.EventAt, error) error {
	topics := liveTopics(s)
	return func(e store.EventAt, err error) error {
		if t := topics[e.Topic]; t != nil && e.Position > from(t) {
			each(fmt.Sprintf("%d/%d %d %d %s %d %d %d %d %x %q %d+%d %s", e.Topic, e.Position, e.Flags, e.LogMillis, e.HLC, e.ExpiryMillis,
				e.Count, e.Bytes, e.Leaf, e.Salt, e.Key, e.DataOffset, e.DataLength, e.Members))
		}
		return err
	}
}
