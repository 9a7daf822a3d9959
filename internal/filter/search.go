// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"time"

	"signalbox/internal/cesql"
)

// Search matches one event against the filters of an [Index]. It can be done a part
// at a time, and evaluates without the index: filters may come and go meanwhile.
// Those that come are not searched, and those that went have no members.
type Search[T comparable] struct {
	event     *cesql.Event
	tombstone bool
	entries   []*entry[T] // to be looked at
	next      int         // of these
	passed    []*entry[T]
	failed    []*entry[T]
}

// lookAtOnce is after how many filters a search looks at the time, and after each
// that looks into data, which may take as long as many thousands that do not.
const lookAtOnce = 8

// Begin begins to search for the filters that an event passes. The event must stay
// as it is until the search has ended. A tombstone is treated as in
// [Machine.Selects].
func (x *Index[T]) Begin(s *Search[T], e *cesql.Event, tombstone bool) {
	s.clear()
	s.event, s.tombstone = e, tombstone
	x.round++
	for i := range x.tables {
		t := &x.tables[i]
		text := e.Lookup(t.attribute).Text()
		if text == nil {
			continue
		}
		x.collect(s, t.equal[string(text)])
		for _, l := range t.lengths {
			if l.bytes > len(text) {
				break
			}
			x.collect(s, t.begins[string(text[:l.bytes])])
		}
	}
	if tombstone {
		x.collect(s, x.touchy)
	}
	x.collect(s, x.others)
}

func (x *Index[T]) collect(s *Search[T], entries []*entry[T]) {
	for _, n := range entries {
		if n.round != x.round {
			n.round = x.round
			s.entries = append(s.entries, n)
		}
	}
}

// Run evaluates filters until all are, and then reports true, or until some time.
// It always evaluates some.
func (s *Search[T]) Run(m *Machine, until time.Time) (done bool) {
	for n := 1; s.next < len(s.entries); n++ {
		s.try(m)
		if (n%lookAtOnce == 0 || m.TouchedData()) && s.next < len(s.entries) && !time.Now().Before(until) {
			return false
		}
	}
	return true
}

func (s *Search[T]) try(m *Machine) {
	n := s.entries[s.next]
	s.next++
	if m.Selects(n.filter, s.event, s.tombstone) {
		s.passed = append(s.passed, n)
	} else if m.Errors() != 0 {
		s.failed = append(s.failed, n)
	}
}

// Found appends to passed the members whose filters the event passes, and to failed
// those whose filters it does not pass and meets an error in; an error in a filter
// that it could not pass for want of a term is not looked for. The search lets go
// of everything. It belongs to whoever may use the index just now.
func (s *Search[T]) Found(passed, failed []T) ([]T, []T) {
	for _, n := range s.passed {
		passed = append(passed, n.members...)
	}
	for _, n := range s.failed {
		failed = append(failed, n.members...)
	}
	s.clear()
	return passed, failed
}

// clear keeps the memory, but nothing that is in it.
func (s *Search[T]) clear() {
	s.event, s.next = nil, 0
	for _, list := range []*[]*entry[T]{&s.entries, &s.passed, &s.failed} {
		clear(*list)
		*list = (*list)[:0]
	}
}

// Match appends to dst the members whose filters an event passes, and returns it.
func (x *Index[T]) Match(m *Machine, e *cesql.Event, tombstone bool, dst []T) []T {
	s := &x.search
	x.Begin(s, e, tombstone)
	for s.next < len(s.entries) {
		s.try(m)
	}
	dst, _ = s.Found(dst, nil)
	return dst
}

// Crowd is how many other filters are evaluated for an event together with a
// filter, because they lie under the same term as it would: under each of its terms
// there are no more. Of a filter that is in the index it is 0.
func (x *Index[T]) Crowd(f *Filter) (n int) {
	if x.entries[f.canonical] != nil {
		return 0
	}
	terms := x.choose(f.root.covers()).Terms
	if len(terms) == 0 {
		return len(x.others)
	}
	for _, t := range terms {
		n = max(n, len(x.table(t.Attribute).under(t)))
	}
	return n
}
