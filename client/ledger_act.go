// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/hex"
	"maps"
	"time"

	"signalbox/event"
)

// Effect is an entry to act on.
type Effect struct {
	Entry
	// Uncertain says that an attempt was begun before, by this process or by one that died, and that it is not known how
	// far it came. An action that its receiver recognises by ID can simply be repeated. Of any other the agent has to
	// find out whether it happened, and return nil if it did.
	Uncertain bool
	// Stamp is an HLC drawn at the first attempt, after the event and everything else that was read. It is the same at
	// every attempt, and 0 if the client has no clock.
	Stamp event.HLC
}

// ID names the effect: the same at every attempt, in every process, and different for every event. It is meant as the
// idempotency key of whatever the agent calls, and as the id of an event that it publishes.
func (e Effect) ID() string {
	id := effectOf(e.Event)
	return hex.EncodeToString(id[:])
}

// Draft fills in what makes an event that the effect publishes the same at every attempt, so that the broker recognises
// a repetition: the effect's ID as id, if the draft has none, and its Stamp as hlc. The rest of the draft must not change
// from attempt to attempt either. An effect that publishes several events gives them ids that begin with ID.
//
// The causationid is the id of the event that is acted on.
func (e Effect) Draft(d event.Draft) event.Draft {
	if d.ID == "" {
		d.ID = e.ID()
	}
	own := map[string]any{"causationid": e.Event.ID()}
	if e.Stamp != 0 {
		own[attrHLC] = e.Stamp.String()
	}
	maps.Copy(own, d.Extensions)
	d.Extensions = own
	return d
}

// act deals with one entry. Before the action its beginning is on disk, and afterwards its end together with the cursor
// and everything else that the ledger took in, so that at no instant a crash can lead to a second action that does not
// know of the first. A store that is part of the agent's database does better: it commits both at once.
func (l *Ledger) act(ctx context.Context, e Entry) error {
	if l.o.Act == nil {
		return l.saveIfDue(ctx)
	}
	id := effectOf(e.Event)
	effect := Effect{Entry: e}
	l.mu.Lock()
	if m := l.book.marks[id]; m != nil {
		effect.Uncertain, effect.Stamp = true, m.stamp
		l.figures.Uncertain++
	} else if l.c.clock != nil {
		effect.Stamp = l.c.clock.Stamp()
	}
	l.mu.Unlock()
	store, transacts := l.o.Store.(LedgerTransactor)
	if transacts {
		return l.actWithin(ctx, store, id, effect)
	}
	if l.o.Store != nil && !effect.Uncertain {
		l.note(id, effect, false)
		if err := l.save(ctx); err != nil {
			return err
		}
	}
	if err := l.o.Act(ctx, effect); err != nil {
		l.note(id, effect, false)
		return err
	}
	l.note(id, effect, true)
	// What was done is recorded even if ctx has ended meanwhile.
	return l.save(context.WithoutCancel(ctx))
}

// note marks how far an effect has come, in the book and in what is to be saved.
func (l *Ledger) note(id effectID, effect Effect, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsaved = appendMark(l.unsaved, id, &mark{stamp: effect.Stamp, done: done})
	l.book.mark(id, effect.Stamp, done)
	if !done {
		return
	}
	l.figures.Effects++
	if r := l.book.topics[effect.Topic][effect.Key]; r != nil {
		r.involved = true
		l.unsaved = appendStep(l.unsaved, stepInvolved, []byte(effect.Topic), []byte(effect.Key))
	}
}

// actWithin acts in a transaction of the agent's own database.
func (l *Ledger) actWithin(ctx context.Context, store LedgerTransactor, id effectID, effect Effect) error {
	if err := l.replaceIfDue(ctx); err != nil {
		return err
	}
	before := l.place()
	record := appendMark(before, id, &mark{stamp: effect.Stamp, done: true})
	record = appendStep(record, stepInvolved, []byte(effect.Topic), []byte(effect.Key))
	if err := store.Transact(ctx, record, func(ctx context.Context) error { return l.o.Act(ctx, effect) }); err != nil {
		l.reload = true
		return err
	}
	l.note(id, effect, true)
	l.unsaved = nil // It is all in the record.
	l.kept(len(record))
	return nil
}

// place returns what is not saved yet, and where the ledger is, as a record of its own.
func (l *Ledger) place() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c.clock != nil {
		l.book.clock = l.c.clock.Last()
	}
	return l.book.appendPlace(append([]byte(nil), l.unsaved...))
}

// save makes everything durable that the ledger took in and did.
func (l *Ledger) save(ctx context.Context) error {
	if l.o.Store == nil {
		l.unsaved, l.replaceDue = nil, false
		return nil
	}
	if err := l.replaceIfDue(ctx); err != nil {
		return err
	}
	record := l.place()
	if err := l.o.Store.Append(ctx, record); err != nil {
		return err
	}
	l.unsaved = nil
	l.kept(len(record))
	return nil
}

func (l *Ledger) kept(bytes int) {
	l.written += bytes
	l.saved = time.Now()
}

// saveIfDue saves when there is much to be read again, or what there is has waited for long.
func (l *Ledger) saveIfDue(ctx context.Context) error {
	if len(l.unsaved) < unsavedBytesMax && time.Since(l.saved) < unsavedAge {
		return nil
	}
	return l.save(ctx)
}

// replaceIfDue writes the store anew when most of it is out of date.
func (l *Ledger) replaceIfDue(ctx context.Context) error {
	if !l.replaceDue && l.written < l.replaceAt {
		return nil
	}
	l.place() // so that the clock is in it
	written := 0
	err := l.o.Store.Replace(ctx, func(yield func([]byte) bool) {
		for record := range l.book.snapshot() {
			if written += len(record); !yield(record) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	l.unsaved, l.replaceDue = nil, false
	l.written, l.replaceAt = written, max(replaceBytesMin, 2*written)
	return nil
}
