// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/event"
)

const (
	// ledgerKeysMax is how many keys a ledger holds by default. A ledger is in memory; the bound stops a pattern that
	// matches more than was meant from filling it.
	ledgerKeysMax = 1_000_000
	// unsavedBytesMax and unsavedAge bound what a crash makes a ledger read again. Only what it read: effects are saved
	// when they happen.
	unsavedBytesMax = 1 << 20
	unsavedAge      = time.Second
	// replaceBytesMin is how many bytes of records must be appended before a store is written anew: below that it is not
	// worth it.
	replaceBytesMin = 1 << 20
)

// LedgerState says whether a ledger's agent may act.
type LedgerState uint8

const (
	// LedgerSynchronizing says that events are taken in and nothing is acted on, because it is not known what came after them.
	LedgerSynchronizing LedgerState = iota
	// LedgerActive says that the ledger has everything that was there when its stream was opened, and what came since.
	LedgerActive
)

// String returns SYNCHRONIZING or ACTIVE.
func (s LedgerState) String() string {
	if s == LedgerActive {
		return "ACTIVE"
	}
	return "SYNCHRONIZING"
}

// MarshalText gives the form of String.
func (s LedgerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Entry is what a ledger holds about one key.
type Entry struct {
	Topic, Key string
	// Event is the key's winner: of all events the one with the highest (HLC, source, id). Without data it is a
	// tombstone.
	Event *event.Event
	// Acted says that Act has dealt with this event, and Involved that it has dealt with some event of the key.
	Acted, Involved bool
}

// LedgerOptions says what a ledger follows and what its agent does. All functions are called from within Run or Ingest,
// one at a time. They may read the ledger. While one of them works, nothing is read: what takes long belongs elsewhere.
type LedgerOptions struct {
	// Topics are compacted topics, or patterns that match no others: what keeps no state has nothing to settle.
	Topics []string
	// Store keeps the ledger. Nil keeps it in memory: every start then reads the whole state, and every effect that
	// still needs to happen happens again.
	Store LedgerStore
	// Needs says whether the winner of a key calls for an action: a task that is open and mine, say. It is asked about
	// events that Act has not dealt with, and that have not expired; tombstones are among them. It must depend on
	// nothing but the entry, and Open asks it as well. Nil stands for everything that is neither a tombstone nor expired.
	Needs func(Entry) bool
	// Act does what an entry needs. It is called only while the ledger is ACTIVE, at most once at a time, and never
	// again for an event once it has returned nil. After an error Run ends; see [Effect.Uncertain] for what follows.
	// Nil makes a ledger that only watches.
	Act func(context.Context, Effect) error
	// OnActive is called at every change to ACTIVE, before Act is called for what is still open: the ledger is settled
	// and can be looked at as a whole. An error ends Run.
	OnActive func(context.Context, *Ledger) error
	// OnAntecedent is told of events that were rejected because the ledger holds a later one of their key, or because
	// the broker says that there was one. The winner has no Event in the second case.
	OnAntecedent func(ev *event.Event, winner Entry)
	// OnReset is told that the log has removed what this ledger had not seen, or is another log. The ledger then starts
	// over from the state.
	OnReset func(cause *event.Error)
	// OnRetry is told why the connection ended and when the next try follows, as in FollowOptions.
	OnRetry func(err error, wait time.Duration)
	// KeysMax bounds the keys that are held, tombstones included; 0 means 1,000,000. One more ends Run with ledger_full.
	KeysMax int
}

// LedgerFigures counts what a ledger did since it was opened.
type LedgerFigures struct {
	Taken       uint64 `json:"taken"`       // events that became the winner of their key
	Duplicates  uint64 `json:"duplicates"`  // events that were the winner already
	Antecedents uint64 `json:"antecedents"` // events that were rejected, being older than the winner
	Suppressed  uint64 `json:"suppressed"`  // events that needed an action when they came, but not while SYNCHRONIZING
	Effects     uint64 `json:"effects"`     // calls of Act that returned nil
	Uncertain   uint64 `json:"uncertain"`   // calls of Act that were told of an earlier attempt
	Resets      uint64 `json:"resets"`      // how often the ledger started over from the state
}

// Ledger is an agent's own picture of the compacted topics that it follows: for every key the newest event, and whether
// it was acted on. It keeps itself up to date while Run runs, and survives every end of that.
//
// Its cursor, its contents and the marks of what was done are saved in one record. What was taken in and not yet saved
// is read again after a crash; what was done is saved when it happens.
type Ledger struct {
	c *Client
	o LedgerOptions

	running atomic.Bool
	// policies is owned by the goroutine of Run, as is all that has no other owner.
	policies map[string]event.Policy

	mu      sync.Mutex
	book    *book              // guarded by mu for those who read it; changed by Run's goroutine
	state   LedgerState        // guarded by mu
	figures LedgerFigures      // guarded by mu
	moved   chan struct{}      // guarded by mu; closed when the book has changed, if somebody waits
	cut     context.CancelFunc // guarded by mu; ends the stream, for a repair
	repair  bool               // guarded by mu
	checks  map[string]Verdict // guarded by mu; the last verdict on each topic

	unsaved    []byte    // steps that are not in the store yet
	saved      time.Time // when the store was last brought up to date
	written    int       // bytes in the store
	replaceAt  int       // the number of bytes at which the store is written anew
	replaceDue bool      // the store must be written anew before anything is appended
	reload     bool      // a transaction failed: whether it took effect, only the store knows
}

// OpenLedger opens a ledger and loads what its store holds. It does not connect; Run does.
func OpenLedger(ctx context.Context, c *Client, o LedgerOptions) (*Ledger, error) {
	if err := (FollowOptions{}).check(o.Topics); err != nil {
		return nil, err
	}
	if o.KeysMax <= 0 {
		o.KeysMax = ledgerKeysMax
	}
	l := &Ledger{c: c, o: o, policies: map[string]event.Policy{}, checks: map[string]Verdict{}}
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// load makes the ledger what its store holds.
func (l *Ledger) load(ctx context.Context) error {
	book, written := newBook(), 0
	if l.o.Store != nil {
		err := l.o.Store.Load(ctx, func(record []byte) error {
			written += len(record)
			return book.replay(record)
		})
		if err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.book = book
	l.mu.Unlock()
	l.unsaved, l.replaceDue, l.reload = nil, false, false
	l.written, l.replaceAt = written, max(replaceBytesMin, 2*written)
	l.c.observe(book.clock)
	return nil
}

// Run follows the topics until ctx ends, and returns why it ended. It may be called again: the ledger goes on where it
// was. While the broker cannot be reached it is SYNCHRONIZING and tries again, as long as it takes.
func (l *Ledger) Run(ctx context.Context) (err error) {
	if !l.running.CompareAndSwap(false, true) {
		return errors.New("client: the ledger is running already")
	}
	defer l.running.Store(false)
	defer func() {
		l.Disconnected()
		if l.reload {
			return
		}
		if saving := l.save(context.WithoutCancel(ctx)); saving != nil {
			err = errors.Join(err, saving)
		}
	}()
	if l.reload {
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	for {
		err := l.follow(ctx)
		l.Disconnected()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		cause, start := l.startsOver(err)
		if !start {
			return err
		}
		if l.o.OnReset != nil && cause != nil {
			l.o.OnReset(cause)
		}
		if err := l.bootstrap(ctx); err != nil {
			return err
		}
	}
}

// follow reads one stream after the other, until the agent, the log or a repair ends it.
func (l *Ledger) follow(ctx context.Context) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	l.mu.Lock()
	l.cut = cut
	repair := l.repair
	l.mu.Unlock()
	if repair {
		return errRepair
	}
	o := FollowOptions{Cursor: l.Cursor(), OnRetry: func(err error, wait time.Duration) {
		l.Disconnected()
		if l.o.OnRetry != nil {
			l.o.OnRetry(err, wait)
		}
	}}
	for item, err := range l.c.Follow(ctx, l.o.Topics, o) {
		if err == nil {
			err = l.Ingest(ctx, item)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errRepair ends a stream whose ledger is to start over.
var errRepair = errors.New("client: the ledger is to be repaired")

// startsOver says whether an end of a stream calls for starting over from the state, and for which reset.
func (l *Ledger) startsOver(err error) (cause *event.Error, start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.repair {
		l.repair = false
		return nil, true
	}
	if errors.As(err, &cause) {
		switch cause.Code {
		case event.CodeCursorExpired, event.CodeCursorForeign, event.CodeCursorUnknown:
			return cause, true
		}
	}
	return nil, false
}

// Repair makes a running ledger start over from the state, as after a reset: for an agent whose Check found that it
// has diverged. Marks of what was done are kept.
func (l *Ledger) Repair() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.repair = true
	if l.cut != nil {
		l.cut()
	}
}

// bootstrap replaces the contents by the state of the topics. What was done stays known.
func (l *Ledger) bootstrap(ctx context.Context) error {
	clear(l.policies)
	next := newBook()
	err := l.patiently(ctx, func() (err error) {
		next = newBook()
		s, err := l.c.State(ctx, l.o.Topics...)
		if unknownTopic(err) {
			return nil // It is gone, and its state with it. What comes is read from the oldest that is retained.
		}
		if err != nil {
			return err
		}
		for ev, err := range s.Events() {
			if err != nil {
				return &UnreachableError{URL: l.c.base, Attempts: 1, Err: err}
			}
			key, err := l.keyOf(ctx, ev)
			if err != nil {
				return err
			}
			if next.put(key, ev, false); next.rows > l.o.KeysMax {
				return l.full()
			}
		}
		next.cursor, next.log = s.Cursor(), s.LogTime()
		return nil
	})
	if err != nil {
		return err
	}
	l.adopt(next)
	return l.save(ctx)
}

func unknownTopic(err error) bool {
	e := (*event.Error)(nil)
	return errors.As(err, &e) && e.Code == event.CodeTopicUnknown
}

// adopt makes the contents of another book this ledger's. Marks of effects stay, and so does the knowledge which keys
// were acted on: the world outside was not reset.
func (l *Ledger) adopt(next *book) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, r := range next.all() {
		if old := l.book.topics[r.event.Topic()][key]; old != nil {
			r.involved = old.involved
		}
	}
	l.book.topics, l.book.rows, l.book.cursor = next.topics, next.rows, next.cursor
	if next.log.After(l.book.log) {
		l.book.log = next.log
	}
	l.unsaved, l.replaceDue = nil, true
	l.figures.Resets++
	l.wake()
}

// patiently repeats what fails only because the broker cannot be reached.
func (l *Ledger) patiently(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		wait := l.c.retry.wait(n, 0)
		if l.o.OnRetry != nil {
			l.o.OnRetry(err, wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// passing says whether an error of a call goes away by itself.
func passing(err error) bool {
	if u := (*UnreachableError)(nil); errors.As(err, &u) {
		return true
	}
	e := (*event.Error)(nil)
	return errors.As(err, &e) && e.Code.Class().Retryable
}

// keyOf returns the key of an event, and learns the policy of its topic where that is needed.
func (l *Ledger) keyOf(ctx context.Context, ev *event.Event) (string, error) {
	policy, known := l.policies[ev.Topic()]
	if !known {
		err := l.patiently(ctx, func() error {
			info, err := l.c.Topic(ctx, ev.Topic())
			policy = info.Policy
			return err
		})
		if err != nil {
			return "", fmt.Errorf("client: learn the policy of %s: %w", ev.Topic(), err)
		}
		l.policies[ev.Topic()] = policy
	}
	key, ok := KeyOf(ev, policy.KeyFrom)
	if !ok || !policy.Compacts() {
		return "", event.Errorf(event.CodeNotCompacted,
			"Topic %q keeps no state, so a ledger has nothing to settle there; read it with Follow.", ev.Topic()).With("topics")
	}
	return key, nil
}

func (l *Ledger) full() error {
	return event.Errorf(event.CodeLedgerFull, "The ledger would hold more than %d keys.", l.o.KeysMax).Fact("limit", l.o.KeysMax)
}
