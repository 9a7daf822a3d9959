// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"strings"
	"sync/atomic"

	"signalbox/event"
	"signalbox/internal/projector"
)

// interest is topics that groups want: those of one pattern, or of several that
// overlap. What is known of them is known once for all groups, so that an event
// costs by the patterns that it matches, and not by the lists they stand in.
type interest struct {
	key      string
	patterns []event.Pattern
	groups   []*group             // that want it; guarded by Dispatch.mu
	views    []*view              // that match; replaced, never changed in place; guarded by Dispatch.mu
	last     atomic.Uint64        // position of the last event on the topics
	stirred  bool                 // to be woken at the end of this commit; guarded by Dispatch.mu
	sorted   [sorterCount]counted // by each sorter; guarded by its mu

	live    atomic.Pointer[[]*view] // the ephemeral ones of views; nil: none
	dropped atomic.Uint64           // sequence at which values were last dropped with their topic
}

// counted is how many events on the topics of an interest were sorted.
type counted struct{ events, last uint64 } // last is a position

// group is all readers of the same topics: they are woken together, and a
// commit wakes only the groups whose topics it touched.
type group struct {
	key       string
	patterns  []event.Pattern
	interests []*interest                   // each of its topics is in one of them
	readers   int                           // guarded by Dispatch.mu
	changed   atomic.Pointer[chan struct{}] // closed when there is something to read; nil: nobody waits
}

// arrange returns the patterns in one order, each once, and their names: however
// readers spell the same topics, they are one group.
func arrange(patterns []event.Pattern) (list []event.Pattern, key string) {
	list = slices.Clone(patterns)
	slices.SortFunc(list, func(a, b event.Pattern) int { return strings.Compare(a.String(), b.String()) })
	list = slices.CompactFunc(list, func(a, b event.Pattern) bool { return a.String() == b.String() })
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.String()
	}
	return list, strings.Join(names, ",")
}

// divide divides patterns into lists such that no topic matches two of them.
func divide(patterns []event.Pattern) (lists [][]event.Pattern) {
	for _, p := range patterns {
		list := []event.Pattern{p}
		lists = slices.DeleteFunc(lists, func(other []event.Pattern) bool {
			if !slices.ContainsFunc(other, func(q event.Pattern) bool { return overlap(p, q) }) {
				return false
			}
			list = append(list, other...)
			return true
		})
		lists = append(lists, list)
	}
	return lists
}

// overlap reports whether a topic may match both patterns.
func overlap(p, q event.Pattern) bool {
	if name, exact := p.Exact(); exact {
		return q.Match(name)
	}
	if name, exact := q.Exact(); exact {
		return p.Match(name)
	}
	return strings.HasPrefix(p.Beginning(), q.Beginning()) || strings.HasPrefix(q.Beginning(), p.Beginning())
}

// join returns the group of the patterns, for one more reader.
func (d *Dispatch) join(patterns []event.Pattern) *group {
	patterns, key := arrange(patterns)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[key]
	if g == nil {
		g = &group{key: key, patterns: patterns}
		for _, list := range divide(patterns) {
			i := d.interest(list)
			i.groups = append(i.groups, g)
			g.interests = append(g.interests, i)
		}
		d.groups[key] = g
	}
	g.readers++
	return g
}

// interest returns the interest in the patterns. It is called with mu held.
func (d *Dispatch) interest(patterns []event.Pattern) *interest {
	patterns, key := arrange(patterns)
	i := d.interests[key]
	if i != nil {
		return i
	}
	i = &interest{key: key, patterns: patterns, views: d.match(patterns)}
	for _, v := range i.views {
		i.last.Store(max(i.last.Load(), v.info.Load().Last))
	}
	i.findLive()
	d.interests[key] = i
	for _, p := range patterns {
		list, name := d.index(p)
		list[name] = append(list[name], i)
	}
	return i
}

// index returns where interests in a pattern are found. Those with wildcards are
// found by what the topics begin with, so that the cost of an event does not grow
// with them. It is called with mu held.
func (d *Dispatch) index(p event.Pattern) (list map[string][]*interest, name string) {
	if name, exact := p.Exact(); exact {
		return d.exact, name
	}
	return d.wild, p.Beginning()
}

// leave takes a reader out of its group, and drops the group after the last.
func (d *Dispatch) leave(g *group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.readers--; g.readers > 0 {
		return
	}
	delete(d.groups, g.key)
	for _, i := range g.interests {
		if i.groups = without(i.groups, g); len(i.groups) == 0 {
			d.forget(i)
		}
	}
	g.wake() // whoever waits without a reader of his own finds out that it was closed
}

// forget drops an interest that nobody has. It is called with mu held.
func (d *Dispatch) forget(i *interest) {
	delete(d.interests, i.key)
	for _, p := range i.patterns {
		list, name := d.index(p)
		if list[name] = without(list[name], i); len(list[name]) == 0 {
			delete(list, name)
		}
	}
}

func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == one })
}

// adopt adds a new view to the interests that it matches, in place of an older
// one of the same name. It is called with mu held.
func (d *Dispatch) adopt(v *view) {
	for i := range d.interested(v.name) {
		views := make([]*view, 0, len(i.views)+1)
		for _, other := range i.views {
			if other.name != v.name {
				views = append(views, other)
			}
		}
		i.views = append(views, v)
		i.findLive()
	}
}

// interested yields the interests that a topic matches; one may come twice. It is
// called with mu held.
func (d *Dispatch) interested(topic string) func(yield func(*interest) bool) {
	return func(yield func(*interest) bool) {
		for _, i := range d.exact[topic] {
			if !yield(i) {
				return
			}
		}
		for end := 0; len(d.wild) > 0; {
			for _, i := range d.wild[topic[:end]] {
				if matches(i.patterns, topic) && !yield(i) {
					return
				}
			}
			dot := strings.IndexByte(topic[end:], '.')
			if dot < 0 {
				return
			}
			end += dot + 1
		}
	}
}

// wake wakes the readers of the events' topics, each group once. It is called
// with mu held.
func (d *Dispatch) wake(events []projector.Applied) {
	var stirred []*interest
	for n := range events {
		if n > 0 && events[n].Topic == events[n-1].Topic {
			continue
		}
		for i := range d.interested(events[n].Topic) {
			if !i.stirred {
				i.stirred = true
				stirred = append(stirred, i)
			}
		}
	}
	for _, i := range stirred {
		i.stirred = false
		i.last.Store(d.head) // to which a reader that is awake steps in any case
		i.wake()
	}
}

// wakeTopic wakes the readers of one topic. It is called with mu held, for
// reading at least.
func (d *Dispatch) wakeTopic(topic string) {
	for i := range d.interested(topic) {
		i.wake()
	}
}

// wake is called with Dispatch.mu held.
func (i *interest) wake() {
	for _, g := range i.groups {
		g.wake()
	}
}

func (g *group) wake() {
	if g.changed.Load() == nil { // nobody waits, or only readers with a filter
		return
	}
	if changed := g.changed.Swap(nil); changed != nil {
		close(*changed)
	}
}

// changes returns a channel that is closed when there is something to read.
func (g *group) changes() <-chan struct{} {
	for {
		if changed := g.changed.Load(); changed != nil {
			return *changed
		}
		changed := make(chan struct{})
		if g.changed.CompareAndSwap(nil, &changed) {
			return changed
		}
	}
}

// views yields the views that the group matches. It is called with Dispatch.mu
// held.
func (g *group) views(yield func(*view) bool) {
	for _, i := range g.interests {
		for _, v := range i.views {
			if !yield(v) {
				return
			}
		}
	}
}

// last is the position of the last event on the group's topics.
func (g *group) last() (last uint64) {
	for _, i := range g.interests {
		last = max(last, i.last.Load())
	}
	return last
}

// seen is how many events on the group's topics a sorter has sorted. It is called
// with that sorter's mu held.
func (g *group) seen(sorter int) (seen uint64) {
	for _, i := range g.interests {
		seen += i.sorted[sorter].events
	}
	return seen
}
