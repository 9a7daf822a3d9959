// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/filter"
)

func mustPatterns(t interface{ Fatal(...any) }, list string) []event.Pattern {
	patterns, err := event.ParsePatterns(list)
	if err != nil {
		t.Fatal(err)
	}
	return patterns
}

// TestNarrowedFilters: a source, types and a filter must all hold, and what is
// left out asks for nothing.
func TestNarrowedFilters(t *testing.T) {
	n, record := mustText(t, `n > 3`), newRecord(t, required(`,"n":5`))
	for name, c := range map[string]struct {
		f      *filter.Filter
		passes bool
	}{
		"source":               {filter.Narrow(nil, "/s", nil), true},
		"another source":       {filter.Narrow(nil, "/", nil), false},
		"types":                {filter.Narrow(nil, "", []string{"x", "a.b"}), true},
		"other types":          {filter.Narrow(nil, "", []string{"x", "b"}), false},
		"all":                  {filter.Narrow(n, "/s", []string{"a.b"}), true},
		"a filter that fails":  {filter.Narrow(mustText(t, `n > 5`), "/s", []string{"a.b"}), false},
		"on topic":             {filter.On(mustPatterns(t, "fleet.*,b"), nil), true},
		"on topic with filter": {filter.On(mustPatterns(t, ">"), filter.Narrow(n, "/s", nil)), true},
		"on another topic":     {filter.On(mustPatterns(t, "fleet.*.x"), n), false},
	} {
		var m filter.Machine
		if m.Match(c.f, record.Event()) != c.passes {
			t.Errorf("%s: %s passes: %t", name, c.f.Canonical(), !c.passes)
		}
	}
	if f := filter.Narrow(nil, "", nil); f != nil {
		t.Errorf("nothing is asked for by %s", f.Canonical())
	}
}

// TestIndexOnTopics: filters on topics are found as they would be one by one.
func TestIndexOnTopics(t *testing.T) {
	lists := []string{">", "a", "a.b", "a.*", "a.>", "*", "*.b", "a,b.>", "$x.>", "a.*.c,b"}
	texts := []string{"", `type = 't'`, `n > 3`, `type = 'u' OR topic = 'b.c'`, `data.x = 1`}
	rapid.Check(t, func(t *rapid.T) {
		x := filter.NewIndex[int]()
		var filters []*filter.Filter
		for i := range rapid.IntRange(1, 30).Draw(t, "filters") {
			var f *filter.Filter
			if text := rapid.SampledFrom(texts).Draw(t, "text"); text != "" {
				var err error
				if f, err = filter.ParseText(text); err != nil {
					t.Fatal(err)
				}
			}
			filters = append(filters, filter.On(mustPatterns(t, rapid.SampledFrom(lists).Draw(t, "topics")), f))
			x.Add(filters[i], i)
		}
		e, err := event.DecodeJSON([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","n":` + rapid.SampledFrom([]string{"1", "5"}).Draw(t, "n") + `}`))
		if err != nil {
			t.Fatal(err)
		}
		members, _, _ := e.AppendMembers(nil)
		var r filter.Record
		r.Fill(filter.Delivered{Topic: rapid.SampledFrom([]string{"a", "b", "a.b", "b.c", "a.b.c", "$x.y", "c"}).Draw(t, "topic"), Position: 1}, members)
		tombstone := rapid.Bool().Draw(t, "tombstone")
		var m filter.Machine
		var want []int
		for i, f := range filters {
			if m.Selects(f, r.Event(), tombstone) {
				want = append(want, i)
			}
		}
		got := x.Match(&m, r.Event(), tombstone, nil)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("found %v, want %v", got, want)
		}
	})
}

// TestSortTellsErrors of filters that an event does not pass, and of no others.
func TestSortTellsErrors(t *testing.T) {
	x := filter.NewIndex[string]()
	for name, text := range map[string]string{
		"passes": `n > 3`, "fails": `n > 5`, "missing": `missing = 'x'`, "other type": `type = 'b' AND missing = 'x'`, "recovers": `EXISTS missing OR n = 5`,
	} {
		x.Add(mustText(t, text), name)
	}
	var m filter.Machine
	passed, failed := x.Sort(&m, newRecord(t, required(`,"n":5`)).Event(), false, nil, nil)
	slices.Sort(passed)
	if strings.Join(passed, ", ") != "passes, recovers" || strings.Join(failed, ", ") != "missing" {
		t.Errorf("passed %v, failed %v", passed, failed)
	}
}
