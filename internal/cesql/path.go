// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"slices"
	"strconv"
	"strings"
)

// path leads to a value in data, or with [*] to several.
type path struct {
	number int // in the expression
	any    bool
	steps  []step
}

// step is one way down.
type step struct {
	name  []byte // of a member of an object; nil for an array
	raw   string // the name as it was written, if it was quoted
	index int    // into an array; anyElement for each
}

const (
	anyElement = -1
	indexMax   = 1 << 24 // no data has as many elements
)

// dataPath parses what follows the word data, without white space in between.
func (p *parser) dataPath() (*node, *SyntaxError) {
	t := p.token
	if p.strict {
		return nil, p.fault(t, "the standard gives no access to data")
	}
	found := path{}
	for p.at < len(p.text) && (p.text[p.at] == '.' || p.text[p.at] == '[') {
		if len(found.steps) == MaxPathSteps {
			return nil, newSyntaxError(p.text, p.at, "the path has more than %d steps", MaxPathSteps)
		}
		s, err := p.step()
		if err != nil {
			return nil, err
		}
		found.any = found.any || s.name == nil && s.index == anyElement
		found.steps = append(found.steps, s)
	}
	if found.any {
		if p.anys++; p.anys > MaxAnys {
			return nil, p.fault(t, "the expression uses [*] more than %d times", MaxAnys)
		}
	}
	n := &node{op: opPath, start: t.start, end: p.at}
	var err *SyntaxError
	if n.path, err = p.share(&found, t); err != nil {
		return nil, err
	}
	return n, p.advance()
}

// share returns the expression's path with these steps.
func (p *parser) share(found *path, at token) (*path, *SyntaxError) {
	for _, known := range p.x.paths {
		if slices.EqualFunc(known.steps, found.steps, func(a, b step) bool {
			return a.index == b.index && (a.name == nil) == (b.name == nil) && string(a.name) == string(b.name)
		}) {
			return known, nil
		}
	}
	if len(p.x.paths) == MaxPaths {
		return nil, p.fault(at, "the expression has more than %d different paths into data", MaxPaths)
	}
	found.number = len(p.x.paths)
	p.x.paths = append(p.x.paths, found)
	return found, nil
}

// step parses .name, .'name', [n] or [*].
func (p *parser) step() (step, *SyntaxError) {
	start := p.at
	p.at++
	if p.text[start] == '[' {
		return p.element(start)
	}
	if rest := p.text[p.at:]; rest != "" && (rest[0] == '\'' || rest[0] == '"') {
		t, err := p.quoted()
		if err != nil {
			return step{}, err
		}
		return step{name: []byte(unquote(t.text)), raw: t.text}, nil
	}
	if name := p.word().text; name != "" {
		return step{name: []byte(name)}, nil
	}
	return step{}, newSyntaxError(p.text, p.at, "expected the name of a member; what is not of letters, digits and _ is quoted: data.'a-b'")
}

func (p *parser) element(start int) (step, *SyntaxError) {
	inner, _, closed := strings.Cut(p.text[p.at:], "]")
	if closed {
		p.at += len(inner) + 1
		if inner == "*" {
			return step{index: anyElement}, nil
		}
		if n, err := strconv.ParseUint(inner, 10, 32); err == nil && n <= indexMax {
			return step{index: int(n)}, nil
		}
	}
	return step{}, newSyntaxError(p.text, start, "expected [*] or the number of an element, from 0, as in [2]")
}

// appendPath appends the path as it is written.
func appendPath(dst []byte, pt *path) []byte {
	dst = append(dst, "data"...)
	for i := range pt.steps {
		switch s := &pt.steps[i]; {
		case s.name != nil && isPlain(s.name):
			dst = append(append(dst, '.'), s.name...)
		case s.name != nil:
			dst = append(append(dst, '.'), normalQuotes(s.raw)...)
		case s.index == anyElement:
			dst = append(dst, "[*]"...)
		default:
			dst = append(strconv.AppendInt(append(dst, '['), int64(s.index), 10), ']')
		}
	}
	return dst
}

func isPlain(name []byte) bool {
	return len(name) > 0 && !slices.ContainsFunc(name, func(c byte) bool { return !isWord(c) })
}
