// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"strconv"
	"strings"
)

// Canonical returns the expression in one spelling: keywords and functions in
// upper case, names in lower case, single spaces, no parentheses that change
// nothing. Two expressions with the same one mean the same, and parsing it gives
// it again.
func (x *Expression) Canonical() string {
	return string(appendNode(make([]byte, 0, len(x.text)+16), x.root, bindLogic))
}

// appendNode appends a node, in parentheses if it binds less tightly than least.
func appendNode(dst []byte, n *node, least int) []byte {
	if n.op.binding() < least {
		return append(appendNode(append(dst, '('), n, bindLogic), ')')
	}
	switch n.op {
	case opLiteral:
		return appendLiteral(dst, n)
	case opAttribute:
		return append(dst, n.attr.name...)
	case opPath:
		return appendPath(dst, n.path)
	case opExists:
		dst = append(dst, "EXISTS "...)
		if n.path != nil {
			return appendPath(dst, n.path)
		}
		return append(dst, n.attr.name...)
	case opNot:
		return appendNode(append(dst, "NOT "...), n.kids[0], bindUnary)
	case opNegate:
		// The space keeps the sign from becoming a literal's.
		return appendNode(append(dst, "- "...), n.kids[0], bindUnary)
	case opLike:
		return append(appendWord(appendNode(dst, n.kids[0], bindLike), "LIKE ", n.negated), normalQuotes(n.raw)...)
	case opIn:
		return appendList(appendWord(appendNode(dst, n.kids[0], bindIn), "IN ", n.negated), n.kids[1:])
	case opCall:
		return appendList(append(dst, n.name...), n.kids)
	case opLogic:
		return appendLogic(dst, n)
	}
	dst = appendNode(dst, n.kids[0], n.op.binding())
	dst = append(append(append(dst, ' '), operatorNames[n.op]...), ' ')
	return appendNode(dst, n.kids[1], n.op.binding()+1)
}

func appendLogic(dst []byte, n *node) []byte {
	for i, k := range n.kids {
		if i > 0 {
			dst = append(append(append(dst, ' '), logicNames[n.joins[i-1]]...), ' ')
		}
		dst = appendNode(dst, k, bindLogic+1)
	}
	return dst
}

func appendWord(dst []byte, word string, negated bool) []byte {
	if negated {
		return append(append(dst, " NOT "...), word...)
	}
	return append(append(dst, ' '), word...)
}

func appendList(dst []byte, nodes []*node) []byte {
	dst = append(dst, '(')
	for i, k := range nodes {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendNode(dst, k, bindLogic)
	}
	return append(dst, ')')
}

func appendLiteral(dst []byte, n *node) []byte {
	switch v := n.value; v.kind {
	case String:
		return append(dst, normalQuotes(n.raw)...)
	case Integer:
		return strconv.AppendInt(dst, int64(v.num), 10)
	case Number:
		return append(dst, v.text...)
	case Boolean:
		return append(dst, strings.ToUpper(strconv.FormatBool(v.num != 0))...)
	}
	return dst
}

// normalQuotes writes a string with ' unless that would need other escapes:
// with a backslash in it, it stays as it was.
func normalQuotes(raw string) string {
	if raw[0] == '\'' || strings.ContainsAny(raw, `\'`) {
		return raw
	}
	return "'" + raw[1:len(raw)-1] + "'"
}
