// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	// A tombstone of another source or type is not selected because a filter looks
	// into data (Subscriptions API 3.2.4: source, types).
	open := mustDocument(t, `[{"any":[{"sql":"data.s = 'open'"},{"sql":"data.s = 'new'"}]}]`)
	for name, f := range map[string]*filter.Filter{"source": filter.Narrow(open, "/other", nil), "types": filter.Narrow(open, "", []string{"x", "y"})} {
		if m := (filter.Machine{}); m.Selects(f, record.Event(), true) {
			t.Errorf("a tombstone of another %s is selected", name)
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

// TestSearchTellsErrors of filters that an event does not pass, and of no others.
func TestSearchTellsErrors(t *testing.T) {
	x := filter.NewIndex[string]()
	for name, text := range map[string]string{
		"passes": `n > 3`, "fails": `n > 5`, "missing": `missing = 'x'`, "other type": `type = 'b' AND missing = 'x'`, "recovers": `EXISTS missing OR n = 5`,
	} {
		x.Add(mustText(t, text), name)
	}
	var m filter.Machine
	var s filter.Search[string]
	x.Begin(&s, newRecord(t, required(`,"n":5`)).Event(), false)
	if !s.Run(&m, time.Now().Add(time.Hour)) {
		t.Fatal("it does not come to an end")
	}
	passed, failed := s.Found(nil, nil)
	slices.Sort(passed)
	if strings.Join(passed, ", ") != "passes, recovers" || strings.Join(failed, ", ") != "missing" {
		t.Errorf("passed %v, failed %v", passed, failed)
	}
}

// TestSearchInParts: a search that has no time left evaluates a few filters at a
// time, and finds what it would have found at once, whatever comes and goes
// meanwhile. What came is not found, and neither is what went.
func TestSearchInParts(t *testing.T) {
	x := filter.NewIndex[int]()
	add := func(n int) *filter.Filter {
		f := mustText(t, fmt.Sprintf(`n > %d`, n))
		x.Add(f, n)
		return f
	}
	filters := make([]*filter.Filter, 100)
	for n := range filters {
		filters[n] = add(n)
	}
	var m filter.Machine
	var s filter.Search[int]
	x.Begin(&s, newRecord(t, required(`,"n":50`)).Event(), false)
	parts, now := 1, time.Now()
	for ; !s.Run(&m, now); parts++ {
		x.Remove(filters[parts], parts)
		add(-parts)
	}
	if parts < 10 || parts > 30 {
		t.Errorf("it was done in %d parts", parts)
	}
	passed, _ := s.Found(nil, nil)
	slices.Sort(passed)
	want := []int{0}
	for n := parts; n < 50; n++ {
		want = append(want, n)
	}
	if !slices.Equal(passed, want) {
		t.Errorf("found %v, want %v", passed, want)
	}
}

// TestCrowd: filters that have a term of their own are in no crowd, those without one
// are together, and an equal one comes to no other.
func TestCrowd(t *testing.T) {
	x := filter.NewIndex[int]()
	for n := range 10 {
		x.Add(mustText(t, fmt.Sprintf(`n > %d`, n)), n)
		x.Add(mustText(t, fmt.Sprintf(`type = 'busy' AND n > %d`, n)), n)
		x.Add(mustText(t, fmt.Sprintf(`type = 'busy' AND subject = 's%d'`, n)), n)
	}
	for text, want := range map[string]int{
		`n > 99`: 10, `n > 5`: 0, `type = 'busy' AND n > 99`: 10, `type = 'quiet' AND n > 1`: 0, `subject = 's1' AND n > 1`: 1,
		`type = 'busy' AND subject = 'other'`: 0, `type = 'quiet' OR type = 'busy'`: 10,
	} {
		if got := x.Crowd(mustText(t, text)); got != want {
			t.Errorf("%s: %d others, want %d", text, got, want)
		}
	}
}
