// SPDX-License-Identifier: Apache-2.0

package cesql

// Term is a condition on one attribute that is a String in every event, which
// an index can look up.
type Term struct {
	Attribute string
	Text      string
	Prefix    bool // the attribute begins with Text; else it is Text
}

// maxCover bounds the terms of one cover: an index has an entry for each.
const maxCover = 64

// Cover is a set of terms of which one holds whenever an expression passes as a
// filter.
type Cover struct {
	Terms []Term
	// Touches says that one holds, too, whenever the evaluation looks for something
	// in data, whether the event passes or not.
	Touches bool
}

// Covers returns covers of the expression. An index has to look at it only if
// a term of one of them, whichever it chooses, holds. The attributes that terms
// are wanted for must be Strings in every event.
func (x *Expression) Covers(wanted ...string) []Cover {
	c := coverer{wanted}
	return c.covers(x.root)
}

type coverer struct{ wanted []string }

func cover(terms ...Term) []Cover { return []Cover{{Terms: terms, Touches: true}} }

func (c *coverer) covers(n *node) []Cover {
	switch n.op {
	case opEqual:
		if term, ok := c.equality(n.kids[0], n.kids[1]); ok {
			return cover(term)
		}
	case opLike:
		if a, ok := c.attribute(n.kids[0]); ok && !n.negated {
			if prefix, whole := n.pattern.prefix(); whole || len(prefix) > 0 {
				return cover(Term{Attribute: a, Text: string(prefix), Prefix: !whole})
			}
		}
	case opIn:
		return c.list(n)
	case opLogic:
		return c.logic(n)
	}
	return nil
}

func (c *coverer) attribute(n *node) (string, bool) {
	if n.op == opAttribute {
		for _, w := range c.wanted {
			if w == n.attr.name {
				return w, true
			}
		}
	}
	return "", false
}

func (c *coverer) equality(x, y *node) (Term, bool) {
	if _, ok := c.attribute(y); ok {
		x, y = y, x
	}
	a, ok := c.attribute(x)
	return Term{Attribute: a, Text: string(y.value.text)}, ok && y.op == opLiteral && y.kind == String
}

func (c *coverer) list(n *node) []Cover {
	a, ok := c.attribute(n.kids[0])
	if !ok || n.negated || len(n.kids)-1 > maxCover {
		return nil
	}
	var terms []Term
	for _, k := range n.kids[1:] {
		if k.op != opLiteral || k.kind != String {
			return nil
		}
		terms = append(terms, Term{Attribute: a, Text: string(k.value.text)})
	}
	return cover(terms...)
}

// logic follows the row.
func (c *coverer) logic(n *node) []Cover {
	left, touched := c.covers(n.kids[0]), n.kids[0].usesData()
	for i, join := range n.joins {
		k := n.kids[i+1]
		switch join {
		case logicAnd:
			left = Both(left, c.covers(k), touched)
		default: // of XOR, too, one side holds
			left = Either(left, c.covers(k))
		}
		touched = touched || k.usesData()
	}
	return left
}

func (n *node) usesData() bool {
	if n.path != nil {
		return true
	}
	for _, k := range n.kids {
		if k.usesData() {
			return true
		}
	}
	return false
}

// Both returns covers of a conjunction: those of either side. If the left side
// may touch data, the right one need not even be reached for that.
func Both(left, right []Cover, leftTouches bool) []Cover {
	for _, c := range right {
		c.Touches = c.Touches && !leftTouches
		left = append(left, c)
	}
	return left
}

// Either returns covers of a disjunction: the shortest of each side, joined.
func Either(left, right []Cover) []Cover {
	if len(left) == 0 || len(right) == 0 {
		return nil
	}
	a, b := shortest(left), shortest(right)
	if len(a.Terms)+len(b.Terms) > maxCover {
		return nil
	}
	return []Cover{{Terms: append(append([]Term{}, a.Terms...), b.Terms...), Touches: a.Touches && b.Touches}}
}

func shortest(covers []Cover) Cover {
	least := covers[0]
	for _, c := range covers[1:] {
		if len(c.Terms) < len(least.Terms) {
			least = c
		}
	}
	return least
}
