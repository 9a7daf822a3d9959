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

var (
	drawAttribute = rapid.SampledFrom([]string{"type", "source", "subject", "topic", "ext", "n", "flag", "missing"})
	drawValue     = rapid.SampledFrom([]string{"a", "ab", "abc", "b", "fleet.tasks", "5", "true"})
)

// conditions are what is asked of an attribute and a value: by what an index can
// look up, by its opposite, and by what only looks like it.
var conditions = []string{
	"%[1]s = '%[2]s'", "'%[2]s' = %[1]s", "%[1]s LIKE '%[2]s%%'", "%[1]s LIKE '%[2]s'", "%[1]s IN ('%[2]s', 'b')", "'%[2]s' IN (%[1]s)",
	"%[1]s != '%[2]s'", "%[1]s NOT LIKE '%[2]s%%'", "%[1]s NOT IN ('%[2]s', 'b')", "NOT %[1]s = '%[2]s'",
	"%[1]s LIKE '_%[2]s%%'", "%[1]s LIKE '_%%'", "%[1]s LIKE 'a_%%'", "%[1]s LIKE '%[2]s_'", "%[1]s LIKE '%%%[2]s'", "%[1]s LIKE '%[2]s\\_%%'", "UPPER(%[1]s) = 'A'", "LENGTH(%[1]s) < 2",
	"%[1]s = 5", "5 = %[1]s", "%[1]s = TRUE", "%[1]s IN ('%[2]s', 5)", "5 IN (%[1]s, '%[2]s')", "%[1]s = ext", "%[1]s = '%[2]s' = flag", "n / 0 = 1",
	"EXISTS %[1]s", "data.x = '%[2]s'", "%[1]s = data.x", "EXISTS data.x", "data.l[*] = '%[2]s'", "data.l[*] NOT IN ('%[2]s')", "%[1]s IN (data.x, '%[2]s')",
}

// drawExpression draws a row of conditions and of rows in parentheses.
func drawExpression(t *rapid.T, depth int) string {
	var b strings.Builder
	for i := range rapid.IntRange(1, 1+depth+depth/2).Draw(t, "clauses") {
		if i > 0 {
			b.WriteString(rapid.SampledFrom([]string{" AND ", " AND ", " OR ", " XOR "}).Draw(t, "join"))
		}
		if depth > 0 && rapid.IntRange(0, 3).Draw(t, "row") == 0 {
			b.WriteString(rapid.SampledFrom([]string{"", "", "NOT ", "TRUE = "}).Draw(t, "before") + "(" + drawExpression(t, depth-1) + ")")
			continue
		}
		fmt.Fprintf(&b, rapid.SampledFrom(conditions).Draw(t, "condition")+"%.0[1]s%.0[2]s", drawAttribute.Draw(t, "attribute"), drawValue.Draw(t, "value"))
	}
	return b.String()
}

// drawFilter draws a document over a small world, so that filters meet events.
func drawFilter(t *rapid.T, depth int) string {
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
		return fmt.Sprintf(`{%q:{%q:%q}}`, rapid.SampledFrom([]string{"exact", "prefix", "suffix"}).Draw(t, "dialect"), drawAttribute.Draw(t, "attribute"), drawValue.Draw(t, "value"))
	case 2, 3:
		return fmt.Sprintf(`{"sql":%q}`, drawExpression(t, depth))
	case 4:
		return `{"all":` + list() + `}`
	case 5:
		return `{"any":` + list() + `}`
	}
	return `{"not":` + drawFilter(t, depth-1) + `}`
}

func drawRecord(t *rapid.T) *filter.Record {
	value := rapid.SampledFrom([]string{"a", "ab", "abc", "abcd", "ab_", "b", "ca", "5", "true"})
	object := fmt.Sprintf(`{"specversion":"1.0","id":"1","source":%q,"type":%q`, value.Draw(t, "source"), value.Draw(t, "type"))
	for _, name := range []string{"subject", "ext"} {
		if rapid.Bool().Draw(t, "has "+name) {
			object += fmt.Sprintf(`,%q:%q`, name, value.Draw(t, name))
		}
	}
	object += rapid.SampledFrom([]string{"", `,"n":5`, `,"n":0,"flag":true`, `,"flag":false`}).Draw(t, "typed")
	object += rapid.SampledFrom([]string{"", `,"data":{"x":"ab"}`, `,"data":{"x":5,"l":["a","b"]}`, `,"data":{"l":[1,"ab"]}`, `,"datacontenttype":"text/plain","data":"a"`}).Draw(t, "data")
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
		for range rapid.IntRange(20, 100).Draw(t, "filters") {
			document := "[" + drawFilter(t, rapid.IntRange(0, 2).Draw(t, "depth")) + "]"
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

// TestTombstonesAreFoundForWantOfData: they pass filters that have looked for data
// before the attribute by which they would be found, and by both indexes are found.
func TestTombstonesAreFoundForWantOfData(t *testing.T) {
	r := newRecord(t, required(``))
	looked := map[string]bool{}
	filter.Lookups(r, func(term []byte) { looked[string(term)] = true })
	for _, document := range []string{
		`[{"sql":"data.x = 1 AND type = 'c'"}]`,
		`[{"sql":"data.x = 1 AND type = 'c' OR type = 'd'"}]`,
		`[{"any":[{"sql":"data.x = 1 AND type = 'c'"},{"exact":{"type":"d"}}]}]`,
		`[{"sql":"data.x = 1"},{"sql":"type = 'c' AND data.x = 1"}]`,
		`[{"not":{"sql":"data.x = 1 AND type = 'c'"}}]`,
	} {
		x, f := filter.NewIndex[int](), mustDocument(t, document)
		x.Add(f, 1)
		var m filter.Machine
		if found := x.Match(&m, r.Event(), true, nil); len(found) != 1 {
			t.Errorf("%s: it is not found", document)
		}
		terms := filter.Selection{Filter: f, Patterns: mustPatterns(t, ">")}.Terms()
		if !slices.ContainsFunc(terms, func(term []byte) bool { return looked[string(term)] }) {
			t.Errorf("%s: it is not found under %q", document, terms)
		}
	}
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
