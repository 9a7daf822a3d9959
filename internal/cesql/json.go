// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions here read JSON that somebody has validated, forwards and once,
// and no further than to what they look for. They check what they step on and
// nothing else, and never recurse. A position of -1 means that the data is
// malformed.

const malformed = -1

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the position after the string whose first quotation mark
// is at i.
func skipString(b []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return malformed
		}
		escapes := 0
		for escapes < n && b[i+n-1-escapes] == '\\' {
			escapes++
		}
		i += n + 1
		if escapes%2 == 0 {
			return i
		}
	}
}

// skipValue returns the position after the value at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return malformed
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipComposite(b, i)
	}
	start := i
	for i < len(b) && isScalar(b[i]) {
		i++
	}
	if i == start {
		return malformed
	}
	return i
}

// isScalar says which bytes numbers, true, false and null are made of.
func isScalar(c byte) bool {
	return isDigit(c) || c == '-' || c == '+' || c == '.' || lower(c) >= 'a' && lower(c) <= 'z'
}

func skipComposite(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i == malformed {
				return malformed
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return malformed
}

// cursor walks over the members of an object or the elements of an array.
type cursor struct {
	b    []byte
	at   int
	more bool // a member or an element is next
	bad  bool
	last byte
}

// descend enters the object or array at i.
func descend(b []byte, i int) cursor {
	c := cursor{b: b, at: skipSpace(b, i+1), last: ']'}
	if b[i] == '{' {
		c.last = '}'
	}
	switch {
	case c.at >= len(b):
		c.bad = true
	case b[c.at] != c.last:
		c.more = true
	}
	return c
}

// key reads the name of the next member, between its quotation marks, and moves
// to the value.
func (c *cursor) key() []byte {
	if c.b[c.at] != '"' {
		c.fail()
		return nil
	}
	end := skipString(c.b, c.at)
	if end == malformed {
		c.fail()
		return nil
	}
	name := c.b[c.at+1 : end-1]
	colon := skipSpace(c.b, end)
	if colon >= len(c.b) || c.b[colon] != ':' {
		c.fail()
		return nil
	}
	if c.at = skipSpace(c.b, colon+1); c.at >= len(c.b) {
		c.fail()
	}
	return name
}

// skip steps over the value at the cursor.
func (c *cursor) skip() {
	if c.at = skipValue(c.b, c.at); c.at == malformed {
		c.fail()
		return
	}
	c.at = skipSpace(c.b, c.at)
	switch {
	case c.at >= len(c.b):
		c.fail()
	case c.b[c.at] == c.last:
		c.more = false
	case c.b[c.at] == ',':
		if c.at = skipSpace(c.b, c.at+1); c.at >= len(c.b) {
			c.fail()
		}
	default:
		c.fail()
	}
}

func (c *cursor) fail() { c.more, c.bad = false, true }

// locate follows a step from the value at i. It returns the position of the
// value there, len(b) if there is none, or malformed; and what that took.
func locate(b []byte, i int, s *step) (at, work int) {
	opening := byte('[')
	if s.name != nil {
		opening = '{'
	}
	if b[i] != opening {
		return len(b), 0
	}
	c, n := descend(b, i), 0
	for ; c.more; n++ {
		if s.name == nil {
			if n == s.index {
				return c.at, c.at - i + n*workElement
			}
		} else if key := c.key(); c.more && sameName(key, s.name) {
			return c.at, c.at - i + n*workElement
		}
		if c.more {
			c.skip()
		}
	}
	if c.bad {
		return malformed, len(b) - i + n*workElement
	}
	return len(b), c.at - i + n*workElement
}

// sameName compares what stands between quotation marks with a name.
func sameName(raw, name []byte) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return bytes.Equal(raw, name)
	}
	var room [utf8.UTFMax]byte
	for i := 0; i < len(raw); {
		var c []byte
		c, i = character(raw, i, room[:0])
		rest, same := bytes.CutPrefix(name, c)
		if !same {
			return false
		}
		name = rest
	}
	return len(name) == 0
}

// character reads one character or escape of a string's inside at i and appends
// it to dst. What is no valid escape stands for itself.
func character(raw []byte, i int, dst []byte) (_ []byte, next int) {
	if raw[i] != '\\' || i+1 >= len(raw) {
		return append(dst, raw[i]), i + 1
	}
	switch c := raw[i+1]; c {
	case 'b':
		return append(dst, '\b'), i + 2
	case 'f':
		return append(dst, '\f'), i + 2
	case 'n':
		return append(dst, '\n'), i + 2
	case 'r':
		return append(dst, '\r'), i + 2
	case 't':
		return append(dst, '\t'), i + 2
	case 'u':
		r := hex4(raw, i+2)
		if r < 0 {
			return append(dst, '\\'), i + 1
		}
		i += 6
		if utf16.IsSurrogate(r) && i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
			if whole := utf16.DecodeRune(r, hex4(raw, i+2)); whole != utf8.RuneError {
				r, i = whole, i+6
			}
		}
		return utf8.AppendRune(dst, r), i
	default:
		return append(dst, c), i + 2
	}
}

func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	r := rune(0)
	for _, c := range b[i : i+4] {
		switch c = lower(c); {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		default:
			return -1
		}
	}
	return r
}

// scanNumber returns the position after the number at i, as RFC 8259 has it.
func scanNumber(b []byte, i int) (end int, ok bool) {
	digits := func() bool {
		start := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(b) && lower(b[i]) == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}
