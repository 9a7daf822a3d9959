// SPDX-License-Identifier: Apache-2.0

package cesql

import "unicode/utf8"

// Options change what is accepted.
type Options struct {
	// Strict refuses what is not in the standard: paths into data, and numbers
	// with a fraction to compare with them.
	Strict bool
}

// Parse parses and compiles an expression. A function that does not exist is no
// fault here: the standard has it fail when it is evaluated (3.5). Every error is
// a *[SyntaxError].
func Parse(text string, o Options) (*Expression, error) {
	x, err := parse(text, o)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// ParseFilter is Parse for an expression that selects events. It refuses, too,
// what could never do so: a result that is no Boolean, a call of a function that
// does not exist, and a literal of which an operator can make nothing.
func ParseFilter(text string, o Options) (*Expression, error) {
	x, err := parse(text, o)
	if err == nil {
		err = x.checkFilter()
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

func parse(text string, o Options) (*Expression, *SyntaxError) {
	if len(text) > MaxBytes {
		return nil, newSyntaxError(text[:MaxBytes], MaxBytes, "the expression has %d bytes, the limit is %d", len(text), MaxBytes)
	}
	if !utf8.ValidString(text) {
		return nil, newSyntaxError(text, invalidAt(text), "the expression is not UTF-8")
	}
	p := parser{lexer: lexer{text: text}, x: &Expression{text: text}, strict: o.Strict}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.token.kind == tokenEnd {
		return nil, p.fault(p.token, "the expression is empty")
	}
	root, err := p.expression(bindLogic)
	if err != nil {
		return nil, err
	}
	if p.token.kind != tokenEnd {
		return nil, p.unexpected("an operator or the end")
	}
	if root.any() {
		return nil, p.misplacedAny(root)
	}
	p.x.root = root
	p.x.eval, p.x.match = compileRoot(root)
	return p.x, nil
}

func invalidAt(text string) int {
	for i, r := range text {
		if r == utf8.RuneError && !utf8.ValidString(text[i:min(i+len("\uFFFD"), len(text))]) {
			return i
		}
	}
	return len(text)
}

// parser is a precedence climber over the tokens.
type parser struct {
	lexer
	x      *Expression
	token  token // the next one, not yet consumed
	strict bool
	depth  int // of the calls
	likes  int
	anys   int
	calls  int
}

func (p *parser) advance() (err *SyntaxError) {
	p.token, err = p.next()
	return err
}

func (p *parser) fault(at token, format string, args ...any) *SyntaxError {
	return newSyntaxError(p.text, at.start, format, args...)
}

func (p *parser) unexpected(wanted string) *SyntaxError {
	return p.fault(p.token, "expected %s, found %s", wanted, p.token.describe())
}

// expect consumes a symbol or keyword.
func (p *parser) expect(what string) *SyntaxError {
	if !p.token.is(what) {
		return p.unexpected(what)
	}
	return p.advance()
}

// enter counts a level of nesting; leave ends it.
func (p *parser) enter() *SyntaxError {
	p.depth++
	if p.depth > MaxDepth {
		return p.fault(p.token, "the expression is nested deeper than %d levels", MaxDepth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// expression parses operators that bind at least as tightly as least.
func (p *parser) expression(least int) (*node, *SyntaxError) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	left, err := p.prefix()
	for err == nil {
		op, joins, negated := p.infix()
		if op == opLiteral || op.binding() < least {
			if negated {
				return nil, p.unexpected("LIKE or IN after NOT")
			}
			return left, nil
		}
		left, err = p.operation(left, op, joins, negated)
	}
	return nil, err
}

// infix says which operator comes next; opLiteral for none. Of NOT LIKE and NOT
// IN it consumes the NOT.
func (p *parser) infix() (op operator, joins logic, negated bool) {
	t := p.token
	switch t.kind {
	case tokenSymbol:
		for o := opMultiply; o <= opGreaterOrEqual; o++ {
			if operatorNames[o] == t.text {
				return o, 0, false
			}
		}
	case tokenWord:
		switch {
		case t.is("and"):
			return opLogic, logicAnd, false
		case t.is("or"):
			return opLogic, logicOr, false
		case t.is("xor"):
			return opLogic, logicXor, false
		case t.is("like"):
			return opLike, 0, false
		case t.is("in"):
			return opIn, 0, false
		case t.is("not"):
			ahead := p.lexer
			if after, err := ahead.next(); err == nil && after.is("like") {
				return opLike, 0, true
			} else if err == nil && after.is("in") {
				return opIn, 0, true
			}
		}
	}
	return opLiteral, 0, false
}

// operation parses the rest of an operation whose operator is the next token.
func (p *parser) operation(left *node, op operator, joins logic, negated bool) (*node, *SyntaxError) {
	at := p.token
	if negated {
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if op == opLike {
		return p.like(left, negated)
	}
	if op == opIn {
		return p.in(left, negated)
	}
	right, err := p.expression(op.binding() + 1)
	if err != nil {
		return nil, err
	}
	if op == opLogic {
		return p.join(left, joins, right)
	}
	n := &node{op: op, kind: Boolean, start: left.start, end: right.end, kids: []*node{left, right}}
	if op <= opSubtract {
		n.kind = Integer
		return n, p.check(n, left, right)
	}
	if left.any() && right.any() {
		return nil, p.fault(at, "only one side of %s may have [*]", operatorNames[op])
	}
	return n, p.check(n)
}

// join appends to a row of AND, OR and XOR, which are evaluated from left to
// right (3.6), or begins one.
func (p *parser) join(left *node, joins logic, right *node) (*node, *SyntaxError) {
	if left.op == opLogic && !left.closed {
		left.kids = append(left.kids, right)
		left.joins = append(left.joins, joins)
		left.end = right.end
		return left, p.check(left, right)
	}
	n := &node{op: opLogic, kind: Boolean, start: left.start, end: right.end, kids: []*node{left, right}, joins: []logic{joins}}
	return n, p.check(n, left, right)
}

// check finishes a node. None of single may be a path with [*].
func (p *parser) check(n *node, single ...*node) *SyntaxError {
	for _, k := range single {
		if k.any() {
			return p.misplacedAny(k)
		}
	}
	n.depth = 0
	for _, k := range n.kids {
		n.depth = max(n.depth, k.depth+1)
	}
	if n.depth > MaxDepth {
		return newSyntaxError(p.text, n.start, "the expression is nested deeper than %d levels", MaxDepth)
	}
	return nil
}

func (p *parser) misplacedAny(n *node) *SyntaxError {
	return newSyntaxError(p.text, n.start, "a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN")
}

func (p *parser) like(left *node, negated bool) (*node, *SyntaxError) {
	t := p.token
	if t.kind != tokenString {
		return nil, p.unexpected("a pattern as a string")
	}
	if p.likes++; p.likes > MaxLikes {
		return nil, p.fault(t, "the expression has more than %d patterns", MaxLikes)
	}
	pattern, fault := compilePattern(unquote(t.text))
	if fault != "" {
		return nil, p.fault(t, "%s", fault)
	}
	n := &node{op: opLike, kind: Boolean, negated: negated, start: left.start, end: t.end, kids: []*node{left}, raw: t.text, pattern: pattern}
	if err := p.check(n); err != nil {
		return nil, err
	}
	return n, p.advance()
}

func (p *parser) in(left *node, negated bool) (*node, *SyntaxError) {
	if !p.token.is("(") {
		return nil, p.unexpected("( and the values after IN")
	}
	kids, end, err := p.list([]*node{left}, "IN", MaxList)
	if err != nil {
		return nil, err
	}
	if len(kids) == 1 {
		return nil, newSyntaxError(p.text, end-1, "the list after IN is empty")
	}
	if left.any() {
		if err := p.checkAnyList(kids[1:]); err != nil {
			return nil, err
		}
	}
	n := &node{op: opIn, kind: Boolean, negated: negated, start: left.start, end: end, kids: kids, constants: newConstants(kids[1:])}
	return n, p.check(n, kids[1:]...)
}

// checkAnyList keeps small what is done for every element of an array.
func (p *parser) checkAnyList(values []*node) *SyntaxError {
	for i, k := range values {
		if k.op != opLiteral {
			return newSyntaxError(p.text, k.start, "with [*] on its left, IN takes only literal values")
		}
		if i == MaxAnyList {
			return newSyntaxError(p.text, k.start, "with [*] on its left, IN takes at most %d values", MaxAnyList)
		}
	}
	return nil
}

// list parses expressions in parentheses and appends them to kids.
func (p *parser) list(kids []*node, of string, most int) (_ []*node, end int, err *SyntaxError) {
	if err := p.expect("("); err != nil {
		return nil, 0, err
	}
	for first := len(kids); !p.token.is(")"); {
		if len(kids) > first {
			if !p.token.is(",") {
				return nil, 0, p.unexpected(", or )")
			}
			if err := p.advance(); err != nil {
				return nil, 0, err
			}
		}
		if len(kids)-first >= most {
			return nil, 0, p.fault(p.token, "more than %d values after %s", most, clip(of))
		}
		k, err := p.expression(bindLogic)
		if err != nil {
			return nil, 0, err
		}
		kids = append(kids, k)
	}
	end = p.token.end
	return kids, end, p.advance()
}
