// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

// benchTopic is where bench publishes; it belongs to bench alone.
const benchTopic = "bench"

type benchFlags struct {
	connections int
	duration    time.Duration
	size        byteSize
	batch       int
	keep        bool
}

func (a *app) benchCommand() *cobra.Command {
	f := &benchFlags{size: 512}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Publish as fast as the broker acknowledges, and print rate and latency",
		Long: "Publish to the topic \"bench\" over some connections, each sending its next event (or batch) once the last one is\n" +
			"durable, and print the rate and the latency of the acknowledgements. The topic is deleted afterwards.\n\n" +
			"The load comes from this process: on the broker's machine the two share its processors.",
		Example: "  signalbox bench --connections 16 --duration 10s --size 512\n" +
			"  signalbox bench --connections 4 --duration 5s --batch 100",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.IntVar(&f.connections, "connections", 16, "concurrent publishers")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "how long to publish")
	fl.Var(&f.size, "size", "bytes of data in each event")
	fl.IntVar(&f.batch, "batch", 1, "events per request; more than 1 publishes atomic batches")
	fl.BoolVar(&f.keep, "keep", false, "leave the topic and its events in place")
	return cmd
}

func (f *benchFlags) validate() error {
	switch {
	case f.connections < 1 || f.connections > 1024:
		return usagef("--connections is from 1 to 1024")
	case f.duration <= 0:
		return usagef("--duration must be more than nothing")
	case f.size > event.DefaultMaxEventBytes-4096:
		return usagef("--size is at most 252KiB: a topic accepts events of 256 KiB unless its policy says otherwise")
	case f.batch < 1 || f.batch > event.MaxBatch:
		return usagef("--batch is from 1 to %d", event.MaxBatch)
	}
	return nil
}

// benchResult is what bench prints.
type benchResult struct {
	Connections  int     `json:"connections"`
	Batch        int     `json:"batch"`
	Size         uint64  `json:"size"`
	Seconds      float64 `json:"seconds"`
	Requests     uint64  `json:"requests"`
	Events       uint64  `json:"events"`
	EventsPerSec float64 `json:"events_per_second"`
	P50          float64 `json:"p50_ms"`
	P95          float64 `json:"p95_ms"`
	P99          float64 `json:"p99_ms"`
	P999         float64 `json:"p999_ms"`
	Max          float64 `json:"max_ms"`
}

func (a *app) bench(ctx context.Context, f *benchFlags) (err error) {
	if err := f.validate(); err != nil {
		return err
	}
	text, err := a.text()
	if err != nil {
		return err
	}
	// A failed request ends the bench: a rate that hides retries would be a lie.
	c, err := a.client(client.WithRetry(client.Retry{Attempts: 1}))
	if err != nil {
		return err
	}
	if _, err := c.Topic(ctx, benchTopic); err == nil {
		f.keep = true // Someone kept it on purpose.
	}
	if !f.keep {
		defer func() {
			// The context may have ended with the bench; the clean-up must still run.
			err = errors.Join(err, ignoreUnknown(c.DeleteTopic(context.WithoutCancel(ctx), benchTopic)))
		}()
	}
	total, took, err := f.load(ctx, c)
	if err != nil {
		return err
	}
	return a.writeBench(f.result(total, took), text)
}

func ignoreUnknown(err error) error {
	if e := (*event.Error)(nil); errors.As(err, &e) && e.Code == event.CodeTopicUnknown {
		return nil
	}
	return err
}

// load runs the publishers and gathers their latencies. An interrupt ends it early; what was measured stands.
func (f *benchFlags) load(ctx context.Context, c *client.Client) (*histogram, time.Duration, error) {
	data, err := json.Marshal(strings.Repeat("x", max(int(f.size)-2, 0)))
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.duration)
	defer cancel()
	var (
		mu    sync.Mutex
		total histogram
		first error
		wg    sync.WaitGroup
	)
	start := time.Now()
	for n := range f.connections {
		wg.Go(func() {
			h, err := f.publisher(ctx, c, fmt.Sprintf("/bench/%d", n), data)
			mu.Lock()
			defer mu.Unlock()
			total.merge(h)
			if err != nil && first == nil {
				first = err
				cancel()
			}
		})
	}
	wg.Wait()
	return &total, time.Since(start), first
}

// publisher is one connection. The request that is under way at the end is waited for and counts: cut off, it would be
// stored behind the clean-up.
func (f *benchFlags) publisher(ctx context.Context, c *client.Client, source string, data []byte) (*histogram, error) {
	h := &histogram{}
	evs := make([]*event.Event, f.batch)
	for ctx.Err() == nil {
		for i := range evs {
			ev, err := c.Prepare(event.Draft{Source: source, Type: "bench.event", Data: data})
			if err != nil {
				return h, err
			}
			evs[i] = ev
		}
		sent := time.Now()
		var err error
		if f.batch == 1 {
			_, err = c.PublishEvent(context.WithoutCancel(ctx), benchTopic, evs[0])
		} else {
			_, err = c.PublishBatch(context.WithoutCancel(ctx), benchTopic, evs)
		}
		if err != nil {
			return h, err
		}
		h.add(time.Since(sent))
	}
	return h, nil
}

func (f *benchFlags) result(h *histogram, took time.Duration) benchResult {
	ms := func(q float64) float64 { return float64(h.quantile(q).Microseconds()) / 1000 }
	events := h.n * uint64(f.batch)
	return benchResult{
		Connections: f.connections, Batch: f.batch, Size: uint64(f.size), Seconds: took.Seconds(),
		Requests: h.n, Events: events, EventsPerSec: float64(events) / took.Seconds(),
		P50: ms(0.50), P95: ms(0.95), P99: ms(0.99), P999: ms(0.999), Max: float64(h.max.Microseconds()) / 1000,
	}
}

func (a *app) writeBench(r benchResult, text bool) error {
	if !text {
		return writeJSON(a.out, r)
	}
	_, err := fmt.Fprintf(a.out, "%d connections, batches of %d, %d bytes of data, %.1f s\n"+
		"%.0f events/s (%d events in %d requests, all durable)\n"+
		"acknowledged within  p50 %.2f ms  p95 %.2f ms  p99 %.2f ms  p99.9 %.2f ms  max %.2f ms\n",
		r.Connections, r.Batch, r.Size, r.Seconds, r.EventsPerSec, r.Events, r.Requests, r.P50, r.P95, r.P99, r.P999, r.Max)
	return err
}
