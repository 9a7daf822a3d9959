// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/metrics"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Metrics is what the broker counts; transports count into it too.
func (b *Broker) Metrics() *metrics.Metrics { return b.metrics }

// Laggards returns the n open readers that are furthest behind, and how many
// readers are open.
func (b *Broker) Laggards(n int) (worst []dispatch.Laggard, open int) {
	return b.dispatch.Laggards(n)
}

// elapsed is a clock for latencies, read once or twice for each request: it costs
// half of what the time of day does. Nothing that is decided depends on it.
func (b *Broker) elapsed() time.Duration { return time.Since(b.began) }

// tally counts what one commit has decided, on the apply loop: it adds up on the
// stack, and touches each counter once for a commit and not once for an event.
type tally struct {
	outcomes [projector.Duplicate + 1]int
	bytes    int
	ahead    int64 // ms, of the fastest stamped event
	stamped  bool
}

// count takes one proposal's result into account.
func (b *Broker) count(t *tally, p *eventlog.Proposal, r *projector.Result) {
	b.countMoves(p, r)
	if p.Kind != eventlog.KindEvents && p.Kind != eventlog.KindControl {
		return
	}
	for i := range p.Entries {
		if hlc := p.Entries[i].HLC; hlc != 0 {
			t.stamped = true
			t.ahead = max(t.ahead, hlc.Millis()-p.AdmittedMillis)
		}
	}
	if r.Err != nil {
		b.metrics.Publish.Refused(cause(r.Err), 1)
		return
	}
	for i := range r.Verdicts {
		outcome := r.Verdicts[i].Outcome
		if r.Replayed {
			outcome = projector.Duplicate
		}
		t.outcomes[outcome]++
	}
}

// cause is the code that says what was wrong: of an aborted batch that of the
// event which aborted it.
func cause(e *event.Error) event.Code {
	if e.Code == event.CodeBatchAborted {
		if code, ok := e.Facts["cause"].(string); ok {
			return event.Code(code)
		}
	}
	return e.Code
}

// counted adds a commit to the metrics.
func (b *Broker) counted(t *tally, out *projector.Output, began, applied, durable time.Duration) {
	for i := range out.Applied {
		t.bytes += len(out.Applied[i].Members)
	}
	b.countDeliveries(&out.Delivered)
	m := &b.metrics.Publish
	add(m.Accepted, t.outcomes[projector.Accepted])
	add(m.Superseded, t.outcomes[projector.Superseded])
	add(m.Duplicate, t.outcomes[projector.Duplicate])
	add(m.Bytes, t.bytes)
	a := &b.metrics.Apply
	a.Proposals.Observe(float64(out.Taken))
	a.Events.Observe(float64(len(out.Applied)))
	a.Apply.Observe((applied - began).Seconds())
	a.Commit.Observe((durable - applied).Seconds())
	if t.stamped {
		a.Ahead.Observe(float64(t.ahead) / 1000)
	}
}

func add(c metrics.Counter, n int) {
	if n > 0 {
		c.Add(float64(n))
	}
}

// sample tells the metrics that are looked up.
func (b *Broker) sample(s metrics.Sample) {
	s.Set("signalbox_audit_entries", float64(b.AuditSize()))
	held, _ := b.dispatch.KeptBack()
	s.Set("signalbox_audit_held_messages", float64(held))
	proposals, bytes := b.log.Waiting()
	s.Set("signalbox_publish_queue_proposals", float64(proposals))
	s.Set("signalbox_publish_queue_bytes", float64(bytes))
	s.Set("signalbox_clock_skew_seconds", b.clock.Skew().Seconds())
	due, later := b.due.figures()
	s.Set("signalbox_webhook_due", float64(due), "now")
	s.Set("signalbox_webhook_due", float64(later), "later")
	overdue := int64(0)
	now := b.clock.Millis()
	// Damage is met by the ticker too, which ends the process over it.
	_ = b.store.Timers(func(t store.Timer) (bool, error) {
		overdue = max(0, now-t.DueMillis)
		return false, nil
	})
	s.Set("signalbox_log_timers_overdue_seconds", float64(overdue)/1000)
	b.bus.sample(s)
	b.disk.sample(s)
	b.survey.sample(b, s)
}
