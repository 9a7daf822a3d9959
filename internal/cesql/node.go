// SPDX-License-Identifier: Apache-2.0

package cesql

// operator is what a node does.
type operator uint8

const (
	opLiteral operator = iota
	opAttribute
	opPath
	opNot
	opNegate
	opLike
	opExists
	opIn
	opMultiply
	opDivide
	opModulo
	opAdd
	opSubtract
	opEqual
	opNotEqual
	opLess
	opLessOrEqual
	opGreater
	opGreaterOrEqual
	opLogic // AND, OR and XOR in a row
	opCall
	opGiven // what a node came to, in place of it; made by Explain
)

var operatorNames = [...]string{
	opNot: "NOT", opNegate: "-", opLike: "LIKE", opExists: "EXISTS", opIn: "IN",
	opMultiply: "*", opDivide: "/", opModulo: "%", opAdd: "+", opSubtract: "-",
	opEqual: "=", opNotEqual: "!=", opLess: "<", opLessOrEqual: "<=", opGreater: ">", opGreaterOrEqual: ">=",
}

// The precedences of 3.6, lowest first. AND, OR and XOR share one.
const (
	bindLogic = iota + 1
	bindCompare
	bindAdd
	bindMultiply
	bindIn
	bindLike
	bindUnary
	bindAtom
)

func (o operator) binding() int {
	switch o {
	case opLogic:
		return bindLogic
	case opEqual, opNotEqual, opLess, opLessOrEqual, opGreater, opGreaterOrEqual:
		return bindCompare
	case opAdd, opSubtract:
		return bindAdd
	case opMultiply, opDivide, opModulo:
		return bindMultiply
	case opIn:
		return bindIn
	case opLike:
		return bindLike
	case opNot, opNegate:
		return bindUnary
	}
	return bindAtom
}

// logic joins an operand to those on its left.
type logic uint8

const (
	logicAnd logic = iota
	logicOr
	logicXor
)

var logicNames = [...]string{logicAnd: "AND", logicOr: "OR", logicXor: "XOR"}

// node is an expression as it was parsed. Parentheses have become structure.
type node struct {
	op         operator
	kind       Kind // what it yields; Absent if only an event can tell
	negated    bool // NOT LIKE, NOT IN
	closed     bool // stands in parentheses
	start, end int  // in the text, with its operands and without parentheses around it
	depth      int
	kids       []*node

	value     Value      // opLiteral
	raw       string     // opLiteral of a String: as it was written; opLike: the pattern
	attr      Attribute  // opAttribute, and opExists of one
	path      *path      // opPath, and opExists of one
	pattern   *pattern   // opLike
	joins     []logic    // opLogic: one less than kids
	constants *constants // opIn, if all elements are literals
	name      string     // opCall, in upper case
	call      *overload  // opCall; nil if there is no such function
	errors    Errors     // opGiven
}

// any reports whether the node is a path with [*], which is not one value.
func (n *node) any() bool { return n.op == opPath && n.path.any }

// Expression is a parsed and compiled expression. It is immutable and safe for
// concurrent use.
type Expression struct {
	text  string
	root  *node
	paths []*path // by number
	eval  valueFunc
	match booleanFunc
}

// Text returns the expression as it was given.
func (x *Expression) Text() string { return x.text }

// UsesData reports whether the expression has a path into data.
func (x *Expression) UsesData() bool { return len(x.paths) > 0 }
