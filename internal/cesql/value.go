// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// Kind is the type of a value.
type Kind uint8

// The kinds. Those from Number on are found in data only.
const (
	Absent    Kind = iota // there is no such attribute; before evaluation: not known
	String                // all types of CloudEvents but the next two
	Integer               // 32 bits with a sign
	Boolean               //
	Number                // a number in data that is no Integer: its literal
	Composite             // an object or an array in data, which has no value to compare
)

func (k Kind) String() string {
	return [...]string{"Any", "String", "Integer", "Boolean", "Number", "Composite"}[k]
}

// Value is a value. The zero Value is Absent.
type Value struct {
	text []byte // of a String and a Number
	num  int32  // of an Integer; 1 for true
	kind Kind
}

// TextValue makes a String; the value keeps text.
func TextValue(text []byte) Value { return Value{text: text, kind: String} }

// IntegerValue makes an Integer.
func IntegerValue(n int32) Value { return Value{num: n, kind: Integer} }

// BooleanValue makes a Boolean.
func BooleanValue(b bool) Value {
	if b {
		return Value{num: 1, kind: Boolean}
	}
	return Value{kind: Boolean}
}

// Kind returns the type.
func (v Value) Kind() Kind { return v.kind }

// Int returns an Integer, or 0.
func (v Value) Int() int32 {
	if v.kind != Integer {
		return 0
	}
	return v.num
}

// Bool returns a Boolean, or false.
func (v Value) Bool() bool { return v.kind == Boolean && v.num != 0 }

// Text returns the bytes of a String or the literal of a Number, else nil. They
// belong to the event or to the machine, whose next evaluation overwrites them.
func (v Value) Text() []byte { return v.text }

// AppendText appends the canonical string of a String, Integer or Boolean.
func (v Value) AppendText(dst []byte) []byte {
	switch v.kind {
	case Integer:
		return strconv.AppendInt(dst, int64(v.num), 10)
	case Boolean:
		return strconv.AppendBool(dst, v.num != 0)
	}
	return append(dst, v.text...)
}

// String gives the value as it could stand in an expression.
func (v Value) String() string {
	switch v.kind {
	case String:
		return "'" + string(v.text) + "'"
	case Integer:
		return strconv.Itoa(int(v.num))
	case Boolean:
		return strconv.FormatBool(v.num != 0)
	case Number:
		return string(v.text)
	case Composite:
		return "an object or array"
	}
	return "nothing"
}

// excerptBytes is how much of a text an excerpt has. An explanation has an excerpt
// for every part of an expression, each of which may be as long as the event.
const excerptBytes = 256

// Excerpt is String with a long text cut off.
func (v Value) Excerpt() string {
	if len(v.text) > excerptBytes {
		end := excerptBytes
		for end > 0 && !utf8.RuneStart(v.text[end]) {
			end--
		}
		v.text = append(slices.Clone(v.text[:end]), "…"...)
	}
	return v.String()
}

// zero is the zero value of a type (3.1). What is not known is a Boolean (3.2).
func zero(k Kind) Value {
	switch k {
	case String, Integer:
		return Value{kind: k}
	}
	return Value{kind: Boolean}
}

// The casts of 3.7. Each returns the value that the standard gives beside the
// error, and evaluation goes on with it.

func (m *Machine) toText(v Value) []byte {
	switch v.kind {
	case String, Number:
		return v.text
	case Integer:
		start := len(m.text)
		m.text = strconv.AppendInt(m.text, int64(v.num), 10)
		return m.text[start:]
	case Boolean:
		if v.num != 0 {
			return literalTrue
		}
		return literalFalse
	}
	m.errors |= CastError
	return nil
}

var literalTrue, literalFalse = []byte("true"), []byte("false")

func (m *Machine) toInteger(v Value) int32 {
	switch v.kind {
	case Integer, Boolean:
		return v.num
	case String:
		if n, ok := parseInteger(v.text); ok {
			return n
		}
	}
	m.errors |= CastError
	return 0
}

func (m *Machine) toBoolean(v Value) bool {
	switch v.kind {
	case Integer, Boolean:
		return v.num != 0
	case Number:
		return true // none is zero: that would be an Integer
	case String:
		switch {
		case foldsTo(v.text, "true"):
			return true
		case foldsTo(v.text, "false"):
			return false
		}
	}
	m.errors |= CastError
	return false
}

// toNumber returns an Integer or a Number. Only in the company of a Number from
// data is a String that is one taken for it.
func (m *Machine) toNumber(v Value) Value {
	switch v.kind {
	case Integer, Number:
		return v
	case Boolean:
		return IntegerValue(v.num)
	case String:
		if n, ok := parseInteger(v.text); ok {
			return IntegerValue(n)
		}
		if len(v.text) > MaxNumber {
			break
		}
		if end, ok := scanNumber(v.text, 0); ok && end == len(v.text) {
			return numberValue(v.text)
		}
	}
	m.errors |= CastError
	return IntegerValue(0)
}

// cast casts to a kind that is not Absent or Composite.
func (m *Machine) cast(v Value, k Kind) Value {
	if v.kind == k {
		return v
	}
	switch k {
	case String:
		return TextValue(m.toText(v))
	case Integer:
		return IntegerValue(m.toInteger(v))
	case Number:
		return m.toNumber(v)
	}
	return BooleanValue(m.toBoolean(v))
}

// parseInteger reads a base 10 integer of 32 bits with an optional sign, and
// nothing else.
func parseInteger(b []byte) (int32, bool) {
	if len(b) > MaxInteger {
		return 0, false
	}
	i, negative := 0, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		i, negative = 1, b[0] == '-'
	}
	if i == len(b) {
		return 0, false
	}
	n := int64(0)
	for ; i < len(b); i++ {
		d := b[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + int64(d)
		if n > 1<<31 {
			return 0, false
		}
	}
	if negative {
		n = -n
	}
	return int32(n), n < 1<<31
}

// foldsTo reports whether b in lower case is word, which has lower-case letters
// of ASCII only, none of which is the lower case of anything beyond ASCII.
func foldsTo[T string | []byte](b T, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i := 0; i < len(word); i++ {
		if lower(b[i]) != word[i] {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// skipRunes returns the offset of the character after the first n of b, or
// len(b) if there are not so many.
func skipRunes(b []byte, n int) int {
	i := 0
	for ; n > 0 && i < len(b); n-- {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, size := utf8.DecodeRune(b[i:])
		i += size
	}
	return i
}
