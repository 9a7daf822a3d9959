// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"errors"
	"testing"

	"signalbox/event"
	"signalbox/internal/filter"
)

// FuzzDocument: no document makes decoding or matching panic; what is refused has
// a code and a field; explaining agrees with matching.
func FuzzDocument(f *testing.F) {
	for _, document := range []string{
		`[]`, `[{"exact":{"type":"a.b"}},{"prefix":{"subject":"x"}},{"suffix":{"n":"5"}}]`,
		`[{"all":[{"any":[{"not":{"sql":"EXISTS data.a[*].b"}}]}]}]`, `[{"cesql":"n > 5 OR subject LIKE '%x_'"}]`,
		`[{"exact":{"a":"b","a":"c"}}]`, `[{"regex":{}}]`, `{`, `[{"not":{"not":{}}}]`,
	} {
		f.Add([]byte(document))
	}
	r := newRecord(f, required(`,"subject":"x\"y","n":5,"data":{"a":[{"b":1}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		parsed, err := filter.ParseDocument(document)
		if err != nil {
			var e *event.Error
			if !errors.As(err, &e) || e.Field == "" || e.Code != event.CodeFilterInvalid && e.Code != event.CodeFilterUnsupported {
				t.Fatalf("%q: %v", document, err)
			}
			return
		}
		var m filter.Machine
		passes := m.Match(parsed, r.Event())
		if x := m.Explain(parsed, r.Event()); x.Passes != passes {
			t.Fatalf("%q: %v, explained as %v", document, passes, x)
		}
		x := filter.NewIndex[int]()
		x.Add(parsed, 1)
		if found := len(x.Match(&m, r.Event(), false, nil)) == 1; found != passes {
			t.Fatalf("%q: %v, but %v by the index", document, passes, found)
		}
	})
}
