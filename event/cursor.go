// SPDX-License-Identifier: Apache-2.0

package event

import (
	"math"
	"strconv"
	"strings"
)

// Cursor says "I have everything up to here": a position, and the incarnation
// of the log that it belongs to. Without the incarnation it is bare, which is
// accepted as input and trusted to be of the log at hand.
type Cursor struct {
	Position    uint64
	Incarnation string
	// Began is set for a reader that has not yet come to the end of what was
	// removed before it began: a position greater than Position. Removals up to
	// it took nothing from this reader.
	Began uint64
}

// incarnationLen is the length of an incarnation, of letters and digits that
// need no escaping in any protocol.
const incarnationLen = 8

// ParseCursor reads "@105.k3f9x0ab", "@105.k3f9x0ab.900", "@105" or "@0". There
// is exactly one spelling of each cursor: no sign, no leading zeros, no upper
// case.
func ParseCursor(s string) (Cursor, error) {
	rest, ok := strings.CutPrefix(s, "@")
	if !ok {
		return Cursor{}, cursorFault(s)
	}
	digits, rest, dotted := strings.Cut(rest, ".")
	incarnation, later, fresh := strings.Cut(rest, ".")
	position, ok := parseDigits(digits, math.MaxUint64)
	if !ok || dotted && !validIncarnation(incarnation) {
		return Cursor{}, cursorFault(s)
	}
	c := Cursor{Position: position, Incarnation: incarnation}
	if fresh {
		if c.Began, ok = parseDigits(later, math.MaxUint64); !ok || c.Began <= position {
			return Cursor{}, cursorFault(s)
		}
	}
	return c, nil
}

func validIncarnation(s string) bool {
	if len(s) != incarnationLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func cursorFault(s string) *Error {
	return Errorf(CodeCursorInvalid, "%q is not a cursor: send it as it was received, such as @105.k3f9x0ab, or @0 for the beginning.", clip(s))
}

// String returns the form that [ParseCursor] reads.
func (c Cursor) String() string { return string(c.AppendTo(nil)) }

// AppendTo appends the form of [Cursor.String] to dst.
func (c Cursor) AppendTo(dst []byte) []byte {
	dst = strconv.AppendUint(append(dst, '@'), c.Position, 10)
	if c.Incarnation != "" {
		dst = append(append(dst, '.'), c.Incarnation...)
		if c.Began > c.Position {
			dst = strconv.AppendUint(append(dst, '.'), c.Began, 10)
		}
	}
	return dst
}

// MarshalText gives the form of [Cursor.String].
func (c Cursor) MarshalText() ([]byte, error) { return c.AppendTo(nil), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Cursor) UnmarshalText(text []byte) error {
	v, err := ParseCursor(string(text))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// LooksLikeCursor reports whether s begins with @ and a digit. Such strings are
// always read as cursors, which is why no event id may look like one.
func LooksLikeCursor(s string) bool { return looksLikeCursor(s) }

func looksLikeCursor[T string | []byte](s T) bool {
	return len(s) >= 2 && s[0] == '@' && '0' <= s[1] && s[1] <= '9'
}
