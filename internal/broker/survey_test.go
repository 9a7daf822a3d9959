// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// filtered is a change of a subscription's document: a filter in CESQL.
func filtered(sql string) func(*event.Subscription) {
	return func(d *event.Subscription) { d.Filters = []byte(`[{"sql":"` + sql + `"}]`) }
}

// TestFiltersThatNeverMatchAreVisible, and so are those that fail on a missing
// attribute: in the status of each subscription, and in the metrics of all.
func TestFiltersThatNeverMatchAreVisible(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	never := x.subscribe("a", filtered("type = 'T'"))
	missing := x.subscribe("a", filtered("severity > 3"))
	some := x.subscribe("a", filtered("EXISTS severity AND severity > 3"))
	narrow := x.subscribe("a", func(d *event.Subscription) { d.Types, d.Source = []string{"none", "other"}, "/s" })
	for _, e := range []map[string]any{nil, {"severity": 2}, {"severity": 4}, nil, {"severity": 5}} {
		x.mustSend("a", x.draft("", "", e))
	}
	for _, id := range []string{never, missing, some, narrow} {
		x.fetch(id)
	}
	x.mustSend("a", x.draft("", "", nil)) // which a reader that is open finds by the index
	for id, want := range map[string][3]uint64{never: {0, 6, 0}, missing: {2, 4, 3}, some: {2, 4, 0}, narrow: {0, 6, 0}} {
		x.fetch(id)
		info, err := x.Subscription(id)
		if err != nil {
			t.Fatal(err)
		}
		s := info.Status
		if got := [3]uint64{s.Matched, s.Dropped, s.Errors}; got != want {
			t.Errorf("%s: matched, dropped and errors are %v, want %v", info.Document.Filters, got, want)
		}
	}
	x.wantMetrics(
		"signalbox_subscriptions", "4", "signalbox_subscription_sessions", "0",
		`signalbox_subscription_events_total{result="matched"}`, "4",
		`signalbox_subscription_events_total{result="dropped"}`, "20",
		`signalbox_subscription_events_total{result="failed"}`, "3",
		"signalbox_subscription_hand_outs_total", "4",
	)
}

// TestDeliveriesAreCounted: hand-outs, how they ended, dead letters, what was made
// of them, gaps, expiries, lag, and what is kept for a subscription.
func TestDeliveriesAreCounted(t *testing.T) {
	x := newBox(t, broker.Options{HoldMax: 3 * time.Hour})
	defer func() { x.close() }()
	x.put("a", keep(time.Hour, event.CleanupDelete))
	ctx := context.Background()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxAttempts = 2 })
	x.subscribe("b", func(d *event.Subscription) { d.Config.ExpiresAfter = event.Duration(time.Hour) })
	for _, event := range []string{"taken", "late", "refused", "put off"} {
		x.mustSend("a", x.draft(event, "", nil))
	}
	handed := x.fetch(id)
	x.ack(id, handed[0])
	if _, err := x.Reject(ctx, anonymous(), id, broker.Verdict{Tokens: []string{handed[2].Token}, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Nack(ctx, anonymous(), id, broker.Verdict{Tokens: []string{handed[3].Token}}); err != nil {
		t.Fatal(err)
	}
	x.pass(2 * time.Hour) // "late" has no answer, the other subscription expires
	waitFor(t, "the expiry", func() bool { return x.metric("signalbox_subscription_expired_total") == "1" })
	x.wantMetrics(
		"signalbox_subscription_hand_outs_total", "4",
		`signalbox_subscription_settled_total{result="acked"}`, "1",
		`signalbox_subscription_settled_total{result="nacked"}`, "1",
		`signalbox_subscription_settled_total{result="timed_out"}`, "1",
		`signalbox_subscription_dead_letters_total{cause="spent"}`, "1",
		"signalbox_subscription_held_topics", "1",
	)
	if moved, err := x.Redrive(ctx, anonymous(), id, broker.LetterFilter{}, 0, 10); err != nil || moved.Moved != 1 {
		t.Fatal(moved, err)
	}
	for _, h := range x.fetch(id) {
		if ok, err := x.Reject(ctx, anonymous(), id, broker.Verdict{Tokens: []string{h.Token}}); err != nil || !ok[0] {
			t.Fatal(ok, err)
		}
	}
	if moved, err := x.Discard(ctx, anonymous(), id, broker.LetterFilter{}, 0, 10, "nobody needs them"); err != nil || moved.Moved != 3 {
		t.Fatal(moved, err)
	}
	x.mustSend("a", x.draft("unread", "", nil))
	x.pass(time.Minute)
	x.wantMetrics("signalbox_subscription_lag_events", "1", "signalbox_subscription_lag_seconds", "60",
		"signalbox_subscription_redriven_total", "1", "signalbox_subscription_discarded_total", "3")
	x.pass(5 * time.Hour)
	x.mustSend("a", x.draft("later", "", nil))
	x.fetch(id)
	x.wantMetrics("signalbox_subscription_gaps_total", "1", "signalbox_subscription_held_topics", "0")
}

// TestSurveyOfManySubscriptions: one that is far behind is found among very many, a
// part of which each pass looks at, and of very many with the same topics.
func TestSurveyOfManySubscriptions(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	x.mustSend("late", x.draft("", "", nil), x.draft("", "", nil), x.draft("", "", nil))
	x.clock.pass(time.Minute)
	x.SurveyFor(0) // each pass measures one set of topics
	for i := range 30 {
		topic := fmt.Sprint("t", i)
		x.mustSend(topic, x.draft("", "", nil))
		x.subscribe(topic, nil)
	}
	for i := range 300 {
		x.subscribe("late", func(d *event.Subscription) {
			if i != 200 {
				d.Config.Start = "now"
			}
		})
	}
	waitFor(t, "the end of a round", func() bool {
		x.settle()
		return x.metric("signalbox_subscription_lag_events") == "3"
	})
	x.wantMetrics("signalbox_subscription_lag_seconds", "60")
}

// TestEndpointsInTroubleAreCounted, and the dead letters that there are.
func TestEndpointsInTroubleAreCounted(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	const sink = "https://sink.example/"
	fails := func(id string, times int) {
		t.Helper()
		for range times {
			handed, _, err := x.HandOutWebhook(t.Context(), id, 1)
			if err != nil || len(handed) != 1 {
				t.Fatal(handed, err)
			}
			if err := x.SettleWebhook(t.Context(), id, sink, []broker.WebhookVerdict{{Token: handed[0].Token, Reason: "no"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.mustSend("a", x.draft("", "", nil))
	x.hook("a")
	fails(x.hook("a"), 1)
	fails(x.hook("a"), 4)
	fails(x.hook("a"), 5)
	gone := x.hook("a")
	if err := x.DisableWebhook(t.Context(), gone, sink, "a test"); err != nil {
		t.Fatal(err)
	}
	worker := x.subscribe("a", nil)
	if _, err := x.Reject(t.Context(), anonymous(), worker, broker.Verdict{Tokens: []string{x.fetch(worker)[0].Token}}); err != nil {
		t.Fatal(err)
	}
	x.settle()
	x.wantMetrics(`signalbox_webhook_endpoints{state="failing"}`, "2", `signalbox_webhook_endpoints{state="open"}`, "1",
		`signalbox_webhook_endpoints{state="disabled"}`, "1", "signalbox_subscription_dead_letters", "1")
}

// TestNothingIsHeldFromARetentionThatIsNotThere: the mark goes with the policy, too.
func TestNothingIsHeldFromARetentionThatIsNotThere(t *testing.T) {
	x := newBox(t, broker.Options{HoldMax: 6 * time.Hour})
	defer x.close()
	for name, without := range map[string]with{
		"forever": func(p *event.Policy) { p.Retention = nil },
		"longer":  keep(1000*time.Hour, event.CleanupDelete),
	} {
		x.put(name, keep(time.Hour, event.CleanupDelete))
		x.subscribe(name, func(*event.Subscription) {})
		x.mustSend(name, x.draft(name, "", nil))
		x.pass(2 * time.Hour)
		x.wantMetrics("signalbox_subscription_held_topics", "1")
		x.put(name, without)
		x.pass(time.Minute)
		x.wantMetrics("signalbox_subscription_held_topics", "0")
	}
}
