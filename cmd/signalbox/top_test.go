// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

// TestTopShowsWhatHappenedBetweenTwoLooks: rates are of the time between, and a
// restart of the broker does not make them negative.
func TestTopShowsWhatHappenedBetweenTwoLooks(t *testing.T) {
	start := time.Now()
	before := look{at: start, topics: []client.TopicInfo{{Name: "a", Published: 5}, {Name: "b", Published: 100}}, metrics: client.Metrics{
		`signalbox_publish_events_total{outcome="accepted"}`: 100,
		`signalbox_http_refused_total{code="hlc_drift"}`:     1,
		`signalbox_http_refused_total{code="overloaded"}`:    50,
		`signalbox_publish_ack_seconds_bucket{le="0.01"}`:    10,
		`signalbox_publish_ack_seconds_bucket{le="0.1"}`:     10,
		`signalbox_publish_ack_seconds_bucket{le="+Inf"}`:    10,
		`signalbox_reader_events_total{door="sse"}`:          1000,
		`signalbox_readers{door="sse",state="live"}`:         9,
	}}
	after := look{at: start.Add(2 * time.Second), topics: []client.TopicInfo{{Name: "a", Published: 45}, {Name: "b", Published: 100, Bytes: 1 << 20}}, metrics: client.Metrics{
		`signalbox_publish_events_total{outcome="accepted"}`: 300,
		`signalbox_http_refused_total{code="hlc_drift"}`:     21,
		`signalbox_http_refused_total{code="overloaded"}`:    50,
		`signalbox_publish_ack_seconds_bucket{le="0.01"}`:    60,
		`signalbox_publish_ack_seconds_bucket{le="0.1"}`:     110,
		`signalbox_publish_ack_seconds_bucket{le="+Inf"}`:    110,
		`signalbox_reader_events_total{door="sse"}`:          3, // the broker was restarted, as far as this goes
		`signalbox_readers{door="sse",state="live"}`:         7,
		`signalbox_readers{door="poll",state="catching_up"}`: 2,
		`signalbox_disk_refusing`:                            1,
	}, readers: client.Readers{Open: 9, Behind: []client.ReaderBehind{{Topics: "a.>\x1b[2J", Lag: 7, Cursor: event.Cursor{Position: 3}}}}}
	v := compare("http://b", before, after)
	if v.Publish.Accepted != 100 || v.Readers.Events != 0 || v.Readers.Live != 7 || v.Readers.CatchingUp != 2 {
		t.Errorf("the rates are %+v %+v", v.Publish, v.Readers)
	}
	if v.Publish.AckP50 != 0.01 || v.Publish.AckP99 < 0.09 || v.Publish.AckP99 > 0.1 {
		t.Errorf("acknowledged: p50 %v, p99 %v", v.Publish.AckP50, v.Publish.AckP99)
	}
	if v.Refusals[0] != (topRefusal{"hlc_drift", 10, 21}) || v.Refusals[1].Code != "overloaded" {
		t.Errorf("the refusals are %v", v.Refusals)
	}
	if v.Topics[0].Name != "a" || v.Topics[0].PerSecond != 20 || v.Topics[1].PerSecond != 0 {
		t.Errorf("the topics are %v", v.Topics)
	}
	var out bytes.Buffer
	v.render(&out)
	for _, want := range []string{"PUBLISHES ARE REFUSED", "100/s accepted", `a.>\x1b[2J`, "1.0 MiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &out)
		}
	}
}
