// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sync"
	"sync/atomic"

	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// sieve is one filter and all readers that have it, however they spell it. What
// it lets pass is evaluated once for each event while the readers are live: the
// first to ask notes the verdict for the others.
type sieve struct {
	filter   *filter.Filter
	readers  int                      // guarded by Dispatch.mu
	verdicts atomic.Pointer[verdicts] // nil until there is a second reader
}

// verdicts has a place for each position, which a later one takes over: the
// position and, in the lowest bit, whether its event passes.
type verdicts [1024]atomic.Uint64

// candidatesMin is how many events of the tail a reader with a filter looks at
// in one window, though it may be given fewer. It bounds the time of a poll, and
// keeps one that wants a single event from taking the lock for each that it
// passes over.
const candidatesMin = 512

// evaluator is the memory of evaluations. Only a reader that is polling has one.
type evaluator struct {
	machine filter.Machine
	record  filter.Record
}

var evaluators = sync.Pool{New: func() any { return new(evaluator) }}

func (v *evaluator) release() {
	v.record.Reset() // or it would hold on to the event
	evaluators.Put(v)
}

// sift returns the sieve of a filter, for one more reader; nil for no filter.
func (d *Dispatch) sift(f *filter.Filter) *sieve {
	if f == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sieves[f.Canonical()]
	if s == nil {
		s = &sieve{filter: f}
		d.sieves[f.Canonical()] = s
	}
	s.readers++
	if s.readers == 2 && s.verdicts.Load() == nil {
		s.verdicts.Store(new(verdicts))
	}
	return s
}

// unsift takes a reader from its sieve, and drops the sieve after the last.
func (d *Dispatch) unsift(s *sieve) {
	if s == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.readers--; s.readers == 0 {
		delete(d.sieves, s.filter.Canonical())
	}
}

func (v *evaluator) fill(e *projector.Applied) {
	v.record.Fill(filter.Delivered{Topic: e.Topic, Position: e.Position, HLC: e.HLC, Superseded: e.Flags&store.EventSuperseded != 0}, e.Members)
}

// passes evaluates a filter on an event.
func (v *evaluator) passes(f *filter.Filter, e *projector.Applied) bool {
	v.fill(e)
	return v.machine.Selects(f, v.record.Event(), e.Flags&store.EventTombstone != 0)
}

// passesLive is passes for an event of the tail, which others may have asked
// about.
func (s *sieve) passesLive(v *evaluator, e *projector.Applied) bool {
	known := s.verdicts.Load()
	if known == nil {
		return v.passes(s.filter, e)
	}
	place := &known[e.Position%uint64(len(known))]
	if verdict := place.Load(); verdict>>1 == e.Position {
		return verdict&1 != 0
	}
	passes := v.passes(s.filter, e)
	verdict := e.Position << 1
	if passes {
		verdict |= 1
	}
	place.Store(verdict)
	return passes
}

// sieveHeld keeps those events of ephemeral topics that pass a filter; nil lets
// all pass.
func sieveHeld(f *filter.Filter, events []*held) []*held {
	if f == nil || len(events) == 0 {
		return events
	}
	v := evaluators.Get().(*evaluator)
	defer v.release()
	kept := events[:0]
	for _, e := range events {
		if v.passes(f, &e.Applied) {
			kept = append(kept, e)
		}
	}
	clear(events[len(kept):])
	return kept
}

// choose keeps, of the candidates that a window has up to end, those that pass,
// as far as the limit allows, and returns where the window then ends.
func (r *Reader) choose(limit Limit, end uint64) uint64 {
	v := evaluators.Get().(*evaluator)
	defer v.release()
	all, bytes := r.items, 0
	r.items = r.items[:0]
	for n, i := range all {
		if !r.sieve.passesLive(v, &i.Applied) {
			continue
		}
		r.items = append(r.items, i)
		if bytes += len(i.Members); len(r.items) >= limit.Events || bytes >= limit.Bytes {
			if n+1 < len(all) {
				end = i.Position
			}
			break
		}
	}
	clear(all[len(r.items):])
	return end
}
