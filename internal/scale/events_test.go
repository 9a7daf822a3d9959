// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// steps are how often memory is looked at while events are published.
const steps = 10

// TestScaleEvents publishes ten million events, after which the broker must not
// need more memory than after half of them, and be ready again in two seconds:
// after it was stopped, and after it was killed while it was published to.
func TestScaleEvents(t *testing.T) {
	t.Parallel()
	n := times(t, 10_000_000)
	p := start(t)
	topic := func(i int) string { return fmt.Sprintf("events.%d", i%100) }
	var memory [steps]int
	for step := range steps {
		began := time.Now()
		p.publish(topic, fmt.Sprint(step), n/steps)
		took := time.Since(began)
		memory[step] = p.settled()
		t.Logf("%d events: %s, %.0f events a second", (step+1)*n/steps, mib(memory[step]), float64(n/steps)/took.Seconds())
	}
	// The filters of the deduplication window are what events cost: 24 bits each, made for
	// four million at a time; the collector of garbage makes two of one.
	const filterBytes, filters, slack = 2 * 3, 2 * 12 << 20, 64 << 20
	if half, end := memory[steps/2-1], memory[steps-1]; end > half+n/2*filterBytes+filters+slack {
		t.Errorf("memory grew from %s to %s with the second half of the events", mib(half), mib(end))
	}
	p.restarts("stopped", stopped, func() {})
	for i := range 3 {
		stop := p.keepPublishing(fmt.Sprintf("again-%d", i))
		time.Sleep(10 * time.Second)
		p.restarts("killed while it was published to", killed, stop)
	}
	t.Logf("after the restart: %s", mib(p.settled()))
}

// keepPublishing publishes, whatever becomes of it, until stop is called.
func (p *process) keepPublishing(prefix string) (stop func()) {
	var group sync.WaitGroup
	over := make(chan struct{})
	for w := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
					// Whoever kills a broker has its publishers fail.
					_ = p.publishBatch(fmt.Sprintf("events.%d", w), fmt.Sprintf("%s-%d", prefix, w), i*batchEvents, (i+1)*batchEvents)
				}
			}
		})
	}
	return func() { close(over); group.Wait() }
}

// restarts ends the process, calls between, and starts it again.
func (p *process) restarts(how string, signal syscall.Signal, between func()) {
	p.t.Helper()
	head := p.metric("signalbox_log_head_position")
	p.end(signal)
	between()
	ready := p.run()
	p.t.Logf("%s: ready after %d ms (target: %d)", how, ready.Milliseconds(), readyTarget.Milliseconds())
	if again := p.metric("signalbox_log_head_position"); again < head {
		p.t.Errorf("%s: the head was %.0f and is %.0f", how, head, again)
	}
}
