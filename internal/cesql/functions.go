// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"bytes"
	"math"
	"unicode"
	"unicode/utf8"
)

// overload is a function of a name and an arity. Absent as a parameter's type
// stands for any.
type overload struct {
	name     string
	params   []Kind
	variadic bool // any number of further arguments, Strings
	result   Kind
	eval     func(m *Machine, args []Value) Value
}

// overloads are the functions of 3.5, and INT, BOOL and STRING, which 3.7 names
// and the TCK has. No two of a name can take the same number of arguments.
var overloads = [...]overload{
	{"LENGTH", []Kind{String}, false, Integer, length},
	{"CONCAT", nil, true, String, concat},
	{"CONCAT_WS", []Kind{String}, true, String, concatWS},
	{"LOWER", []Kind{String}, false, String, lowerText},
	{"UPPER", []Kind{String}, false, String, upperText},
	{"TRIM", []Kind{String}, false, String, trim},
	{"LEFT", []Kind{String, Integer}, false, String, left},
	{"RIGHT", []Kind{String, Integer}, false, String, right},
	{"SUBSTRING", []Kind{String, Integer}, false, String, substring},
	{"SUBSTRING", []Kind{String, Integer, Integer}, false, String, substring},
	{"ABS", []Kind{Integer}, false, Integer, abs},
	{"INT", []Kind{Absent}, false, Integer, toInt},
	{"BOOL", []Kind{Absent}, false, Boolean, toBool},
	{"STRING", []Kind{Absent}, false, String, toString},
}

// findOverload returns nil if there is none.
func findOverload(name string, arity int) *overload {
	for i := range overloads {
		o := &overloads[i]
		if o.name == name && (arity == len(o.params) || o.variadic && arity > len(o.params)) {
			return o
		}
	}
	return nil
}

func (o *overload) param(i int) Kind {
	if i < len(o.params) {
		return o.params[i]
	}
	return String
}

func length(_ *Machine, args []Value) Value {
	return IntegerValue(int32(utf8.RuneCount(args[0].text)))
}

func concat(m *Machine, args []Value) Value { return m.join(nil, args) }

func concatWS(m *Machine, args []Value) Value { return m.join(args[0].text, args[1:]) }

func (m *Machine) join(delimiter []byte, parts []Value) Value {
	size := 0
	for i := range parts {
		size += len(parts[i].text) + len(delimiter)
	}
	if size > MaxText+len(delimiter) {
		return m.tooLong()
	}
	start := len(m.text)
	for i := range parts {
		if i > 0 {
			m.text = append(m.text, delimiter...)
		}
		m.text = append(m.text, parts[i].text...)
	}
	return TextValue(m.text[start:])
}

func (m *Machine) tooLong() Value {
	m.errors |= FunctionEvaluationError
	return zero(String)
}

func lowerText(m *Machine, args []Value) Value { return m.mapped(args[0].text, unicode.ToLower) }

func upperText(m *Machine, args []Value) Value { return m.mapped(args[0].text, unicode.ToUpper) }

func (m *Machine) mapped(text []byte, to func(rune) rune) Value {
	start := len(m.text)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		m.text = utf8.AppendRune(m.text, to(r)) // which may be longer
		if len(m.text)-start > MaxText {
			return m.tooLong()
		}
	}
	return TextValue(m.text[start:])
}

func trim(_ *Machine, args []Value) Value { return TextValue(bytes.TrimSpace(args[0].text)) }

func left(m *Machine, args []Value) Value {
	text, n := args[0].text, args[1].num
	if n < 0 {
		m.errors |= FunctionEvaluationError
		return args[0]
	}
	return TextValue(text[:skipRunes(text, int(n))])
}

func right(m *Machine, args []Value) Value {
	text, n := args[0].text, args[1].num
	if n < 0 {
		m.errors |= FunctionEvaluationError
		return args[0]
	}
	return TextValue(text[skipRunes(text, utf8.RuneCount(text)-int(n)):])
}

// substring takes characters from a position, which counts from 1, or from the
// end if it is negative.
func substring(m *Machine, args []Value) Value {
	text, at := args[0].text, int(args[1].num)
	count := utf8.RuneCount(text)
	take := count
	if len(args) == 3 {
		take = int(args[2].num)
	}
	switch {
	case at > count || at < -count || take < 0:
		m.errors |= FunctionEvaluationError
		return zero(String)
	case at == 0:
		return zero(String)
	case at < 0:
		at += count
	default:
		at--
	}
	text = text[skipRunes(text, at):]
	return TextValue(text[:skipRunes(text, take)])
}

func abs(m *Machine, args []Value) Value {
	switch n := args[0].num; {
	case n == math.MinInt32:
		m.errors |= MathError
		return IntegerValue(math.MaxInt32)
	case n < 0:
		return IntegerValue(-n)
	}
	return args[0]
}

func toInt(m *Machine, args []Value) Value { return IntegerValue(m.toInteger(args[0])) }

func toBool(m *Machine, args []Value) Value { return BooleanValue(m.toBoolean(args[0])) }

func toString(m *Machine, args []Value) Value { return TextValue(m.toText(args[0])) }
