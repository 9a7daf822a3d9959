// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"
	"sync/atomic"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
)

// The reasons for which a stream of a subscription ends.
const (
	EndReplaced = "replaced" // another connection took its place
	EndChanged  = "changed"  // the subscription was changed, or its cursor moved
	EndPaused   = "paused"
	EndDeleted  = "deleted"
)

// deliveries knows who is using which subscription just now. All of it may be
// lost: what must survive is in the subscriptions' rows.
type deliveries struct {
	mu       sync.Mutex
	sessions map[string]*session  // by subscription id; guarded by mu
	calls    map[string]attention // what the keeper has to look at; guarded by mu
	wake     chan struct{}        // holds one token when there are calls
	swept    int64                // when sweep has looked last; owned by its caller
}

// attention is what apply has found out of a subscription and leaves to the broker.
type attention struct{ used, spent, unused, failing bool }

// session is shared by all who use a subscription at one time.
type session struct {
	turn    chan struct{} // held by whoever plans a hand-out; one token
	users   int           // guarded by deliveries.mu
	changed chan struct{} // closed and replaced when the subscription changes; guarded by deliveries.mu
	stream  *Attachment   // the connection that has the stream; guarded by deliveries.mu

	// The reader of the last hand-out; owned by whoever has the turn.
	reader *dispatch.Reader
	filter string // what the reader was opened for
	ahead  ahead
	passed dispatch.Counts

	matched, dropped, failed atomic.Uint64 // by a stream, not yet stored
}

// ahead is how far a session's reader is ahead of what is stored, where nothing
// has passed in between: it need not look at that again.
type ahead struct {
	epoch    uint32 // of the subscription
	from, to eventlog.Place
	counts   eventlog.Counts // in between
}

func newDeliveries() *deliveries {
	return &deliveries{sessions: map[string]*session{}, calls: map[string]attention{}, wake: make(chan struct{}, 1)}
}

// count is told by the reader what became of the events of a window.
func (s *session) count(c dispatch.Counts) { s.passed = c }

// enter returns the session of a subscription, for one more user.
func (d *deliveries) enter(id string) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[id]
	if s == nil {
		s = &session{turn: make(chan struct{}, 1), changed: make(chan struct{})}
		d.sessions[id] = s
	}
	s.users++
	return s
}

// leave gives the session up; after the last user nothing of it is left.
func (d *deliveries) leave(id string, s *session) {
	d.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(d.sessions, id)
	}
	d.mu.Unlock()
	if last && s.reader != nil {
		s.reader.Close()
	}
}

// inUse counts the subscriptions that somebody is using.
func (d *deliveries) inUse() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}

// changes returns a channel that is closed when the subscription changes.
func (d *deliveries) changes(s *session) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.changed
}

// callsMax bounds what the keeper has to do. What does not fit is found again:
// spent events by the next hand-out, unused subscriptions by their timer.
const callsMax = 10_000

// stir wakes whoever waits for a subscription that a commit has changed.
func (d *deliveries) stir(stirred []projector.Stirred) {
	if len(stirred) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range stirred {
		if session := d.sessions[s.ID]; session != nil {
			close(session.changed)
			session.changed = make(chan struct{})
		}
		if !s.Spent && !s.Unused && !s.Failing || len(d.calls) >= callsMax {
			continue
		}
		d.call(s.ID, attention{spent: s.Spent, unused: s.Unused, failing: s.Failing})
	}
}

// call has the keeper look at a subscription. It is called with d.mu held.
func (d *deliveries) call(id string, why attention) {
	a := d.calls[id]
	d.calls[id] = attention{a.used || why.used, a.spent || why.spent, a.unused || why.unused, a.failing || why.failing}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// called takes what the keeper has to look at.
func (d *deliveries) called() map[string]attention {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = map[string]attention{}
	return calls
}

// end ends the stream of a subscription, if it has one.
func (d *deliveries) end(id, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.stream != nil {
		s.stream.end(reason)
		s.stream = nil
	}
}

// sweep finds the streams whose connection is still there and was not noted lately: a
// quiet topic gives its client nothing to acknowledge. It is called by one goroutine.
func (d *deliveries) sweep(now int64) {
	if now < d.swept+tickInterval {
		return
	}
	d.swept = now
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.sessions {
		if a := s.stream; a != nil && a.expires > 0 && now-a.noted > a.expires/projector.UnusedShare && len(d.calls) < callsMax {
			a.noted = now
			d.call(id, attention{used: true})
		}
	}
}

// attached reports whether a connection has the stream of a subscription.
func (d *deliveries) attached(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[id]
	return s != nil && s.stream != nil
}

// noted says that the use of a connection's stream was noted, and how long it may be
// unused, in ms; 0 if it never ends by itself.
func (d *deliveries) noted(a *Attachment, now, expires int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.noted, a.expires = now, expires
}

// stop ends a connection's stream for a reason of its own.
func (d *deliveries) stop(a *Attachment, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.end(reason)
}

// take gives the stream to a connection; the newest wins, for an old one may be
// dead without anybody knowing it yet.
func (d *deliveries) take(s *session, a *Attachment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.stream != nil {
		s.stream.end(EndReplaced)
	}
	s.stream = a
}

// release takes the stream from a connection, if it still has it.
func (d *deliveries) release(s *session, a *Attachment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.stream == a {
		s.stream = nil
	}
}

// lock waits for the turn to plan a hand-out.
func (s *session) lock(ctx context.Context) error {
	if ctx.Err() == nil { // where both is so, select takes either
		select {
		case s.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return event.Errorf(event.CodeOverloaded, "The request ended before it was its turn: %w.", ctx.Err())
}

func (s *session) unlock() { <-s.turn }
