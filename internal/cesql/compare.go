// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"bytes"
	"math"
)

// sameKind compares two values of the same kind, of which Numbers may be
// Integers.
func sameKind(x, y Value) bool {
	switch {
	case x.kind == Number || y.kind == Number:
		return compareNumbers(x, y) == 0
	case x.kind == String:
		return bytes.Equal(x.text, y.text)
	}
	return x.num == y.num
}

// equal is the = operator: the right operand's type decides which of its three
// definitions is meant (3.7). A Number on the left of an Integer stays one.
func (m *Machine) equal(x, y Value) bool {
	switch {
	case y.kind == Composite:
		m.errors |= CastError
		return false
	case y.kind == Integer && x.kind == Number:
		return false // or it would have been read as an Integer
	}
	m.spendComparison(x, y)
	x = m.cast(x, y.kind)
	return m.errors == 0 && sameKind(x, y)
}

func compileEqual(n *node) booleanFunc {
	x, y, negated := n.kids[0], n.kids[1], n.op == opNotEqual
	switch {
	case x.any() || y.any():
		return compileCompareAny(n, negated, (*Machine).equal)
	case y.kind == String:
		return compileEqualText(x, y, negated)
	}
	a, b := compileValue(x), compileValue(y)
	return func(m *Machine) bool {
		v := a(m)
		if m.errors != 0 {
			return false
		}
		w := b(m)
		if m.errors != 0 {
			return false
		}
		same := m.equal(v, w)
		return m.errors == 0 && same != negated
	}
}

// compileEqualText is the commonest comparison, with a String on the right.
func compileEqualText(x, y *node, negated bool) booleanFunc {
	a := compileText(x)
	if y.op == opLiteral {
		text := y.value.text
		return func(m *Machine) bool {
			v := a(m)
			return bytes.Equal(v, text) != negated && m.errors == 0
		}
	}
	b := compileText(y)
	return func(m *Machine) bool {
		v := a(m)
		if m.errors != 0 {
			return false
		}
		w := b(m)
		m.spendComparison(TextValue(v), TextValue(w))
		return m.errors == 0 && bytes.Equal(v, w) != negated
	}
}

// ordered says which results of a comparison satisfy an operator.
func ordered(op operator, c int) bool {
	switch op {
	case opLess:
		return c < 0
	case opLessOrEqual:
		return c <= 0
	case opGreater:
		return c > 0
	}
	return c >= 0
}

// order compares for <, <=, > and >=, which are defined for Integers only. With
// a Number from data on one side, both are Numbers.
func (m *Machine) order(x, y Value) int {
	if x.kind == Number || y.kind == Number {
		m.spendComparison(x, y)
		return compareNumbers(m.toNumber(x), m.toNumber(y))
	}
	a, b := m.toInteger(x), m.toInteger(y)
	return order(a < b, a == b)
}

func compileOrder(n *node) booleanFunc {
	x, y, op := n.kids[0], n.kids[1], n.op
	if x.any() || y.any() {
		return compileCompareAny(n, false, func(m *Machine, v, w Value) bool { return ordered(op, m.order(v, w)) })
	}
	a, b := compileValue(x), compileValue(y)
	return func(m *Machine) bool {
		v := a(m)
		if m.errors != 0 {
			return false
		}
		w := b(m)
		if m.errors != 0 {
			return false
		}
		c := m.order(v, w)
		return m.errors == 0 && ordered(op, c)
	}
}

// compileCompareAny compiles a comparison with a path with [*] on one side. The
// other side is evaluated once, before.
func compileCompareAny(n *node, negated bool, holds func(m *Machine, x, y Value) bool) booleanFunc {
	many, one := n.kids[0], n.kids[1]
	t := func(m *Machine, v Value) bool { return holds(m, v, m.other) }
	if one.any() {
		many, one = one, many
		t = func(m *Machine, v Value) bool { return holds(m, m.other, v) }
	}
	f, compare := compileValue(one), compileAny(many.path, negated, t)
	return func(m *Machine) bool {
		v := f(m)
		if m.errors != 0 {
			return false
		}
		m.other = v
		return compare(m)
	}
}

func compileNegate(n *node) integerFunc {
	f := compileInteger(n.kids[0])
	return func(m *Machine) int32 { return m.fits(-int64(f(m))) } // minus no value is 0
}

// fits returns an Integer that is in range. The standard leaves overflow open; it
// is a MathError here and the value 0, since a wrapped number would select events
// by an accident.
func (m *Machine) fits(n int64) int32 {
	if n < math.MinInt32 || n > math.MaxInt32 {
		m.errors |= MathError
		return 0
	}
	return int32(n)
}

func compileArithmetic(n *node) integerFunc {
	a, b, op := compileInteger(n.kids[0]), compileInteger(n.kids[1]), n.op
	return func(m *Machine) int32 {
		x := a(m)
		if m.errors != 0 {
			return 0
		}
		y := b(m)
		if m.errors != 0 {
			return 0
		}
		return m.calculate(op, int64(x), int64(y))
	}
}

func (m *Machine) calculate(op operator, x, y int64) int32 {
	switch op {
	case opMultiply:
		return m.fits(x * y)
	case opAdd:
		return m.fits(x + y)
	case opSubtract:
		return m.fits(x - y)
	}
	if y == 0 {
		m.errors |= MathError
		return 0
	}
	if op == opDivide {
		return m.fits(x / y)
	}
	return m.fits(x % y)
}
