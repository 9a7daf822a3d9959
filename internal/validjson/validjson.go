// SPDX-License-Identifier: Apache-2.0

// Package validjson reads JSON that a strict decoder has found valid, without
// looking for errors again and without a copy. A signed message is looked at
// several times (for its form, its secrets, its schema), and finding out each time
// that it is JSON took most of that.
//
// What it makes of text that is not valid JSON is undefined, but it neither panics
// nor reads for ever. It imports jsontext, for the escapes in strings.
package validjson

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind says what comes next, by its first byte.
type Kind byte

// The kinds of values; End, where an object or an array ends; and None, where the
// text does.
const (
	None   Kind = 0
	End    Kind = '}'
	Object Kind = '{'
	Array  Kind = '['
	String Kind = '"'
	Number Kind = '0'
	True   Kind = 't'
	False  Kind = 'f'
	Null   Kind = 'n'
)

// Reader reads one thing after the other. A copy of it reads the same again.
type Reader struct {
	text   []byte
	at     int
	spaced bool
}

// NewReader reads a text, which must stay as it is.
func NewReader(text []byte) Reader { return Reader{text: text} }

// Offset is how much has been read.
func (r *Reader) Offset() int { return r.at }

// Spaced reports whether there was white space in what has been read.
func (r *Reader) Spaced() bool { return r.spaced }

// Kind is that of what comes next. Names of members are strings.
func (r *Reader) Kind() Kind {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ',', ':':
		case ' ', '\t', '\r', '\n':
			r.spaced = true
		case '}', ']':
			return End
		case '{', '[', '"', 't', 'f', 'n':
			return Kind(c)
		default:
			return Number
		}
	}
	return None
}

// Next reads what comes next: where an object or array begins or ends, a name, or
// a value that is neither. Names and such values are returned as they stand.
func (r *Reader) Next() (kind Kind, raw []byte, name bool) {
	switch kind = r.Kind(); kind {
	case None:
	case End, Object, Array:
		r.at++
	case String:
		raw = r.Scalar()
		name = r.colon()
	default:
		raw = r.Scalar()
	}
	return kind, raw, name
}

// colon reports whether a colon comes next: what was read is the name of a member.
func (r *Reader) colon() bool {
	for _, c := range r.text[r.at:] {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == ':'
		}
	}
	return false
}

// Enter goes into the object or array that comes next.
func (r *Reader) Enter() {
	if k := r.Kind(); k == Object || k == Array {
		r.at++
	}
}

// Leave reports whether the object or array has ended, and goes out of it then.
func (r *Reader) Leave() bool {
	switch r.Kind() {
	case End:
		r.at++
		return true
	case None:
		return true
	}
	return false
}

// Scalar reads a value that is neither an object nor an array, or a name, and
// returns it as it stands.
func (r *Reader) Scalar() []byte {
	kind := r.Kind()
	start := r.at
	if kind == String {
		r.at = stringEnd(r.text, start)
		return r.text[start:r.at]
	}
	for r.at = min(r.at+1, len(r.text)); r.at < len(r.text); r.at++ {
		switch r.text[r.at] {
		case ' ', '\t', '\r', '\n', ',', ':', '}', ']', '{', '[', '"':
			return r.text[start:r.at]
		}
	}
	return r.text[start:]
}

// stringEnd is behind the quotation mark that ends the string which begins at
// start.
func stringEnd(text []byte, start int) int {
	for at := start + 1; ; {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			return len(text)
		}
		// What is before at ends with a quotation mark, so no run of backslashes
		// goes beyond it.
		end, escapes := at+quote, 0
		for i := end - 1; i >= at && text[i] == '\\'; i-- {
			escapes++
		}
		if at = end + 1; escapes%2 == 0 {
			return at
		}
	}
}

// Skip reads a value of any kind. It stops at the first value in it, no object or
// array, that pass does not take, and reports whether there was none; a nil pass
// takes all.
func (r *Reader) Skip(pass func(Kind, []byte) bool) bool {
	for depth := 0; ; {
		switch kind, raw, name := r.Next(); {
		case kind == None:
			return true
		case kind == Object || kind == Array:
			depth++
		case kind == End:
			depth--
		case !name && pass != nil && !pass(kind, raw):
			return false
		}
		if depth <= 0 {
			return true
		}
	}
}

// Text is what a string says, without the quotation marks. It is a part of raw
// unless there are escapes in it.
func Text(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // cannot fail: it is valid
	return text
}

// Lookup finds a member of an object, at its top only, and returns its value as it
// stands; nil without it.
func Lookup(object []byte, name string) []byte {
	r := NewReader(object)
	if r.Kind() != Object {
		return nil
	}
	r.Enter()
	for !r.Leave() {
		found := string(Text(r.Scalar())) == name
		r.Kind()
		start := r.at
		r.Skip(nil)
		if found {
			return object[start:r.at]
		}
	}
	return nil
}

// LookupText is Lookup for what a string says; false without the member or if it
// is no string.
func LookupText(object []byte, name string) (string, bool) {
	raw := Lookup(object, name)
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return string(Text(raw)), true
}
