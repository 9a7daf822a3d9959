// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"time"

	"signalbox/event"
)

// Ingest takes in one item of a stream. Run does it by itself; it is for agents that read by other doors, and must not
// be called while Run runs. An ItemReset is answered with the reset's error: start over with Run.
func (l *Ledger) Ingest(ctx context.Context, item Item) error {
	switch item.Kind {
	case ItemEvent:
		return l.take(ctx, item)
	case ItemProgress:
		l.moveTo(item.Cursor)
		return l.saveIfDue(ctx)
	case ItemSynced:
		return l.settle(ctx, item)
	case ItemReset:
		return item.Reset.Err()
	}
	return nil
}

// Disconnected says that the stream has ended: what happens from now on is not known until the next marker. Run does it
// by itself.
func (l *Ledger) Disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = LedgerSynchronizing
}

// take puts an event in, and acts on it if it calls for that and the ledger is ACTIVE.
func (l *Ledger) take(ctx context.Context, item Item) error {
	ev := item.Event
	l.c.observe(ev.HLC())
	key, err := l.keyOf(ctx, ev)
	if err != nil {
		return err
	}
	entry, verdict, state, err := l.enter(key, ev, item.Cursor)
	if err != nil {
		return err
	}
	if verdict == eventAntecedes && l.o.OnAntecedent != nil {
		l.o.OnAntecedent(ev, entry)
	}
	if verdict == eventWins && l.needs(entry, l.now()) {
		if state == LedgerActive {
			return l.act(ctx, entry)
		}
		l.count(func(f *LedgerFigures) { f.Suppressed++ })
	}
	return l.saveIfDue(ctx)
}

// enter puts an event into the book if it wins, and moves the cursor. The entry is the key's winner afterwards.
func (l *Ledger) enter(key string, ev *event.Event, cursor event.Cursor) (Entry, verdictOnEvent, LedgerState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	verdict, r := l.book.judge(key, ev)
	if own := l.book.cursor; cursor.Incarnation == own.Incarnation && cursor.Position <= own.Position {
		// Everything up to the cursor is in. What is sent once more may have been removed since, and must not come back.
		verdict = eventRepeats
	}
	switch verdict {
	case eventWins:
		if r == nil && l.book.rows >= l.o.KeysMax {
			return Entry{}, verdict, l.state, l.full()
		}
		l.book.put(key, ev, false)
		r = l.book.topics[ev.Topic()][key]
		l.unsaved = appendPut(l.unsaved, key, r)
		l.figures.Taken++
	case eventRepeats:
		l.figures.Duplicates++
	case eventAntecedes:
		l.figures.Antecedents++
	}
	l.advance(cursor)
	if r == nil {
		return Entry{Topic: ev.Topic(), Key: key}, verdict, l.state, nil
	}
	return l.book.entry(key, r), verdict, l.state, nil
}

func (l *Ledger) moveTo(cursor event.Cursor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(cursor)
}

// advance moves the cursor, never backwards within one log. It is called with the lock held.
func (l *Ledger) advance(cursor event.Cursor) {
	own := l.book.cursor
	if cursor == (event.Cursor{}) || cursor.Incarnation == own.Incarnation && cursor.Position < own.Position {
		return
	}
	l.book.cursor = cursor
	l.wake()
}

// settle is what the marker brings about: the ledger is ACTIVE, and what still needs an action gets it, in the order in
// which it came to be.
func (l *Ledger) settle(ctx context.Context, item Item) error {
	l.mu.Lock()
	l.advance(item.Cursor)
	if item.LogTime.After(l.book.log) {
		l.book.log = item.LogTime
	}
	was := l.state
	l.state = LedgerActive
	l.forget()
	l.mu.Unlock()
	if err := l.save(ctx); err != nil {
		return err
	}
	if was == LedgerActive {
		return nil
	}
	if l.o.OnActive != nil {
		if err := l.o.OnActive(ctx, l); err != nil {
			return err
		}
	}
	for entry := range l.Open() {
		// A while may have passed since the one before.
		if l.needs(entry, l.now()) {
			if err := l.act(ctx, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget drops rows that keep older events out, once the broker does so by itself: after the topic's delete_retention
// its floor takes over. A day more covers producers whose clocks are behind. It is called with the lock held.
func (l *Ledger) forget() {
	longest := 24 * time.Hour
	for _, p := range l.policies {
		longest = max(longest, time.Duration(p.DeleteRetention))
	}
	for _, k := range l.book.hidden(l.now().Add(-longest - 24*time.Hour)) {
		l.book.drop(k[0], k[1])
		l.unsaved = appendStep(l.unsaved, stepDrop, []byte(k[0]), []byte(k[1]))
	}
}

// now is the time by which things expire: the agent's clock, or the log's where that is ahead, as the broker has it. It
// is called with the lock held, or by the goroutine of Run, which alone moves the log's time.
func (l *Ledger) now() time.Time {
	now := time.Now()
	if l.c.clock != nil {
		now = l.c.clock.wall()
	}
	if l.book.log.After(now) {
		return l.book.log
	}
	return now
}

// needs says whether an entry calls for an action now.
func (l *Ledger) needs(e Entry, now time.Time) bool {
	if e.Acted {
		return false
	}
	if expiry, ok := e.Event.ExpiryTime(); ok && !expiry.After(now) {
		return false
	}
	if l.o.Needs == nil {
		return live(e.Event, time.Time{})
	}
	return l.o.Needs(e)
}

func (l *Ledger) count(change func(*LedgerFigures)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.figures)
}

// State says whether the agent may act.
func (l *Ledger) State() LedgerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Cursor is up to where the ledger has everything.
func (l *Ledger) Cursor() event.Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.cursor
}

// Figures returns what was counted so far.
func (l *Ledger) Figures() LedgerFigures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.figures
}

// Get returns the entry of a key that has a state: neither a tombstone nor expired.
func (l *Ledger) Get(topic, key string) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.book.topics[topic][key]
	if r == nil || !live(r.event, l.now()) {
		return Entry{}, false
	}
	return l.book.entry(key, r), true
}

// Entries returns what has a state, in the order in which it came to be. It is a copy of this moment.
func (l *Ledger) Entries() iter.Seq[Entry] {
	return l.these(func(e Entry, now time.Time) bool { return live(e.Event, now) })
}

// Open returns what still needs an action, in the order in which it came to be. Once the ledger is ACTIVE and Act has
// dealt with everything, there is nothing.
func (l *Ledger) Open() iter.Seq[Entry] { return l.these(l.needs) }

func (l *Ledger) these(test func(Entry, time.Time) bool) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		l.mu.Lock()
		entries, now := l.book.entries(), l.now()
		l.mu.Unlock()
		for _, e := range entries {
			if test(e, now) && !yield(e) {
				return
			}
		}
	}
}
