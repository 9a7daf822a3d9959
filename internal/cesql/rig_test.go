// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/cesql"
)

// attrs are attributes beside the required ones, which they can replace.
type attrs map[string]any

// newEvent makes an event. Data is JSON; none if it is empty.
func newEvent(with attrs, data string) *cesql.Event {
	all := attrs{"specversion": "1.0", "id": "1", "source": "/test", "type": "test"}
	for name, v := range with {
		all[name] = v
	}
	e := &cesql.Event{}
	for name, v := range all {
		switch v := v.(type) {
		case string:
			e.Set([]byte(name), cesql.TextValue([]byte(v)))
		case int:
			e.Set([]byte(name), cesql.IntegerValue(int32(v)))
		case bool:
			e.Set([]byte(name), cesql.BooleanValue(v))
		default:
			panic(fmt.Sprintf("attribute of %T", v))
		}
	}
	if data != "" {
		e.SetData(cesql.JSONData, []byte(data))
	}
	return e
}

func mustParse(t testing.TB, text string) *cesql.Expression {
	t.Helper()
	x, err := cesql.Parse(text, cesql.Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return x
}

// outcome writes value and errors as the tables of the tests do.
func outcome(v cesql.Value, errs cesql.Errors) string {
	if errs == 0 {
		return v.String()
	}
	return strings.ReplaceAll(v.String()+", "+errs.String(), "Error", "")
}

// evaluate parses and evaluates, and checks on the way that the canonical form
// means the same and is a fixed point, that a filter passes exactly on true
// without error, and that explaining agrees.
func evaluate(t *testing.T, text string, e *cesql.Event) string {
	t.Helper()
	x := mustParse(t, text)
	var m cesql.Machine
	v, errs := m.Eval(x, e)
	got := outcome(v, errs)
	passes := v.Kind() == cesql.Boolean && v.Bool() && errs == 0

	c := mustParse(t, x.Canonical())
	if c.Canonical() != x.Canonical() {
		t.Errorf("%s: canonical %q becomes %q", text, x.Canonical(), c.Canonical())
	}
	if v, errs := m.Eval(c, e); outcome(v, errs) != got {
		t.Errorf("%s: %s, but %s as %s", text, got, outcome(v, errs), x.Canonical())
	}
	if m.Match(x, e) != passes {
		t.Errorf("%s: %s, but as a filter %v", text, got, !passes)
	}
	if step := m.Explain(x, e); step.Passes != passes || step.Errors != errs {
		t.Errorf("%s: %s, but explained as %+v", text, got, step)
	}
	return got
}

type evaluation struct{ text, want string }

func checkAll(t *testing.T, e *cesql.Event, all []evaluation) {
	t.Helper()
	for _, c := range all {
		if got := evaluate(t, c.text, e); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}
