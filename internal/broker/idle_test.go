// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
)

// fillSubscriptions makes n subscriptions with different filters, as many at a
// time as share a commit.
func fillSubscriptions(t testing.TB, b *broker.Broker, n int) {
	t.Helper()
	var makers sync.WaitGroup
	for maker := range 64 {
		makers.Go(func() {
			for i := maker; i < n; i += 64 {
				d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
				d.Config.Kind = event.KindPull
				d.Filters = fmt.Appendf(nil, `[{"sql":"type = 'task.%d' AND source LIKE 'spiffe://domain/fleet/%%' AND severity > %d"}]`, i, i%7)
				if _, err := b.CreateSubscription(context.Background(), anonymous(), d); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	makers.Wait()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkStartWithIdleSubscriptions opens a log with ever more subscriptions
// that nobody uses. It reads none of them, so they cost neither time nor memory.
func BenchmarkStartWithIdleSubscriptions(b *testing.B) {
	for _, n := range []int{0, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir, err := os.MkdirTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			open := func() *broker.Broker {
				x, err := broker.Open(broker.Options{Dir: dir, FS: vfs.Default})
				if err != nil {
					b.Fatal(err)
				}
				return x
			}
			x := open()
			fillSubscriptions(b, x, n)
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
			grown := uint64(0)
			for b.Loop() {
				b.StopTimer()
				before := heap()
				b.StartTimer()
				x := open()
				b.StopTimer()
				grown = heap() - before
				if err := x.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(grown)/1e6, "MB")
		})
	}
}
