// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"signalbox/event"
)

// Range is which versions a receiver reads, as its heartbeat's accepts gives it.
//
// It is written as in most package managers: comparators (1.2, >=1.2, <2, ^1.2,
// ~1.2.3, 1.x, *) with spaces between them, all of which hold, and || between
// alternatives. A version may be given in part; 1.2 as a comparator of its own is
// any 1.2.
type Range struct {
	spans []span
}

// span is the versions from low up to, and without, high.
type span struct {
	low, high version
}

type version [3]int

func (v version) compare(w version) int {
	return cmp.Or(cmp.Compare(v[0], w[0]), cmp.Compare(v[1], w[1]), cmp.Compare(v[2], w[2]))
}

// versionEnd is behind every version.
func versionEnd() version { return version{1 << 30, 0, 0} }

// rangeTermsMax stops a range from being a long computation.
const rangeTermsMax = 16

var comparatorForm = regexp.MustCompile(`^(>=|<=|>|<|=|\^|~)?(\*|x|X|0|[1-9][0-9]{0,5})(?:\.(\*|x|X|0|[1-9][0-9]{0,5}))?(?:\.(\*|x|X|0|[1-9][0-9]{0,5}))?$`)

// ParseRange reads a range, with code payload_invalid if it is none or if no version
// is in it.
func ParseRange(text string) (Range, error) {
	var r Range
	terms := 0
	for alternative := range strings.SplitSeq(text, "||") {
		s := span{high: versionEnd()}
		fields := strings.Fields(alternative)
		terms += len(fields)
		if len(fields) == 0 || terms > rangeTermsMax {
			return Range{}, rangeInvalid(text)
		}
		for _, field := range fields {
			m := comparatorForm.FindStringSubmatch(field)
			if m == nil {
				return Range{}, rangeInvalid(text)
			}
			c := compared(m[1], m[2:])
			if c.low.compare(s.low) > 0 {
				s.low = c.low
			}
			if c.high.compare(s.high) < 0 {
				s.high = c.high
			}
		}
		if s.low.compare(s.high) < 0 {
			r.spans = append(r.spans, s)
		}
	}
	if r.spans == nil {
		return Range{}, rangeInvalid(text)
	}
	return r, nil
}

func rangeInvalid(text string) error {
	return event.Errorf(event.CodePayloadInvalid, "The accepts is %.80q, which is no range of versions such as >=1.2 <2.", text).With("payload/accepts")
}

// compared is what one comparator lets through. Parts that are not given, or are a
// star or an x, stand for any number.
func compared(operator string, parts []string) span {
	var v version
	given := 0
	for given < len(parts) {
		n, err := strconv.Atoi(parts[given])
		if err != nil { // "" and stars
			break
		}
		v[given] = n
		given++
	}
	all := span{high: versionEnd()}
	if given == 0 {
		return all
	}
	next := after(v, given)
	switch operator {
	case ">=":
		return span{v, all.high}
	case ">":
		return span{next, all.high}
	case "<":
		return span{all.low, v}
	case "<=":
		return span{all.low, next}
	case "^": // up to the first number that is not 0, as package managers have it
		for i := range given {
			if v[i] != 0 || i == given-1 {
				return span{v, after(v, i+1)}
			}
		}
	case "~":
		return span{v, after(v, min(given, 2))}
	}
	return span{v, next}
}

// after is the first version behind all that begin with so many numbers of v.
func after(v version, given int) version {
	var next version
	copy(next[:given], v[:given])
	next[given-1]++
	return next
}

// Reads reports whether a receiver with this range reads a message of a version.
// Minor versions only add, and receivers ignore what they do not know: so it is
// enough that the range has a version of the same major that is not newer.
func (r Range) Reads(schemaVersion string) bool {
	var v version
	for i, text := range strings.SplitN(schemaVersion, ".", len(v)) {
		v[i], _ = strconv.Atoi(text) // a message has such a version, see versionForm
	}
	for _, s := range r.spans {
		oldest := version{v[0]}
		if s.low.compare(oldest) > 0 {
			oldest = s.low
		}
		if oldest.compare(v) <= 0 && oldest.compare(s.high) < 0 {
			return true
		}
	}
	return false
}
