// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"bytes"

	"signalbox/internal/validjson"
)

// survey is what one look over valid JSON finds out. Of most messages it finds out
// that there is nothing to look for name by name, and nothing to rewrite.
type survey struct {
	// plain: there is nothing in it that checkValue refuses. All names are ASCII in
	// lower case, so none differs from another only by case, and all numbers are
	// whole and short.
	plain bool
	// canonical: it is plain and its own canonical form (RFC 8785).
	canonical bool
}

// surveyed looks over a value that the tokeniser has taken.
func surveyed(valid []byte) survey {
	r := validjson.NewReader(valid)
	ordered, least := true, true // names, and how texts are written
	var room [8][]byte
	last := room[:0] // for each level: the name that came last
	for {
		kind, raw, name := r.Next()
		switch {
		case kind == validjson.None:
			return survey{plain: true, canonical: ordered && least && !r.Spaced()}
		case kind == validjson.End:
			last = last[:max(len(last)-1, 0)]
		case kind == validjson.Object || kind == validjson.Array:
			if last = append(last, nil); len(last) > MaxNesting {
				return survey{}
			}
		case name:
			if !lower(raw) {
				return survey{}
			}
			// Without escapes and beyond ASCII there is nothing that UTF-16 orders
			// in another way.
			top := &last[max(len(last)-1, 0)]
			ordered = ordered && bytes.Compare(*top, raw[:len(raw)-1]) < 0
			*top = raw[:len(raw)-1] // "a" comes before "ab", and the mark at its end would hide that
		case kind == validjson.Number:
			if !shortWhole(raw) {
				return survey{}
			}
		case kind == validjson.String:
			least = least && leastEscapes(raw)
		}
	}
}

// lower reports whether a name is written in ASCII without upper case and escapes.
func lower(raw []byte) bool {
	for _, c := range raw {
		if c >= 0x7f || c == '\\' || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// shortWholeDigits is how long a number is that a double holds whatever it is.
const shortWholeDigits = 15

// shortWhole reports whether a number is written as its canonical form is and a
// double holds it.
func shortWhole(raw []byte) bool {
	digits := bytes.TrimPrefix(raw, []byte("-"))
	if len(digits) == 0 || len(digits) > shortWholeDigits || digits[0] == '0' && len(raw) > 1 {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// leastEscapes reports whether a string has no escapes but those of two characters
// that its canonical form has as well (RFC 8785 section 3.2.2.2).
func leastEscapes(raw []byte) bool {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return true
		}
		if at+1 >= len(raw) || bytes.IndexByte([]byte(`"\bfnrt`), raw[at+1]) < 0 {
			return false
		}
		raw = raw[at+2:]
	}
}
