// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
)

// benchEvents returns n events of 512 bytes of data each, over 1,000 keys.
func benchEvents(b *testing.B, n int, id *atomic.Int64) []*event.Event {
	b.Helper()
	data := append(append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), 502)...), `"}`...)
	events := make([]*event.Event, n)
	for i := range events {
		seq := id.Add(1)
		var err error
		events[i], err = event.Draft{
			ID: fmt.Sprint(seq), Source: "/bench", Type: "bench.event", Subject: fmt.Sprint("key-", seq*7919%1000),
			DataContentType: "application/json", Data: data,
		}.Event()
		if err != nil {
			b.Fatal(err)
		}
	}
	return events
}

// BenchmarkPublish measures durable publishing in process, per event, on the
// machine's disk: concurrent callers that wait for their receipts.
func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct {
		policy           string
		callers, perCall int
	}{
		{event.CleanupDelete, 1, 1},
		{event.CleanupDelete, 64, 1},
		{event.CleanupDelete, 16, 100},
		{event.CleanupCompact, 64, 1},
		{event.CleanupCompact, 16, 100},
	} {
		b.Run(fmt.Sprintf("%s/callers=%d/events=%d", c.policy, c.callers, c.perCall), func(b *testing.B) {
			broker, err := broker.Open(broker.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer broker.Close()
			policy := event.DefaultPolicy()
			policy.CleanupPolicy = c.policy
			if _, _, err := broker.PutTopic(context.Background(), identity.Anonymous(), "bench", policy); err != nil {
				b.Fatal(err)
			}
			publish(b, broker, c.callers, c.perCall)
		})
	}
}

func publish(b *testing.B, to *broker.Broker, callers, perCall int) {
	var id, left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	done := make(chan error, callers)
	for range callers {
		go func() {
			for left.Add(-int64(perCall)) > -int64(perCall) {
				events := benchEvents(b, perCall, &id)
				_, err := to.Publish(context.Background(), identity.Anonymous(), broker.PublishRequest{Topic: "bench", Events: events, Batch: perCall > 1})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime is what the process has used so far. It is less noisy than the clock
// on a machine that others use too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkSweep looks for webhooks of whom none is concerned, as a start does; has them
// come forward, as every five minutes, where the events are on their topic and on another; and
// asks one of them, which is what both did before for each.
func BenchmarkSweep(b *testing.B) {
	const webhooks, events = 5000, 100_000
	x := newBox(b, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	subscribed := make([]string, webhooks)
	for i := range subscribed {
		subscribed[i] = x.subscribe("bench", func(d *event.Subscription) {
			d.Protocol, d.Sink, d.Config.Kind = event.ProtocolHTTP, "https://sink.example/", event.KindWebhook
			d.Filters = fmt.Appendf(nil, `[{"exact":{"subject":"nobody-%d"}}]`, i)
		})
	}
	var id atomic.Int64
	for range events / 1000 {
		x.mustSend("bench", benchEvents(b, 1000, &id)...)
	}
	for {
		if queued, _ := x.WebhooksDue(); queued == 0 {
			break
		}
		if _, err := x.NextWebhook(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("events", func(b *testing.B) {
		before := cpuTime(b)
		for range b.N {
			x.SweepWebhooks(1, events+1)
		}
		b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/events, "cpu-ns/event")
		if queued, _ := x.WebhooksDue(); queued != 0 {
			b.Errorf("%d are asked", queued)
		}
	})
	b.Run("asking", func(b *testing.B) {
		before := cpuTime(b)
		for i := range b.N {
			if handed, _, err := x.HandOutWebhook(context.Background(), subscribed[i%webhooks], 4); err != nil || len(handed) > 0 {
				b.Fatal(handed, err)
			}
		}
		b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	})
	x.pass(time.Minute)
	for _, topic := range []string{"bench", "elsewhere"} {
		b.Run("forward/"+topic, func(b *testing.B) {
			var used time.Duration
			for range b.N {
				for range events / 1000 / 4 {
					x.mustSend(topic, benchEvents(b, 1000, &id)...)
				}
				before := cpuTime(b)
				x.SweepWebhooks(0, 2*events)
				used += cpuTime(b) - before
			}
			b.ReportMetric(float64(used)/float64(b.N)/webhooks, "cpu-ns/webhook")
			if queued, _ := x.WebhooksDue(); queued != 0 {
				b.Errorf("%d are asked", queued)
			}
		})
	}
}
