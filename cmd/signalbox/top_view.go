// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"signalbox/client"
)

// topRows is how many refusals, topics and readers are shown at most.
const topRows = 8

// topView is what top shows: rates over the time between two looks, and what is at the second.
type topView struct {
	URL     string    `json:"url"`
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // between the two looks
	Up      float64   `json:"up_seconds"`
	Head    uint64    `json:"head,string"`

	Publish struct {
		Accepted   float64 `json:"accepted_per_second"`
		Superseded float64 `json:"superseded_per_second"`
		Duplicate  float64 `json:"duplicate_per_second"`
		Conflict   float64 `json:"conflict_per_second"`
		Bytes      float64 `json:"bytes_per_second"`
		Refused    float64 `json:"refused_per_second"`
		AckP50     float64 `json:"ack_p50_seconds"`
		AckP99     float64 `json:"ack_p99_seconds"`
		SyncP99    float64 `json:"sync_p99_seconds"`
		Queue      float64 `json:"queue"`
	} `json:"publish"`
	Readers struct {
		Live       float64               `json:"live"`
		CatchingUp float64               `json:"catching_up"`
		Events     float64               `json:"events_per_second"`
		Bytes      float64               `json:"bytes_per_second"`
		StoreReads float64               `json:"store_reads_per_second"`
		Cut        float64               `json:"cut_total"`
		Reset      float64               `json:"reset_total"`
		Lag        float64               `json:"lag"`
		Behind     []client.ReaderBehind `json:"behind"`
	} `json:"readers"`
	Disk struct {
		Free     float64 `json:"free_bytes"`
		MinFree  float64 `json:"min_free_bytes"`
		Refusing bool    `json:"refusing"`
		Database float64 `json:"database_bytes"`
		Debt     float64 `json:"compaction_debt_bytes"`
		Stalls   float64 `json:"write_stalls_total"`
	} `json:"disk"`
	Process struct {
		CPU         float64 `json:"processors"`
		Memory      float64 `json:"memory_bytes"`
		Connections float64 `json:"connections"`
		ClockSkew   float64 `json:"clock_skew_seconds"`
	} `json:"process"`
	Refusals []topRefusal `json:"refusals"` // by code, the most frequent first
	Topics   []topTopic   `json:"topics"`   // the busiest first; null if there are too many to list
}

type topRefusal struct {
	Code      string  `json:"code"`
	PerSecond float64 `json:"per_second"`
	Total     float64 `json:"total"`
}

type topTopic struct {
	Name      string  `json:"name"`
	PerSecond float64 `json:"published_per_second"`
	Events    uint64  `json:"events"`
	Bytes     uint64  `json:"bytes"`
}

// compare makes the view of what happened between two looks.
func compare(url string, before, now look) topView {
	d := delta{before.metrics, now.metrics, now.at.Sub(before.at).Seconds()}
	v := topView{URL: url, Time: now.at, Seconds: d.seconds, Head: uint64(now.metrics["signalbox_log_head_position"])}
	if start := now.metrics["process_start_time_seconds"]; start > 0 {
		v.Up = float64(now.at.UnixMilli())/1000 - start
	}
	outcome := func(name string) float64 { return d.rate(`signalbox_publish_events_total{outcome="` + name + `"}`) }
	p := &v.Publish
	p.Accepted, p.Superseded, p.Duplicate, p.Conflict = outcome("accepted"), outcome("superseded"), outcome("duplicate"), outcome("conflict")
	p.Bytes, p.Refused = d.rate("signalbox_publish_bytes_total"), d.rate("signalbox_publish_refused_total")
	p.AckP50, p.AckP99 = d.quantile("signalbox_publish_ack_seconds", .5), d.quantile("signalbox_publish_ack_seconds", .99)
	p.SyncP99, p.Queue = d.quantile("signalbox_store_sync_seconds", .99), d.sum("signalbox_publish_queue_proposals")
	r := &v.Readers
	r.Events, r.Bytes, r.StoreReads = d.rate("signalbox_reader_events_total"), d.rate("signalbox_reader_bytes_total"), d.rate("signalbox_reader_store_reads_total")
	r.Cut, r.Reset, r.Lag, r.Behind = d.sum("signalbox_reader_cuts_total"), d.sum("signalbox_reader_resets_total"), d.sum("signalbox_reader_lag_events"), now.readers.Behind
	for series, n := range now.metrics {
		switch {
		case !strings.HasPrefix(series, "signalbox_readers{"):
		case strings.Contains(series, `state="live"`):
			r.Live += n
		default:
			r.CatchingUp += n
		}
	}
	k := &v.Disk
	k.Free, k.MinFree, k.Refusing = d.sum("signalbox_disk_free_bytes"), d.sum("signalbox_disk_min_free_bytes"), d.sum("signalbox_disk_refusing") > 0
	k.Database, k.Debt, k.Stalls = d.sum("signalbox_store_disk_bytes"), d.sum("signalbox_store_compaction_debt_bytes"), d.sum("signalbox_store_write_stalls_total")
	o := &v.Process
	o.CPU, o.Memory = d.rate("process_cpu_seconds_total"), d.sum("process_resident_memory_bytes")
	o.Connections, o.ClockSkew = d.sum("signalbox_http_connections"), d.sum("signalbox_clock_skew_seconds")
	v.Refusals = d.refusals()
	v.Topics = busiest(before.topics, now.topics, d.seconds)
	return v
}

// delta is two scrapes and the time between them.
type delta struct {
	before, now client.Metrics
	seconds     float64
}

// sum adds up all series of a metric.
func (d *delta) sum(name string) float64 { return total(d.now, name) }

func total(m client.Metrics, name string) (sum float64) {
	if v, ok := m[name]; ok {
		return v
	}
	for series, v := range m {
		if strings.HasPrefix(series, name+"{") {
			sum += v
		}
	}
	return sum
}

// rate is how much a counter grew in a second, 0 across a restart.
func (d *delta) rate(name string) float64 {
	return max(0, total(d.now, name)-total(d.before, name)) / max(d.seconds, 1e-3)
}

// quantile is that of a histogram between the two looks, 0 if nothing was observed.
func (d *delta) quantile(name string, q float64) float64 {
	type bucket struct{ upper, n float64 }
	var buckets []bucket
	for series, n := range d.now {
		if le, ok := strings.CutPrefix(series, name+`_bucket{le="`); ok {
			upper, err := strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64)
			if err == nil {
				buckets = append(buckets, bucket{upper, max(0, n-d.before[series])})
			}
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.upper, b.upper) })
	if len(buckets) == 0 || buckets[len(buckets)-1].n == 0 {
		return 0
	}
	want := q * buckets[len(buckets)-1].n
	lower := bucket{}
	for _, b := range buckets {
		if b.n >= want {
			if math.IsInf(b.upper, 1) {
				return lower.upper
			}
			return lower.upper + (b.upper-lower.upper)*(want-lower.n)/max(b.n-lower.n, 1)
		}
		lower = b
	}
	return lower.upper
}

// refusals are the codes that requests were refused with, at whatever door.
func (d *delta) refusals() []topRefusal {
	out := []topRefusal{}
	for series, n := range d.now {
		if code, ok := strings.CutPrefix(series, `signalbox_http_refused_total{code="`); ok && n > 0 {
			out = append(out, topRefusal{strings.TrimSuffix(code, `"}`), d.rate(series), n})
		}
	}
	slices.SortFunc(out, func(a, b topRefusal) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Code, b.Code))
	})
	return out[:min(len(out), topRows)]
}

func busiest(before, now []client.TopicInfo, seconds float64) []topTopic {
	if now == nil {
		return nil
	}
	known := map[string]uint64{}
	for _, t := range before {
		known[t.Name] = t.Published
	}
	out := make([]topTopic, 0, len(now))
	for _, t := range now {
		grown := max(t.Published, known[t.Name]) - known[t.Name]
		out = append(out, topTopic{t.Name, float64(grown) / max(seconds, 1e-3), t.Events, t.Bytes})
	}
	slices.SortFunc(out, func(a, b topTopic) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), topRows)]
}

// render writes the view for people.
func (v *topView) render(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	p, r, k, o := &v.Publish, &v.Readers, &v.Disk, &v.Process
	fmt.Fprintf(w, "signalbox at %s, up %s, head @%d, %s\n\n", oneLine(v.URL), time.Duration(v.Up*float64(time.Second)).Round(time.Second), v.Head, v.Time.Format(time.TimeOnly))
	fmt.Fprintf(w, "publish\t%s/s accepted, %s/s superseded, %s/s duplicate, %s/s conflict, %s/s refused, %s/s\n",
		rate(p.Accepted), rate(p.Superseded), rate(p.Duplicate), rate(p.Conflict), rate(p.Refused), bytesOf(p.Bytes))
	fmt.Fprintf(w, "latency\tacknowledged p50 %s, p99 %s; sync p99 %s; %.0f waiting\n", short(p.AckP50), short(p.AckP99), short(p.SyncP99), p.Queue)
	fmt.Fprintf(w, "readers\t%.0f live, %.0f catching up, furthest behind %.0f; %s/s events, %s/s; %.0f cut, %.0f reset since the start\n",
		r.Live, r.CatchingUp, r.Lag, rate(r.Events), bytesOf(r.Bytes), r.Cut, r.Reset)
	refusing := ""
	if k.Refusing {
		refusing = "  PUBLISHES ARE REFUSED: free space, or delete topics"
	}
	fmt.Fprintf(w, "disk\t%s free, %s kept in reserve; database %s, to compact %s, %.0f stalls%s\n",
		bytesOf(k.Free), bytesOf(k.MinFree), bytesOf(k.Database), bytesOf(k.Debt), k.Stalls, refusing)
	fmt.Fprintf(w, "process\t%.2f processors, %s, %.0f connections, clock %+.3fs\n", o.CPU, bytesOf(o.Memory), o.Connections, o.ClockSkew)
	_ = w.Flush() // the error comes back from writing the screen
	v.renderTables(w)
}

func (v *topView) renderTables(w *tabwriter.Writer) {
	if len(v.Refusals) > 0 {
		fmt.Fprint(w, "\nREFUSED\tPER SECOND\tSINCE THE START\n")
	}
	for _, r := range v.Refusals {
		fmt.Fprintf(w, "%s\t%s\t%.0f\n", oneLine(r.Code), rate(r.PerSecond), r.Total)
	}
	_ = w.Flush()
	if v.Topics == nil {
		fmt.Fprintf(w, "\n(more than %d topics: not listed)\n", topTopicsMax)
	} else {
		fmt.Fprint(w, "\nBUSIEST TOPICS\tPER SECOND\tEVENTS\tBYTES\n")
	}
	for _, t := range v.Topics {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", oneLine(t.Name), rate(t.PerSecond), t.Events, bytesOf(float64(t.Bytes)))
	}
	_ = w.Flush()
	if len(v.Readers.Behind) > 0 {
		fmt.Fprint(w, "\nREADERS BEHIND, OF\tPOSITIONS\tAT\n")
	}
	for _, r := range v.Readers.Behind[:min(len(v.Readers.Behind), topRows)] {
		fmt.Fprintf(w, "%s\t%d\t%s\n", oneLine(r.Topics), r.Lag, r.Cursor)
	}
	_ = w.Flush()
}

// rate has no more digits than mean something.
func rate(v float64) string {
	if v > 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func bytesOf(v float64) string {
	for _, u := range sizeUnits {
		if n := float64(u.bytes); v >= n && u.bytes > 1 {
			return strconv.FormatFloat(v/n, 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " B"
}

// short is a latency for people; 0 stands for none.
func short(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return strconv.FormatFloat(seconds*1000, 'g', 3, 64) + "ms"
}
