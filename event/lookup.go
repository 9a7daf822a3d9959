// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckPath reports whether path can be looked up: names of object members
// joined by dots, each followed by as many indexes of arrays as it takes, such
// as order.id or items[0].id; a path into data that is an array begins with an
// index. Names with a dot or a bracket in them cannot be reached.
func CheckPath(path string) error {
	fault := func(what string) error {
		return Errorf(CodePolicyInvalid, "The path %q %s; it is names joined by dots, with indexes of arrays in brackets, such as items[0].id.", clip(path), what).With("key_from")
	}
	if path == "" || len(path) > MaxPathBytes || !utf8.ValidString(path) {
		return fault(fmt.Sprintf("has not 1 to %d bytes of UTF-8", MaxPathBytes))
	}
	depth := 0
	for rest := path; rest != ""; depth++ {
		var s step
		var ok bool
		if s, rest, ok = nextStep(rest, depth == 0); !ok || textFault([]byte(s.name)) != "" {
			return fault("has a name or an index that cannot be one")
		}
	}
	if depth > MaxPathDepth {
		return fault(fmt.Sprintf("is more than %d steps deep", MaxPathDepth))
	}
	return nil
}

// step is one step of a path: the name of a member, or the index of an element.
type step struct {
	name  string
	index bool
	n     int
}

// maxPathIndex stops a path from meaning what no event can hold.
const maxPathIndex = 99_999

// nextStep cuts the first step off a path that is not empty. What a step may not
// be followed by, the next one does not begin with.
func nextStep(path string, first bool) (s step, rest string, ok bool) {
	if path[0] == '[' {
		digits, rest, closed := strings.Cut(path[1:], "]")
		n, ok := parseDigits(digits, maxPathIndex)
		return step{index: true, n: int(n)}, rest, closed && ok
	}
	if !first {
		if path[0] != '.' {
			return s, "", false
		}
		path = path[1:]
	}
	end := strings.IndexAny(path, ".[]")
	if end < 0 {
		end = len(path)
	}
	return step{name: path[:end]}, path[end:], end > 0
}

// LookupJSON follows path into valid JSON data. A string yields its text, a
// number or boolean its literal as received. Objects, arrays, null, what is not
// there and what is not valid JSON are not ok.
func LookupJSON(data []byte, path string) (value string, ok bool) {
	if path == "" {
		return "", false
	}
	s := getScratch()
	defer s.release()
	s.begin()
	// The data of an Event has no duplicate names, so looking for them again would
	// be wasted; in other data the first one counts.
	s.parse(data, jsontext.AllowDuplicateNames(true))
	for rest := path; rest != ""; {
		var at step
		if at, rest, ok = nextStep(rest, len(rest) == len(path)); !ok || !s.enter(at) {
			return "", false
		}
	}
	v, err := s.readValue()
	if err != nil {
		return "", false
	}
	switch raw := s.bytes(v); raw[0] {
	case '"':
		text, _ := s.unquote(v)
		return string(s.bytes(text)), true
	case 'n', '{', '[':
		return "", false
	default:
		return string(raw), true
	}
}

// enter moves the decoder to a member of the object, or an element of the array,
// that comes next.
func (s *scratch) enter(at step) bool {
	opening := jsontext.KindBeginObject
	if at.index {
		opening = jsontext.KindBeginArray
	}
	if s.dec.PeekKind() != opening {
		return false
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return false
	}
	if at.index {
		return s.skipElements(at.n)
	}
	for s.dec.PeekKind() == jsontext.KindString {
		quoted, err := s.readValue()
		if err != nil {
			return false
		}
		if have, _ := s.unquote(quoted); string(s.bytes(have)) == at.name {
			return true
		}
		if err := s.dec.SkipValue(); err != nil {
			return false
		}
	}
	return false
}

func (s *scratch) skipElements(n int) bool {
	for range n {
		if s.dec.PeekKind() == jsontext.KindEndArray || s.dec.SkipValue() != nil {
			return false
		}
	}
	return s.dec.PeekKind() != jsontext.KindEndArray
}

// CheckKey reports whether key can be the key of an event in a compacted topic.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return Errorf(CodeKeyInvalid, "The key has %d bytes; use 1 to %d.", len(key), MaxKeyBytes)
	}
	if fault := textFault([]byte(key)); fault != "" {
		return Errorf(CodeKeyInvalid, "The key %s.", fault)
	}
	return nil
}

// HasMember reports whether valid JSON is an object that has one of the members.
func HasMember(object []byte, names ...string) bool {
	s := getScratch()
	defer s.release()
	s.begin()
	s.parse(object, jsontext.AllowDuplicateNames(true))
	if s.dec.PeekKind() != jsontext.KindBeginObject {
		return false
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return false
	}
	for s.dec.PeekKind() == jsontext.KindString {
		quoted, err := s.readValue()
		if err != nil {
			return false
		}
		if have, _ := s.unquote(quoted); slices.Contains(names, string(s.bytes(have))) {
			return true
		}
		if s.dec.SkipValue() != nil {
			return false
		}
	}
	return false
}
