// SPDX-License-Identifier: Apache-2.0

package cesql

import "slices"

// Step is what became of one part of an expression on one event.
type Step struct {
	Clause  string // the part, in canonical spelling
	Value   string // as [Value.Excerpt] has it; empty if it was not reached
	Passes  bool   // it is true, a Boolean, and has no error
	Errors  Errors
	Reached bool // false: what is left of it had decided
	Parts   []Step

	truth  bool // what it is to an operator of Booleans
	joined join // of its parts
}

// join is how the parts of a step make up the whole.
type join uint8

const (
	joinNone  join = iota // they are compared or calculated with
	joinAll               // all must hold
	joinOther             // by OR, XOR or NOT, so that no part fails the whole alone
)

// Decider returns the clause that kept an event from passing: of clauses joined
// by AND the first that failed, and of others the one in which there was an
// error, if there was, or else the whole.
func (s *Step) Decider() *Step {
	for i := range s.Parts {
		p := &s.Parts[i]
		if p.Reached && (s.joined != joinNone && p.Errors != 0 || s.joined == joinAll && !p.truth) {
			return p.Decider()
		}
	}
	return s
}

func (n *node) join() join {
	switch {
	case n.op == opNot || n.op == opLogic && slices.ContainsFunc(n.joins, func(j logic) bool { return j != logicAnd }):
		return joinOther
	case n.op == opLogic:
		return joinAll
	}
	return joinNone
}

// Explain evaluates an expression and each of its parts that was reached, down
// to what is compared with what. Parts that are literals are left out.
func (m *Machine) Explain(x *Expression, e *Event) Step {
	m.begin(x, e)
	s, _ := m.explain(x.root)
	return s
}

// explain evaluates a part by itself, which gives what it gave within the whole:
// expressions have no side effects (1). Each node is evaluated once: to what is
// above it, it is given as what it came to. The machine keeps what paths lead to,
// and its texts, until the end.
func (m *Machine) explain(n *node) (s Step, given *node) {
	s = Step{Clause: string(appendNode(nil, n, bindLogic)), Reached: true, joined: n.join()}
	if n.any() {
		s.Value = "several values"
		return s, n
	}
	whole := *n
	whole.kids = append([]*node(nil), n.kids...)
	value, over := false, false
	for i, k := range n.kids {
		var p Step
		decided := n.op == opLogic && i > 0 && n.joins[i-1] != logicXor && value == (n.joins[i-1] == logicOr)
		if over || decided {
			p = Step{Clause: string(appendNode(nil, k, bindLogic))}
		} else {
			p, whole.kids[i] = m.explain(k)
			over = p.Errors != 0
			value = p.truth != (n.op == opLogic && i > 0 && n.joins[i-1] == logicXor && value)
		}
		if k.op != opLiteral {
			s.Parts = append(s.Parts, p)
		}
	}
	m.errors, m.stack = 0, m.stack[:0]
	v := compileValue(&whole)(m)
	s.Errors = m.errors
	s.Value = v.Excerpt()
	s.Passes = v.kind == Boolean && v.num != 0 && m.errors == 0
	s.truth = m.errors == 0 && m.toBoolean(v)
	if n.op == opLiteral {
		return s, n
	}
	return s, &node{op: opGiven, kind: n.kind, value: v, errors: s.Errors}
}
