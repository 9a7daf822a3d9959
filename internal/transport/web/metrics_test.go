// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/metrics"
)

// scrape reads /metrics as Prometheus would.
func (d *door) scrape() map[string]*dto.MetricFamily {
	d.t.Helper()
	a := d.get("/metrics").want(d.t, 200)
	eq(d.t, "Content-Type", a.header.Get("Content-Type"), metrics.ContentType)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(a.body))
	if err != nil {
		d.t.Fatal(err)
	}
	return families
}

// value is that of one series, given as pairs of label and value; a histogram's
// is its count.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		var has []string
		for _, l := range m.Label {
			has = append(has, l.GetName(), l.GetValue())
		}
		if slices.Equal(has, labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no series %s%v", name, labels)
	return 0
}

func (d *door) reads(what string, want float64, name string, labels ...string) {
	d.t.Helper()
	eventually(d.t, what, func() bool { return value(d.t, d.scrape(), name, labels...) == want })
}

// TestMetricsAreThoseDocumented holds a real scrape against the catalogue, both
// ways: names, types and labels.
func TestMetricsAreThoseDocumented(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	families := d.scrape()
	for _, def := range metrics.Catalogue() {
		family := families[def.Name]
		delete(families, def.Name)
		switch {
		case family == nil && strings.HasPrefix(def.Name, "process_"): // on other systems than Linux
		case family == nil:
			t.Errorf("%s is documented and not there", def.Name)
		case strings.ToLower(family.GetType().String()) != string(def.Kind):
			t.Errorf("%s is a %s and documented as %s", def.Name, family.GetType(), def.Kind)
		default:
			checkLabels(t, family, &def)
		}
	}
	for name := range families {
		t.Errorf("%s is not in the catalogue", name)
	}
}

func checkLabels(t *testing.T, family *dto.MetricFamily, def *metrics.Definition) {
	t.Helper()
	want := slices.Clone(def.Labels)
	slices.Sort(want)
	if def.Kind == metrics.KindSummary {
		want = nil // the parser takes quantiles out
	}
	for _, m := range family.Metric {
		var labels []string
		for _, l := range m.Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		if !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %v and is documented with %v", def.Name, labels, want)
		}
	}
}

func TestPublishesAreCountedByWhatBecameOfThem(t *testing.T) {
	d := openDoor(t)
	d.put("c", `{"cleanup_policy":"compact"}`).want(t, 201)
	began := time.Now()
	now := began.UnixMilli()
	hlc := func(ahead int64) string { return fmt.Sprintf(`"hlc":"%d.00000"`, now+ahead) }
	d.structured("c", ev("1", "k", hlc(0), someData)).want(t, 200)
	d.structured("c", ev("1", "k", hlc(0), someData)).want(t, 200)                        // duplicate
	d.structured("c", ev("2", "k", hlc(-5000), someData)).want(t, 200)                    // superseded
	d.structured("c", ev("3", "k", hlc(60_000), someData)).want(t, 409)                   // hlc_drift
	d.structured("c", ev("4", "k", someData), "If-None-Match: *").want(t, 412)            // conflict
	d.structured("c", ev("5", "", someData)).want(t, 400)                                 // key_required, decided in order
	d.structured("c", `{"specversion":`).want(t, 400)                                     // json_invalid, at the door
	d.batch("c", "["+ev("6", "k", hlc(60_000), someData)+"]").want(t, 409)                // its cause
	d.do(request{method: "POST", path: "/v1/topics/c/events?ack=none", body: ev("7", ""), // whose caller is not told
		header: []string{"Content-Type: application/cloudevents+json"}}).want(t, 202)
	d.reads("both refusals without a key", 2, "signalbox_publish_refused_total", "code", "key_required")
	f := d.scrape()
	for outcome, want := range map[string]float64{"accepted": 1, "duplicate": 1, "superseded": 1, "conflict": 1} {
		eq(t, outcome, value(t, f, "signalbox_publish_events_total", "outcome", outcome), want)
	}
	for code, want := range map[event.Code]float64{event.CodeHLCDrift: 2, event.CodeJSONInvalid: 1, event.CodeBatchAborted: 0} {
		eq(t, string(code), value(t, f, "signalbox_publish_refused_total", "code", string(code)), want)
	}
	eq(t, "answers", value(t, f, "signalbox_publish_ack_seconds"), 7)
	eq(t, "head", value(t, f, "signalbox_log_head_position"), 2)
	eq(t, "HTTP refusals", value(t, f, "signalbox_http_refused_total", "code", "hlc_drift"), 1)
	eq(t, "retained events", value(t, f, "signalbox_retained_events"), 1)
	eq(t, "topics", value(t, f, "signalbox_topics"), 1)
	late := 2 * time.Since(began).Seconds()
	if ahead := f["signalbox_hlc_ahead_seconds"].Metric[0].Histogram.GetSampleSum(); ahead < 119-late || ahead > 121 {
		t.Errorf("the measured drift adds up to %v s, want that of two events a minute ahead", ahead)
	}
}

// TestEphemeralTopicsAreCounted beside the log, which knows nothing of them.
func TestEphemeralTopicsAreCounted(t *testing.T) {
	d := openDoor(t)
	d.put("e", ephemeral).want(t, 201)
	hlc := func(ago int64) string { return fmt.Sprintf(`"hlc":"%d.00000"`, time.Now().UnixMilli()-ago) }
	d.structured("e", ev("1", "a", hlc(0), someData)).want(t, 200)
	d.structured("e", ev("2", "a", hlc(5000), someData)).want(t, 200) // superseded
	d.structured("e", ev("3", "b", `"expiry":1`, someData)).want(t, 200)
	d.structured("e", ev("4", "", someData)).want(t, 200) // without a key: no value
	f := d.scrape()
	eq(t, "accepted", value(t, f, "signalbox_ephemeral_events_total", "outcome", "accepted"), 3)
	eq(t, "superseded", value(t, f, "signalbox_ephemeral_events_total", "outcome", "superseded"), 1)
	eq(t, "topics", value(t, f, "signalbox_ephemeral_topics"), 1)
	if bytes := value(t, f, "signalbox_ephemeral_bytes"); bytes < 512 {
		t.Errorf("%v bytes are held", bytes)
	}
	eq(t, "accepted in the log", value(t, f, "signalbox_publish_events_total", "outcome", "accepted"), 0)
	d.reads("what expired", 1, "signalbox_ephemeral_expired_total")
	d.reads("the values that are left", 1, "signalbox_ephemeral_values")
	s := d.follow("/v1/topics/e/events?agent=/a")
	s.untilSync()
	d.reads("the agent that is there", 2, "signalbox_ephemeral_values")
	d.do(request{method: "DELETE", path: "/v1/topics/e"}).want(t, 204)
	d.reads("the agent alone", 1, "signalbox_ephemeral_values")
}

func TestReadersAreCountedByDoorAndState(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	s := d.follow("/v1/topics/a/events")
	s.untilSync()
	d.reads("the live stream", 1, "signalbox_readers", "door", "sse", "state", "live")
	d.reads("its events", 3, "signalbox_reader_events_total", "door", "sse")
	d.get("/v1/topics/a/events").want(t, 200)
	d.reads("those of a poll", 3, "signalbox_reader_events_total", "door", "poll")
	d.get("/v1/topics/a/events?cursor=@99").want(t, 410)
	d.reads("a cursor of another log", 1, "signalbox_reader_resets_total", "code", "cursor_foreign", "door", "poll")
	lost := d.follow("/v1/topics/a/events?cursor=@99")
	lost.dispatched()
	d.reads("the same on a stream", 1, "signalbox_reader_resets_total", "code", "cursor_foreign", "door", "sse")
	s.close()
	lost.close()
	d.reads("no stream any more", 0, "signalbox_readers", "door", "sse", "state", "live")
	d.reads("none that catches up either", 0, "signalbox_readers", "door", "sse", "state", "catching_up")
}

// TestLatenciesAreInSeconds: what others observe in nanoseconds must not be shown
// as it is.
func TestLatenciesAreInSeconds(t *testing.T) {
	began := time.Now()
	d := openDoor(t)
	d.fill("a", 3)
	families := d.scrape()
	for _, def := range metrics.Catalogue() {
		if def.Kind != metrics.KindHistogram || def.Unit != "seconds" {
			continue
		}
		h := families[def.Name].Metric[0].Histogram
		if h.GetSampleSum() > time.Since(began).Seconds()*float64(1+h.GetSampleCount()) {
			t.Errorf("%s adds up to %v s in a run of %v", def.Name, h.GetSampleSum(), time.Since(began))
		}
		if last := h.Bucket[len(h.Bucket)-2].GetUpperBound(); last < 1 || last > 1e6 {
			t.Errorf("the last bucket of %s but one ends at %v s", def.Name, last)
		}
	}
	if value(t, families, "signalbox_store_sync_seconds") == 0 {
		t.Error("no sync was observed")
	}
}

// TestReadersThatAreBehindAreNamed, where labels may not.
func TestReadersThatAreBehindAreNamed(t *testing.T) {
	d := openDoor(t)
	d.bulk("a", "e", 2000)
	reader, err := d.broker.Read(broker.ReadRequest{Patterns: []event.Pattern{mustPattern(t, "a")}})
	if err != nil {
		t.Fatal(err)
	}
	list := d.get("/v1/readers").want(t, 200)
	want := fmt.Sprintf(`{"behind":[{"topics":"a","lag":2000,"cursor":"@0.%s"}],"open":1}`, d.broker.Head().Incarnation)
	eq(t, "the readers", strings.TrimSpace(string(list.body)), want)
	eq(t, "the lag", value(t, d.scrape(), "signalbox_reader_lag_events"), 2000)
	reader.Close()
	eq(t, "the readers", strings.TrimSpace(string(d.get("/v1/readers").body)), `{"behind":[],"open":0}`)
}

func mustPattern(t *testing.T, text string) event.Pattern {
	t.Helper()
	patterns, err := event.ParsePatterns(text)
	if err != nil || len(patterns) != 1 {
		t.Fatalf("%q: %v", text, err)
	}
	return patterns[0]
}

// TestLabelsNameNoTopics: topics are made by agents, without end.
func TestLabelsNameNoTopics(t *testing.T) {
	d := openDoor(t)
	d.fill("secret-topic", 2)
	d.get("/v1/topics/secret-topic/state").want(t, 409)
	d.get("/v1/topics/secret-topic/events?cursor=@99").want(t, 410)
	if a := d.get("/metrics"); strings.Contains(string(a.body), "secret-topic") {
		t.Error("the metrics have the name of a topic")
	}
}
