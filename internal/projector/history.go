// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"bytes"

	"signalbox/event"
	"signalbox/internal/store"
)

// young returns the row of a winner that is about to be superseded or purged, if
// the topic keeps it as history; nil if it does not.
func (p *Projector) young(t *topic, winner *store.WinnerRow) (kept *store.EventRow, err error) {
	if t.Policy.MinCompactionLag == 0 || winner.Flags&store.WinnerHidden != 0 {
		return nil, nil
	}
	keep := func(row store.EventRow) error {
		expired := row.ExpiryMillis != 0 && row.ExpiryMillis <= p.space.LogMillis // and its timer may have fired
		if !expired && !t.Past(winner.Position, &row, p.space.LogMillis) {
			row.Key, row.Members = bytes.Clone(row.Key), bytes.Clone(row.Members)
			kept = &row
		}
		return nil
	}
	if row, ok := p.overlay.events.get(winner.Position); ok {
		return kept, keep(row)
	}
	found, err := p.store.Event(t.Number, winner.Position, keep)
	if err == nil && !found {
		err = store.Damagedf("the winner at position %d of topic %q has no event", winner.Position, t.Name)
	}
	return kept, err
}

// leave takes a winner's event away: it becomes history, or it goes. Its row is
// not hidden. After the lag has become longer, a winner is kept that is before what
// compaction took under the shorter one, so history begins there again.
func (p *Projector) leave(t *topic, winner *store.WinnerRow, kept *store.EventRow) {
	p.batch.DeleteEvent(t.Number, winner.Position)
	if kept != nil {
		p.batch.SetHistory(t.Number, winner.Position, kept)
		t.History++
		t.CompactedTo = min(t.CompactedTo, winner.Position-1)
		return
	}
	t.Events--
	t.Retained -= uint64(winner.Size)
}

// giveUp notes what is past the lag that a longer one is about to take the place of.
// It stays given up: what had superseded it may be gone, so that whoever got it again
// would take it for the value of its key. Only positions are noted, as there may be
// more than one entry should touch, and the rows wait for compact.
func (p *Projector) giveUp(t *topic, policy *event.Policy) error {
	before := t.Policy.MinCompactionLag
	if policy.MinCompactionLag <= before || t.History == 0 {
		return nil
	}
	last, err := p.store.HistoryUntil(&t.Topic, p.space.LogMillis-before.Std().Milliseconds())
	t.GivenUpTo = max(t.GivenUpTo, last)
	return err
}

// compact removes what is superseded and past the topic's lag, up to a position. The cleaner proposes it; what may go is decided here, from log
// time. Readers have missed nothing by it. The rows go in this commit, and are not
// left to be reclaimed like those of retention: what retention has passed never comes
// back, but CompactedTo may, see leave.
func (p *Projector) compact(name string, to uint64) error {
	t := p.topics[name]
	if t == nil || t.Deleted || t.History == 0 {
		return nil
	}
	rows, all := 0, false
	err := p.store.Histories(t.Number, t.HistoryFrom(), to, func(position uint64, row store.EventRow) (bool, error) {
		if !t.Past(position, &row, p.space.LogMillis) {
			all = true // that were past the lag; the last one given up may have expired
			return false, nil
		}
		p.batch.DeleteHistory(t.Number, position)
		p.drop(t, &row)
		t.CompactedTo = position
		rows++
		return rows < retireRowsMax, nil
	})
	if rows > 0 {
		if all || t.CompactedTo >= t.GivenUpTo {
			t.GivenUpTo = 0
		}
		p.touch(t)
	}
	return err
}

// drop takes a superseded event out of the figures. With the last one nothing that was
// given up is left.
func (p *Projector) drop(t *topic, row *store.EventRow) {
	if t.History--; t.History == 0 {
		t.GivenUpTo = 0
	}
	t.Events--
	t.Retained -= uint64(len(row.Members))
}

// expireHistory removes a superseded event whose expirytime has come.
func (p *Projector) expireHistory(t *topic, timer store.Timer) error {
	if t.History == 0 || timer.Position <= t.HistoryFrom() {
		return nil
	}
	found, err := p.store.HistoryEvent(t.Number, timer.Position, func(row store.EventRow) error {
		p.drop(t, &row)
		p.expiryEntry(t, timer.Position, row.HLC)
		return nil
	})
	if err != nil || !found {
		return err
	}
	p.batch.DeleteHistory(t.Number, timer.Position)
	p.touch(t)
	return nil
}
