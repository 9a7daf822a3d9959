// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"
)

// CompactProgress says how far a compaction is.
type CompactProgress struct {
	Step, Steps int
	Bytes       uint64 // that the database occupies
}

// Compact reclaims at once what is gone: what retention and the deletion of
// topics have removed, values that were superseded or have expired, and
// deduplication records of past windows. All of it would be reclaimed in time.
// Publishing and reading go on, more slowly. It returns the bytes that the
// database occupied before and occupies after.
func (b *Broker) Compact(ctx context.Context, progress func(CompactProgress)) (before, after uint64, err error) {
	if err := b.open(); err != nil {
		return 0, 0, err
	}
	if !b.upkeep.TryLock() {
		return 0, 0, errUpkeep()
	}
	defer b.upkeep.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // Close waits for the upkeep, and must not do so for hours
		select {
		case <-b.draining:
			cancel(b.open())
		case <-ctx.Done():
		}
	}()
	before = b.store.DiskUsage()
	if err := b.cleanThoroughly(ctx); err != nil {
		return before, before, err
	}
	if err := b.store.Flush(ctx); err != nil {
		return before, before, orCause(ctx, err)
	}
	ranges, err := b.store.CompactRanges()
	if err != nil {
		return before, before, err
	}
	for i, r := range ranges {
		if err := b.store.Compact(ctx, r); err != nil {
			return before, b.store.DiskUsage(), orCause(ctx, err)
		}
		progress(CompactProgress{Step: i + 1, Steps: len(ranges), Bytes: b.store.DiskUsage()})
	}
	b.awaitDeletions(ctx)
	after = b.store.DiskUsage()
	b.logger.Info("compacted", "before_bytes", before, "after_bytes", after)
	return before, after, nil
}

// orCause prefers the reason for which a context ended.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// cleanThoroughly has the cleaner, which is one goroutine, make a pass.
func (b *Broker) cleanThoroughly(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case b.cleanNow <- done:
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

const (
	// Files that a compaction has replaced are deleted in the background, once nobody
	// reads them: for most that is a moment.
	deletionsTimeout = 10 * time.Second
	deletionsPoll    = 20 * time.Millisecond
)

// awaitDeletions waits until replaced files are deleted, but not for those whose
// reader takes its time.
func (b *Broker) awaitDeletions(ctx context.Context) {
	poll := time.NewTicker(deletionsPoll)
	defer poll.Stop()
	for end := time.Now().Add(deletionsTimeout); b.store.Replaced() > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}
