// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"signalbox/event"
	"signalbox/internal/metrics"
)

func text(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	b, err := m.AppendText(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEveryMetricSaysWhatToDo keeps the catalogue useful at night.
func TestEveryMetricSaysWhatToDo(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range metrics.Catalogue() {
		if seen[d.Name] {
			t.Errorf("%s is there twice", d.Name)
		}
		seen[d.Name] = true
		if d.Unit == "" || !strings.HasSuffix(d.Meaning, ".") || !strings.HasSuffix(d.Night, ".") {
			t.Errorf("%s has no unit, or no sentence for what it says and what to do: %+v", d.Name, d)
		}
		if (d.Kind == metrics.KindCounter) != strings.HasSuffix(d.Name, "_total") {
			t.Errorf("%s is a %s", d.Name, d.Kind)
		}
		if strings.Contains(d.Meaning+d.Night, "|") {
			t.Errorf("%s would break the table of metrics.md", d.Name)
		}
	}
}

// TestNamesFollowPrometheus asks Prometheus's own linter.
func TestNamesFollowPrometheus(t *testing.T) {
	problems, err := promlint.New(bytes.NewReader([]byte(text(t, metrics.New())))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "signalbox_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestEverySeriesIsThereFromTheStart: an increase from nothing is none for
// Prometheus, so the first refusal of a code would go unseen.
func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	fresh := text(t, metrics.New())
	for _, code := range event.Codes() {
		if want := `signalbox_http_refused_total{code="` + string(code) + `"} 0`; !strings.Contains(fresh, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	used := metrics.New()
	for _, code := range append(event.Codes(), "made_up") {
		used.HTTP.Refused(code)
		used.Publish.Refused(code, 1)
		used.Reading.Door(metrics.Poll).Reset(code)
	}
	series := func(s string) (n int) {
		for line := range strings.Lines(s) {
			if strings.HasPrefix(line, "signalbox_") {
				n++
			}
		}
		return n
	}
	if before, after := series(fresh), series(text(t, used)); before != after {
		t.Errorf("%d series at the start and %d later", before, after)
	}
	if after := text(t, used); !strings.Contains(after, `signalbox_publish_refused_total{code="internal"} 2`+"\n") {
		t.Error("a code that is not in the list is not counted as internal")
	}
}

// TestCountingAllocatesNothing guards the publish path.
func TestCountingAllocatesNothing(t *testing.T) {
	m := metrics.New()
	if n := testing.AllocsPerRun(100, func() {
		m.Publish.Accepted.Add(3)
		m.Publish.Ack.Observe(.003)
		m.Apply.Proposals.Observe(3)
		m.Reading.Door(metrics.SSE).Bytes.Add(512)
		m.Publish.Refused(event.CodeHLCDrift, 1)
	}); n != 0 {
		t.Errorf("counting allocates %v times", n)
	}
}

// BenchmarkCounting is what one commit of 64 requests costs in counting.
func BenchmarkCounting(b *testing.B) {
	m := metrics.New()
	b.ReportAllocs()
	for b.Loop() {
		for range 64 {
			m.Publish.Ack.Observe(.003)
		}
		m.Publish.Accepted.Add(64)
		m.Publish.Bytes.Add(64 * 512)
		m.Apply.Proposals.Observe(64)
		m.Apply.Events.Observe(64)
		m.Apply.Apply.Observe(.001)
		m.Apply.Commit.Observe(.002)
		m.Apply.Ahead.Observe(.001)
	}
}

// TestNamesThatAreNotDocumentedPanic keeps whoever samples to the catalogue.
func TestNamesThatAreNotDocumentedPanic(t *testing.T) {
	m := metrics.New()
	m.Source(func(s metrics.Sample) {
		defer func() {
			if recover() == nil {
				t.Error("a metric that is not in the catalogue was taken")
			}
		}()
		s.Set("signalbox_other", 1)
	})
	text(t, m)
}
