// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what a broker counts about itself, and writes it down
// for Prometheus. The stages count into it, and whatever can be looked up is
// sampled at the scrape and costs nothing between scrapes. It imports event,
// for the list of codes, and nothing else of ours; the projector does not know
// of it, since nothing that is counted may decide anything.
//
// Every metric is a row of [Catalogue], from which docs/metrics.md is made: a
// metric that is not documented cannot be made here. Labels have closed lists
// of values (outcomes, codes, doors, states), never names of topics or callers,
// and every series is there from the start, at zero: the first refusal of a kind
// is an increase, and not a series that comes out of nowhere.
package metrics

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"signalbox/event"
)

// Add, Inc and Observe of these are atomic operations without allocation.
type (
	// Counter is what only grows.
	Counter = prometheus.Counter
	// Gauge is what goes up and down.
	Gauge = prometheus.Gauge
	// Histogram is how many observations there were of which size.
	Histogram = prometheus.Histogram
)

// Metrics is what one broker counts. All methods are safe for concurrent use.
type Metrics struct {
	Publish       Publish
	Ephemeral     Ephemeral
	Apply         Apply
	Reading       Reading
	Subscriptions Subscriptions
	Cleaner       Cleaner
	Store         Store
	HTTP          HTTP
	Audit         Audit
	Bus           Bus

	Webhooks Webhooks

	registry *prometheus.Registry
	sampled  map[string]*prometheus.Desc
	gather   sync.Mutex // one scrape at a time, whatever is asked for

	mu      sync.Mutex
	sources []func(Sample) // guarded by mu
}

// Publish counts what was published.
type Publish struct {
	Accepted, Superseded, Duplicate, Conflict Counter // events
	Bytes                                     Counter
	Ack                                       Histogram // s
	refused                                   codes
}

// Refused counts a publish that was refused. A failed precondition is an
// outcome and no refusal.
func (p *Publish) Refused(code event.Code, requests uint64) {
	if code == event.CodeConflict {
		p.Conflict.Add(float64(requests))
		return
	}
	p.refused.of(code).Add(float64(requests))
}

// Ephemeral counts what was published to ephemeral topics, and what of it has
// expired.
type Ephemeral struct {
	Accepted, Superseded, Expired Counter // events
}

// Apply observes the commits of the apply loop.
type Apply struct {
	Proposals, Events Histogram // of one commit
	Apply, Commit     Histogram // s
	Ahead             Histogram // s
}

// Reading counts what all readers share, and has the doors.
type Reading struct {
	StoreReads, StoreEvents Counter
	doors                   [doorCount]*Door
}

// Door is one of the ways in which events are read; they are fixed, so that
// finding the counters costs nothing.
type Door struct {
	Name              string
	Live, CatchingUp  Gauge // readers
	Deliveries, Bytes Counter
	Cut               Counter
	resets            codes
}

// DoorName names a door.
type DoorName int

// The doors. A new one goes to the end, and into doorNames.
const (
	SSE DoorName = iota
	Poll
	State
	Socket
	doorCount
)

var doorNames = [doorCount]string{"sse", "poll", "state", "websocket"}

// Door returns the counters of a door.
func (r *Reading) Door(name DoorName) *Door { return r.doors[name] }

// Reset counts a reader that was told that it has lost its place.
func (d *Door) Reset(code event.Code) {
	if c, ok := d.resets[code]; ok {
		c.Inc()
	}
}

// resetCodes are the codes with which a reader is told so.
var resetCodes = []event.Code{event.CodeCursorExpired, event.CodeCursorForeign, event.CodeCursorUnknown}

// Cleaner counts the work of retention and compaction.
type Cleaner struct {
	Passes, Seconds, Retired, Compacted, Reclaims Counter
}

// Store counts what the store's own figures leave out.
type Store struct {
	stalls, stallSeconds Counter
	stalled              atomic.Int64 // Unix ns; 0: writing is not stalled
}

// StallBegan notes that writing waits for flushes or compactions, and StallEnded
// that it goes on.
func (s *Store) StallBegan() {
	s.stalls.Inc()
	s.stalled.Store(time.Now().UnixNano())
}

// StallEnded ends what StallBegan began.
func (s *Store) StallEnded() {
	if began := s.stalled.Swap(0); began != 0 {
		s.stallSeconds.Add(max(0, time.Since(time.Unix(0, began)).Seconds()))
	}
}

// Audit counts what becomes of the audit trail.
type Audit struct {
	Checkpoints, Failures Counter
	Size                  Gauge // entries that the newest checkpoint is over
	File, URL, Store      AuditPlace

	FileEntries, URLEntries, StoreEntries AuditPlace
}

// AuditPlace is a place to which checkpoints, or entries, are brought.
type AuditPlace struct {
	Size     Gauge
	Failures Counter
}

// Bus counts what the broker itself says about tickets and agents.
type Bus struct {
	Failures Counter // to say it; each is tried again
	messages map[string]Counter
}

// Said counts a message by its reason_code.
func (b *Bus) Said(reason string) {
	if c := b.messages[reason]; c != nil {
		c.Inc()
	}
}

// HTTP counts at the HTTP door.
type HTTP struct {
	Dropped Counter // connections
	refused codes
}

// Refused counts a request that was answered with a problem document.
func (h *HTTP) Refused(code event.Code) { h.refused.of(code).Inc() }

// codes are counters by error code. Only what is refused looks one up.
type codes map[event.Code]Counter

// of counts a code that is not in the list as an internal error, as the doors do.
func (c codes) of(code event.Code) Counter {
	if counter, ok := c[code]; ok {
		return counter
	}
	return c[event.CodeInternal]
}

// New makes the metrics of one broker. It panics if a metric is not in the
// catalogue, which no test would survive.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), sampled: map[string]*prometheus.Desc{}}
	r := register{m.registry}
	m.Publish = Publish{
		Accepted:   r.counter("signalbox_publish_events_total", string(event.OutcomeAccepted)),
		Superseded: r.counter("signalbox_publish_events_total", string(event.OutcomeSuperseded)),
		Duplicate:  r.counter("signalbox_publish_events_total", string(event.OutcomeDuplicate)),
		Conflict:   r.counter("signalbox_publish_events_total", string(event.CodeConflict)),
		Bytes:      r.counter("signalbox_publish_bytes_total"),
		Ack:        r.histogram("signalbox_publish_ack_seconds"),
		refused:    r.codes("signalbox_publish_refused_total", refusable()),
	}
	m.Ephemeral = Ephemeral{
		Accepted:   r.counter("signalbox_ephemeral_events_total", string(event.OutcomeAccepted)),
		Superseded: r.counter("signalbox_ephemeral_events_total", string(event.OutcomeSuperseded)),
		Expired:    r.counter("signalbox_ephemeral_expired_total"),
	}
	m.Apply = Apply{
		Proposals: r.histogram("signalbox_commit_proposals"),
		Events:    r.histogram("signalbox_commit_events"),
		Apply:     r.histogram("signalbox_apply_seconds"),
		Commit:    r.histogram("signalbox_commit_seconds"),
		Ahead:     r.histogram("signalbox_hlc_ahead_seconds"),
	}
	m.Reading.StoreReads = r.counter("signalbox_reader_store_reads_total")
	m.Reading.StoreEvents = r.counter("signalbox_reader_store_events_total")
	for i, name := range doorNames {
		m.Reading.doors[i] = &Door{
			Name:       name,
			Live:       r.gauge("signalbox_readers", name, "live"),
			CatchingUp: r.gauge("signalbox_readers", name, "catching_up"),
			Deliveries: r.counter("signalbox_reader_events_total", name),
			Bytes:      r.counter("signalbox_reader_bytes_total", name),
			Cut:        r.counter("signalbox_reader_cuts_total", name),
			resets:     r.codes("signalbox_reader_resets_total", resetCodes, name),
		}
	}
	m.Subscriptions = newSubscriptions(r)
	m.Cleaner = Cleaner{
		Passes:    r.counter("signalbox_cleaner_passes_total"),
		Seconds:   r.counter("signalbox_cleaner_seconds_total"),
		Retired:   r.counter("signalbox_cleaner_retired_events_total"),
		Compacted: r.counter("signalbox_cleaner_compacted_events_total"),
		Reclaims:  r.counter("signalbox_cleaner_reclaims_total"),
	}
	m.Store.stalls = r.counter("signalbox_store_write_stalls_total")
	m.Store.stallSeconds = r.counter("signalbox_store_write_stall_seconds_total")
	m.HTTP = HTTP{
		Dropped: r.counter("signalbox_http_connections_dropped_total"),
		refused: r.codes("signalbox_http_refused_total", event.Codes()),
	}
	m.Bus = newBus(r)
	m.Audit = r.audit()
	m.Webhooks = newWebhooks(r)
	for _, d := range Catalogue() {
		if d.sampled {
			m.sampled[d.Name] = prometheus.NewDesc(d.Name, d.Meaning, d.Labels, nil)
		}
	}
	m.registry.MustRegister(sampler{m},
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled(), collectors.WithGoCollectorRuntimeMetrics(heapClasses)))
	m.Source(buildInfo)
	return m
}

// refusable are the codes of refused publishes: all but conflict, which is an
// outcome.
func refusable() []event.Code {
	var out []event.Code
	for _, code := range event.Codes() {
		if code != event.CodeConflict {
			out = append(out, code)
		}
	}
	return out
}

// Source adds a function that is called at each scrape and tells the values of
// sampled metrics. It must not block for long.
func (m *Metrics) Source(source func(Sample)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = append(m.sources, source)
}

// ContentType is that of what AppendText writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// AppendText appends all metrics to dst in the text format of Prometheus.
func (m *Metrics) AppendText(dst []byte) ([]byte, error) {
	m.gather.Lock()
	defer m.gather.Unlock()
	families, err := m.registry.Gather()
	if err != nil {
		return dst, fmt.Errorf("metrics: gathering: %w", err)
	}
	out := bytes.NewBuffer(dst)
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(out, family); err != nil {
			return dst, fmt.Errorf("metrics: writing %s: %w", family.GetName(), err)
		}
	}
	return out.Bytes(), nil
}

// sampler is what the registry sees of the sampled metrics.
type sampler struct{ m *Metrics }

func (s sampler) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.m.sampled {
		out <- d
	}
}

func (s sampler) Collect(out chan<- prometheus.Metric) {
	s.m.mu.Lock()
	sources := s.m.sources
	s.m.mu.Unlock()
	for _, source := range sources {
		source(Sample{m: s.m, out: out})
	}
}

// Sample takes the values of one scrape.
type Sample struct {
	m   *Metrics
	out chan<- prometheus.Metric
}

// Set gives the value of a sampled metric, which must be in the catalogue.
func (s Sample) Set(name string, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if find(name).Kind == KindCounter {
		kind = prometheus.CounterValue
	}
	s.out <- prometheus.MustNewConstMetric(s.m.sampled[name], kind, value, labels...)
}

// Copy gives a histogram that somebody else observes, in nanoseconds, as one of
// seconds. It makes one bucket of every so many.
func (s Sample) Copy(name string, h Histogram, every int) {
	var is dto.Metric
	if h == nil || h.Write(&is) != nil || is.Histogram == nil {
		return
	}
	buckets := map[float64]uint64{}
	for i, b := range is.Histogram.Bucket {
		if i%every == every-1 {
			buckets[b.GetUpperBound()/1e9] = b.GetCumulativeCount()
		}
	}
	s.out <- prometheus.MustNewConstHistogram(s.m.sampled[name], is.Histogram.GetSampleCount(), is.Histogram.GetSampleSum()/1e9, buckets)
}

// register makes and registers metrics of the catalogue. Its methods panic on a
// name or a number of labels that is not there.
type register struct{ registry *prometheus.Registry }

func (r register) counter(name string, labels ...string) Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: find(name).Meaning, ConstLabels: find(name).labels(labels)})
	r.registry.MustRegister(c)
	return c
}

func (r register) gauge(name string, labels ...string) Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: find(name).Meaning, ConstLabels: find(name).labels(labels)})
	r.registry.MustRegister(g)
	return g
}

func (r register) audit() Audit {
	return Audit{
		Checkpoints: r.counter("signalbox_audit_checkpoints_total"),
		Failures:    r.counter("signalbox_audit_failures_total"),
		Size:        r.gauge("signalbox_audit_checkpoint_entries"),
		File:        r.place("outside", "file"),
		URL:         r.place("outside", "url"),
		Store:       r.place("outside", "store"),

		FileEntries: r.place("external", "file"), URLEntries: r.place("external", "url"), StoreEntries: r.place("external", "store"),
	}
}

// place makes the metrics of what is brought to a place outside.
func (r register) place(what, place string) AuditPlace {
	return AuditPlace{r.gauge("signalbox_audit_"+what+"_entries", place), r.counter("signalbox_audit_"+what+"_failures_total", place)}
}

func (r register) histogram(name string) Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: find(name).Meaning, Buckets: find(name).Buckets})
	r.registry.MustRegister(h)
	return h
}

func (r register) codes(name string, list []event.Code, labels ...string) codes {
	out := codes{}
	for _, code := range list {
		out[code] = r.counter(name, append(labels[:len(labels):len(labels)], string(code))...)
	}
	return out
}
