// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// sieve is one filter on the topics of one group, and all readers that have it,
// however they spell it. It knows what of the recent events passes. All fields
// but the first block are guarded by sorter.mu.
type sieve struct {
	sorter *sorter
	key    string // in sorter.sieves
	group  *group
	filter *filter.Filter // of the readers
	index  *filter.Filter // with the topics, as it is in the index
	last   atomic.Uint64  // position of the last event that passes, or of which that is not known

	readers int
	place   int           // in sorter.order
	hits    []hit         // what passes after from, in order
	from    uint64        // what passes up to here is not known
	asked   uint64        // how far a reader came at last
	epoch   int           // counts the times that from was moved past unsorted events
	failed  uint64        // events in which the filter met an error
	changed chan struct{} // closed when something passes; nil: nobody waits
}

// hit is an event that passes.
type hit struct {
	position     uint64
	seen, failed uint64 // of the group and of the sieve, with this event
}

func (sv *sieve) wake() {
	if sv.changed != nil {
		close(sv.changed)
		sv.changed = nil
	}
}

// sift returns the sieve of a filter on a group's topics, for one more reader;
// nil for no filter.
func (d *Dispatch) sift(g *group, f *filter.Filter) *sieve {
	if f == nil {
		return nil
	}
	key := g.key + " " + f.Canonical() // of the group, which counts what the sieve drops
	crowd, few := &d.sorters[sorterCrowd], &d.sorters[sorterFew]
	if sv := crowd.sift(key); sv != nil {
		return sv
	}
	index := filter.On(g.patterns, f)
	few.mu.Lock()
	defer few.mu.Unlock()
	sv, s := few.sieves[key], few
	switch {
	case sv != nil:
		sv.readers++
		return sv
	case few.index.Crowd(index) >= d.crowd:
		s = crowd
		s.mu.Lock()
		defer s.mu.Unlock()
		if sv = s.sieves[key]; sv != nil { // it has come meanwhile
			sv.readers++
			return sv
		}
	}
	sv = &sieve{sorter: s, key: key, group: g, filter: f, index: index, readers: 1}
	s.add(sv)
	return sv
}

// sift returns a sieve for one more reader, if there is one.
func (s *sorter) sift(key string) *sieve {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.sieves[key]
	if sv != nil {
		sv.readers++
	}
	return sv
}

// add adds a sieve. What passes of the events that are loaded already may not be
// found out. It is called with mu held.
func (s *sorter) add(sv *sieve) {
	if len(s.order) == 0 { // nothing was sorted while there was none
		s.to = s.d.Head().Position
		s.taken = s.to
	}
	sv.from, sv.asked, sv.place = s.taken, s.to, len(s.order)
	sv.last.Store(sv.group.last())
	s.sieves[sv.key] = sv
	s.order = append(s.order, sv)
	s.index.Add(sv.index, sv)
	s.sifting.Add(1)
}

// unsift takes a reader from its sieve, and drops the sieve after the last.
func (sv *sieve) unsift() {
	s := sv.sorter
	s.mu.Lock()
	defer s.mu.Unlock()
	if sv.readers--; sv.readers > 0 {
		return
	}
	delete(s.sieves, sv.key)
	s.index.Remove(sv.index, sv)
	s.hits -= len(sv.hits)
	last := len(s.order) - 1
	s.order[sv.place] = s.order[last]
	s.order[sv.place].place = sv.place
	s.order[last] = nil
	s.order = s.order[:last]
	s.sifting.Add(-1)
	sv.wake() // whoever waits without a reader of his own finds out that it was closed
}

// changes returns a channel that is closed when something passes.
func (sv *sieve) changes() <-chan struct{} {
	sv.sorter.mu.Lock()
	defer sv.sorter.mu.Unlock()
	if sv.changed == nil {
		sv.changed = make(chan struct{})
	}
	return sv.changed
}

// candidatesMin is how many events of the tail a reader looks at in one window,
// where it has to evaluate its filter itself, though it may be given fewer. It
// bounds the time of a poll, and keeps one that wants a single event from taking
// the lock for each that it passes over.
const candidatesMin = 512

// evaluatingTime bounds how long one window evaluates its reader's filter. One
// evaluation may cost a million times as much as another, and until a window ends
// a snapshot is held, and whoever waits for it cannot leave.
const evaluatingTime = 100 * time.Millisecond

// evaluator is the memory of evaluations. Only a reader that is polling has one.
type evaluator struct {
	machine filter.Machine
	record  filter.Record
	looked  int       // events of this window
	until   time.Time // when it ends
}

var evaluators = sync.Pool{New: func() any { return new(evaluator) }}

// evaluator returns one for a window that begins.
func (d *Dispatch) evaluator() *evaluator {
	v := evaluators.Get().(*evaluator)
	v.looked, v.until = 0, time.Now().Add(d.evaluating)
	return v
}

// late reports whether the window has to end; without a filter it never is. The
// time is looked at after what may have taken some.
func (v *evaluator) late() bool {
	if v == nil {
		return false
	}
	v.looked++
	return (v.looked%16 == 0 || v.machine.TouchedData()) && time.Now().After(v.until)
}

func (v *evaluator) release() {
	v.record.Reset() // or it would hold on to the event
	evaluators.Put(v)
}

func (v *evaluator) fill(e *projector.Applied) {
	v.record.Fill(filter.Delivered{Topic: e.Topic, Position: e.Position, HLC: e.HLC, Superseded: e.Flags&store.EventSuperseded != 0}, e.Members)
}

// passes evaluates a filter on an event.
func (v *evaluator) passes(f *filter.Filter, e *projector.Applied) bool {
	v.fill(e)
	return v.machine.Selects(f, v.record.Event(), e.Flags&store.EventTombstone != 0)
}

// passes evaluates the reader's filter on an event, and counts.
func (r *Reader) passes(v *evaluator, e *projector.Applied) bool {
	if v.passes(r.sieve.filter, e) {
		return true
	}
	r.count.Dropped++
	if v.machine.Errors() != 0 {
		r.count.Failed++
	}
	return false
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
// as far as limit and time allow, and returns where the window then ends.
func (r *Reader) choose(limit Limit, end uint64) uint64 {
	v := r.d.evaluator()
	defer v.release()
	all, bytes := r.items, 0
	r.items = r.items[:0]
	for n, i := range all {
		if r.passes(v, &i.Applied) {
			r.items = append(r.items, i)
			bytes += len(i.Members)
		}
		if len(r.items) >= limit.Events || bytes >= limit.Bytes || v.late() {
			if n+1 < len(all) {
				end = i.Position
			}
			break
		}
	}
	clear(all[len(r.items):])
	return end
}

// sifted is how far the counts of a reader's sieve were at a position. The reader
// can go on from there by what the sorter knows; up to there it looks itself.
type sifted struct {
	at           uint64
	epoch        int // of the sieve; -1: none
	seen, failed uint64
}

// pollSieve is pollLog for a reader with a filter, from what the sorter knows. It
// reports false if that does not reach back to the reader's cursor.
func (r *Reader) pollSieve(limit Limit) (w Window, ok bool) {
	end, ok := r.takeHits(limit.Events)
	if !ok {
		return w, false
	}
	d, bytes := r.d, 0
	d.mu.RLock()
	head := r.end()
	if n := sort.Search(len(r.hits), func(i int) bool { return r.hits[i].position > head }); n == 0 && len(r.hits) > 0 {
		d.mu.RUnlock()
		r.hits = r.hits[:0]
		return r.window(r.cursor, true), true
	} else if n < len(r.hits) {
		r.hits, end = r.hits[:n], r.hits[n-1]
	}
	for n, h := range r.hits {
		if h.position < d.tail.oldest || d.tail.at(h.position).removed() {
			d.mu.RUnlock()
			clear(r.items)
			r.items = r.items[:0]
			return w, false // the store knows whether that matters to the reader
		}
		i := d.tail.at(h.position)
		if !r.wants(i, head) {
			continue
		}
		r.items = append(r.items, i)
		if bytes += len(i.Members); bytes >= limit.Bytes && n+1 < len(r.hits) {
			r.hits, end = r.hits[:n+1], h
			break
		}
	}
	d.mu.RUnlock()
	r.count.Dropped += end.seen - r.sifted.seen - uint64(len(r.hits))
	r.count.Failed += end.failed - r.sifted.failed
	r.sifted.at, r.sifted.seen, r.sifted.failed = end.position, end.seen, end.failed
	r.deliverItems()
	return r.window(end.position, end.position >= head), true
}

// takeHits takes what passes after the reader's cursor, at most n > 0 events, of
// what is sorted; before that it sorts a little. End is how far that goes, and the
// counts there.
func (r *Reader) takeHits(n int) (end hit, ok bool) {
	sv, s := r.sieve, r.sieve.sorter
	s.turns()
	s.mu.Lock()
	defer s.mu.Unlock()
	sv.asked = s.to
	if s.to < r.cursor { // the reader was quicker, and looks itself until it is caught up
		r.sifted = sifted{at: math.MaxUint64, epoch: -1}
		return end, false
	}
	if r.sifted.epoch != sv.epoch || r.cursor > r.sifted.at || r.cursor < sv.from {
		r.sifted = sifted{at: s.to, epoch: sv.epoch, seen: sv.group.seen(s.n), failed: sv.failed}
	}
	if r.cursor < r.sifted.at {
		return end, false
	}
	first := sort.Search(len(sv.hits), func(i int) bool { return sv.hits[i].position > r.cursor })
	r.hits = append(r.hits[:0], sv.hits[first:min(len(sv.hits), first+n)]...)
	if first+len(r.hits) < len(sv.hits) {
		return r.hits[len(r.hits)-1], true
	}
	return hit{s.to, sv.group.seen(s.n), sv.failed}, true
}
