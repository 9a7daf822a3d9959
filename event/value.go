// SPDX-License-Identifier: Apache-2.0

package event

import "strconv"

// Kind is the type of an attribute value. CloudEvents has more types; all
// others travel as strings in JSON and in headers, and are strings here.
type Kind uint8

// The kinds.
const (
	String Kind = iota
	Integer
	Boolean
)

// Value is the value of an attribute. Two values with the same canonical string
// mean the same: binary mode cannot carry the difference between 5 and "5".
type Value struct {
	text string // canonical string encoding (CloudEvents core, Type System)
	num  int32
	kind Kind
}

// StringValue makes a string value.
func StringValue(s string) Value { return Value{text: s} }

// IntegerValue makes an integer value.
func IntegerValue(n int32) Value {
	return Value{text: strconv.Itoa(int(n)), num: n, kind: Integer}
}

// BooleanValue makes a boolean value.
func BooleanValue(b bool) Value {
	if b {
		return Value{text: "true", num: 1, kind: Boolean}
	}
	return Value{text: "false", kind: Boolean}
}

// Kind returns the type that the value came with.
func (v Value) Kind() Kind { return v.kind }

// String returns the canonical string encoding, whatever the kind.
func (v Value) String() string { return v.text }

// Int returns the number of an Integer, and 0 for other kinds.
func (v Value) Int() int32 {
	if v.kind != Integer {
		return 0
	}
	return v.num
}

// Bool returns the truth of a Boolean, and false for other kinds.
func (v Value) Bool() bool { return v.kind == Boolean && v.num != 0 }

// Equal reports whether kind and value agree.
func (v Value) Equal(w Value) bool { return v == w }

// Attribute is a named value.
type Attribute struct {
	Name  string
	Value Value
}
