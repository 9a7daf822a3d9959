// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Kind is the type of a metric, as Prometheus names it.
type Kind string

// The kinds.
const (
	KindCounter   Kind = "counter"
	KindGauge     Kind = "gauge"
	KindHistogram Kind = "histogram"
	KindSummary   Kind = "summary"
)

// Definition is one metric. The list is append-only: a name never changes its
// meaning, and boards and alerts may rely on it.
type Definition struct {
	Name    string
	Kind    Kind
	Labels  []string
	Unit    string
	Meaning string // what it says, one sentence
	Night   string // what is wrong when it looks wrong, and what to do
	Buckets []float64

	sampled bool // looked up at the scrape
}

// Area is a part of the catalogue under a heading of its own.
type Area struct {
	Title   string
	Metrics []Definition
}

// Catalogue returns every metric, in the order of the documentation.
func Catalogue() []Definition {
	var out []Definition
	for _, area := range Areas() {
		out = append(out, area.Metrics...)
	}
	return out
}

// find panics on a name that is not in the catalogue.
func find(name string) *Definition {
	for _, area := range areas {
		for i := range area.Metrics {
			if area.Metrics[i].Name == name {
				return &area.Metrics[i]
			}
		}
	}
	panic("metrics: " + name + " is not in the catalogue")
}

// labels pairs values with the names of the labels. It panics if there are not
// as many.
func (d *Definition) labels(values []string) prometheus.Labels {
	if len(values) != len(d.Labels) {
		panic("metrics: " + d.Name + " has other labels than [" + strings.Join(values, " ") + "]")
	}
	out := prometheus.Labels{}
	for i, name := range d.Labels {
		out[name] = values[i]
	}
	return out
}

// heapClasses are what is exported of Go's own accounting of memory, beside
// what the collector has anyway.
var heapClasses = collectors.GoRuntimeMetricsRule{
	Matcher: regexp.MustCompile(`^/memory/classes/(heap/objects|total):bytes$`),
}

// buildInfo tells which build this is.
func buildInfo(s Sample) {
	version, commit, goVersion := "devel", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		if v := info.Main.Version; v != "" && v != "(devel)" {
			version = v
		}
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				commit = setting.Value[:min(12, len(setting.Value))]
			}
		}
	}
	s.Set("signalbox_build_info", 1, version, commit, goVersion)
}

// Buckets of the histograms. Latencies are from what memory takes to what a
// disk takes that is about to fail.
var (
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	sizes     = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384}
	drifts    = []float64{0, .01, .05, .1, .25, .5, 1, 5, 60, 3600, 86400}
)
