// SPDX-License-Identifier: Apache-2.0

package event

import (
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckPath reports whether path can be looked up: names of object members
// joined by dots, such as order.id. Names with a dot in them cannot be reached.
func CheckPath(path string) error {
	if path == "" || len(path) > MaxPathBytes || strings.Count(path, ".") >= MaxPathDepth || !utf8.ValidString(path) {
		return Errorf(CodePolicyInvalid, "The path %q is not 1 to %d names joined by dots, of at most %d bytes.", clip(path), MaxPathDepth, MaxPathBytes).With("key_from")
	}
	for name := range strings.SplitSeq(path, ".") {
		if name == "" || textFault([]byte(name)) != "" {
			return Errorf(CodePolicyInvalid, "The path %q has a name that is empty or has control characters.", clip(path)).With("key_from")
		}
	}
	return nil
}

// LookupJSON follows path into valid JSON data. A string yields its text, a
// number or boolean its literal as received. Objects, arrays, null, what is not
// there and what is not valid JSON are not ok.
func LookupJSON(data []byte, path string) (value string, ok bool) {
	s := getScratch()
	defer s.release()
	s.begin()
	// The data of an Event has no duplicate names, so looking for them again would
	// be wasted; in other data the first one counts.
	s.parse(data, jsontext.AllowDuplicateNames(true))
	for name := range strings.SplitSeq(path, ".") {
		if !s.enter(name) {
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

// enter moves the decoder to the value of the named member of the object that
// comes next.
func (s *scratch) enter(name string) bool {
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
		if have, _ := s.unquote(quoted); string(s.bytes(have)) == name {
			return true
		}
		if err := s.dec.SkipValue(); err != nil {
			return false
		}
	}
	return false
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
