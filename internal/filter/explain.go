// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"slices"
	"strings"
	"unicode"

	"signalbox/internal/cesql"
)

// Explanation says what became of a part of a filter on one event, and of what
// it is made of.
type Explanation struct {
	Clause  string        `json:"clause"`           // the part, in canonical spelling
	Passes  bool          `json:"passes"`           // it holds
	Reached bool          `json:"reached"`          // false: what is before it had decided
	Value   string        `json:"value,omitempty"`  // of an attribute, a path or a calculation
	Errors  []string      `json:"errors,omitempty"` // the standard's names
	Parts   []Explanation `json:"parts,omitempty"`
}

// Explain says why an event passes a filter or does not. It evaluates more than
// a match does, and allocates.
func (m *Machine) Explain(f *Filter, e *cesql.Event) Explanation {
	m.begin()
	return m.explain(f.root, e)
}

func (m *Machine) explain(p *part, e *cesql.Event) Explanation {
	x := Explanation{Reached: true}
	switch p.op {
	case opSQL:
		return explainStep(m.next().Explain(p.sql, e))
	case opExact, opPrefix, opSuffix:
		x.Clause = p.canonical()
		x.Passes = p.compile()(m, e)
		x.Parts = []Explanation{{Clause: p.name, Reached: true, Value: e.Lookup(cesql.NewAttribute(p.name)).Excerpt()}}
		return x
	}
	x.Clause = opNames[p.op]
	x.Passes = p.op != opAny
	for _, k := range p.kids {
		if x.Passes == (p.op == opAny) && len(x.Parts) > 0 {
			x.Parts = append(x.Parts, Explanation{Clause: k.canonical()})
			continue
		}
		part := m.explain(k, e)
		x.Parts = append(x.Parts, part)
		x.Passes = part.Passes != (p.op == opNot)
	}
	return x
}

// Decider returns the clause that kept an event from passing, and the errors in
// it: of conditions that must all hold the first that failed, and else the whole.
// It costs as much as [Machine.Explain].
func (m *Machine) Decider(f *Filter, e *cesql.Event) (clause string, errors cesql.Errors) {
	m.begin()
	p := f.root
	for p.op == opAll {
		i := slices.IndexFunc(p.kids, func(k *part) bool { return !k.compile()(m, e) })
		if i < 0 {
			break
		}
		p = p.kids[i]
	}
	if p.op == opSQL {
		errors := m.errors
		step := m.cesql.Explain(p.sql, e)
		if step.Passes { // by itself, but not with the work that those before it have left
			return p.text(), errors
		}
		decider := step.Decider()
		return decider.Clause, decider.Errors
	}
	m.begin()
	p.compile()(m, e)
	return p.text(), m.errors
}

func explainStep(s cesql.Step) Explanation {
	x := Explanation{Clause: s.Clause, Passes: s.Passes, Reached: s.Reached, Value: s.Value, Errors: s.Errors.Names()}
	for _, part := range s.Parts {
		x.Parts = append(x.Parts, explainStep(part))
	}
	return x
}

// String renders the explanation as lines of text: a verdict, or - for what was
// not reached, and the clauses below what they belong to, with their values.
func (x Explanation) String() string {
	var b strings.Builder
	x.write(&b, "")
	return b.String()
}

func (x *Explanation) write(b *strings.Builder, indent string) {
	verdict, says := "   ", ""
	switch {
	case !x.Reached:
		verdict, says = "-  ", " (not reached)"
	case x.Passes:
		verdict = "yes"
	case x.Value == "" || x.Value == "false" || x.Value == "true":
		verdict = "no "
	}
	if x.Reached && verdict == "   " {
		says = " is " + clip(x.Value)
	}
	if len(x.Errors) > 0 {
		says += ": " + strings.Join(x.Errors, ", ")
	}
	b.WriteString(verdict + " " + indent + printable(x.Clause) + says + "\n")
	for i := range x.Parts {
		x.Parts[i].write(b, indent+"  ")
	}
}

// clip keeps a long value from hiding the rest.
func clip(s string) string {
	const most = 100
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return printable(s)
}

// printable keeps what an event says from working on a terminal, or from being
// read in another order than it stands.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
