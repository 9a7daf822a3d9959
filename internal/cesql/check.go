// SPDX-License-Identifier: Apache-2.0

package cesql

import "strings"

// checkFilter refuses an expression that can be seen never to select anything,
// or that has a part which could only fail. What depends on the event, such as
// the type of an attribute, is left to evaluation.
func (x *Expression) checkFilter() *SyntaxError {
	if k := x.root.kind; k != Boolean && k != Absent {
		return newSyntaxError(x.text, x.root.start, "a filter must be a Boolean, and this is always of type %s", k)
	}
	return x.checkNode(x.root)
}

func (x *Expression) checkNode(n *node) *SyntaxError {
	if n.op == opCall && n.call == nil {
		return newSyntaxError(x.text, n.start, "%s", missingFunction(n))
	}
	for i, k := range n.kids {
		if want := n.operandKind(i); k.op == opLiteral && want != Absent && !castable(k.value, want) {
			return newSyntaxError(x.text, k.start, "%s needs a value of type %s here, and %s never is one", n.title(i), want, k.value)
		}
		if err := x.checkNode(k); err != nil {
			return err
		}
	}
	return nil
}

// operandKind is the type that an operand is cast to; Absent if it depends.
func (n *node) operandKind(i int) Kind {
	switch n.op {
	case opNot, opLogic:
		return Boolean
	case opNegate, opMultiply, opDivide, opModulo, opAdd, opSubtract:
		return Integer
	case opLess, opLessOrEqual, opGreater, opGreaterOrEqual:
		return Number
	case opCall:
		return n.call.param(i)
	case opEqual, opNotEqual:
		if i == 0 {
			return n.kids[1].kind
		}
	}
	return Absent
}

// castable reports whether a literal can be cast. Where a Number may stand, a
// String must be an Integer all the same.
func castable(v Value, k Kind) bool {
	m := Machine{}
	if k == Number && v.kind == String {
		k = Integer
	}
	m.cast(v, k)
	return m.errors == 0
}

// title names the operator or function that an operand belongs to.
func (n *node) title(operand int) string {
	switch n.op {
	case opCall:
		return n.name
	case opLogic:
		return logicNames[n.joins[max(operand-1, 0)]]
	}
	return operatorNames[n.op]
}

// missingFunction says why a call leads nowhere.
func missingFunction(n *node) string {
	var names []string
	for i := range overloads {
		name := overloads[i].name
		if name == n.name {
			return n.name + " takes another number of arguments"
		}
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return "there is no function " + clip(n.name) + "; there are " + strings.Join(names, ", ")
}

func clip(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
