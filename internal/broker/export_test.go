// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"signalbox/internal/eventlog"
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

// Settings are those that the log has.
func (b *Broker) Settings() eventlog.Settings { return b.projector.Settings() }
