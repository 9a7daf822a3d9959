// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"

	"signalbox/event"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Stored is an event that was looked up.
type Stored struct {
	Delivery
	Row     store.EventRow // its own memory
	Topic   string
	Compact bool
}

// Lookup returns an event by its place, and whether it is still there for a
// reader of the view: not expired, and in the history not compacted either.
func (d *Dispatch) Lookup(topic string, position uint64, view string) (out Stored, ok bool, err error) {
	var t *store.Topic
	var millis, now int64
	snapshot := d.store.View(func() {
		d.mu.RLock()
		defer d.mu.RUnlock()
		if v := d.topics[topic]; v != nil {
			t = v.info.Load()
		}
		millis, now = d.space.LogMillis, max(d.space.LogMillis, d.now())
	})
	defer snapshot.Close()
	if t == nil || t.Deleted || position <= t.RetiredTo {
		return out, false, nil
	}
	use := func(row store.EventRow) error {
		if row.ExpiryMillis != 0 && row.ExpiryMillis <= now {
			return nil
		}
		ok = true
		row.Key = append([]byte(nil), row.Key...)
		row.Members = append([]byte(nil), row.Members...)
		e := projector.Applied{Topic: topic, Position: position, HLC: row.HLC, Flags: row.Flags, Members: row.Members}
		out = Stored{Delivery: deliver(d.cursor(position), &e), Row: row, Topic: topic, Compact: t.Policy.Compacts()}
		return nil
	}
	found, err := snapshot.Event(t.Number, position, use)
	if err == nil && !found && view == ViewHistory && t.History > 0 && position > t.HistoryFrom() {
		_, err = snapshot.HistoryEvent(t.Number, position, func(row store.EventRow) error {
			if t.Past(position, &row, millis) {
				return nil
			}
			return use(row)
		})
	}
	return out, ok, err
}

// Original is an event of a topic of dead letters as it was delivered at first.
func (d *Dispatch) Original(row *store.EventRow, prefix uint32, topic string, position uint64) Delivery {
	e := projector.Applied{Topic: topic, Position: position, HLC: row.HLC, Flags: row.Flags, Members: row.Members[prefix:]}
	return deliver(d.cursor(position), &e)
}

// Lag is how far a reader is behind.
type Lag struct {
	Events uint64 // after its cursor; those that were superseded count, too
	Oldest int64  // log time of the first of them; 0: there is none
}

// lagTopicsMax bounds the topics that are looked at for a lag.
const lagTopicsMax = 10_000

// Lag measures how many events of the topics lie behind a cursor.
func (d *Dispatch) Lag(patterns []event.Pattern, cursor uint64) (lag Lag, err error) {
	// The patterns may be held against all topics there are, so that is done before
	// the view holds off commits. Of those that are not behind no view is taken.
	d.mu.RLock()
	matched := d.match(patterns)
	d.mu.RUnlock()
	if !slices.ContainsFunc(matched, func(v *view) bool { return v.info.Load().Last > cursor }) {
		return lag, nil
	}
	var topics []store.Topic
	snapshot := d.store.View(func() {
		for _, v := range matched {
			if t := v.info.Load(); t.Last > cursor && len(topics) < lagTopicsMax {
				topics = append(topics, *t)
			}
		}
	})
	defer snapshot.Close()
	for i := range topics {
		t := &topics[i]
		err := snapshot.Events(t.Number, max(cursor, t.RetiredTo), t.Last, func(_ uint64, row store.EventRow) (bool, error) {
			lag.Events += t.Count - row.Count + 1
			if lag.Oldest == 0 || row.LogMillis < lag.Oldest {
				lag.Oldest = row.LogMillis
			}
			return false, nil
		})
		if err != nil {
			return lag, err
		}
	}
	return lag, nil
}

// Passed counts the events of the topics between a cursor and a position, by the topics'
// figures. It reports false if something was removed that a reader at the cursor has to be
// told of.
func (d *Dispatch) Passed(patterns []event.Pattern, cursor event.Cursor, to uint64) (events uint64, ok bool, err error) {
	d.mu.RLock()
	matched := d.match(patterns)
	d.mu.RUnlock()
	for _, v := range matched {
		t := v.info.Load()
		if t.RemovedTo > max(cursor.Position, cursor.Began) {
			return 0, false, nil
		}
		if t.Last <= cursor.Position {
			continue
		}
		var first, last uint64
		err := d.store.Events(t.Number, max(cursor.Position, t.RetiredTo), to, func(_ uint64, row store.EventRow) (bool, error) {
			first = row.Count
			return false, nil
		})
		if err == nil && first > 0 {
			_, err = d.store.EventAtOrBefore(t.Number, to, func(_ uint64, row store.EventRow) error {
				last = row.Count
				return nil
			})
		}
		if err != nil {
			return 0, false, err
		}
		if last >= first && first > 0 { // else it was superseded in between
			events += last - first + 1
		}
	}
	return events, true, nil
}
