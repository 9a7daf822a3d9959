// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
)

// Pending is a request that has its place in the order and whose answer is to
// come. It belongs to one goroutine.
type Pending struct {
	broker   *Broker
	proposal *eventlog.Proposal // nil: settled is the answer
	settled  PublishResult      // of an empty batch, and on an ephemeral topic
	call     *call
}

// Submit is Publish for a caller that has more to do than to wait. It returns
// once the request has its place in the order, which is that of the calls of
// one goroutine, and sends to wake, without blocking, when the answer is there.
// NoAck has no meaning here.
func (b *Broker) Submit(ctx context.Context, p identity.Principal, req PublishRequest, wake chan<- struct{}) (*Pending, error) {
	if result, placed, err := b.tryPlace(p, &req); placed {
		return &Pending{settled: result}, err
	}
	proposal, err := b.admit(p, &req)
	if err != nil {
		refused := event.AsError(err)
		b.refusedRequest(p, &req, refused)
		return nil, refused
	}
	if proposal == nil {
		return &Pending{settled: PublishResult{Receipts: []event.Receipt{}}}, nil
	}
	c := &call{done: make(chan projector.Result, 1), began: b.elapsed(), wake: wake}
	proposal.Local = c
	if err := b.append(ctx, proposal); err != nil {
		return nil, err
	}
	return &Pending{broker: b, proposal: proposal, call: c}, nil
}

// Result returns the answer once it is there, and then only once. Like that of
// Publish, its error is of type *event.Error.
func (p *Pending) Result() (res PublishResult, done bool, err error) {
	if p.proposal == nil {
		return p.settled, true, nil
	}
	select {
	case result := <-p.call.done:
		if result.Err != nil {
			return PublishResult{}, true, result.Err
		}
		return PublishResult{Receipts: p.broker.receipts(p.proposal, result.Verdicts), Replayed: result.Replayed}, true, nil
	default:
		return PublishResult{}, false, nil
	}
}
