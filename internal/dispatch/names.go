// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// names is all topics in the order of their names, so that those which begin with
// the same text are found without a look at the others. It is nil while a Dispatch
// is made.
type names []*view

func sorted(topics map[string]*view) names {
	list := slices.AppendSeq(make(names, 0, len(topics)), maps.Values(topics))
	slices.SortFunc(list, func(a, b *view) int { return strings.Compare(a.name, b.name) })
	return list
}

func (n names) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(n, name, func(v *view, name string) int { return strings.Compare(v.name, name) })
}

// put adds a view, in place of an older one of the same name. Topics are never
// taken out: a deleted one has a view, too.
func (n *names) put(v *view) {
	if *n == nil {
		return
	}
	at, found := n.find(v.name)
	if !found {
		*n = slices.Insert(*n, at, nil)
	}
	(*n)[at] = v
}

// beginning yields the topics whose names begin with a text.
func (n names) beginning(text string) iter.Seq[*view] {
	return func(yield func(*view) bool) {
		for at, _ := n.find(text); at < len(n) && strings.HasPrefix(n[at].name, text); at++ {
			if !yield(n[at]) {
				return
			}
		}
	}
}
