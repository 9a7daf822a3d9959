// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/filter"
	"signalbox/internal/store"
)

// sorter matches the events of the tail against the filters of all readers, each
// event once: an index finds the filters that it may pass, so that the work grows
// with what passes and not with how many readers there are. It notes in the sieve
// of each filter what passes, and wakes only those readers.
//
// Whoever needs to know first does it: a reader that polls, or after a commit a
// goroutine of its own, so that no filter holds up apply.
type sorter struct {
	running atomic.Bool // a goroutine sorts, or is about to
	sifting atomic.Int32
	regroup atomic.Bool // all readers with a filter are to be woken

	offering sync.Mutex
	offers   []*held // guarded by offering
	offered  int     // bytes of offers; guarded by offering

	mu             sync.Mutex
	to             uint64                // sorted up to here; guarded by mu
	index          *filter.Index[*sieve] // guarded by mu
	sieves         map[string]*sieve     // by their group and the canonical form of the filter; guarded by mu
	order          []*sieve              // for nudges; guarded by mu
	next           int                   // whose turn it is in order; guarded by mu
	due            int                   // looks that are due, in parts of lookEvery; guarded by mu
	hits           int                   // of all sieves; guarded by mu
	most           time.Duration         // sortTime; guarded by mu
	eval           evaluator             // guarded by mu
	items          []*item               // scratch; guarded by mu
	touched        []*interest           // scratch, in the topics of items; guarded by mu
	spans          []span                // scratch, of touched for each of items; guarded by mu
	passed, failed []*sieve              // scratch; guarded by mu
}

// span is the part of a list from one index to before another.
type span struct{ from, to int }

const (
	// sortedMax is how many events are sorted at a time, between which readers
	// get their turn, and sortTime for how long, for filters may cost much: then it
	// ends with the next event. turnsMax is how many times a reader sorts when it
	// polls. If that does not reach the head, it polls again, and others come in
	// between.
	sortedMax = 64
	sortTime  = 2 * time.Millisecond
	turnsMax  = 2
	// hitsMax bounds the events that a sieve remembers for readers who have not
	// asked yet, and allHitsMax those of all sieves. Who comes later looks at the
	// tail again.
	hitsMax    = 1024
	allHitsMax = 1 << 20
	// nudgeAfter is after how many events a reader is woken for which none of them
	// passed, so that its cursor moves on; lookEvery is how many events are sorted
	// while each sieve is looked at once for that.
	nudgeAfter = 10_000
	lookEvery  = 512
)

func newSorter(head uint64) sorter {
	return sorter{to: head, most: sortTime, index: filter.NewIndex[*sieve](), sieves: map[string]*sieve{}}
}

// sortSoon has the sorter run, if anybody reads through a filter.
func (d *Dispatch) sortSoon() {
	if d.sorter.sifting.Load() > 0 && !d.sorter.running.Swap(true) {
		go d.sortAll()
	}
}

// sortAll sorts until there is nothing left.
func (d *Dispatch) sortAll() {
	s := &d.sorter
	for {
		s.running.Store(false) // whatever comes from here on starts it again
		for more := true; more; {
			s.mu.Lock()
			more = d.sortSome()
			s.mu.Unlock()
		}
		if head := d.Head().Position; s.sorted(head) || s.running.Swap(true) {
			return
		}
	}
}

func (s *sorter) sorted(head uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to >= head
}

// sortTurns sorts a little of what is not sorted, for a reader.
func (d *Dispatch) sortTurns() {
	s, head := &d.sorter, d.Head().Position
	for more, turns := true, 0; more && turns < turnsMax; turns++ {
		s.mu.Lock()
		if more = s.to < head; more {
			d.sortEvents()
		}
		s.mu.Unlock()
	}
}

// sortSome sorts the next events, those of ephemeral topics, too, and reports
// whether there may be more. It is called with sorter.mu held.
func (d *Dispatch) sortSome() (more bool) {
	s := &d.sorter
	if s.regroup.Swap(false) {
		for _, sv := range s.order {
			sv.wake()
		}
	}
	more = s.matchOffers()
	return d.sortEvents() || more
}

// sortEvents sorts the next events of the log, and reports whether there may be
// more. It is called with sorter.mu held.
func (d *Dispatch) sortEvents() (more bool) {
	s := &d.sorter
	items, head := d.unsorted()
	if items == nil {
		s.skip(head)
		s.eval.record.Reset()
		return false
	}
	began := time.Now()
	for n, i := range items {
		for _, t := range s.touched[s.spans[n].from:s.spans[n].to] {
			if t.counted != i.Position { // or it stands there twice
				t.counted = i.Position
				t.seen++
			}
		}
		s.eval.fill(&i.Applied)
		s.passed, s.failed = s.index.Sort(&s.eval.machine, s.eval.record.Event(), i.Flags&store.EventTombstone != 0, s.passed[:0], s.failed[:0])
		for _, sv := range s.failed {
			sv.failed++
		}
		for _, sv := range s.passed {
			s.hit(sv, i.Position)
		}
		s.nudge(i.Position)
		if time.Since(began) > s.most {
			s.to = i.Position
			break
		}
	}
	s.eval.record.Reset()
	clear(s.items)
	clear(s.touched)
	clear(s.passed[:cap(s.passed)]) // or they would hold on to sieves that nobody has any more
	clear(s.failed[:cap(s.failed)])
	if s.hits > allHitsMax {
		s.skip(s.to)
	}
	return s.to < head
}

// unsorted returns the next events in the tail, none if there are none or some
// have left it unsorted, and the head. Beside them it notes the interests in
// their topics.
func (d *Dispatch) unsorted() (items []*item, head uint64) {
	s := &d.sorter
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s.to == d.head || s.to+1 < d.tail.oldest || len(s.order) == 0 {
		return nil, d.head
	}
	s.items, s.touched, s.spans = s.items[:0], s.touched[:0], s.spans[:0]
	for s.to < d.head && len(s.items) < sortedMax {
		s.to++
		i := d.tail.at(s.to)
		if n := len(s.items); n > 0 && s.items[n-1].Topic == i.Topic {
			s.spans = append(s.spans, s.spans[n-1])
		} else {
			from := len(s.touched)
			for t := range d.interested(i.Topic) {
				s.touched = append(s.touched, t)
			}
			s.spans = append(s.spans, span{from, len(s.touched)})
		}
		s.items = append(s.items, i)
	}
	return s.items, d.head
}

// skip goes on from a position, and leaves what is before it to the readers.
func (s *sorter) skip(to uint64) {
	if s.to == to && s.hits <= allHitsMax {
		return
	}
	s.to, s.hits = to, 0
	for _, sv := range s.order {
		sv.hits, sv.from = nil, to
		sv.last.Store(sv.group.last())
		sv.epoch++
		sv.wake()
	}
}

// hit notes that the event at a position passes a filter.
func (s *sorter) hit(sv *sieve, position uint64) {
	if len(sv.hits) == hitsMax {
		half := copy(sv.hits, sv.hits[hitsMax/2:])
		sv.from = sv.hits[0].position - 1
		s.hits -= len(sv.hits) - half
		sv.hits = sv.hits[:half]
	}
	s.hits++
	sv.hits = append(sv.hits, hit{position: position, seen: sv.group.seen(), failed: sv.failed})
	sv.last.Store(position)
	sv.wake()
}

// nudge is called for each event that was sorted.
func (s *sorter) nudge(position uint64) {
	for s.due += len(s.order); s.due >= lookEvery; s.due -= lookEvery {
		s.next++
		if sv := s.order[s.next%len(s.order)]; position >= sv.asked+nudgeAfter {
			sv.wake()
		}
	}
}

// offersMax bounds the events of ephemeral topics that wait to be matched, and
// offersBytes their size. Of more, all readers with a filter are woken.
const (
	offersMax   = 4096
	offersBytes = 8 << 20
)

// offer has the readers woken whose filters events of ephemeral topics pass.
func (d *Dispatch) offer(events []*held) {
	s := &d.sorter
	if s.sifting.Load() == 0 {
		return
	}
	bytes := 0
	for _, e := range events {
		bytes += e.cost()
	}
	s.offering.Lock()
	if len(s.offers)+len(events) <= offersMax && s.offered+bytes <= offersBytes {
		s.offers, s.offered = append(s.offers, events...), s.offered+bytes
	} else {
		s.regroup.Store(true)
	}
	s.offering.Unlock()
	d.sortSoon()
}

// matchOffers matches the next events of ephemeral topics, and reports whether
// there are more. It is called with sorter.mu held.
func (s *sorter) matchOffers() (more bool) {
	s.offering.Lock()
	n := min(len(s.offers), sortedMax)
	events := slices.Clone(s.offers[:n])
	s.offers = slices.Delete(s.offers, 0, n)
	for _, e := range events {
		s.offered -= e.cost()
	}
	more = len(s.offers) > 0
	s.offering.Unlock()
	for _, e := range events {
		s.eval.fill(&e.Applied)
		s.passed = s.index.Match(&s.eval.machine, s.eval.record.Event(), e.tombstone(), s.passed[:0])
		for _, sv := range s.passed {
			sv.wake()
		}
	}
	return more
}

// stirAll has all readers with a filter look again. It may be called with
// Dispatch.mu held.
func (d *Dispatch) stirAll() {
	d.sorter.regroup.Store(true)
	d.sortSoon()
}
