// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/cesql"
)

// Narrow returns a filter for events that pass f and have a source and one of
// the types, as a subscription's document asks for them (Subscriptions API
// 3.2.4). What is empty or nil asks for nothing; if nothing is asked for, it
// returns nil.
func Narrow(f *Filter, source string, types []string) *Filter {
	if source == "" && len(types) == 0 {
		return f
	}
	all := &part{op: opAll}
	if source != "" {
		all.kids = append(all.kids, &part{op: opExact, name: "source", value: source})
	}
	if len(types) > 0 {
		any := &part{op: opAny}
		for _, t := range types {
			any.kids = append(any.kids, &part{op: opExact, name: "type", value: t})
		}
		all.kids = append(all.kids, any)
	}
	if f != nil {
		all.kids = append(all.kids, f.root)
	}
	return newFilter(all)
}

// On returns a filter for events on topics that one of the patterns selects, and
// that pass f; nil lets all of them pass. It is for an index, which finds it by
// the beginnings of its topics, too.
func On(patterns []event.Pattern, f *Filter) *Filter {
	names := make([]string, len(patterns))
	for i, p := range patterns {
		names[i] = p.String()
	}
	slices.Sort(names)
	root := &part{op: opTopics, on: patterns, value: strings.Join(slices.Compact(names), ",")}
	selects := root.compile()
	if f == nil {
		return &Filter{root: root, canonical: root.canonical(), eval: selects}
	}
	// In this order: the topic costs the least to look at. F is compiled already.
	root = &part{op: opAll, kids: []*part{root, f.root}}
	eval := func(m *Machine, e *cesql.Event) bool { return selects(m, e) && f.eval(m, e) }
	return &Filter{root: root, canonical: root.canonical(), eval: eval}
}

// compileTopics compiles a test of the attribute topic.
func (p *part) compileTopics() predicate {
	topic, patterns := cesql.NewAttribute("topic"), p.on
	return func(_ *Machine, e *cesql.Event) bool {
		text := e.Lookup(topic).Text()
		for i := range patterns {
			if patterns[i].MatchBytes(text) {
				return true
			}
		}
		return false
	}
}

// coverTopics has a term for each pattern. There is none where a pattern begins
// with a wildcard.
func (p *part) coverTopics() []cesql.Cover {
	c := cesql.Cover{Touches: true}
	for _, pattern := range p.on {
		_, exact := pattern.Exact()
		beginning := pattern.Beginning()
		if beginning == "" {
			return nil
		}
		c.Terms = append(c.Terms, cesql.Term{Attribute: "topic", Text: beginning, Prefix: !exact})
	}
	return []cesql.Cover{c}
}
