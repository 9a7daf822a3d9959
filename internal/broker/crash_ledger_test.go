// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
)

// target is a broker that is being published to, in this process or in another.
type target interface {
	Publish(ctx context.Context, p identity.Principal, req broker.PublishRequest) (broker.PublishResult, error)
	PutTopic(ctx context.Context, p identity.Principal, name string, policy event.Policy) (broker.TopicInfo, bool, error)
	DeleteTopic(ctx context.Context, p identity.Principal, name string) error
}

// errGone is what a request ends with whose broker died before it answered.
var errGone = errors.New("the broker is gone")

// attempt is one request of a publisher and what came of it.
type attempt struct {
	publisher int
	request   broker.PublishRequest
	volatile  bool // its topic may be deleted, and its events forgotten with it
	resolved  bool // it was answered before the crash
	queued    bool // without acknowledgement, and the publisher was answered after it
	result    broker.PublishResult
	refused   event.Code
}

// ledger is what publishers and readers know at the moment of the crash, and
// what the tap saw. What comes later does not count: nobody can have heard it.
type ledger struct {
	mu         sync.Mutex
	crashed    bool
	attempts   []*attempt        // of this round
	seen       map[uint64]string // of the whole history: the JSON that a reader got, by position
	faults     []string
	acked      int            // events acknowledged, in all rounds
	proposals  [][]byte       // encoded, in order, up to where the last round recovered
	tapped     [][]byte       // those of this round
	lastByPubl map[int]uint64 // highest position that a publisher was told in this round
}

func newLedger() *ledger {
	return &ledger{seen: map[uint64]string{}, lastByPubl: map[int]uint64{}}
}

// tap returns what Options.Tap calls in one life of the broker.
func (l *ledger) tap() func(*eventlog.Proposal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tapped = nil
	life := &l.tapped
	return func(p *eventlog.Proposal) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if life == &l.tapped {
			l.tapped = append(l.tapped, p.AppendBinary(nil))
		}
	}
}

// crash runs do at the moment at which the ledger stops.
func (l *ledger) crash(do func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed {
		return false
	}
	l.crashed = true
	do()
	return true
}

func (l *ledger) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.crashed
}

// begin notes a request before it is made.
func (l *ledger) begin(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.crashed {
		l.attempts = append(l.attempts, a)
	}
}

// end notes its answer, unless that came too late.
func (l *ledger) end(a *attempt, result broker.PublishResult, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed || errors.Is(err, errGone) {
		return
	}
	if a.request.NoAck && err == nil {
		return // it was queued; it is certain once the same publisher is answered
	}
	a.resolved, a.result, a.refused = true, result, errorCode(err)
	if err != nil {
		return
	}
	l.acked += len(result.Receipts)
	for _, r := range result.Receipts {
		if r.Outcome == event.OutcomeDuplicate || result.Replayed {
			continue
		}
		if last := l.lastByPubl[a.publisher]; r.Position <= last {
			l.fault("publisher %d was told position %d after %d", a.publisher, r.Position, last)
		}
		l.lastByPubl[a.publisher] = r.Position
	}
	for _, other := range l.attempts {
		if other.publisher == a.publisher && other.request.NoAck {
			other.queued = true
		}
	}
}

// saw notes what a reader got.
func (l *ledger) saw(position uint64, json string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed {
		return
	}
	if before, ok := l.seen[position]; ok && before != json {
		l.fault("position %d was %s for a reader and is now %s", position, before, json)
	}
	l.seen[position] = json
}

// fault is called with mu held.
func (l *ledger) fault(format string, args ...any) {
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// unresolved returns the requests of the last round whose outcome nobody knows.
func (l *ledger) unresolved() (out []*attempt) {
	for _, a := range l.attempts {
		if !a.resolved && !a.request.NoAck {
			out = append(out, a)
		}
	}
	return out
}
