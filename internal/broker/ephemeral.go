// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
)

// tryPlace publishes to an ephemeral topic; placed is false if the topic is not
// one.
func (b *Broker) tryPlace(p identity.Principal, req *PublishRequest) (result PublishResult, placed bool, err error) {
	if !b.dispatch.Ephemeral(req.Topic) {
		return PublishResult{}, false, nil
	}
	result, err = b.place(req)
	if errors.Is(err, dispatch.ErrNotEphemeral) {
		return PublishResult{}, false, nil
	}
	if err != nil {
		refused := event.AsError(err)
		b.Refused(p, req.Topic, refused)
		return PublishResult{}, true, refused
	}
	return result, true, nil
}

// place is Publish for ephemeral topics: admit, and hand to whoever is reading.
// There is no log and no disk on the way, so neither a full disk nor a slow one
// matters. Its error is dispatch.ErrNotEphemeral if the topic has become durable
// meanwhile.
func (b *Broker) place(req *PublishRequest) (PublishResult, error) {
	if err := b.open(); err != nil {
		return PublishResult{}, err
	}
	if err := checkRequest(req); err != nil {
		return PublishResult{}, err
	}
	if req.IdempotencyKey != "" {
		return PublishResult{}, noPlace(req.Topic, "An Idempotency-Key", "Idempotency-Key")
	}
	if req.IfMatch != nil || req.IfNoneMatch {
		return PublishResult{}, noPlace(req.Topic, "A precondition", "If-Match")
	}
	if req.Prove {
		return PublishResult{}, event.Errorf(event.CodeTopicEphemeral, "The audit trail has nothing of topic %q, which is ephemeral, so nothing can be proved. Leave ack=proof out.", req.Topic).With("ack")
	}
	if len(req.Events) == 0 {
		return PublishResult{Receipts: []event.Receipt{}}, nil
	}
	if err := checkTypes(req); err != nil {
		return PublishResult{}, err
	}
	now := b.clock.Millis()
	entries, at, err := admission.Admit(req.Events, now, req.Trace)
	var placed []dispatch.Placed
	if err == nil {
		at, err = b.checkSchema(req.Topic, entries)
	}
	if err == nil {
		placed, at, err = b.dispatch.Place(req.Topic, entries, now)
	}
	switch {
	case errors.Is(err, dispatch.ErrNotEphemeral):
		return PublishResult{}, err
	case err != nil && req.Batch && event.AsError(err).Code != event.CodeTopicFull:
		return PublishResult{}, projector.Aborted(at, event.AsError(err))
	case err != nil:
		return PublishResult{}, err
	case req.NoAck:
		return PublishResult{}, nil
	}
	receipts := make([]event.Receipt, len(placed))
	for i, p := range placed {
		outcome := event.OutcomeAccepted
		if p.Superseded {
			outcome = event.OutcomeSuperseded
		}
		receipts[i] = event.Receipt{Outcome: outcome, Topic: req.Topic, Source: entries[i].Source, ID: entries[i].ID, HLC: p.HLC}
	}
	return PublishResult{Receipts: receipts}, nil
}

// checkSchema checks the data of events against the topic's schema. With an error
// comes the index of the event at fault.
func (b *Broker) checkSchema(topic string, entries []eventlog.Entry) (at int, err error) {
	t, err := b.dispatch.Topic(topic)
	if err != nil || t.Policy.Schema == "" {
		return 0, nil // it is gone, which place will find
	}
	found, err := b.schemas.Check(t.Policy.Schema, entries)
	if err != nil {
		return 0, err
	}
	for i := range entries {
		if refused := projector.CheckFound(topic, t.Policy, &found, entries, i); refused != nil {
			return i, refused
		}
	}
	return 0, nil
}

func noPlace(topic, what, field string) error {
	return event.Errorf(event.CodeTopicEphemeral, "%s compares with what was stored, and topic %q is ephemeral: nothing is. Leave it out.", what, topic).With(field)
}

// Mark is the mark of whoever needs nothing of ephemeral topics that was placed
// before now.
func (b *Broker) Mark() dispatch.Mark { return b.dispatch.Mark() }
