// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/metrics"
	"signalbox/internal/store"
)

// Open opens the data directory, configures a new one, and starts the apply
// loop. It fails with code store_locked, store_damaged or store_format.
func Open(o Options) (*Broker, error) {
	o.fill()
	counted := metrics.New()
	var opened atomic.Bool
	var told sync.Once
	retry := func(err error) {
		if !opened.Load() {
			told.Do(func() {
				o.Logger.Error("the start waits until a table can be written, and goes on by itself then", "data", o.Dir, "err", err, "todo", "if the volume is full, make room; else see to what err says")
			})
		}
		time.Sleep(tableRetry)
	}
	s, err := store.Open(store.Options{Dir: o.Dir, FS: o.FS, Logger: o.Logger, Fatal: o.Fatal, Metrics: counted, Retry: retry})
	if err != nil {
		return nil, err
	}
	b, err := start(o, s, counted)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	opened.Store(true)
	b.notePlace()
	return b, nil
}

// OpenUntil is Open for whoever is about to end the process when ctx ends: it returns
// then, even if opening is not done. It may wait for long, above all for room on
// a full disk, and to be killed in the middle of it costs nothing.
func OpenUntil(ctx context.Context, o Options) (*Broker, error) {
	type result struct {
		b   *Broker
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := Open(o)
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				_ = r.b.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}
