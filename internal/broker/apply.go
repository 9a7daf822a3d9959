// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"signalbox/internal/eventlog"
)

// applyLoop is the one goroutine that changes state. For each group of waiting
// proposals, in this order: it applies them, commits state and positions in
// one durable batch, offers the events to readers, and answers the callers.
func (b *Broker) applyLoop() {
	defer close(b.applyStopped)
	var group []*eventlog.Proposal
	for {
		var err error
		group, err = b.log.Next(group[:0])
		if errors.Is(err, eventlog.ErrClosed) {
			return
		}
		group = b.advanceTime(group)
		b.stamp(group)
		for rest := group; len(rest) > 0; {
			taken, err := b.applyGroup(rest)
			if err != nil {
				b.logger.Error("the state can no longer be trusted", "err", err)
				b.options.Fatal(err.Error())
				return
			}
			rest = rest[taken:]
		}
		clear(group)
	}
}

// tickAfterMillis is how far log time may be behind a proposal before a tick
// is put in front of it.
const tickAfterMillis = 1000

// advanceTime puts a tick at the head of a group that is too far ahead of log
// time for its expiries to be right.
func (b *Broker) advanceTime(group []*eventlog.Proposal) []*eventlog.Proposal {
	latest := int64(0)
	for _, p := range group {
		latest = max(latest, p.AdmittedMillis)
	}
	due := b.projector.Space().LogMillis + tickAfterMillis
	if group[0].Kind == eventlog.KindTick {
		due = max(due, group[0].AdmittedMillis+tickAfterMillis)
	}
	if latest <= due {
		return group
	}
	tick := &eventlog.Proposal{Kind: eventlog.KindTick, AdmittedMillis: latest}
	return append([]*eventlog.Proposal{tick}, group...)
}

// applyGroup applies as many proposals as share one commit, and returns how
// many it took.
func (b *Broker) applyGroup(group []*eventlog.Proposal) (taken int, err error) {
	began := b.elapsed()
	out, err := b.projector.Apply(group)
	if err != nil {
		return 0, err
	}
	defer out.Batch.Close()
	applied := b.elapsed()
	err = b.store.Commit(out.Batch, func() {
		b.registry.Store(out.Registry) // before anything that it may keep from a reader
		b.dispatch.Advance(&out)
		b.audit.advance(&out.Space)
	})
	if err != nil {
		return 0, err
	}
	durable := b.elapsed()
	if group[0].Kind == eventlog.KindTick {
		b.leftover.Store(out.Due)
	}
	var t tally
	b.bus.advance(out.Bus)
	b.deliveries.stir(out.Subscriptions)
	b.due.stir(out.Subscriptions)
	b.due.offer(out.Applied)
	for i := range out.Results {
		b.count(&t, group[i], &out.Results[i])
		if c, ok := group[i].Local.(*call); ok && group[i].Kind == eventlog.KindEvents {
			b.metrics.Publish.Ack.Observe((durable - c.began).Seconds())
		}
	}
	b.counted(&t, &out, began, applied, durable) // before anybody can have an answer and look for it
	for i, result := range out.Results {
		if c, ok := group[i].Local.(*call); ok {
			b.external.answer(c, group[i], result, out.Space.Leaves)
		}
	}
	b.external.committed(group[:out.Taken])
	return out.Taken, nil
}
