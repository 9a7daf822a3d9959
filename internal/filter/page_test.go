// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/filter"
)

// TestPageOfFilters executes the examples of docs/filters.md on its event, and
// takes the documents that it shows.
func TestPageOfFilters(t *testing.T) {
	page, err := os.ReadFile("../../docs/filters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	object, _, _ := strings.Cut(rest, "```")
	e, err := event.DecodeJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	var r filter.Record
	r.FillFrom(e)
	results := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| (passes|fails|refused|[A-Z]\\w+Error) \\|").FindAllStringSubmatch(string(page), -1) {
		text, want := row[1], row[2]
		results[want]++
		var m filter.Machine
		got := "fails"
		f, err := filter.ParseText(text)
		switch {
		case err != nil:
			got = "refused"
		case m.Match(f, r.Event()):
			got = "passes"
		case m.Errors() != 0:
			got = m.Errors().String()
		}
		if got != want {
			t.Errorf("%s: %s, and the page says %s (%v)", text, got, want, err)
		}
	}
	if results["passes"] < 20 || results["fails"] < 5 || results["CastError"] < 3 || results["MissingAttributeError"] < 3 || results["refused"] < 1 {
		t.Errorf("the page has only %v", results)
	}
	for _, document := range regexp.MustCompile("`(\\{\"(?:exact|prefix|suffix|sql)\".*?\\})`").FindAllStringSubmatch(string(page), -1) {
		if f, err := filter.ParseDocument([]byte("[" + document[1] + "]")); err != nil {
			t.Errorf("%s: %v", document[1], err)
		} else if m := (filter.Machine{}); !m.Match(f, r.Event()) {
			t.Errorf("%s does not hold on the event of the page", document[1])
		}
	}
}
