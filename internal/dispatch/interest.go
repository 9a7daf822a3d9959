// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"strings"
	"sync/atomic"

	"signalbox/event"
	"signalbox/internal/projector"
)

// group is all readers of the same topics: they are woken together, and a
// commit wakes only the groups whose topics it touched.
type group struct {
	key      string
	patterns []event.Pattern
	last     atomic.Uint64 // position of the last event on their topics
	views    []*view       // that match; replaced, never changed in place; guarded by Dispatch.mu
	readers  int           // guarded by Dispatch.mu
	seen     uint64        // events on their topics that were sorted; guarded by sorter.mu
	counted  uint64        // position of the last of these; guarded by sorter.mu
	stirred  bool          // to be woken at the end of this commit; guarded by Dispatch.mu
	changed  chan struct{} // closed and replaced when there is something to read; guarded by Dispatch.mu

	live    atomic.Pointer[[]*view] // the ephemeral ones of views; nil: none
	dropped atomic.Uint64           // sequence at which values were last dropped with their topic
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

// join returns the group of the patterns, for one more reader.
func (d *Dispatch) join(patterns []event.Pattern) *group {
	patterns, key := arrange(patterns)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.groups[key]
	if g == nil {
		g = &group{key: key, patterns: patterns, changed: make(chan struct{}), views: d.match(patterns)}
		for _, v := range g.views {
			g.last.Store(max(g.last.Load(), v.info.Load().Last))
		}
		g.findLive()
		d.groups[key] = g
		d.index(g)
	}
	g.readers++
	return g
}

// index is called with mu held. Groups with wildcards are found by what the
// topics begin with, so that the cost of an event does not grow with them.
func (d *Dispatch) index(g *group) {
	for _, p := range g.patterns {
		if name, exact := p.Exact(); exact {
			d.exact[name] = append(d.exact[name], g)
		} else {
			d.wild[p.Beginning()] = append(d.wild[p.Beginning()], g)
		}
	}
}

// unindex is called with mu held.
func (d *Dispatch) unindex(g *group) {
	for _, p := range g.patterns {
		list, name := d.exact, p.String()
		if _, exact := p.Exact(); !exact {
			list, name = d.wild, p.Beginning()
		}
		if list[name] = without(list[name], g); len(list[name]) == 0 {
			delete(list, name)
		}
	}
}

// leave takes a reader out of its group, and drops the group after the last.
func (d *Dispatch) leave(g *group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.readers--
	if g.readers > 0 {
		return
	}
	delete(d.groups, g.key)
	d.unindex(g)
	g.wake() // whoever waits without a reader of his own finds out that it was closed
}

func without(groups []*group, g *group) []*group {
	return slices.DeleteFunc(groups, func(other *group) bool { return other == g })
}

// adopt adds a new view to the groups that it matches, in place of an older one
// of the same name. It is called with mu held.
func (d *Dispatch) adopt(v *view) {
	for _, g := range d.interested(v.name) {
		views := make([]*view, 0, len(g.views)+1)
		for _, other := range g.views {
			if other.name != v.name {
				views = append(views, other)
			}
		}
		g.views = append(views, v)
		g.findLive()
	}
}

// interested returns the groups that a topic matches; one may stand in it
// twice. It is called with mu held.
func (d *Dispatch) interested(topic string) []*group {
	exact := d.exact[topic]
	found := exact[:len(exact):len(exact)] // the first that is appended copies it
	for end := 0; len(d.wild) > 0; {
		for _, g := range d.wild[topic[:end]] {
			if matches(g.patterns, topic) {
				found = append(found, g)
			}
		}
		dot := strings.IndexByte(topic[end:], '.')
		if dot < 0 {
			break
		}
		end += dot + 1
	}
	return found
}

// wake wakes the readers of the events' topics, each group once. It is called
// with mu held.
func (d *Dispatch) wake(events []projector.Applied) {
	var stirred []*group
	for i := range events {
		if i > 0 && events[i].Topic == events[i-1].Topic {
			continue
		}
		for _, g := range d.interested(events[i].Topic) {
			if !g.stirred {
				g.stirred = true
				stirred = append(stirred, g)
			}
		}
	}
	for _, g := range stirred {
		g.stirred = false
		g.last.Store(d.head) // to which a reader that is awake steps in any case
		g.wake()
	}
}

// wakeTopic wakes the readers of one topic. It is called with mu held.
func (d *Dispatch) wakeTopic(topic string) {
	for _, g := range d.interested(topic) {
		g.wake()
	}
}

// wake is called with Dispatch.mu held.
func (g *group) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}
