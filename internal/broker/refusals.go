// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
)

// refusalsPerSecond is how many refusals a principal gets logged one by one;
// the excess of a second becomes one entry with a count. It stops a flood of
// bad requests from filling the log.
const refusalsPerSecond = 100

// refusals logs what was refused before it became a proposal.
type refusals struct {
	b      *Broker
	mu     sync.Mutex
	second int64                // of counts; guarded by mu
	counts map[string]*refusers // by principal; guarded by mu
}

type refusers struct {
	logged int
	excess uint64
	code   event.Code // the last one in excess
}

func newRefusals(b *Broker) *refusals {
	return &refusals{b: b, counts: map[string]*refusers{}}
}

// add logs a refusal, or counts it. What was refused because nothing can be
// written is not written either.
func (r *refusals) add(p identity.Principal, topic string, code event.Code) {
	switch code {
	case event.CodeDiskFull, event.CodeShuttingDown, event.CodeOverloaded, event.CodeInternal:
		return
	}
	if r.b.disk.full.Load() {
		return // room is kept for what frees space
	}
	now := r.b.clock.Millis()
	r.flush(now)
	if event.CheckTopic(topic) != nil {
		topic = "" // whatever the caller sent, it is not a name
	}
	if r.within(p.Subject(), code) {
		r.propose(p.Subject(), topic, code, 1, now)
	}
}

func (r *refusals) within(principal string, code event.Code) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts[principal]
	if c == nil {
		c = &refusers{}
		r.counts[principal] = c
	}
	if c.logged < refusalsPerSecond {
		c.logged++
		return true
	}
	c.excess++
	c.code = code
	return false
}

// flush logs the excess of the second that is over.
func (r *refusals) flush(now int64) {
	r.mu.Lock()
	if now/1000 == r.second {
		r.mu.Unlock()
		return
	}
	r.second = now / 1000
	over := r.counts
	r.counts = map[string]*refusers{}
	r.mu.Unlock()
	for principal, c := range over {
		if c.excess > 0 {
			r.propose(principal, "", c.code, c.excess, now)
		}
	}
}

func (r *refusals) propose(principal, topic string, code event.Code, count uint64, now int64) {
	proposal := &eventlog.Proposal{
		Kind: eventlog.KindRefusal, AdmittedMillis: now, Principal: principal, Topic: topic,
		RefusedCode: string(code), RefusedCount: count,
	}
	// A queue that is full now, or a log that is closing, loses the entry:
	// refusing must not wait.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.b.log.Append(ctx, proposal)
}
