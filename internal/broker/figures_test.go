// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"signalbox/event"
	"signalbox/internal/broker"
)

// metric is the line of one series of a scrape.
func (x *box) metric(series string) string {
	x.t.Helper()
	text, err := x.Metrics().AppendText(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	x.t.Fatalf("there is no series %s", series)
	return ""
}

func (x *box) wantMetrics(pairs ...string) {
	x.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := x.metric(pairs[i]); got != pairs[i+1] {
			x.t.Errorf("%s is %s, want %s", pairs[i], got, pairs[i+1])
		}
	}
}

// TestWhoeverHasAnAnswerIsCounted: a scrape that follows an answer has what it was for.
func TestWhoeverHasAnAnswerIsCounted(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	var answered atomic.Int64
	parallel(64, func(p int) { // many share a commit, and some of them are answered early
		for i := range 20 {
			if _, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft(fmt.Sprint(p, ".", i), "", nil)}}); err != nil {
				t.Error(err)
				return
			}
			want := answered.Add(1)
			var counted dto.Metric
			if err := x.Metrics().Publish.Accepted.Write(&counted); err != nil || int64(counted.GetCounter().GetValue()) < want {
				t.Errorf("%d events have receipts, and %v are counted, %v", want, counted.GetCounter().GetValue(), err)
				return
			}
		}
	})
}

func TestRetentionIsCounted(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", keep(time.Hour, event.CleanupDelete))
	x.fillUp("a", "old-", 700)
	x.pass(30 * time.Minute)
	x.fillUp("a", "new-", 10)
	x.pass(30 * time.Minute)
	x.wantMetrics("signalbox_cleaner_retired_events_total", "700", "signalbox_cleaner_reclaims_total", "1", "signalbox_retained_events", "10")
}

// TestOverdueTimersShow: log time may stand still while nothing is due, so only
// what is overdue tells of an apply loop that is stuck.
func TestOverdueTimersShow(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.mustSend("a", x.draft("1", "", map[string]any{"expirytime": startTime().Add(time.Minute).Format(time.RFC3339)}))
	x.clock.pass(30 * time.Second)
	x.wantMetrics("signalbox_log_timers_overdue_seconds", "0", "signalbox_log_time_lag_seconds", "30")
}

// TestClockSkewShows: what somebody does to the machine's clock is seen before
// producers are refused.
func TestClockSkewShows(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.clock.step(-time.Hour)
	x.wantMetrics("signalbox_clock_skew_seconds", "-3600")
}
