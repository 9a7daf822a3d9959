// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// sorter matches the events of the tail against the filters of readers, each
// event once: an index finds the filters that it may pass, so that the work grows
// with what passes and not with how many readers there are. It notes in the sieve
// of each filter what passes, and wakes only those readers.
//
// Whoever needs to know first does it: a reader that polls, or after a commit a
// goroutine of its own, so that no filter holds up apply. It is done in steps, which
// are short, and filters are evaluated without the lock on what is known.
type sorter struct {
	d       *Dispatch
	n       int         // of Dispatch.sorters
	running atomic.Bool // a goroutine sorts, or is about to
	sifting atomic.Int32
	regroup atomic.Bool // all readers with a filter are to be woken

	offering sync.Mutex
	offers   []*held // guarded by offering
	offered  int     // bytes of offers; guarded by offering

	// turn is held by whoever sorts, for a step, and guards what is being matched.
	turn    sync.Mutex
	most    time.Duration // sortTime
	eval    evaluator
	loaded  []matching // to be matched next
	at      int        // the first of them that is not done
	begun   bool       // and is being searched for
	search  filter.Search[*sieve]
	touched []*interest // in the topics of what is loaded

	mu             sync.Mutex
	to             uint64                // sorted up to here; guarded by mu
	taken          uint64                // loaded up to here; guarded by mu
	index          *filter.Index[*sieve] // guarded by mu
	sieves         map[string]*sieve     // by their group and the canonical form of the filter; guarded by mu
	order          []*sieve              // for nudges; guarded by mu
	next           int                   // whose turn it is in order; guarded by mu
	due            int                   // looks that are due, in parts of lookEvery; guarded by mu
	hits           int                   // of all sieves; guarded by mu
	passed, failed []*sieve              // scratch; guarded by mu
}

// The sorters. One event may have to be held against all filters of a crowd, which
// the index cannot tell apart by type, source, subject or topic: ten thousand times
// data.x > N, say. Those go to a sorter of their own, so that they hold up each
// other only.
const (
	sorterFew = iota
	sorterCrowd
	sorterCount
)

// crowdMax is how many different filters may have to be evaluated because of one
// term. What comes beyond is of the crowd, and stays there.
const crowdMax = 256

// matching is an event that is to be matched.
type matching struct {
	event     *projector.Applied
	tombstone bool
	position  uint64 // 0: of an ephemeral topic
	touched   span   // of sorter.touched
}

// span is the part of a list from one index to before another.
type span struct{ from, to int }

const (
	// sortedMax is how many events are loaded at a time. A step ends with them, or
	// after sortTime, for filters may cost much: then the next goes on, in the middle
	// of an event if need be. turnsMax is how many steps a reader makes when it polls.
	// If that does not reach the head, it polls again, and others come in between.
	sortedMax = 64
	sortTime  = 2 * time.Millisecond
	turnsMax  = 2
	// hitsMax bounds the events that a sieve remembers for readers who have not
	// asked yet, and allHitsMax those of all sieves of a sorter. Who comes later looks
	// at the tail again.
	hitsMax    = 1024
	allHitsMax = 1 << 19
	// nudgeAfter is after how many events a reader is woken for which none of them
	// passed, so that its cursor moves on; lookEvery is how many events are sorted
	// while each sieve is looked at once for that.
	nudgeAfter = 10_000
	lookEvery  = 512
)

func (s *sorter) open(d *Dispatch, n int) {
	s.d, s.n, s.most = d, n, sortTime
	s.to, s.taken, s.index, s.sieves = d.head, d.head, filter.NewIndex[*sieve](), map[string]*sieve{}
}

// sortSoon has the sorters run through whose filters anybody reads.
func (d *Dispatch) sortSoon() {
	for n := range d.sorters {
		d.sorters[n].soon()
	}
}

func (s *sorter) soon() {
	if s.sifting.Load() > 0 && !s.running.Swap(true) {
		go s.sortAll()
	}
}

// sortAll sorts until there is nothing left.
func (s *sorter) sortAll() {
	for {
		s.running.Store(false) // whatever comes from here on starts it again
		for s.takeTurn() {
			runtime.Gosched() // a crowd may keep it busy for as long as events come
		}
		if head := s.d.Head().Position; s.sorted(head) || s.running.Swap(true) {
			return
		}
	}
}

func (s *sorter) sorted(head uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to >= head
}

func (s *sorter) takeTurn() (more bool) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.step()
}

// turns sorts a little of what is not sorted, for a reader.
func (s *sorter) turns() {
	head := s.d.Head().Position
	for n := 0; n < turnsMax && !s.sorted(head); n++ {
		s.takeTurn()
	}
}

// step matches the next events, those of ephemeral topics, too, and reports whether
// there may be more. It is called with turn held.
func (s *sorter) step() (more bool) {
	if s.regroup.Swap(false) {
		s.wakeAll()
	}
	if s.at == len(s.loaded) && !s.load() {
		return false
	}
	for until := time.Now().Add(s.most); s.at < len(s.loaded); {
		if e := &s.loaded[s.at]; !s.begun {
			s.eval.fill(e.event)
			s.mu.Lock()
			s.index.Begin(&s.search, s.eval.record.Event(), e.tombstone)
			s.mu.Unlock()
			s.begun = true
		}
		if !s.search.Run(&s.eval.machine, until) {
			return true
		}
		s.note(&s.loaded[s.at])
		s.at, s.begun = s.at+1, false
		if !time.Now().Before(until) {
			break
		}
	}
	return true
}

// load takes the next events, and reports whether there are any. It is called with
// turn held.
func (s *sorter) load() bool {
	s.eval.record.Reset() // or it would hold on to the last event
	clear(s.loaded)
	clear(s.touched)
	s.loaded, s.touched, s.at = s.loaded[:0], s.touched[:0], 0
	s.loadOffers()
	s.loadTail()
	return len(s.loaded) > 0
}

// loadTail takes the next events in the tail, none if there are none or some have
// left it unsorted. Beside them it notes the interests in their topics.
func (s *sorter) loadTail() {
	d := s.d
	s.mu.Lock()
	defer s.mu.Unlock()
	d.mu.RLock()
	head := d.head
	if s.to == head || s.to+1 < d.tail.oldest || len(s.order) == 0 {
		d.mu.RUnlock()
		s.skip(head)
		return
	}
	defer d.mu.RUnlock()
	for first := len(s.loaded); s.taken < head && len(s.loaded) < first+sortedMax; {
		s.taken++
		i := d.tail.at(s.taken)
		at := span{len(s.touched), len(s.touched)}
		if n := len(s.loaded); n > first && s.loaded[n-1].event.Topic == i.Topic {
			at = s.loaded[n-1].touched
		} else {
			for t := range d.interested(i.Topic) {
				s.touched = append(s.touched, t)
			}
			at.to = len(s.touched)
		}
		s.loaded = append(s.loaded, matching{event: &i.Applied, tombstone: i.Flags&store.EventTombstone != 0, position: i.Position, touched: at})
	}
}

// note takes down what became of an event that was searched for.
func (s *sorter) note(e *matching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed, s.failed = s.search.Found(s.passed[:0], s.failed[:0])
	defer func() { // or they would hold on to sieves that nobody has any more
		clear(s.passed)
		clear(s.failed)
	}()
	if e.position == 0 {
		for _, sv := range s.passed {
			sv.wake()
		}
		return
	}
	if e.position <= s.to { // those whom it might have concerned have gone meanwhile
		return
	}
	for _, t := range s.touched[e.touched.from:e.touched.to] {
		if c := &t.sorted[s.n]; c.last != e.position { // or it stands there twice
			c.last = e.position
			c.events++
		}
	}
	for _, sv := range s.failed {
		sv.failed++
	}
	for _, sv := range s.passed {
		s.hit(sv, e.position)
	}
	s.to = e.position
	s.nudge(e.position)
	if s.hits > allHitsMax {
		s.skip(s.to)
	}
}

// skip goes on from a position, and leaves what is before it to the readers. It is
// called with mu held.
func (s *sorter) skip(to uint64) {
	if s.to == to && s.hits <= allHitsMax {
		return
	}
	s.to, s.taken, s.hits = to, max(s.taken, to), 0
	for _, sv := range s.order {
		sv.hits, sv.from = nil, s.taken
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
	sv.hits = append(sv.hits, hit{position: position, seen: sv.group.seen(s.n), failed: sv.failed})
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
	bytes := 0
	for _, e := range events {
		bytes += e.cost()
	}
	for n := range d.sorters {
		d.sorters[n].offer(events, bytes)
	}
}

func (s *sorter) offer(events []*held, bytes int) {
	if s.sifting.Load() == 0 {
		return
	}
	s.offering.Lock()
	if len(s.offers)+len(events) <= offersMax && s.offered+bytes <= offersBytes {
		s.offers, s.offered = append(s.offers, events...), s.offered+bytes
	} else {
		s.regroup.Store(true)
	}
	s.offering.Unlock()
	s.soon()
}

// loadOffers takes the next events of ephemeral topics.
func (s *sorter) loadOffers() {
	s.offering.Lock()
	defer s.offering.Unlock()
	n := min(len(s.offers), sortedMax)
	for _, e := range s.offers[:n] {
		s.offered -= e.cost()
		s.loaded = append(s.loaded, matching{event: &e.Applied, tombstone: e.tombstone()})
	}
	s.offers = slices.Delete(s.offers, 0, n)
}

// stirAll has all readers with a filter look again. It may be called with
// Dispatch.mu held.
func (d *Dispatch) stirAll() {
	for n := range d.sorters {
		d.sorters[n].regroup.Store(true)
	}
	d.sortSoon()
}

func (s *sorter) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sv := range s.order {
		sv.wake()
	}
}
