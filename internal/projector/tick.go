// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/event"
	"signalbox/internal/store"
)

// tick moves log time forward, and does what is due, at most a portion of it.
// It reports whether something that is due was left over.
func (p *Projector) tick(millis int64) (due bool, err error) {
	p.space.LogMillis = max(p.space.LogMillis, millis)
	p.rotate()
	return p.fireTimers()
}

// rotate begins a new generation of deduplication records once the current one
// is a window old. Look-ups see two generations, so a record is found for at
// least a whole window; its own time decides the rest.
func (p *Projector) rotate() {
	if p.space.GenerationMillis == 0 {
		p.space.GenerationMillis = p.space.LogMillis
	}
	if p.space.LogMillis-p.space.GenerationMillis < p.settings.DedupMillis {
		return
	}
	if p.space.Generation > 0 {
		p.batch.DeleteGeneration(p.space.Generation - 1)
	}
	p.space.Generation++
	p.space.GenerationMillis = p.space.LogMillis
}

func (p *Projector) fireTimers() (due bool, err error) {
	var fired []store.Timer
	err = p.store.Timers(func(t store.Timer) (bool, error) {
		if t.DueMillis > p.space.LogMillis {
			return false, nil
		}
		if len(fired) == p.settings.TimersPerTick {
			due = true
			return false, nil
		}
		fired = append(fired, t)
		return true, nil
	})
	if err != nil || len(fired) == 0 {
		return due, err
	}
	// Before the timers that firing arms, for a range delete removes what
	// stands before it in the batch.
	p.batch.DeleteTimers(fired[len(fired)-1])
	looked := 0
	for _, timer := range fired {
		if timer.Kind == store.TimerDeadline || timer.Kind == store.TimerUnused {
			if looked >= deadlineRowsMax {
				p.batch.SetTimer(timer)
				due = true
				continue
			}
			rows, err := p.lookAt(timer)
			if err != nil {
				return due, err
			}
			looked += rows
			continue
		}
		if timer.Kind == store.TimerMessage || timer.Kind == store.TimerSilence {
			if err := p.lookAtMessage(timer); err != nil {
				return due, err
			}
			continue
		}
		t := p.numbers[timer.Topic]
		if t == nil {
			continue // the topic was deleted
		}
		if timer.Kind == store.TimerExpire {
			err = p.expire(t, timer)
		} else {
			err = p.purge(t, timer)
		}
		if err != nil {
			return due, err
		}
	}
	return due, nil
}

// deadlineRowsMax bounds the pending events that one tick goes through.
const deadlineRowsMax = 20_000

// lookAt fires a timer of a subscription.
func (p *Projector) lookAt(timer store.Timer) (rows int, err error) {
	if timer.Kind == store.TimerUnused {
		return 1, p.lookUnused(timer)
	}
	return p.lookDeadlines(timer)
}

// lookAtMessage fires a timer of a ticket message or of an agent.
func (p *Projector) lookAtMessage(timer store.Timer) error {
	if timer.Kind == store.TimerSilence {
		return p.missBeats(timer)
	}
	return p.missDeadline(timer)
}

// expire removes an event whose expirytime has come. In a compacted topic its
// row stays for delete_retention and guards the key against older values.
func (p *Projector) expire(t *topic, timer store.Timer) error {
	if timer.Position <= t.RetiredTo {
		return nil
	}
	var key string
	var hlc event.HLC
	var tombstone bool
	found, err := p.store.Event(t.Number, timer.Position, func(row store.EventRow) error {
		key, hlc, tombstone = string(row.Key), row.HLC, row.Flags&store.EventTombstone != 0
		return nil
	})
	if err != nil {
		return err
	}
	if !found {
		return p.expireHistory(t, timer)
	}
	if TicketTopic(t.Name) {
		return p.messageExpiry(t, timer.Position, hlc)
	}
	if !t.Policy.Compacts() {
		p.batch.DeleteEvent(t.Number, timer.Position)
		p.expiryEntry(t, timer.Position, hlc)
		return nil // the figures of such a topic count up to what was retired
	}
	winner, ok, err := p.winner(t, key)
	if err != nil || !ok || winner.Position != timer.Position {
		return err // this tick has purged it, and a row is deleted only once
	}
	p.batch.DeleteEvent(t.Number, timer.Position)
	p.expiryEntry(t, timer.Position, hlc)
	p.touch(t)
	t.Events--
	t.Retained -= uint64(winner.Size)
	if tombstone {
		t.RemovedTo = max(t.RemovedTo, timer.Position)
	} else {
		t.Keys--
		t.Tombstones++
		p.batch.SetTimer(store.Timer{
			DueMillis: p.space.LogMillis + t.Policy.DeleteRetention.Std().Milliseconds(),
			Topic:     t.Number, Position: timer.Position, Kind: store.TimerPurge, Key: key,
		})
	}
	winner.Flags |= store.WinnerHidden
	p.setWinner(t, key, winner)
	return nil
}

// purge forgets a tombstone, or a winner that expired, if nothing newer won
// since.
func (p *Projector) purge(t *topic, timer store.Timer) error {
	winner, ok, err := p.winner(t, timer.Key)
	if err != nil || !ok || winner.Position != timer.Position {
		return err
	}
	if winner.Flags&store.WinnerHidden == 0 {
		kept, err := p.young(t, &winner)
		if err != nil {
			return err
		}
		p.leave(t, &winner, kept)
		t.RemovedTo = max(t.RemovedTo, timer.Position)
	}
	p.forget(t, timer.Key, &winner)
	return nil
}
