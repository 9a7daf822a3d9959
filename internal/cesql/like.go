// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern is a compiled LIKE pattern: segments between %. The first is anchored
// at the front and the last at the end; those between are searched for from left
// to right, each at the leftmost place, which is never wrong. A search is linear
// whatever the text is: bytes.Index for what is so short that it may compare it at
// every place, Knuth, Morris and Pratt's for longer ones, and shift-and where there
// is a _. So a match is as a whole.
type pattern struct {
	literal bool // there is no %: first is everything
	first   segment
	between []segment
	last    segment
}

// segment is a part of a pattern without %.
type segment struct {
	text  []byte // if it has no _
	runes []rune // if it has; anyRune for _
	masks *masks // of a segment that is searched for, if it has a _

	// Of a long segment that is searched for, if it has no _: how many of its first
	// bytes are, too, the last ones before and with each byte, at most, and not all.
	borders []uint16
}

// indexBytes is how long a text may be for bytes.Index. Beyond it, what it does is
// the product of both lengths in the worst case.
const indexBytes = 64

const anyRune = -1

// masks is the shift-and automaton of a segment: bit i of the mask of a character
// says whether character i of the segment accepts it.
type masks struct {
	ascii [utf8.RuneSelf]uint64
	other []runeMask // ascending
	any   uint64     // of characters that the segment does not name
	done  uint64
}

type runeMask struct {
	r    rune
	mask uint64
}

// compilePattern returns a sentence about what is wrong, if something is.
func compilePattern(text string) (p *pattern, fault string) {
	p = &pattern{}
	if !strings.ContainsAny(text, `\_`) {
		p.plain(text)
		return p, ""
	}
	parts := splitPattern(text)
	p.literal = len(parts) == 1
	p.first = newSegment(parts[0])
	if p.literal {
		return p, ""
	}
	p.last = newSegment(parts[len(parts)-1])
	searches := 0
	for _, part := range parts[1 : len(parts)-1] {
		if len(part) == 0 {
			continue // %% is %
		}
		s := newSegment(part)
		if s.runes != nil {
			if len(part) > MaxLikeSegment {
				return nil, fmt.Sprintf("a pattern may have %d characters between two %% if one of them is _", MaxLikeSegment)
			}
			if searches++; searches > MaxLikeSearches {
				return nil, fmt.Sprintf("a pattern may have %d parts with _ between two %%", MaxLikeSearches)
			}
			s.masks = newMasks(part)
		} else {
			s = newSearch(s.text)
		}
		p.between = append(p.between, s)
	}
	return p, ""
}

// plain compiles a pattern that has neither _ nor escapes, as most have.
func (p *pattern) plain(text string) {
	first, rest, more := strings.Cut(text, "%")
	p.first.text, p.literal = []byte(first), !more
	for more {
		var part string
		if part, rest, more = strings.Cut(rest, "%"); !more {
			p.last.text = []byte(part)
		} else if part != "" {
			p.between = append(p.between, newSearch([]byte(part)))
		}
	}
}

// splitPattern cuts a pattern at its % and resolves \% and \_ (3.4.3).
func splitPattern(text string) [][]rune {
	parts := [][]rune{{}}
	add := func(r rune) { parts[len(parts)-1] = append(parts[len(parts)-1], r) }
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == '\\' && (strings.HasPrefix(rest[1:], "%") || strings.HasPrefix(rest[1:], "_")):
			add(rune(rest[1]))
			size = 2
		case r == '%':
			parts = append(parts, []rune{})
		case r == '_':
			add(anyRune)
		default:
			add(r)
		}
		rest = rest[size:]
	}
	return parts
}

func newSegment(part []rune) (s segment) {
	for _, r := range part {
		if r == anyRune {
			return segment{runes: part}
		}
	}
	return segment{text: []byte(string(part))}
}

// newSearch makes a segment without _ that is searched for.
func newSearch(text []byte) segment {
	s := segment{text: text}
	if len(text) <= indexBytes {
		return s
	}
	s.borders = make([]uint16, len(text)) // MaxBytes fits
	for i, n := 1, 0; i < len(text); i++ {
		n = s.extend(n, text[i])
		s.borders[i] = uint16(n)
	}
	return s
}

// extend returns in how many of the segment's first bytes a text ends, at most,
// that ended in n of them and has one byte more.
func (s *segment) extend(n int, c byte) int {
	for n > 0 && s.text[n] != c {
		n = int(s.borders[n-1])
	}
	if s.text[n] == c {
		n++
	}
	return n
}

func newMasks(part []rune) *masks {
	m := &masks{done: 1 << (len(part) - 1)}
	for i, r := range part {
		if r == anyRune {
			m.any |= 1 << i
		}
	}
	for i := range m.ascii {
		m.ascii[i] = m.any
	}
	for i, r := range part {
		switch {
		case r == anyRune:
		case r < utf8.RuneSelf:
			m.ascii[r] |= 1 << i
		default:
			m.addOther(r, 1<<i)
		}
	}
	return m
}

func (m *masks) addOther(r rune, bit uint64) {
	i, known := m.search(r)
	if !known {
		m.other = slices.Insert(m.other, i, runeMask{r, m.any})
	}
	m.other[i].mask |= bit
}

// search is written out: with a call for each comparison it would be most of what
// a match costs.
func (m *masks) search(r rune) (i int, known bool) {
	j := len(m.other)
	for i < j {
		if h := (i + j) / 2; m.other[h].r < r {
			i = h + 1
		} else {
			j = h
		}
	}
	return i, i < len(m.other) && m.other[i].r == r
}

func (m *masks) of(r rune) uint64 {
	if r < utf8.RuneSelf {
		return m.ascii[r]
	}
	if i, known := m.search(r); known {
		return m.other[i].mask
	}
	return m.any
}

// looks reports whether match looks at each character of a text. What is anchored and
// has no _ takes no more than the pattern has bytes.
func (p *pattern) looks() bool {
	return len(p.between) > 0 || p.first.runes != nil || p.last.runes != nil
}

// like is match, with the work of it.
func (m *Machine) like(p *pattern, text []byte) bool {
	if p.looks() {
		m.spend(workText * len(text))
	}
	return p.match(text)
}

// match reports whether the whole of text matches.
func (p *pattern) match(text []byte) bool {
	text, ok := p.first.cutFront(text)
	if !ok || p.literal {
		return ok && len(text) == 0
	}
	if text, ok = p.last.cutEnd(text); !ok {
		return false
	}
	for i := range p.between {
		end := p.between[i].search(text)
		if end < 0 {
			return false
		}
		text = text[end:]
	}
	return true
}

func (s *segment) cutFront(text []byte) (rest []byte, ok bool) {
	if s.runes == nil {
		return bytes.CutPrefix(text, s.text)
	}
	for _, want := range s.runes {
		if len(text) == 0 {
			return nil, false
		}
		r, size := utf8.DecodeRune(text)
		if want != anyRune && r != want {
			return nil, false
		}
		text = text[size:]
	}
	return text, true
}

func (s *segment) cutEnd(text []byte) (rest []byte, ok bool) {
	if s.runes == nil {
		return bytes.CutSuffix(text, s.text)
	}
	for i := len(s.runes) - 1; i >= 0; i-- {
		if len(text) == 0 {
			return nil, false
		}
		r, size := utf8.DecodeLastRune(text)
		if want := s.runes[i]; want != anyRune && r != want {
			return nil, false
		}
		text = text[:len(text)-size]
	}
	return text, true
}

// search returns the end of the leftmost occurrence, or -1.
func (s *segment) search(text []byte) int {
	switch {
	case s.borders != nil:
		return s.searchLong(text)
	case s.runes == nil:
		i := bytes.Index(text, s.text)
		if i < 0 {
			return -1
		}
		return i + len(s.text)
	}
	state := uint64(0)
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		i += size
		state = (state<<1 | 1) & s.masks.of(r)
		if state&s.masks.done != 0 {
			return i
		}
	}
	return -1
}

func (s *segment) searchLong(text []byte) int {
	n := 0
	for i, c := range text {
		if n = s.extend(n, c); n == len(s.text) {
			return i + 1
		}
	}
	return -1
}

// prefix returns what every text that matches begins with, and whether that is
// the one text that matches.
func (p *pattern) prefix() (prefix []byte, whole bool) {
	if p.first.runes == nil {
		return p.first.text, p.literal
	}
	for _, r := range p.first.runes {
		if r == anyRune {
			break
		}
		prefix = utf8.AppendRune(prefix, r)
	}
	return prefix, false
}
