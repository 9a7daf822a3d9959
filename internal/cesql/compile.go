// SPDX-License-Identifier: Apache-2.0

package cesql

// A compiled operand is a function of one of these types. The first error ends
// the evaluation: whoever has an operand that notes one yields the zero value of
// its own type, and so does whoever has that for an operand. The standard leaves
// that open between its 3.3 and 4.1, and the TCK wants it ("1 != 1 / 0" is
// false). So m.errors is clear whenever an operand begins, every function here
// returns false, 0 or no text beside an error, and only those that make something
// else of it have to look.
type (
	valueFunc   func(m *Machine) Value
	booleanFunc func(m *Machine) bool
	integerFunc func(m *Machine) int32
	textFunc    func(m *Machine) []byte
)

// compileValue compiles a node to what yields its value, of whatever type.
func compileValue(n *node) valueFunc {
	switch n.op {
	case opLiteral:
		v := n.value
		return func(*Machine) Value { return v }
	case opAttribute:
		a := n.attr
		return func(m *Machine) Value { return m.attribute(&a) }
	case opPath:
		pt := n.path
		return func(m *Machine) Value { return m.at(pt) }
	case opCall:
		return compileCall(n)
	case opGiven:
		v, errors := n.value, n.errors
		return func(m *Machine) Value {
			m.errors |= errors
			return v
		}
	}
	if n.kind == Integer {
		f := compileInteger(n)
		return func(m *Machine) Value { return IntegerValue(f(m)) }
	}
	f := compileBoolean(n)
	return func(m *Machine) Value { return BooleanValue(f(m)) }
}

// compileBoolean compiles a node and the cast to Boolean.
func compileBoolean(n *node) booleanFunc {
	switch n.op {
	case opNot:
		f := compileBoolean(n.kids[0])
		return func(m *Machine) bool { return !f(m) && m.errors == 0 }
	case opLike:
		return compileLike(n)
	case opExists:
		return compileExists(n)
	case opIn:
		return compileIn(n)
	case opEqual, opNotEqual:
		return compileEqual(n)
	case opLess, opLessOrEqual, opGreater, opGreaterOrEqual:
		return compileOrder(n)
	case opLogic:
		return compileLogic(n)
	}
	f := compileValue(n)
	return func(m *Machine) bool {
		v := f(m)
		if v.kind == Boolean {
			return v.num != 0
		}
		return m.errors == 0 && m.toBoolean(v)
	}
}

// compileInteger compiles a node and the cast to Integer.
func compileInteger(n *node) integerFunc {
	switch n.op {
	case opLiteral:
		if n.kind == Integer {
			v := n.value.num
			return func(*Machine) int32 { return v }
		}
	case opNegate:
		return compileNegate(n)
	case opMultiply, opDivide, opModulo, opAdd, opSubtract:
		return compileArithmetic(n)
	}
	f := compileValue(n)
	return func(m *Machine) int32 {
		v := f(m)
		if m.errors != 0 {
			return 0
		}
		return m.toInteger(v)
	}
}

// compileText compiles a node and the cast to String.
func compileText(n *node) textFunc {
	if n.op == opAttribute {
		a := n.attr
		return func(m *Machine) []byte {
			v := m.event.find(&a)
			switch v.kind {
			case String:
				return v.text
			case Absent:
				m.errors |= MissingAttributeError
				return nil
			}
			return m.toText(*v)
		}
	}
	f := compileValue(n)
	return func(m *Machine) []byte {
		v := f(m)
		if m.errors != 0 {
			return nil
		}
		return m.toText(v)
	}
}

// compileRoot compiles an expression, and the filter that it is: one that passes
// only a Boolean.
func compileRoot(n *node) (valueFunc, booleanFunc) {
	if n.kind == Boolean && n.op != opLiteral && n.op != opCall {
		match := compileBoolean(n)
		return func(m *Machine) Value { return BooleanValue(match(m)) }, match
	}
	eval := compileValue(n)
	return eval, func(m *Machine) bool {
		v := eval(m)
		return v.kind == Boolean && v.num != 0
	}
}

// compileLogic compiles a row of AND, OR and XOR. The left operand of each is
// what the row has come to; where it decides, the right one is not evaluated
// (3.4.2).
func compileLogic(n *node) booleanFunc {
	operands := make([]booleanFunc, len(n.kids))
	conjunction := true
	for i, k := range n.kids {
		operands[i] = compileBoolean(k)
		conjunction = conjunction && (i == 0 || n.joins[i-1] == logicAnd)
	}
	if conjunction {
		return func(m *Machine) bool {
			for _, operand := range operands {
				if !operand(m) {
					return false
				}
			}
			return true
		}
	}
	first, rest, joins := operands[0], operands[1:], n.joins
	return func(m *Machine) bool {
		value := first(m)
		for i, operand := range rest {
			switch {
			case m.errors != 0:
				return false
			case joins[i] == logicXor:
				value = operand(m) != value
			case value == (joins[i] == logicAnd):
				value = operand(m)
			}
		}
		return value && m.errors == 0
	}
}

func compileExists(n *node) booleanFunc {
	if n.path == nil {
		a := n.attr
		return func(m *Machine) bool { return m.event.find(&a).kind != Absent }
	}
	pt := n.path
	switch {
	case len(pt.steps) == 0:
		return func(m *Machine) bool {
			m.touched = true
			return m.event.form != NoData
		}
	case pt.any:
		return func(m *Machine) bool {
			hit, _ := m.anyOf(pt, func(*Machine, Value) bool { return true })
			return hit
		}
	}
	return func(m *Machine) bool { return m.peek(pt).kind != Absent }
}

func compileLike(n *node) booleanFunc {
	p, negated := n.pattern, n.negated
	if n.kids[0].any() {
		return compileAny(n.kids[0].path, negated, func(m *Machine, v Value) bool { return m.like(p, m.toText(v)) })
	}
	f := compileText(n.kids[0])
	if !p.looks() {
		return func(m *Machine) bool {
			text := f(m)
			return m.errors == 0 && p.match(text) != negated
		}
	}
	return func(m *Machine) bool {
		text := f(m)
		if m.errors != 0 {
			return false
		}
		matches := m.like(p, text)
		return m.errors == 0 && matches != negated
	}
}

// compileAny compiles an operator on a path with [*]. A negated one holds if
// its positive form holds for no value.
func compileAny(pt *path, negated bool, t test) booleanFunc {
	return func(m *Machine) bool {
		hit, there := m.anyOf(pt, t)
		if !there && m.errors == 0 {
			m.errors |= MissingAttributeError
		}
		return m.errors == 0 && hit != negated
	}
}

// compileCall compiles a function call. The arguments lie on the machine's stack
// while the function runs.
func compileCall(n *node) valueFunc {
	call := n.call
	if call == nil {
		return func(m *Machine) Value {
			m.errors |= MissingFunctionError
			return BooleanValue(false)
		}
	}
	args := make([]valueFunc, len(n.kids))
	for i, k := range n.kids {
		args[i] = compileValue(k)
	}
	return func(m *Machine) Value {
		base := len(m.stack)
		for i, arg := range args {
			v := arg(m)
			if k := call.param(i); m.errors == 0 && k != Absent {
				v = m.cast(v, k)
			}
			m.spend(workText * len(v.text))
			if m.errors != 0 {
				m.stack = m.stack[:base]
				return zero(call.result)
			}
			m.stack = append(m.stack, v)
		}
		v := call.eval(m, m.stack[base:])
		m.stack = m.stack[:base]
		return v
	}
}
