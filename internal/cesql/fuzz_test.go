// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"signalbox/internal/cesql"
)

// FuzzExpression: no text makes parsing or evaluation panic, on whatever data; a
// fault has a place in the text; the canonical form parses, means the same and
// stays; filter and evaluation agree.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		`type = 'system.alert' AND data.severity >= 4`, `EXISTS data.a[*].b OR NOT subject LIKE '%a_b\%c%'`, `a IN (1, 'x', TRUE) XOR -n % 3 = 1`,
		`CONCAT_WS('-', SUBSTRING(source, -3, 2), UPPER(type)) != "a\"b"`, `data.'x y'[0] < 1.5e3`, `data[*] NOT IN (data.a, -0.5)`,
		`data."a\'b\"c" IN (1, 'x', 2.5) AND s LIKE '%ä_日%'`, `'a' = `, `1+1`, `NOT`, `a = 'it''s'`, `((((a))))`, `- -2147483648`,
	} {
		f.Add(text, `{"a":[{"b":1.50},"\u00e4"],"severity":5,"x y":[1e2]}`)
		f.Add(text, `[-1,"x",{"a":nul`)
	}
	f.Fuzz(func(t *testing.T, text, data string) {
		x, err := cesql.Parse(text, cesql.Options{})
		if err != nil {
			var fault *cesql.SyntaxError
			if !errors.As(err, &fault) || fault.Offset > len(text) || fault.Line < 1 || fault.Column < 1 {
				t.Fatalf("%q: %#v", text, err)
			}
			if caret := fault.Caret(); strings.Count(caret, "\n") != 1 || len(caret) > 1000 {
				t.Fatalf("%q: %q", text, caret)
			}
			return
		}
		if len(text) > cesql.MaxBytes || !utf8.ValidString(text) {
			t.Fatalf("%q was taken", text)
		}
		c, err := cesql.Parse(x.Canonical(), cesql.Options{})
		if err != nil {
			// Canonical spelling may be longer: a space for each sign, say.
			if len(x.Canonical()) > cesql.MaxBytes {
				return
			}
			t.Fatalf("%q as %q: %v", text, x.Canonical(), err)
		}
		if c.Canonical() != x.Canonical() {
			t.Fatalf("%q: %q becomes %q", text, x.Canonical(), c.Canonical())
		}
		var m cesql.Machine
		e := newEvent(attrs{"n": 7, "flag": true, "subject": "aäb%c"}, data)
		v, errs := m.Eval(x, e)
		got := outcome(v, errs)
		passes := v.Kind() == cesql.Boolean && v.Bool() && errs == 0
		if v, errs := m.Eval(c, e); outcome(v, errs) != got {
			t.Fatalf("%q: %s, but %s as %q", text, got, outcome(v, errs), x.Canonical())
		}
		if m.Match(x, e) != passes {
			t.Fatalf("%q: %s, but as a filter %v", text, got, !passes)
		}
		if step := m.Explain(x, e); step.Passes != passes {
			t.Fatalf("%q: %s, explained as %+v", text, got, step)
		}
		m.Match(x, e)
		for _, cover := range x.Covers("type", "source", "subject") {
			if (passes || cover.Touches && m.TouchedData()) && !holds(e, cover.Terms) {
				t.Fatalf("%q passes, but nothing of %+v holds", text, cover)
			}
		}
	})
}

func holds(e *cesql.Event, cover []cesql.Term) bool {
	for _, term := range cover {
		text := string(e.Lookup(cesql.NewAttribute(term.Attribute)).Text())
		if text == term.Text || term.Prefix && strings.HasPrefix(text, term.Text) {
			return true
		}
	}
	return false
}
