// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"math"
	"time"

	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

const (
	tickPoll     = 100 * time.Millisecond // how soon a due timer is noticed
	tickInterval = 1000                   // ms of log time between two ticks
)

// tickLoop proposes a tick when a timer is due: at most one a second, none
// when nothing is pending, but one at once while a tick has left something over.
func (b *Broker) tickLoop() {
	poll := time.NewTicker(tickPoll)
	defer poll.Stop()
	last := int64(0)
	for {
		select {
		case <-b.stop:
			return
		case <-poll.C:
		}
		now := b.clock.Millis()
		b.refusals.flush(now)
		b.roster.sweep(now)
		b.deliveries.sweep(now) // before the tick that would end what is in use
		b.dispatch.Expire()
		due, err := b.timerDue(now)
		if err != nil {
			b.options.Fatal(err.Error())
			return
		}
		for due && (now >= last+tickInterval || b.leftover.Load()) {
			last = now
			tick := &eventlog.Proposal{Kind: eventlog.KindTick, AdmittedMillis: now}
			if _, err := b.propose(context.Background(), tick); err != nil {
				break // the log is closing
			}
			due = b.leftover.Load()
			select {
			case <-b.stop:
				return // the next start goes on
			default:
			}
		}
	}
}

func (b *Broker) timerDue(now int64) (due bool, err error) {
	err = b.store.Timers(func(t store.Timer) (bool, error) {
		due = t.DueMillis <= now
		return false, nil
	})
	return due, err
}

// cleanLoop looks after retention and reclaims the space of what is gone. It
// only finds candidates; whether something goes is decided in apply.
func (b *Broker) cleanLoop() {
	c := cleaner{b: b, next: map[uint32]check{}, reclaimed: map[uint32]uint64{}}
	every := time.NewTicker(b.options.CleanEvery)
	defer every.Stop()
	for {
		var done chan error // of a compaction, which wants everything
		select {
		case <-b.stop:
			return
		case <-every.C:
		case done = <-b.cleanNow:
		}
		c.thorough = done != nil
		began := time.Now()
		err := c.clean()
		b.metrics.Cleaner.Seconds.Add(time.Since(began).Seconds())
		b.metrics.Cleaner.Passes.Inc()
		if done != nil {
			done <- err
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			b.logger.Error("cleaning failed", "err", err)
			b.options.Fatal(err.Error())
			return
		}
	}
}

// cleaner remembers where it need not look again. All of it may be lost.
type cleaner struct {
	b         *Broker
	next      map[uint32]check  // by topic number
	reclaimed map[uint32]uint64 // by topic number: up to which position
	pending   bool              // deletions may still be in the memtable
	thorough  bool              // also reclaim what is not worth it
}

// check is when a topic's oldest event will be old enough, if its retention
// stays the same.
type check struct {
	millis    int64
	retention int64
}

const (
	// cleanRowsMax bounds one pass over a topic, and what it has to remember.
	cleanRowsMax = 50_000
	// Deleting a range costs every later read a little, so it is done for
	// something.
	reclaimBytesMin = 4 << 20
	reclaimShareMin = 8 // at least one part in so many of what is retained
)

func (c *cleaner) clean() error {
	if err := c.collectGarbage(); err != nil {
		return err
	}
	for _, t := range c.b.dispatch.Topics() {
		if err := c.tend(t); err != nil {
			return err
		}
	}
	if c.pending && c.b.disk.full.Load() {
		if err := c.free(); err != nil {
			return err
		}
	}
	return c.b.survey.look(c.b)
}

// tend does for one topic what is to be done, in passes of a bounded size.
func (c *cleaner) tend(t store.Topic) error {
	for {
		retired, err := c.retire(&t)
		if err != nil {
			return err
		}
		compacted, err := c.compact(&t)
		if err != nil {
			return err
		}
		if t, err = c.b.dispatch.Topic(t.Name); err != nil {
			return nil // it was deleted meanwhile
		}
		if err := c.reclaim(&t); err != nil || !retired && !compacted {
			return err
		}
		select {
		case <-c.b.stop:
			return nil // the next start goes on
		default:
		}
	}
}

// free writes the memtable out. Deleted rows hold their space until the
// deletions are in a table, and on a disk that is too full to take events
// nothing else would bring that about.
func (c *cleaner) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.b.store.Flush(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	c.pending = false
	return nil
}

// retire proposes to remove what is older than the topic's retention, and the
// oldest of what is more than its bytes. It reports whether there is more.
func (c *cleaner) retire(t *store.Topic) (more bool, err error) {
	now := c.b.clock.Millis()
	if !t.Policy.Deletes() || !c.retirable(t, now) {
		if !t.Policy.Deletes() || t.Policy.Retention == nil {
			c.b.survey.hold(t.Number, false) // there is nothing to keep it from
		}
		return false, nil
	}
	cutoff, most := int64(math.MinInt64), uint64(math.MaxUint64)
	if r := t.Policy.Retention; r != nil {
		cutoff = now - r.Std().Milliseconds()
	}
	if t.Policy.RetentionBytes > 0 {
		most = uint64(t.Policy.RetentionBytes)
	}
	to, oldest, rows := uint64(0), now, 0
	held := t.Retained // with the row at hand and whatever is newer, see projector
	err = c.b.store.AllEvents(t, t.RetiredTo, t.Last, func(position uint64, row store.EventRow, _ bool) (bool, error) {
		if !t.Policy.Compacts() {
			held = t.Bytes - row.Bytes + uint64(len(row.Members))
		}
		oldest = row.LogMillis // if the pass ends here, there is more
		if row.LogMillis > cutoff && held <= most {
			return false, nil
		}
		to = position
		held -= min(held, uint64(len(row.Members)))
		rows++
		return rows < cleanRowsMax, nil
	})
	if err != nil {
		return false, err
	}
	c.note(t, oldest)
	if to == 0 {
		c.b.survey.hold(t.Number, false)
		return false, nil
	}
	free, err := c.held(t, to, now)
	if err != nil {
		return false, err
	}
	c.b.survey.hold(t.Number, free < to)
	if free < to && t.Policy.Retention != nil {
		c.next[t.Number] = check{millis: now + heldAgain, retention: t.Policy.Retention.Std().Milliseconds()}
	}
	if free <= t.RetiredTo {
		return false, nil
	}
	waits := free < to
	to = free
	done := c.propose(t, eventlog.Control{Op: eventlog.OpRetire, Topic: t.Name, RetireTo: to}, func(t *store.Topic) uint64 { return t.RetiredTo })
	if done {
		c.b.metrics.Cleaner.Retired.Add(float64(rows))
	}
	return done && rows == cleanRowsMax && !waits, nil
}

// retirable reports whether a look at a topic's oldest events may find some that
// have to go.
func (c *cleaner) retirable(t *store.Topic, now int64) bool {
	if t.Policy.RetentionBytes > 0 && t.Retained > uint64(t.Policy.RetentionBytes) {
		return true
	}
	if t.Policy.Retention == nil {
		return false
	}
	known, ok := c.next[t.Number]
	return !ok || known.retention != t.Policy.Retention.Std().Milliseconds() || now >= known.millis
}

// note puts down when the topic's oldest event will be old enough.
func (c *cleaner) note(t *store.Topic, oldest int64) {
	if r := t.Policy.Retention; r != nil {
		retention := r.Std().Milliseconds()
		c.next[t.Number] = check{millis: oldest + retention, retention: retention}
	}
}

// propose proposes a removal up to the position in it, which reached finds in
// the topic, until apply has got there, for it takes bounded portions. It reports
// whether apply did.
func (c *cleaner) propose(t *store.Topic, control eventlog.Control, reached func(*store.Topic) uint64) (done bool) {
	now := c.b.clock.Millis()
	// Ages are measured in log time, which may be behind the clock.
	if _, err := c.b.propose(context.Background(), &eventlog.Proposal{Kind: eventlog.KindTick, AdmittedMillis: now}); err != nil {
		return false // the log is closing
	}
	for at := reached(t); at < control.RetireTo; {
		if _, err := c.b.propose(context.Background(), &eventlog.Proposal{Kind: eventlog.KindControl, AdmittedMillis: now, Control: control}); err != nil {
			return false // the log is closing
		}
		after, err := c.b.dispatch.Topic(t.Name)
		if err != nil || after.Number != t.Number || reached(&after) <= at {
			delete(c.next, t.Number) // something has changed: the next round looks again
			return false
		}
		at = reached(&after)
	}
	return true
}

// compact proposes to remove what is superseded and past the topic's lag. It
// reports whether there is more.
func (c *cleaner) compact(t *store.Topic) (more bool, err error) {
	if t.History == 0 {
		return false, nil
	}
	now := c.b.clock.Millis()
	to, rows := uint64(0), 0
	err = c.b.store.Histories(t.Number, t.HistoryFrom(), t.Last, func(position uint64, row store.EventRow) (bool, error) {
		if !t.Past(position, &row, now) {
			return false, nil
		}
		to = position
		rows++
		return rows < cleanRowsMax, nil
	})
	if err != nil || to == 0 {
		return false, err
	}
	done := c.propose(t, eventlog.Control{Op: eventlog.OpCompact, Topic: t.Name, RetireTo: to}, (*store.Topic).HistoryFrom)
	if done {
		c.pending = true
		c.b.metrics.Cleaner.Compacted.Add(float64(rows))
	}
	return done && rows == cleanRowsMax, nil
}

// reclaim deletes the rows that retention has declared gone, if that is worth it,
// whatever the topic's policy is by now.
func (c *cleaner) reclaim(t *store.Topic) error {
	done := c.reclaimed[t.Number]
	if t.RetiredTo <= done {
		return nil
	}
	bytes, worth := uint64(0), false
	count := func(_ uint64, row store.EventRow) (bool, error) {
		bytes += uint64(len(row.Members))
		worth = c.thorough || bytes >= reclaimBytesMin || bytes*reclaimShareMin >= t.Retained
		return !worth, nil
	}
	err := c.b.store.Events(t.Number, done, t.RetiredTo, count)
	if err == nil && !worth {
		err = c.b.store.Histories(t.Number, done, t.RetiredTo, count)
	}
	if err != nil {
		return err
	}
	if !worth {
		if bytes == 0 { // nothing is left of what an earlier life of the process removed
			c.reclaimed[t.Number] = t.RetiredTo
		}
		return nil
	}
	batch := c.b.store.NewBatch()
	defer batch.Close()
	batch.DeleteEvents(t.Number, done, t.RetiredTo)
	batch.DeleteHistories(t.Number, done, t.RetiredTo)
	c.reclaimed[t.Number] = t.RetiredTo
	c.pending = true
	c.b.metrics.Cleaner.Reclaims.Inc()
	return c.b.store.Reclaim(batch)
}

// collectGarbage deletes the rows of deleted topics.
func (c *cleaner) collectGarbage() error {
	numbers, err := c.b.store.Garbage()
	if err != nil || len(numbers) == 0 {
		return err
	}
	batch := c.b.store.NewBatch()
	defer batch.Close()
	for _, number := range numbers {
		batch.DeleteTopicRows(number)
		delete(c.next, number)
		delete(c.reclaimed, number)
		c.b.survey.hold(number, false)
		c.b.metrics.Cleaner.Reclaims.Inc()
	}
	c.pending = true
	return c.b.store.Reclaim(batch)
}
