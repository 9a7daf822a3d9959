// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/ticket"
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
// written is not written either. Message is what was refused if it was to be a ticket
// message.
func (r *refusals) add(p identity.Principal, topic string, code event.Code, message []byte) {
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
	if !r.within(p.Subject(), code) {
		return
	}
	proposal := &eventlog.Proposal{
		Kind: eventlog.KindRefusal, AdmittedMillis: now, Principal: p.Subject(), Topic: topic, RefusedCode: string(code), RefusedCount: 1,
	}
	if claims := ticket.Claims(message); claims != (ticket.Header{}) {
		proposal.Message = &eventlog.Message{Ticket: claims.TicketID, ID: claims.ID, Type: claims.Type, From: claims.From}
	}
	r.propose(proposal)
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
			r.propose(&eventlog.Proposal{
				Kind: eventlog.KindRefusal, AdmittedMillis: now, Principal: principal, RefusedCode: string(c.code), RefusedCount: c.excess,
			})
		}
	}
}

func (r *refusals) propose(proposal *eventlog.Proposal) {
	// A queue that is full now, or a log that is closing, loses the entry:
	// refusing must not wait.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.b.log.Append(ctx, proposal)
}

// Refused tells the broker of a request that a transport refused before it
// became a proposal. It is counted, and logged within limits; what was to be
// kept in memory only leaves nothing in the log either.
func (b *Broker) Refused(p identity.Principal, topic string, err *event.Error) {
	b.refused(p, topic, err, nil)
}

func (b *Broker) refused(p identity.Principal, topic string, err *event.Error, message []byte) {
	b.metrics.Publish.Refused(cause(err), 1)
	if err.Facts[factEscalated] == true {
		return
	}
	if b.dispatch.Ephemeral(topic) {
		return
	}
	b.refusals.add(p, topic, err.Code, message)
}

// refusedRequest is Refused for a request to publish, which may be a ticket message
// that came as an event.
func (b *Broker) refusedRequest(p identity.Principal, req *PublishRequest, err *event.Error) {
	var message []byte
	if projector.TicketTopic(req.Topic) && len(req.Events) == 1 {
		message = req.Events[0].Data()
	}
	b.refused(p, req.Topic, err, message)
}
