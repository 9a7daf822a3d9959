// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"crypto/sha256"
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/cesql"
)

// Terms and Lookups are an index like [Index] for filters that are not in memory:
// somebody stores who is interested under each of the terms, and looks up those of
// an event. One of the terms holds for whatever is selected. What is found that way
// may be interested; whether it is, its filter says.

// termLengths are the lengths at which beginnings are cut, so that an event is
// looked up at these and at no others.
var termLengths = []int{0, 4, 8, 16, 32, 64}

// termTextMax is how long the text of an equality is stored as it is.
const termTextMax = 64

// The first bytes of a term.
const (
	termEqual  = 'e'
	termPrefix = 'p'
)

// Selection is what a subscription says of the events that it wants.
type Selection struct {
	Filter   *Filter // nil: everything
	Source   string  // "": any
	Types    []string
	Patterns []event.Pattern
}

// Terms returns the terms under which a subscription is found: those of one
// condition of it, the one that is likely to hold for the fewest events. No term
// has a zero byte.
func (s Selection) Terms() [][]byte {
	covers := [][]cesql.Term{topicTerms(s.Patterns)}
	if s.Source != "" {
		covers = append(covers, []cesql.Term{{Attribute: "source", Text: s.Source}})
	}
	if len(s.Types) > 0 {
		var terms []cesql.Term
		for _, t := range s.Types {
			terms = append(terms, cesql.Term{Attribute: "type", Text: t})
		}
		covers = append(covers, terms)
	}
	if s.Filter != nil {
		for _, c := range s.Filter.root.covers() {
			// Without Touches a tombstone may be selected for which no term holds.
			if c.Touches && len(c.Terms) > 0 {
				covers = append(covers, c.Terms)
			}
		}
	}
	best := slices.MinFunc(covers, func(a, b []cesql.Term) int { return storedRank(a) - storedRank(b) })
	terms := make([][]byte, 0, len(best))
	for _, t := range best {
		t.Text = strings.ReplaceAll(t.Text, "\x00", "?") // which no event has
		term := appendTerm(nil, &t)
		if !slices.ContainsFunc(terms, func(other []byte) bool { return string(other) == string(term) }) {
			terms = append(terms, term)
		}
	}
	return terms
}

// storedRank is [rank]; a beginning that selects everything comes last.
func storedRank(cover []cesql.Term) int {
	if slices.ContainsFunc(cover, func(t cesql.Term) bool { return t.Prefix && len(t.Text) < termLengths[1] }) {
		return 100
	}
	return rank(cover)
}

// topicTerms covers patterns by their beginnings up to the first wildcard.
func topicTerms(patterns []event.Pattern) (terms []cesql.Term) {
	for _, p := range patterns {
		if name, exact := p.Exact(); exact {
			terms = append(terms, cesql.Term{Attribute: "topic", Text: name})
			continue
		}
		text := p.String()
		terms = append(terms, cesql.Term{Attribute: "topic", Text: text[:strings.IndexAny(text, "*>")], Prefix: true})
	}
	return terms
}

func appendTerm(dst []byte, t *cesql.Term) []byte {
	attribute := byte('0' + slices.Index(covered, t.Attribute))
	if !t.Prefix {
		return appendEqual(append(dst, attribute, termEqual), t.Text)
	}
	cut := 0
	for _, n := range termLengths {
		if n <= len(t.Text) {
			cut = n
		}
	}
	return append(append(dst, attribute, termPrefix), t.Text[:cut]...)
}

// appendEqual bounds what is stored of a long text.
func appendEqual[T string | []byte](dst []byte, text T) []byte {
	if len(text) <= termTextMax {
		return append(dst, text...)
	}
	sum := sha256.Sum256([]byte(text))
	dst = append(dst, text[:termTextMax/2]...)
	const digits = "0123456789abcdef"
	for _, c := range sum[:16] {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return append(dst, '#') // longer than any text that is stored as it is
}

// Lookups calls each with the terms that hold for an event.
func Lookups(r *Record, each func(term []byte)) {
	var buf [2 + termTextMax + 1]byte
	for i := range covered {
		text := r.event.Lookup(coveredAttributes[i]).Text()
		if text == nil {
			continue
		}
		attribute := byte('0' + i)
		each(appendEqual(append(buf[:0], attribute, termEqual), text))
		for _, n := range termLengths {
			if n > len(text) {
				break
			}
			each(append(append(buf[:0], attribute, termPrefix), text[:n]...))
		}
	}
}

var coveredAttributes = func() (list []cesql.Attribute) {
	for _, name := range covered {
		list = append(list, cesql.NewAttribute(name))
	}
	return list
}()
