// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"signalbox/internal/cesql"
)

// tckCase is a case of the technology compatibility kit (testdata/tck).
type tckCase struct {
	Name           string
	Expression     string
	Result         any
	Error          string
	Event          map[string]any
	EventOverrides map[string]any `yaml:"eventOverrides"`
}

var tckErrors = map[string]cesql.Errors{
	"": 0, "math": cesql.MathError, "cast": cesql.CastError, "missingAttribute": cesql.MissingAttributeError,
	"missingFunction": cesql.MissingFunctionError, "functionEvaluation": cesql.FunctionEvaluationError, "generic": cesql.GenericError,
}

// tckExcluded are the cases that contradict the standard; SOURCE.txt says how.
var tckExcluded = map[string]bool{"Not operator/Invalid int cast": true}

// TestTechnologyCompatibilityKit has all cases, which say, too, that attributes
// fold case and that INT, BOOL and STRING exist.
func TestTechnologyCompatibilityKit(t *testing.T) {
	paths, err := filepath.Glob("testdata/tck/*.yaml")
	if err != nil || len(paths) != 18 {
		t.Fatalf("found %d files: %v", len(paths), err)
	}
	total, excluded := 0, 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var suite struct {
			Name  string
			Tests []tckCase
		}
		if err := yaml.Unmarshal(text, &suite); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range suite.Tests {
			total++
			name := suite.Name + "/" + c.Name
			if tckExcluded[name] {
				excluded++
				continue
			}
			t.Run(name, func(t *testing.T) { c.run(t) })
		}
	}
	if total != 275 || excluded != len(tckExcluded) {
		t.Errorf("%d cases, of which %d were left out", total, excluded)
	}
}

func (c *tckCase) run(t *testing.T) {
	x, err := cesql.Parse(c.Expression, cesql.Options{Strict: true})
	if c.Error == "parse" {
		var fault *cesql.SyntaxError
		if !errors.As(err, &fault) {
			t.Fatalf("%s: no parse error but %v", c.Expression, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", c.Expression, err)
	}
	with := attrs{}
	for _, source := range []map[string]any{c.Event, c.EventOverrides} {
		for name, v := range source {
			with[name] = scalar(v)
		}
	}
	e := newEvent(with, "")
	var m cesql.Machine
	v, errs := m.Eval(x, e)
	if want, known := tckErrors[c.Error]; !known || errs != want {
		t.Errorf("%s: errors %v, want %s", c.Expression, errs, c.Error)
	}
	if c.Result == nil {
		return
	}
	var got any
	switch v.Kind() {
	case cesql.Boolean:
		got = v.Bool()
	case cesql.Integer:
		got = int(v.Int())
	default:
		got = string(v.Text())
	}
	if want := scalar(c.Result); got != want {
		t.Errorf("%s: %v, want %v", c.Expression, got, want)
	}
}

// scalar undoes what YAML makes of timestamps.
func scalar(v any) any {
	if stamp, ok := v.(time.Time); ok {
		return stamp.Format(time.RFC3339)
	}
	return v
}
