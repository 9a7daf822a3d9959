// SPDX-License-Identifier: Apache-2.0

// Package filter decides which events concern a reader or a subscription. It
// takes the dialects of the CloudEvents Subscriptions API (exact, prefix, suffix,
// all, any, not and sql) as strict JSON documents, and CESQL as a text, and makes
// one kind of predicate of all of them: [Filter]. [Index] matches one event
// against very many of them, and [Machine.Explain] says why one does not match.
//
// It guarantees that a filter which is accepted can be evaluated in bounded time
// and without allocating, and that equal filters have equal canonical forms.
//
// It imports cesql and event, and knows nothing of topics, readers and the log.
package filter

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"signalbox/event"
	"signalbox/internal/cesql"
)

// Filter is a predicate over events. It is immutable and safe for concurrent
// use.
type Filter struct {
	root      *part
	canonical string
	eval      predicate
}

// predicate is a compiled part. It is true or false; what CESQL has as an error
// is false (Subscriptions API 3.2.4.1.2).
type predicate func(m *Machine, e *cesql.Event) bool

// ParseText makes a filter of a CESQL expression, with paths into data. It fails
// with code filter_invalid, and the place in the text among the facts.
func ParseText(text string) (*Filter, error) { return Options{}.ParseText(text) }

// Options change what is accepted. The zero value is the broker's.
type Options struct {
	// Strict refuses what is not in the standard, such as paths into data, so that
	// the filter means the same to every implementation.
	Strict bool
}

// ParseText is [ParseText] with options.
func (o Options) ParseText(text string) (*Filter, error) {
	p, err := o.parseSQL(text)
	if err != nil {
		return nil, err.With("filter")
	}
	return newFilter(p), nil
}

func newFilter(root *part) *Filter {
	root = root.normal()
	return &Filter{root: root, canonical: root.canonical(), eval: root.compile()}
}

// Canonical returns the filter in one spelling. Filters that have the same one
// select the same events.
func (f *Filter) Canonical() string { return f.canonical }

// Text returns the canonical form for people: of a filter that is one CESQL
// expression, the expression.
func (f *Filter) Text() string { return f.root.text() }

// Machine evaluates filters and holds the memory that evaluations need. It
// belongs to one goroutine. The zero Machine is ready.
type Machine struct {
	cesql   cesql.Machine
	begun   bool // an expression was evaluated; the next may do what work is left
	errors  cesql.Errors
	touched bool
	text    []byte
}

// Match reports whether an event passes.
func (m *Machine) Match(f *Filter, e *cesql.Event) bool {
	m.begin()
	return f.eval(m, e)
}

func (m *Machine) begin() { m.begun, m.errors, m.touched = false, 0, false }

// next is for the next expression of a filter: all of them together may do the work
// of one.
func (m *Machine) next() *cesql.Machine {
	if m.begun {
		m.cesql.Continue()
	}
	m.begun = true
	return &m.cesql
}

// Selects is Match with the rule for tombstones: an event that removes a key
// passes, too, if the evaluation looked for something in data, for it has none
// and the filter cannot tell. Where dialects combine parts, those without data are
// evaluated first and may tell.
func (m *Machine) Selects(f *Filter, e *cesql.Event, tombstone bool) bool {
	return m.Match(f, e) || tombstone && m.touched
}

// Errors returns the errors that the CESQL expressions of the last match met.
func (m *Machine) Errors() cesql.Errors { return m.errors }

// TouchedData reports whether the last match looked for something in data.
func (m *Machine) TouchedData() bool { return m.touched }

// op is what a part of a filter does.
type op uint8

const (
	opExact op = iota
	opPrefix
	opSuffix
	opSQL
	opTopics
	opAll
	opAny
	opNot
)

var opNames = [...]string{"exact", "prefix", "suffix", "sql", "topics", "all", "any", "not"}

// part is a node of a filter.
type part struct {
	op    op
	kids  []*part // of all, any and not
	name  string  // of the attribute, for exact, prefix and suffix
	value string  // of the attribute; of topics the list of patterns
	sql   *cesql.Expression
	on    []event.Pattern // of topics
}

// normal returns the part without what makes no difference: all in all, any in
// any, one in either, a double not, and the order and repetition of parts.
func (p *part) normal() *part {
	if p.op < opAll {
		return p
	}
	var kids []*part
	for _, k := range p.kids {
		if k = k.normal(); k.op == p.op && p.op != opNot {
			kids = append(kids, k.kids...)
			continue
		}
		kids = append(kids, k)
	}
	if p.op == opNot {
		if kids[0].op == opNot {
			return kids[0].kids[0]
		}
		return &part{op: opNot, kids: kids}
	}
	slices.SortStableFunc(kids, (*part).compare)
	kids = slices.CompactFunc(kids, func(a, b *part) bool { return a.canonical() == b.canonical() })
	if len(kids) == 1 {
		return kids[0]
	}
	return &part{op: p.op, kids: kids}
}

// compare orders the parts of a row as they are evaluated. Those that look into
// data come last: they cost the most, and a tombstone of which the other parts
// can tell must not be selected for want of data (see Machine.Selects).
func (p *part) compare(q *part) int {
	if p.usesData() != q.usesData() {
		if q.usesData() {
			return -1
		}
		return 1
	}
	return strings.Compare(p.canonical(), q.canonical())
}

// canonical writes the part.
func (p *part) canonical() string { return string(p.appendTo(nil)) }

// text is what explanations call the part.
func (p *part) text() string {
	if p.op == opSQL {
		return p.sql.Canonical()
	}
	return p.canonical()
}

func (p *part) appendTo(dst []byte) []byte {
	dst = append(dst, opNames[p.op]...)
	switch p.op {
	case opSQL:
		return strconv.AppendQuote(append(dst, ' '), p.sql.Canonical())
	case opExact, opPrefix, opSuffix:
		return strconv.AppendQuote(append(append(append(dst, ' '), p.name...), ' '), p.value)
	case opTopics:
		return append(append(dst, ' '), p.value...)
	}
	dst = append(dst, '(')
	for i, k := range p.kids {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = k.appendTo(dst)
	}
	return append(dst, ')')
}

func (p *part) compile() predicate {
	switch p.op {
	case opExact:
		return p.compileText(bytes.Equal)
	case opPrefix:
		return p.compileText(bytes.HasPrefix)
	case opSuffix:
		return p.compileText(bytes.HasSuffix)
	case opTopics:
		return p.compileTopics()
	case opSQL:
		x := p.sql
		return func(m *Machine, e *cesql.Event) bool {
			passes := m.next().Match(x, e)
			m.errors |= m.cesql.Errors()
			m.touched = m.touched || m.cesql.TouchedData()
			return passes
		}
	}
	kids := make([]predicate, len(p.kids))
	for i, k := range p.kids {
		kids[i] = k.compile()
	}
	if p.op == opNot {
		return func(m *Machine, e *cesql.Event) bool { return !kids[0](m, e) }
	}
	decides := p.op == opAny
	return func(m *Machine, e *cesql.Event) bool {
		for _, k := range kids {
			if k(m, e) == decides {
				return decides
			}
		}
		return !decides
	}
}

// compileText compiles a test of an attribute's canonical string. One that is
// not there passes none.
func (p *part) compileText(test func(have, want []byte) bool) predicate {
	a, want := cesql.NewAttribute(p.name), []byte(p.value)
	return func(m *Machine, e *cesql.Event) bool {
		v := e.Lookup(a)
		switch v.Kind() {
		case cesql.Absent:
			return false
		case cesql.String:
			return test(v.Text(), want)
		}
		m.text = v.AppendText(m.text[:0])
		return test(m.text, want)
	}
}

// covered are the attributes that are Strings in every event, by which filters
// are found.
var covered = []string{"type", "source", "subject", "topic"}

// covers returns covers of the part; see [cesql.Expression.Covers].
func (p *part) covers() (covers []cesql.Cover) {
	switch p.op {
	case opExact, opPrefix:
		if slices.Contains(covered, p.name) {
			return []cesql.Cover{{Terms: []cesql.Term{{Attribute: p.name, Text: p.value, Prefix: p.op == opPrefix}}, Touches: true}}
		}
	case opSQL:
		return p.sql.Covers(covered...)
	case opTopics:
		return p.coverTopics()
	case opAll:
		touched := false
		for _, k := range p.kids {
			covers = cesql.Both(covers, k.covers(), touched)
			touched = touched || k.usesData()
		}
	case opAny:
		covers = p.kids[0].covers()
		for _, k := range p.kids[1:] {
			covers = cesql.Either(covers, k.covers())
		}
	}
	return covers
}

func (p *part) usesData() bool {
	return p.op == opSQL && p.sql.UsesData() || slices.ContainsFunc(p.kids, (*part).usesData)
}

// parseSQL makes the part of an expression; the caller names the field.
func (o Options) parseSQL(text string) (*part, *event.Error) {
	x, err := cesql.ParseFilter(text, cesql.Options(o))
	if err == nil {
		return &part{op: opSQL, sql: x}, nil
	}
	out := event.Errorf(event.CodeFilterInvalid, "The filter is not valid CESQL: %v.", err)
	var fault *cesql.SyntaxError
	if errors.As(err, &fault) {
		out = out.Fact("offset", fault.Offset).Fact("line", fault.Line).Fact("column", fault.Column).Fact("caret", fault.Caret())
	}
	return nil, out
}
