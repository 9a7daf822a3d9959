// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/crashtest"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// reference applies the recorded proposals afresh, and so is the judge of what a
// recovered store must hold.
type reference struct {
	t        *testing.T
	afresh   *crashtest.Afresh
	dedup    int64                // the window, ms
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
	r := &reference{
		t: t, dedup: dedup.Milliseconds(), afresh: must(crashtest.NewAfresh(rng)),
		verdicts: map[string][]answer{}, applied: map[uint64]delivered{},
	}
	r.afresh.Note = r.note
	return r
}

func (r *reference) close() {
	if err := r.afresh.Close(); err != nil {
		r.t.Error(err)
	}
}

func verdictKey(topic, source, id string) string { return topic + "\x00" + source + "\x00" + id }

// apply applies what was recorded since.
func (r *reference) apply(encoded [][]byte) {
	r.t.Helper()
	if err := r.afresh.Apply(encoded); err != nil {
		r.t.Fatal(err)
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
	head := r.afresh.Projector().Space().Position
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
	for _, difference := range must(crashtest.Compare(s, r.afresh.Store())) {
		r.t.Error(difference)
	}
}
