// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// pattern is a compiled LIKE pattern: segments between %. The first is anchored
// at the front and the last at the end; those between are searched for from left
// to right, each at the leftmost place, which is never wrong. A search is linear
// (bytes.Index, or shift-and where there is a _), so a match is as a whole.
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
}

const anyRune = -1

// masks is the shift-and automaton of a segment: bit i of the mask of a character
// says whether character i of the segment accepts it.
type masks struct {
	ascii [utf8.RuneSelf]uint64
	other []runeMask
	any   uint64 // of characters that the segment does not name
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
			p.between = append(p.between, segment{text: []byte(part)})
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
	for i := range m.other {
		if m.other[i].r == r {
			m.other[i].mask |= bit
			return
		}
	}
	m.other = append(m.other, runeMask{r, m.any | bit})
}

func (m *masks) of(r rune) uint64 {
	if r < utf8.RuneSelf {
		return m.ascii[r]
	}
	for i := range m.other {
		if m.other[i].r == r {
			return m.other[i].mask
		}
	}
	return m.any
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
	if s.runes == nil {
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
