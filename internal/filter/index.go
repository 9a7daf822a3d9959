// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"cmp"
	"slices"

	"signalbox/internal/cesql"
)

// Index finds, of many filters, those that an event passes. Every filter of which
// it can be told lies under terms, attribute values and beginnings of them, of
// which one holds for whatever passes it. So only filters that have a term in
// common with the event are looked at, and each of them once, however many
// members it has. Those without such a term (EXISTS severity, say) are looked at
// for every event.
//
// A member is whatever stands for a reader or a subscription. An Index belongs to
// one goroutine at a time.
type Index[T comparable] struct {
	entries map[string]*entry[T] // by the canonical form
	tables  []table[T]           // one for each of covered
	others  []*entry[T]          // that lie under no term
	touchy  []*entry[T]          // that may select a tombstone for which none of their terms holds
	round   uint64
	size    int
	search  Search[T] // of Match
}

// entry is one filter and its members.
type entry[T comparable] struct {
	filter  *Filter
	members []T
	terms   []cesql.Term // under which it lies; none: among the others
	touchy  bool
	round   uint64 // in which it was looked at last
}

// table has the filters that lie under terms of one attribute.
type table[T comparable] struct {
	attribute cesql.Attribute
	name      string
	equal     map[string][]*entry[T]
	begins    map[string][]*entry[T]
	lengths   []length // of the keys of begins, ascending
}

// length counts the different beginnings of a length.
type length struct{ bytes, count int }

// beginMax is how much of a beginning is looked up. It bounds the look-ups for
// one attribute.
const beginMax = 64

// NewIndex returns an empty index.
func NewIndex[T comparable]() *Index[T] {
	x := &Index[T]{entries: map[string]*entry[T]{}}
	for _, name := range covered {
		x.tables = append(x.tables, table[T]{attribute: cesql.NewAttribute(name), name: name,
			equal: map[string][]*entry[T]{}, begins: map[string][]*entry[T]{}})
	}
	return x
}

// Len returns the number of members.
func (x *Index[T]) Len() int { return x.size }

// Filters returns the number of different filters.
func (x *Index[T]) Filters() int { return len(x.entries) }

// Add adds a member with its filter. A member may have several filters, and then
// comes once for each that passes.
func (x *Index[T]) Add(f *Filter, member T) {
	x.size++
	e := x.entries[f.canonical]
	if e == nil {
		cover := x.choose(f.root.covers())
		e = &entry[T]{filter: f, terms: cover.Terms, touchy: len(cover.Terms) > 0 && !cover.Touches}
		x.entries[f.canonical] = e
		if e.touchy {
			x.touchy = append(x.touchy, e)
		}
		for _, t := range e.terms {
			x.table(t.Attribute).add(t, e)
		}
		if len(e.terms) == 0 {
			x.others = append(x.others, e)
		}
	}
	e.members = append(e.members, member)
}

// Remove removes a member that was added with an equal filter, and says whether
// it was there.
func (x *Index[T]) Remove(f *Filter, member T) bool {
	e := x.entries[f.canonical]
	if e == nil {
		return false
	}
	i := slices.Index(e.members, member)
	if i < 0 {
		return false
	}
	x.size--
	e.members = slices.Delete(e.members, i, i+1)
	if len(e.members) > 0 {
		return true
	}
	delete(x.entries, f.canonical)
	if e.touchy {
		x.touchy = without(x.touchy, e)
	}
	for _, t := range e.terms {
		x.table(t.Attribute).remove(t, e)
	}
	if len(e.terms) == 0 {
		x.others = without(x.others, e)
	}
	return true
}

func (x *Index[T]) table(attribute string) *table[T] {
	return &x.tables[slices.Index(covered, attribute)]
}

// rank says which term is likely to be held by fewer events, where the filters
// that are there already do not tell: equality before beginnings, and subjects
// before sources before types before topics.
func rank(cover []cesql.Term) int {
	worst := 0
	for _, t := range cover {
		r := [...]int{2, 1, 0, 3}[slices.Index(covered, t.Attribute)]
		if t.Prefix {
			r += 4
		}
		worst = max(worst, r)
	}
	return worst
}

// choose picks the cover that has to be shared with the fewest filters.
func (x *Index[T]) choose(covers []cesql.Cover) (best cesql.Cover) {
	if len(covers) == 0 {
		return best
	}
	crowd := func(c cesql.Cover) (n int) {
		for _, t := range c.Terms {
			n += len(x.table(t.Attribute).under(t))
		}
		return n
	}
	best = slices.MinFunc(covers, func(a, b cesql.Cover) int {
		return cmp.Or(cmp.Compare(crowd(a), crowd(b)), cmp.Compare(rank(a.Terms), rank(b.Terms)))
	})
	unique := map[cesql.Term]bool{}
	best.Terms = slices.DeleteFunc(slices.Clone(best.Terms), func(t cesql.Term) bool {
		seen := unique[t]
		unique[t] = true
		return seen
	})
	return best
}

func beginning(text string) string { return text[:min(len(text), beginMax)] }

func (t *table[T]) under(term cesql.Term) []*entry[T] {
	if term.Prefix {
		return t.begins[beginning(term.Text)]
	}
	return t.equal[term.Text]
}

func (t *table[T]) add(term cesql.Term, e *entry[T]) {
	if !term.Prefix {
		t.equal[term.Text] = append(t.equal[term.Text], e)
		return
	}
	key := beginning(term.Text)
	if t.begins[key] == nil {
		t.resize(len(key), 1)
	}
	t.begins[key] = append(t.begins[key], e)
}

func (t *table[T]) remove(term cesql.Term, e *entry[T]) {
	list, key := t.equal, term.Text
	if term.Prefix {
		list, key = t.begins, beginning(term.Text)
	}
	if left := without(list[key], e); len(left) > 0 {
		list[key] = left
		return
	}
	delete(list, key)
	if term.Prefix {
		t.resize(len(key), -1)
	}
}

// resize counts a beginning that came or went.
func (t *table[T]) resize(bytes, by int) {
	i, found := slices.BinarySearchFunc(t.lengths, bytes, func(l length, n int) int { return cmp.Compare(l.bytes, n) })
	if !found {
		t.lengths = slices.Insert(t.lengths, i, length{bytes: bytes})
	}
	if t.lengths[i].count += by; t.lengths[i].count == 0 {
		t.lengths = slices.Delete(t.lengths, i, i+1)
	}
}

func without[T comparable](list []*entry[T], e *entry[T]) []*entry[T] {
	i := slices.Index(list, e)
	if i < 0 {
		return list
	}
	return slices.Delete(list, i, i+1)
}
