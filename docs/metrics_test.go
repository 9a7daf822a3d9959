// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"signalbox/internal/metrics"
)

// TestMetricsPageIsTheCatalogue keeps the page in agreement with the catalogue
// that the metrics are made from.
func TestMetricsPageIsTheCatalogue(t *testing.T) {
	want := renderMetrics()
	if *update {
		if err := os.WriteFile("metrics.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile("metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("metrics.md differs from the catalogue in internal/metrics; run: go test ./docs -update")
	}
}

// TestBoardAndAlertsAskForMetricsThereAre: interop/prometheus has them parsed and
// evaluated by Prometheus; this is what every change sees.
func TestBoardAndAlertsAskForMetricsThereAre(t *testing.T) {
	known := map[string]bool{}
	for _, d := range metrics.Catalogue() {
		known[d.Name] = true
		if d.Kind == metrics.KindHistogram {
			known[d.Name+"_bucket"], known[d.Name+"_sum"], known[d.Name+"_count"] = true, true, true
		}
	}
	asked := regexp.MustCompile(`\b(?:signalbox|process|go)_[a-z0-9_]+`)
	for _, file := range []string{"../deploy/grafana/signalbox.json", "../deploy/prometheus/alerts.yaml", "../deploy/prometheus/alerts_test.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := asked.FindAllString(string(text), -1)
		if len(names) < 20 {
			t.Errorf("%s asks for %d metrics only; does the test still find them?", file, len(names))
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s asks for %s, which is no metric", file, name)
			}
		}
	}
}

func renderMetrics() string {
	var b strings.Builder
	b.WriteString(`# Metrics

` + "`GET /metrics`" + ` answers with what follows, in the text format of Prometheus. The list is append-only: a name keeps
its meaning and its labels, so that boards and alerts can rely on it. [operations.md](operations.md) says how to scrape,
and has the board and the alerts.

- Labels have closed lists of values. No label has the name of a topic, a key or a caller: one agent that makes a topic
  for each task would make a series for each. ` + "`signalbox top`" + ` and ` + "`GET /v1/readers`" + ` name the topics whose readers are behind.
- Every series is there from the start, at zero, so that the first refusal of a kind is an increase.
- Counters begin at zero when the process does. Gauges that are looked up at the scrape cost nothing between scrapes.
- A histogram has the usual ` + "`_bucket`, `_sum` and `_count`" + `.
- What is named ` + "`process_…` is there on Linux only" + `, as is the free space of the disk on a real file system.

This page is made from the catalogue in internal/metrics.
`)
	for _, area := range metrics.Areas() {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | unit | what it says | when it is wrong at night |\n|---|---|---|---|---|---|\n", area.Title)
		for _, d := range area.Metrics {
			labels := "–"
			if len(d.Labels) > 0 {
				labels = "`" + strings.Join(d.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| <a id=%q></a>`%s` | %s | %s | %s | %s | %s |\n", d.Name, d.Name, d.Kind, labels, d.Unit, d.Meaning, d.Night)
		}
	}
	return b.String()
}
