// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/filter"
)

// drawFilter draws a document over a small world, so that filters meet events.
func drawFilter(t *rapid.T, depth int) string {
	attribute := rapid.SampledFrom([]string{"type", "source", "subject", "topic", "ext"})
	value := rapid.SampledFrom([]string{"a", "ab", "abc", "b", "fleet.tasks"})
	kinds := 7
	if depth == 0 {
		kinds = 4
	}
	list := func() string {
		parts := make([]string, rapid.IntRange(1, 3).Draw(t, "parts"))
		for i := range parts {
			parts[i] = drawFilter(t, depth-1)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0, 1:
		return fmt.Sprintf(`{%q:{%q:%q}}`, rapid.SampledFrom([]string{"exact", "prefix", "suffix"}).Draw(t, "dialect"), attribute.Draw(t, "attribute"), value.Draw(t, "value"))
	case 2, 3:
		clauses := make([]string, rapid.IntRange(1, 3).Draw(t, "clauses"))
		for i := range clauses {
			a, v := attribute.Draw(t, "attribute"), value.Draw(t, "value")
			clauses[i] = fmt.Sprintf(rapid.SampledFrom([]string{"%[1]s = '%[2]s'", "'%[2]s' = %[1]s", "%[1]s LIKE '%[2]s%%'", "%[1]s LIKE '%[2]s'",
				"%[1]s LIKE '_%[2]s%%'", "%[1]s IN ('%[2]s', 'b')", "%[1]s != '%[2]s'", "EXISTS %[1]s", "(%[1]s = '%[2]s' OR type = 'a')", "data.x = '%[2]s'"}).Draw(t, "form"), a, v)
		}
		return fmt.Sprintf(`{"sql":%q}`, strings.Join(clauses, rapid.SampledFrom([]string{" AND ", " OR ", " XOR "}).Draw(t, "join")))
	case 4:
		return `{"all":` + list() + `}`
	case 5:
		return `{"any":` + list() + `}`
	}
	return `{"not":` + drawFilter(t, depth-1) + `}`
}

func drawRecord(t *rapid.T) *filter.Record {
	value := rapid.SampledFrom([]string{"a", "ab", "abc", "abcd", "b", "ca"})
	object := fmt.Sprintf(`{"specversion":"1.0","id":"1","source":%q,"type":%q`, value.Draw(t, "source"), value.Draw(t, "type"))
	for _, name := range []string{"subject", "ext"} {
		if rapid.Bool().Draw(t, "has "+name) {
			object += fmt.Sprintf(`,%q:%q`, name, value.Draw(t, name))
		}
	}
	if rapid.Bool().Draw(t, "has data") {
		object += `,"data":{"x":"ab"}`
	}
	e, err := event.DecodeJSON([]byte(object + "}"))
	if err != nil {
		t.Fatal(err)
	}
	members, _, _ := e.AppendMembers(nil)
	r := &filter.Record{}
	r.Fill(filter.Delivered{Topic: rapid.SampledFrom([]string{"a", "b", "fleet.tasks"}).Draw(t, "topic"), Position: 1}, members)
	return r
}

// TestIndexFindsWhatEachFilterFinds, whatever was added and removed before.
func TestIndexFindsWhatEachFilterFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := filter.NewIndex[int]()
		var filters []*filter.Filter
		for range rapid.IntRange(1, 40).Draw(t, "filters") {
			document := "[" + drawFilter(t, 2) + "]"
			f, err := filter.ParseDocument([]byte(document))
			if err != nil {
				t.Fatalf("%s: %v", document, err)
			}
			x.Add(f, len(filters))
			filters = append(filters, f)
		}
		for range rapid.IntRange(0, 20).Draw(t, "removals") {
			i := rapid.IntRange(0, len(filters)-1).Draw(t, "removed")
			if had := filters[i] != nil; had && !x.Remove(filters[i], i) || had && x.Remove(filters[i], i) {
				t.Fatalf("filter %d was not there once", i)
			}
			filters[i] = nil
		}
		r := drawRecord(t)
		tombstone := rapid.Bool().Draw(t, "tombstone")
		var m filter.Machine
		var want []int
		left := map[string]bool{}
		for i, f := range filters {
			if f == nil {
				continue
			}
			left[f.Canonical()] = true
			if m.Selects(f, r.Event(), tombstone) {
				want = append(want, i)
			}
		}
		got := x.Match(&m, r.Event(), tombstone, nil)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("found %v, want %v", got, want)
		}
		if x.Filters() != len(left) {
			t.Fatalf("%d different filters, want %d", x.Filters(), len(left))
		}
	})
}

// fleet makes n different filters of which the first hot pass the event that is
// returned with them: as many types, and under one type as many conditions on data.
func fleet(t testing.TB, n, hot int) (*filter.Index[int], *filter.Record) {
	x := filter.NewIndex[int]()
	for i := range n {
		if i < hot {
			x.Add(mustText(t, fmt.Sprintf(`type = 'task.done' AND source LIKE 'spiffe://domain/fleet/%%' AND seq > %d`, i)), i)
		} else {
			x.Add(mustText(t, fmt.Sprintf(`type = 'task.%d' AND source LIKE 'spiffe://domain/fleet/%d/%%' AND seq > %d`, i/10, i%10, i)), i)
		}
	}
	return x, newRecord(t, `{"specversion":"1.0","id":"1","source":"spiffe://domain/fleet/7","type":"task.done","seq":1000000,"data":{"x":1}}`)
}

// TestMatchingDependsOnMatchesOnly counts no time: among ten thousand filters no
// more are evaluated than among a hundred.
func TestMatchingDependsOnMatchesOnly(t *testing.T) {
	for _, n := range []int{100, 10_000} {
		x, r := fleet(t, n, 100)
		if x.Len() != n || x.Filters() != n {
			t.Fatalf("%d members, %d filters", x.Len(), x.Filters())
		}
		var m filter.Machine
		dst := make([]int, 0, n)
		if got := len(x.Match(&m, r.Event(), false, dst)); got != 100 {
			t.Errorf("of %d filters %d match", n, got)
		}
		if tried := x.Tried(); tried != 100 {
			t.Errorf("of %d filters %d were evaluated", n, tried)
		}
		if allocs := testing.AllocsPerRun(10, func() { x.Match(&m, r.Event(), false, dst) }); allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	}
}

// TestIdenticalFiltersAreEvaluatedOnce, however they are spelled.
func TestIdenticalFiltersAreEvaluatedOnce(t *testing.T) {
	x := filter.NewIndex[int]()
	for i := range 1000 {
		x.Add(mustText(t, []string{`type = 'a.b' AND n > 1`, `TYPE="a.b" and (n > 1)`}[i%2]), i)
	}
	x.Add(mustText(t, `n > 1`), 1000)
	var m filter.Machine
	r := newRecord(t, required(`,"n":2`))
	if got := len(x.Match(&m, r.Event(), false, nil)); got != 1001 || x.Tried() != 2 || x.Filters() != 2 {
		t.Errorf("%d members found by %d evaluations of %d filters", got, x.Tried(), x.Filters())
	}
}

// BenchmarkIndex is the curve of one event against ever more filters, of which
// 100 match.
func BenchmarkIndex(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, r := fleet(b, n, 100)
			var m filter.Machine
			dst := make([]int, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				if len(x.Match(&m, r.Event(), false, dst)) != 100 {
					b.Fatal("not a hundred match")
				}
			}
		})
	}
}
