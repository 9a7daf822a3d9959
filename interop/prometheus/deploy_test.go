// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const (
	boardFile = "../../deploy/grafana/signalbox.json"
	rulesFile = "../../deploy/prometheus/alerts.yaml"
)

// query is one expression of the board or of an alert.
type query struct{ where, expr string }

// boardQueries returns the expressions of the board, with Grafana's variables
// filled in as Grafana does.
func boardQueries(t *testing.T, rateInterval string) (out []query) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	b, err := os.ReadFile(boardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", rateInterval, "$instance", ".*")
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			out = append(out, query{"panel " + p.Title, fill.Replace(target.Expr)})
		}
	}
	for _, a := range board.Annotations.List {
		out = append(out, query{"annotation " + a.Name, fill.Replace(a.Expr)})
	}
	return out
}

func alertQueries(t *testing.T) (out []query) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
				Labels      map[string]string
			}
		}
	}
	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			out = append(out, query{"alert " + r.Alert, r.Expr})
			if r.Annotations["summary"] == "" || r.Annotations["todo"] == "" || r.Labels["severity"] == "" {
				t.Errorf("alert %s does not say what is wrong, what to do or how bad it is", r.Alert)
			}
		}
	}
	return out
}

// scrape reads the broker's metrics.
func scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	res, err := http.Get(brokerURL(t) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func brokerURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("SIGNALBOX_URL")
	if url == "" {
		t.Fatal("SIGNALBOX_URL names no broker; run interop/run prometheus")
	}
	return url
}

// TestEveryQueryHasItsMetric: each selector of the board and of the alerts finds
// a series in a broker's scrape, so that none is silent for ever.
func TestEveryQueryHasItsMetric(t *testing.T) {
	families := scrape(t)
	for _, q := range slices.Concat(boardQueries(t, "1m"), alertQueries(t)) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %s: %v", q.where, q.expr, err)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok && s.Name != "up" && !found(families, s) {
				t.Errorf("%s: the broker has no series for %s", q.where, s)
			}
			return nil
		})
	}
}

var histogramPart = regexp.MustCompile(`_(bucket|sum|count)$`)

// found says whether a series matches all matchers on labels that are the
// broker's own.
func found(families map[string]*dto.MetricFamily, s *parser.VectorSelector) bool {
	family := families[s.Name]
	if family == nil {
		family = families[histogramPart.ReplaceAllString(s.Name, "")]
	}
	for _, m := range family.GetMetric() {
		if matches(m, s.LabelMatchers) {
			return true
		}
	}
	return false
}

func matches(m *dto.Metric, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		value := ""
		for _, l := range m.Label {
			if l.GetName() == matcher.Name {
				value = l.GetValue()
			}
		}
		if !slices.Contains([]string{"__name__", "job", "instance", "le"}, matcher.Name) && !matcher.Matches(value) {
			return false
		}
	}
	return true
}
