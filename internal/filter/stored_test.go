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

// TestStoredTermsFindWhatIsSelected: whatever a subscription selects is found
// under one of its terms, and no term has the byte that ends one.
func TestStoredTermsFindWhatIsSelected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "fleet", "fleet.tasks", "/fleet/drones/17", strings.Repeat("/long", 20), strings.Repeat("/long", 20) + "x"})
		s := filter.Selection{}
		switch rapid.IntRange(0, 4).Draw(t, "filter") {
		case 1:
			s.Filter = must(filter.ParseText(fmt.Sprintf("type = '%s' AND EXISTS severity", text.Draw(t, "type"))))
		case 2:
			s.Filter = must(filter.ParseText(fmt.Sprintf("source LIKE '%s%%' OR subject IN ('a', '%s')", text.Draw(t, "source"), text.Draw(t, "subject"))))
		case 3:
			s.Filter = must(filter.ParseDocument(fmt.Appendf(nil, `[{"prefix":{"source":"/%s"}},{"not":{"exact":{"type":"x%s"}}}]`, text.Draw(t, "begin"), text.Draw(t, "not"))))
		case 4:
			s.Filter = must(filter.ParseText("data.x = 1 OR type = 'a'"))
		}
		if rapid.Bool().Draw(t, "with source") {
			s.Source = "/" + text.Draw(t, "exact source")
		}
		if rapid.Bool().Draw(t, "with types") {
			s.Types = []string{"a", "t" + text.Draw(t, "a type")}
		}
		for _, p := range rapid.SliceOfN(rapid.SampledFrom([]string{">", "fleet.>", "fleet.tasks", "*.tasks", "a"}), 1, 3).Draw(t, "topics") {
			s.Patterns = append(s.Patterns, must(event.ParsePattern(p)))
		}
		topic := rapid.SampledFrom([]string{"fleet.tasks", "fleet.x", "a", "b.tasks"}).Draw(t, "topic")
		source, typ, subject := "/"+text.Draw(t, "its source"), "t"+text.Draw(t, "its type"), text.Draw(t, "its subject")
		if rapid.Bool().Draw(t, "plain type") {
			typ = "a"
		}
		var r filter.Record
		members := fmt.Appendf(nil, `"specversion":"1.0","id":"1","source":%q,"type":%q`, source, typ)
		if subject != "" {
			members = fmt.Appendf(members, `,"subject":%q`, subject)
		}
		r.Fill(filter.Delivered{Topic: topic, Position: 1, HLC: 1}, append(members, '}'))
		terms := map[string]bool{}
		for _, term := range s.Terms() {
			if strings.Contains(string(term), "\x00") {
				t.Fatalf("the term %q has a zero byte", term)
			}
			terms[string(term)] = true
		}
		found := false
		filter.Lookups(&r, func(term []byte) { found = found || terms[string(term)] })
		if selects(&s, &r, topic, source, typ) && !found {
			t.Fatalf("%+v is selected by %v and not found under %q", r.Event(), s, s.Terms())
		}
	})
}

// TestStoredTermsOfAnyLength: what is cut from a text for a term and for looking up
// is the same where the text ends there, too.
func TestStoredTermsOfAnyLength(t *testing.T) {
	for n := 1; n <= 150; n++ {
		text := strings.Repeat("x", n)
		for _, dialect := range []string{"exact", "prefix"} {
			s := filter.Selection{Filter: mustDocument(t, fmt.Sprintf(`[{%q:{"type":%q}}]`, dialect, text)), Patterns: mustPatterns(t, ">")}
			for _, typ := range []string{text, text + "y"} {
				var r filter.Record
				r.Fill(filter.Delivered{Topic: "a"}, fmt.Appendf(nil, `"specversion":"1.0","id":"1","source":"/s","type":%q}`, typ))
				found := false
				filter.Lookups(&r, func(term []byte) { found = found || string(term) == string(s.Terms()[0]) })
				if want := typ == text || dialect == "prefix"; found != want {
					t.Errorf("%s of %d bytes, an event of %d: found %t", dialect, n, len(typ), found)
				}
			}
		}
	}
}

// TestStoredTermsFindWhatFiltersSelect is the same for filters of all kinds.
func TestStoredTermsFindWhatFiltersSelect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, tombstone := drawRecord(t), rapid.Bool().Draw(t, "tombstone")
		looked := map[string]bool{}
		filter.Lookups(r, func(term []byte) { looked[string(term)] = true })
		for range 30 {
			s := drawSelection(t)
			found := slices.ContainsFunc(s.Terms(), func(term []byte) bool { return looked[string(term)] })
			var m filter.Machine
			f := filter.Narrow(s.Filter, s.Source, s.Types)
			if !found && m.Match(filter.On(s.Patterns, nil), r.Event()) && m.Selects(f, r.Event(), tombstone) {
				t.Fatalf("%s selects an event that is not found under %q", f.Canonical(), s.Terms())
			}
		}
	})
}

func drawSelection(t *rapid.T) (s filter.Selection) {
	s.Filter = must(filter.ParseDocument([]byte("[" + drawFilter(t, rapid.IntRange(0, 2).Draw(t, "depth")) + "]")))
	switch rapid.IntRange(0, 5).Draw(t, "narrowed") {
	case 0:
		s.Source = drawValue.Draw(t, "exact source")
	case 1:
		s.Types = []string{"a", drawValue.Draw(t, "a type")}
	}
	s.Patterns = mustPatterns(t, rapid.SampledFrom([]string{">", ">", "fleet.>", "fleet.tasks,b", "*"}).Draw(t, "topics"))
	return s
}

func selects(s *filter.Selection, r *filter.Record, topic, source, typ string) bool {
	ok := s.Source == "" || s.Source == source
	ok = ok && (len(s.Types) == 0 || s.Types[0] == typ || s.Types[1] == typ)
	matches := false
	for _, p := range s.Patterns {
		matches = matches || p.Match(topic)
	}
	var m filter.Machine
	// The event has no data, as a tombstone.
	return ok && matches && (s.Filter == nil || m.Selects(s.Filter, r.Event(), true))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
