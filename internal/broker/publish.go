// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// PublishRequest is what a caller wants to publish to one topic.
type PublishRequest struct {
	Topic          string
	Events         []*event.Event
	Batch          bool        // all or nothing, and preconditions are refused
	IdempotencyKey string      // "": none
	IfMatch        *Match      // nil: no such precondition
	IfNoneMatch    bool        // the key must have no value
	Trace          event.Trace // of the request; zero: none
	Prove          bool        // the caller will want the proof of each receipt
	NoAck          bool        // return once the request is queued, without receipts
}

// Match is the precondition of If-Match.
type Match struct {
	Any       bool     // the key must have a value
	Positions []uint64 // it must be that of one of these positions
}

// PublishResult is the answer to a request that was not refused.
type PublishResult struct {
	Receipts []event.Receipt // one for each event; nil with NoAck
	Replayed bool            // they are those of an earlier request with the same key
}

// Publish publishes events and returns once they are durable. Its errors are
// of type *event.Error.
func (b *Broker) Publish(ctx context.Context, p identity.Principal, req PublishRequest) (PublishResult, error) {
	if result, placed, err := b.tryPlace(p, &req); placed {
		return result, err
	}
	// Admission: refuse early, and do the expensive work on this goroutine.
	proposal, err := b.admit(p, &req)
	if err != nil {
		refused := event.AsError(err)
		b.refusedRequest(p, &req, refused)
		return PublishResult{}, refused
	}
	if proposal == nil { // an empty batch
		return PublishResult{Receipts: []event.Receipt{}}, nil
	}
	// Log: the proposal gets its place; then apply decides (apply.go).
	if req.NoAck {
		return PublishResult{}, b.append(ctx, proposal)
	}
	result, err := b.propose(ctx, proposal)
	if err != nil {
		return PublishResult{}, err
	}
	// Receipt: what apply said, now durable.
	if result.Err != nil {
		return PublishResult{}, result.Err
	}
	return PublishResult{Receipts: b.receipts(proposal, result.Verdicts), Replayed: result.Replayed}, nil
}

// admit turns a request into a proposal; nil if there is nothing to propose.
func (b *Broker) admit(p identity.Principal, req *PublishRequest) (*eventlog.Proposal, error) {
	if err := b.open(); err != nil {
		return nil, err
	}
	if err := b.disk.check(); err != nil {
		return nil, err
	}
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	if len(req.Events) == 0 {
		return nil, nil
	}
	if projector.TicketTopic(req.Topic) {
		return b.admitMapped(p, req)
	}
	if err := checkTypes(req); err != nil {
		return nil, err
	}
	now := b.clock.Millis()
	entries, at, err := admission.Admit(req.Events, now, req.Trace)
	switch {
	case err != nil && req.Batch:
		return nil, projector.Aborted(at, event.AsError(err))
	case err != nil:
		return nil, err
	}
	proposal := &eventlog.Proposal{
		Kind: eventlog.KindEvents, AdmittedMillis: now, Principal: p.Subject(),
		Topic: req.Topic, Batch: req.Batch, Entries: entries,
	}
	if schema := b.dispatch.Schema(req.Topic); schema != "" {
		if proposal.Schema, err = b.schemas.Check(schema, entries); err != nil {
			return nil, err
		}
	}
	if err := b.disk.take(entries); err != nil {
		return nil, err
	}
	if req.IdempotencyKey != "" {
		proposal.Idempotency = idempotency(p, req, entries)
	}
	if m := req.IfMatch; m != nil {
		proposal.Condition.IfMatchAny, proposal.Condition.IfMatch = m.Any, m.Positions
	}
	proposal.Condition.IfNoneMatch = req.IfNoneMatch
	return proposal, nil
}

func (b *Broker) open() error {
	select {
	case <-b.draining:
		return event.Errorf(event.CodeShuttingDown, "The broker is shutting down. Try again in a moment.")
	default:
		return nil
	}
}

func checkRequest(req *PublishRequest) error {
	if err := event.CheckTopic(req.Topic); err != nil {
		return err
	}
	if event.ReservedTopic(req.Topic) {
		return event.Errorf(event.CodeTopicReserved, "Topics whose name begins with `$` are the broker's own; %q cannot be published to.", req.Topic).With("topic")
	}
	if len(req.Events) > event.MaxBatch {
		return event.Errorf(event.CodeBatchTooLarge, "The batch has %d events; at most %d are allowed. Send several batches.", len(req.Events), event.MaxBatch)
	}
	conditional := req.IfMatch != nil || req.IfNoneMatch
	if conditional && req.Batch {
		return event.Errorf(event.CodePreconditionInvalid, "If-Match and If-None-Match apply to a single event, not to a batch.").With("If-Match")
	}
	if req.IfMatch != nil && req.IfNoneMatch {
		return event.Errorf(event.CodePreconditionInvalid, "If-Match and If-None-Match contradict each other. Send one of them.").With("If-Match")
	}
	return nil
}

// idempotency scopes a key by principal and topic. Requests are the same when
// they carry the same events, whatever the content mode.
func idempotency(p identity.Principal, req *PublishRequest, entries []eventlog.Entry) eventlog.Idempotency {
	scope := sha256.New()
	for _, part := range []string{p.Subject(), req.Topic, req.IdempotencyKey} {
		scope.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		scope.Write([]byte(part))
	}
	request := sha256.New()
	for i := range entries {
		request.Write(entries[i].Content[:])
	}
	out := eventlog.Idempotency{Set: true}
	copy(out.Scope[:], scope.Sum(nil))
	copy(out.Request[:], request.Sum(nil))
	return out
}

// call is a caller who waits for its proposal's result.
type call struct {
	done  chan projector.Result
	began time.Duration   // see elapsed
	wake  chan<- struct{} // told of the result without blocking; nil if nobody is to be
}

// answer never blocks: done has room for the one result of a call.
func (c *call) answer(result projector.Result) {
	c.done <- result
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// propose appends a proposal and waits until what apply said of it is durable.
// A caller that stops waiting does not take its proposal back.
func (b *Broker) propose(ctx context.Context, proposal *eventlog.Proposal) (projector.Result, error) {
	c := &call{done: make(chan projector.Result, 1), began: b.elapsed()}
	proposal.Local = c
	if err := b.append(ctx, proposal); err != nil {
		return projector.Result{}, err
	}
	select {
	case result := <-c.done:
		return result, nil
	case <-ctx.Done():
		return projector.Result{}, event.Errorf(event.CodeOverloaded, "The request ended before the broker answered, so its outcome is unknown: %w. Send it again with the same event id: a repetition has no effect.", ctx.Err())
	}
}

func (b *Broker) append(ctx context.Context, proposal *eventlog.Proposal) error {
	err := b.log.Append(ctx, proposal)
	if err == nil {
		return nil
	}
	refused := event.Errorf(event.CodeOverloaded, "The broker's queue is full: %w. Try again in a moment.", err)
	if errors.Is(err, eventlog.ErrClosed) {
		refused = event.Errorf(event.CodeShuttingDown, "The broker is shutting down. Try again in a moment.")
	}
	if proposal.Kind == eventlog.KindEvents || proposal.Kind == eventlog.KindControl {
		b.metrics.Publish.Refused(refused.Code, 1)
	}
	return refused
}

func (b *Broker) receipts(proposal *eventlog.Proposal, verdicts []store.Verdict) []event.Receipt {
	incarnation := b.dispatch.Head().Incarnation
	receipts := make([]event.Receipt, len(verdicts))
	for i, v := range verdicts {
		e := &proposal.Entries[i]
		receipts[i] = event.Receipt{
			Outcome: outcome(v.Outcome), Topic: proposal.Topic, Source: e.Source, ID: e.ID,
			Position: v.Position, HLC: v.HLC,
			Cursor: event.Cursor{Position: v.Position, Incarnation: incarnation},
		}
	}
	return receipts
}

func outcome(o uint8) event.Outcome {
	switch o {
	case projector.Superseded:
		return event.OutcomeSuperseded
	case projector.Duplicate:
		return event.OutcomeDuplicate
	}
	return event.OutcomeAccepted
}
