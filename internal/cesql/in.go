// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"bytes"
	"cmp"
	"slices"
)

func compileIn(n *node) booleanFunc {
	if n.kids[0].any() {
		return compileAny(n.kids[0].path, n.negated, compileElements(n))
	}
	x, in, negated := compileValue(n.kids[0]), compileElements(n), n.negated
	return func(m *Machine) bool {
		v := x(m)
		if m.errors != 0 {
			return false
		}
		hit := in(m, v)
		return m.errors == 0 && hit != negated
	}
}

// compileElements compiles the list of IN. The elements are looked at in order
// up to one that is equal; each is cast to the type of the left operand (3.7).
func compileElements(n *node) test {
	if n.constants != nil {
		return n.constants.has
	}
	elements := make([]valueFunc, len(n.kids)-1)
	for i, k := range n.kids[1:] {
		elements[i] = compileValue(k)
	}
	return func(m *Machine, v Value) bool {
		if v.kind == Composite {
			m.errors |= CastError
			return false
		}
		for _, element := range elements {
			e := element(m)
			if m.errors == 0 && m.isElement(e, v) {
				return true
			}
			if m.errors != 0 {
				return false
			}
		}
		return false
	}
}

func (m *Machine) isElement(e, v Value) bool {
	if v.kind == Integer && e.kind == Number {
		return false // or it would have been read as an Integer
	}
	m.spendComparison(e, v)
	e = m.cast(e, v.kind)
	return m.errors == 0 && sameKind(e, v)
}

// constants are the elements of an IN that has literals only, cast beforehand to
// each type that the left operand may be of. So a list costs next to nothing
// where each element of an array in data is looked for in it.
type constants [Composite]constantsOf

// constantsOf are those as values of one type.
type constantsOf struct {
	values []Value // ascending
	fails  bool    // the element after these cannot be cast
}

// newConstants returns nil unless all elements are literals.
func newConstants(elements []*node) *constants {
	if slices.ContainsFunc(elements, func(n *node) bool { return n.op != opLiteral }) {
		return nil
	}
	c := &constants{}
	for kind := String; kind < Composite; kind++ {
		c[kind] = castConstants(elements, kind)
	}
	return c
}

func castConstants(elements []*node, kind Kind) (c constantsOf) {
	var m Machine
	for _, n := range elements {
		if kind == Integer && n.kind == Number {
			continue // as in isElement
		}
		v := m.cast(n.value, kind)
		if c.fails = m.errors != 0; c.fails {
			break
		}
		c.values = append(c.values, v)
	}
	slices.SortFunc(c.values, compareKind)
	same := func(x, y Value) bool { return compareKind(x, y) == 0 }
	c.values = slices.Clone(slices.CompactFunc(c.values, same))
	return c
}

// has is what is asked of the left operand.
func (c *constants) has(m *Machine, v Value) bool {
	if v.kind == Composite {
		m.errors |= CastError
		return false
	}
	_, found := slices.BinarySearchFunc(c[v.kind].values, v, func(x, y Value) int {
		m.spendComparison(x, y)
		return compareKind(x, y)
	})
	if !found && c[v.kind].fails {
		m.errors |= CastError
	}
	return found
}

// compareKind orders values of the same kind, of which Numbers may be Integers.
func compareKind(x, y Value) int {
	switch {
	case x.kind == Number || y.kind == Number:
		return compareNumbers(x, y)
	case x.kind == String:
		return bytes.Compare(x.text, y.text)
	}
	return cmp.Compare(x.num, y.num)
}
