// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"strconv"
	"strings"
)

// isKeyword reports whether a word is taken by the language.
func isKeyword(word string) bool {
	switch strings.ToLower(word) {
	case "and", "or", "xor", "not", "like", "exists", "in", "true", "false":
		return true
	}
	return false
}

// prefix parses an operand, with the unary operators before it.
func (p *parser) prefix() (*node, *SyntaxError) {
	t := p.token
	switch t.kind {
	case tokenDigits:
		return p.number(t.start, "")
	case tokenString:
		n := &node{op: opLiteral, kind: String, start: t.start, end: t.end, raw: t.text, value: TextValue([]byte(unquote(t.text)))}
		return n, p.advance()
	case tokenSymbol:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "-", "+":
			return p.sign()
		}
	case tokenWord:
		switch {
		case t.is("not"):
			return p.unary(opNot, Boolean)
		case t.is("exists"):
			return p.exists()
		case t.is("true"), t.is("false"):
			n := &node{op: opLiteral, kind: Boolean, start: t.start, end: t.end, value: BooleanValue(t.is("true"))}
			return n, p.advance()
		case !isKeyword(t.text):
			return p.named()
		}
	}
	return nil, p.unexpected("a value")
}

func (p *parser) parenthesis() (*node, *SyntaxError) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	n, err := p.expression(bindLogic)
	if err != nil {
		return nil, err
	}
	n.closed = true
	return n, p.expect(")")
}

func (p *parser) unary(op operator, k Kind) (*node, *SyntaxError) {
	start := p.token.start
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return nil, err
	}
	operand, err := p.prefix()
	if err != nil {
		return nil, err
	}
	n := &node{op: op, kind: k, start: start, end: operand.end, kids: []*node{operand}}
	return n, p.check(n, operand)
}

// sign parses what begins with + or -, which is the sign of a literal if digits
// follow at once. Otherwise only - is an operator (2.3).
func (p *parser) sign() (*node, *SyntaxError) {
	t := p.token
	ahead := p.lexer
	after, err := ahead.next()
	if err == nil && after.kind == tokenDigits && after.start == t.end {
		if err := p.advance(); err != nil {
			return nil, err
		}
		return p.number(t.start, t.text)
	}
	if t.text == "+" {
		return nil, p.fault(t, "+ can stand before digits, or between two values")
	}
	return p.unary(opNegate, Integer)
}

// number parses digits, which the next token is, and a fraction.
func (p *parser) number(start int, sign string) (*node, *SyntaxError) {
	digits := p.token
	n := &node{op: opLiteral, kind: Integer, start: start, end: digits.end}
	if fraction := p.fraction(); fraction != "" {
		if p.strict {
			return nil, p.fault(digits, "a number with a fraction is not in the standard")
		}
		n.end = p.at
		text := strings.TrimLeft(digits.text, "0")
		if text == "" {
			text = "0"
		}
		n.value = numberValue([]byte(strings.TrimPrefix(sign, "+") + text + fraction))
		n.kind = n.value.kind
		return n, p.advance()
	}
	v, err := strconv.ParseInt(sign+digits.text, 10, 32)
	if err != nil {
		return nil, newSyntaxError(p.text, start, "%s is not in the range of an Integer, -2147483648 to 2147483647", clip(sign+digits.text))
	}
	n.value = IntegerValue(int32(v))
	return n, p.advance()
}

// fraction consumes a point and digits that follow at once.
func (p *parser) fraction() string {
	rest := p.text[p.at:]
	if len(rest) < 2 || rest[0] != '.' || !isDigit(rest[1]) {
		return ""
	}
	n := 2
	for n < len(rest) && isDigit(rest[n]) {
		n++
	}
	p.at += n
	return rest[:n]
}

func (p *parser) exists() (*node, *SyntaxError) {
	start := p.token.start
	if err := p.advance(); err != nil {
		return nil, err
	}
	t := p.token
	if t.kind == tokenWord && isKeyword(t.text) || t.kind != tokenWord && t.kind != tokenDigits {
		return nil, p.unexpected("the name of an attribute after EXISTS")
	}
	if t.kind == tokenDigits { // 2.2 allows names of digits, and here nothing else can stand
		t.kind = tokenWord
		p.token = t
	}
	operand, err := p.reference()
	if err != nil {
		return nil, err
	}
	return &node{op: opExists, kind: Boolean, start: start, end: operand.end, attr: operand.attr, path: operand.path}, nil
}

// named parses a word that is no keyword: a function's name if a parenthesis
// follows, else that of an attribute.
func (p *parser) named() (*node, *SyntaxError) {
	ahead := p.lexer
	if after, err := ahead.next(); err == nil && after.is("(") {
		return p.invocation()
	}
	return p.reference()
}

// reference parses the name of an attribute, or a path into data.
func (p *parser) reference() (*node, *SyntaxError) {
	t := p.token
	if foldsTo(t.text, "data") {
		return p.dataPath()
	}
	if strings.IndexByte(t.text, '_') >= 0 {
		return nil, p.fault(t, "the name of an attribute has letters and digits only")
	}
	// The standard's names are in lower case; its TCK has them fold.
	n := &node{op: opAttribute, start: t.start, end: t.end, attr: NewAttribute(strings.ToLower(t.text))}
	return n, p.advance()
}

func (p *parser) invocation() (*node, *SyntaxError) {
	t := p.token
	if i := strings.IndexAny(t.text, "0123456789"); i >= 0 || t.text[0] == '_' {
		return nil, p.fault(t, "the name of a function has letters and _ only, a letter first")
	}
	if p.calls++; p.calls > MaxCalls {
		return nil, p.fault(t, "the expression calls more than %d functions", MaxCalls)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	name := strings.ToUpper(t.text)
	kids, end, err := p.list(nil, name, MaxList)
	if err != nil {
		return nil, err
	}
	n := &node{op: opCall, kind: Boolean, start: t.start, end: end, kids: kids, name: name, call: findOverload(name, len(kids))}
	if n.call != nil {
		n.kind = n.call.result
	}
	return n, p.check(n, kids...)
}
