// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"signalbox/internal/eventlog"
	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// LogClock is the clock of log time.
type LogClock = logClock

// NewLogClock makes the clock of log time.
func NewLogClock(source Clock, logMillis int64) *LogClock { return newLogClock(source, logMillis) }

// NewSystemClock is the clock of a broker that is given none.
func NewSystemClock() Clock { return &systemClock{} }

// BootEvery is how often that clock asks the system.
const BootEvery = bootEvery

// TableRetry is how long a table waits that could not be written.
const TableRetry = tableRetry

// Tick does at once what the ticker does when it comes by: it moves log time to
// the clock, and goes on until nothing that is due is left.
func (b *Broker) Tick() error {
	for {
		now := b.clock.Millis()
		b.roster.sweep(now)
		b.dispatch.Expire()
		if _, err := b.propose(context.Background(), &eventlog.Proposal{Kind: eventlog.KindTick, AdmittedMillis: now}); err != nil {
			return err
		}
		due, err := b.timerDue(now)
		if err != nil || !due {
			return err
		}
	}
}

// Clean does at once what the cleaner does when it comes by.
func (b *Broker) Clean() error {
	c := cleaner{b: b, next: map[uint32]check{}, reclaimed: map[uint32]uint64{}}
	return c.clean()
}

// SurveyFor sets for how long a pass of the cleaner measures lags.
func (b *Broker) SurveyFor(most time.Duration) { b.survey.most = most }

// Due is what knows which webhooks have something to deliver.
type Due struct{ *due }

// NewDue makes one.
func NewDue() Due { return Due{newDue()} }

// Add, AddFound, AddLater, Next, Offer, Note and Figures are its methods.
func (d Due) Add(number uint32)                       { d.add(number) }
func (d Due) AddFound(numbers ...uint32)              { d.addFound(numbers) }
func (d Due) AddLater(number uint32, at int64)        { d.addLater(number, at) }
func (d Due) Next(now int64) (number uint32, ok bool) { number, ok, _ = d.next(now); return number, ok }
func (d Due) Offer(events []projector.Applied)        { d.offer(events) }
func (d Due) Note(term []byte)                        { d.note(term) }
func (d Due) Figures() (queued, later int)            { return d.figures() }

// Missed reports whether something did not fit.
func (d Due) Missed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missed != nothingMissed
}

// MissedBehind is the position from behind which webhooks have to be looked for.
func (d Due) MissedBehind() uint64 { return d.takeMissed() }

// Taken counts the events that wait to be matched, and takes them.
func (d Due) Taken() (n int) {
	for _, events := range d.taken() {
		n += len(events)
	}
	return n
}

// MissWebhooks has the broker look for its webhooks as after something did not fit.
func (b *Broker) MissWebhooks() { b.due.miss() }

// SweepWebhooks looks for them once, as a start does, at so many positions; with told as
// after what is behind that did not fit.
func (b *Broker) SweepWebhooks(told, most uint64) { b.sweep(told, most) }

// WebhooksDue counts those that are queued.
func (b *Broker) WebhooksDue() (queued, later int) { return b.due.figures() }

// DryRunWithin is DryRun with another limit of time.
func (b *Broker) DryRunWithin(ctx context.Context, run DryRun, most time.Duration) (DryRunReport, error) {
	return b.dryRun(ctx, run, most)
}

// OccupyDryRuns has as many dry runs under way as there may be, until done.
func (b *Broker) OccupyDryRuns() (done func()) {
	b.dryRuns.Add(dryRunsMax)
	return func() { b.dryRuns.Add(-dryRunsMax) }
}

// Store is the broker's store.
func (b *Broker) Store() *store.Store { return b.store }

// TopicNumber is the number of a topic in the keys of the store.
func (b *Broker) TopicNumber(name string) uint32 {
	t, err := b.dispatch.Topic(name)
	if err != nil {
		panic(err)
	}
	return t.Number
}

// Settings are those that the log has.
func (b *Broker) Settings() eventlog.Settings { return b.projector.Settings() }

// HoldAtMost sets how many messages may wait for the places outside.
func (b *Broker) HoldAtMost(n int) { b.external.heldMax = n }

// OccupyAudit has as many queries of the audit trail under way as there may be, until done.
func (b *Broker) OccupyAudit() (done func()) {
	b.audit.looking.Add(auditQueriesMax)
	return func() { b.audit.looking.Add(-auditQueriesMax) }
}

// ScanAtMost sets how many entries one query of the audit trail looks at.
func (b *Broker) ScanAtMost(n uint64) { b.audit.scanMax = n }

// TicketsOfTraceAtMost bounds the tickets of a trace that a query of the audit trail reads.
func (b *Broker) TicketsOfTraceAtMost(n int) { b.audit.traceMax = n }

// SpendAudit uses up what readers may have signed for the next hour.
func (b *Broker) SpendAudit() {
	b.audit.turn <- struct{}{}
	b.audit.spent = b.elapsed() + time.Hour
	b.audit.unlock()
}

// Merged reads lists as one, as far as each wants them, and returns how many rows of
// them were read.
func Merged(lists [][]int, each func(row int) (more bool)) (read int, err error) {
	var parts []part[int]
	for _, list := range lists {
		parts = append(parts, partOf(func(after *int, each func(int) bool) error {
			for _, row := range list {
				if after != nil && row <= *after {
					continue
				}
				if read++; !each(row) {
					return nil
				}
			}
			return nil
		}))
	}
	err = merged(func(a, b int) int { return a - b }, parts, func(row int) (bool, error) { return each(row), nil })
	return read, err
}

// CompiledFilters are the filters that are kept compiled, and the bounds of them.
type CompiledFilters = compiled

const (
	CompiledMax   = compiledMax
	CompiledBytes = compiledBytes
)

// Get is get.
func (c *compiled) Get(key string, compile func() (*filter.Filter, error)) (*filter.Filter, error) {
	return c.get(key, compile)
}

// Kept is how many filters there are, and of how many bytes they are made.
func (c *compiled) Kept() (filters, bytes int) {
	for key := range c.filters {
		bytes += len(key)
	}
	return len(c.filters), bytes
}
