// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// MessageReceipt is the answer to a ticket message that was not refused.
type MessageReceipt struct {
	event.Receipt
	TicketID string
	First    string // id of the message whose request this one repeats; "": of none
	Result   []byte // of the first one, an execute: the envelope of its result, as it was sent
	Progress []byte // else JSON, what the latest heartbeat says of it
}

// PostMessage takes an envelope, and returns once it is durable. Its errors are of
// type *event.Error.
func (b *Broker) PostMessage(ctx context.Context, p identity.Principal, raw []byte) (MessageReceipt, error) {
	proposal, err := b.admitMessage(p, raw)
	if err != nil {
		refused := event.AsError(err)
		b.refused(p, "", refused, raw)
		return MessageReceipt{}, refused
	}
	result, err := b.propose(ctx, proposal)
	if err == nil && result.Err != nil {
		err = result.Err
	}
	if err != nil {
		return MessageReceipt{}, err
	}
	receipt := MessageReceipt{Receipt: b.receipts(proposal, result.Verdicts)[0], TicketID: proposal.Message.Ticket}
	if a := result.Answered; a != nil {
		receipt.First, receipt.Progress = a.ID, a.Progress
		if a.Result != "" {
			receipt.Result, err = b.envelope(a.Result)
		}
	}
	return receipt, err
}

// admitMessage turns an envelope that somebody sends into a proposal.
func (b *Broker) admitMessage(p identity.Principal, raw []byte) (*eventlog.Proposal, error) {
	if err := b.open(); err != nil {
		return nil, err
	}
	if err := b.disk.check(); err != nil {
		return nil, err
	}
	if err := b.external.room(); err != nil {
		return nil, err
	}
	m, err := ticket.Parse(raw)
	if err != nil {
		return nil, b.unknownType(raw, err)
	}
	if from := m.Header().From; p.Subject() != "" && p.Subject() != from {
		return nil, event.Errorf(event.CodeNotPermitted, "The message is from %q and the request from %q: each agent sends its own.", from, p.Subject()).With("from")
	}
	registry := b.registry.Load()
	agent, _ := registry.Agent(m.Header().From)
	if agent == nil || agent.InUse() == nil {
		return nil, event.Errorf(event.CodeSignatureInvalid, "There is no agent %q whose key is in use.", m.Header().From).With("from")
	}
	now := b.clock.Millis()
	entry, note, err := b.messages.Admit(m, agent.InUse().Key, registry.Verbs, now)
	if err != nil {
		return nil, err
	}
	entries := []eventlog.Entry{entry}
	if err := b.disk.take(entries); err != nil {
		return nil, err
	}
	return &eventlog.Proposal{
		Kind: eventlog.KindEvents, AdmittedMillis: now, Principal: note.From, Topic: m.Topic(registry.Space), Entries: entries, Message: note,
	}, nil
}

// admitMapped turns a request of another door into the proposal that its envelope
// would have become: one event of the form that messages are carried as.
func (b *Broker) admitMapped(p identity.Principal, req *PublishRequest) (*eventlog.Proposal, error) {
	if len(req.Events) != 1 || req.Batch || req.IdempotencyKey != "" || req.IfMatch != nil || req.IfNoneMatch || req.Events[0].DataKind() != event.JSONData {
		return nil, event.Errorf(event.CodeMessageRequired, "The topic %q takes ticket messages only: one event at a time whose data is a signed envelope, without Idempotency-Key and preconditions.", req.Topic).With("topic")
	}
	ev := req.Events[0]
	proposal, err := b.admitMessage(p, ev.Data())
	if err != nil {
		return nil, err
	}
	m, err := ticket.Parse(ev.Data())
	if err != nil {
		return nil, err
	}
	carried, err := m.Event()
	if err != nil {
		return nil, err
	}
	if req.Topic != proposal.Topic {
		return nil, otherThan("topic", req.Topic, proposal.Topic)
	}
	if key, _ := ev.Key(); key != carried.Partitionkey() {
		return nil, otherThan("partitionkey", key, carried.Partitionkey())
	}
	for _, name := range []string{"id", "source", "type", "subject", "correlationid", "causationid", "time", "expirytime"} {
		got, given := ev.Attribute(name)
		want, _ := carried.Attribute(name)
		if given && got != want && !(strings.HasSuffix(name, "time") && sameMoment(got, want)) {
			return nil, otherThan(name, got.String(), want.String())
		}
	}
	return proposal, nil
}

// otherThan refuses what an event says beside the envelope in it and otherwise: nobody has
// signed that, and to leave it out would be to answer yes to it.
func otherThan(name, got, want string) *event.Error {
	return event.Errorf(event.CodeMessageInvalid, "The event's %s is %.80q, and that of the envelope in it is %q.", name, got, want).With(name)
}

// sameMoment compares times, which can be written in several ways.
func sameMoment(a, b event.Value) bool {
	at, err := time.Parse(time.RFC3339Nano, a.String())
	if err != nil {
		return false
	}
	bt, err := time.Parse(time.RFC3339Nano, b.String())
	return err == nil && at.Equal(bt)
}

// checkTypes refuses the types of messages where none are taken.
func checkTypes(req *PublishRequest) error {
	for _, ev := range req.Events {
		if strings.HasPrefix(ev.Type(), ticket.EventType) {
			return event.Errorf(event.CodeAttributeReserved, "Types that begin with %s are those of messages, which go to topics that begin with %s.", ticket.EventType, ticket.TopicRoot+".").With("type")
		}
	}
	return nil
}

// envelope returns a message as it was sent.
func (b *Broker) envelope(id string) (raw []byte, err error) {
	view := b.store.View(func() {})
	defer view.Close()
	var row store.MessageRow
	ok, err := view.Message(store.MessageID, id, &row)
	if err != nil || !ok {
		return nil, err
	}
	t, err := b.dispatch.Topic(row.Topic)
	if err != nil {
		return nil, err
	}
	_, err = view.Event(t.Number, row.Position, func(e store.EventRow) error {
		raw = append([]byte(nil), e.Members[e.DataOffset:e.DataOffset+e.DataLength]...)
		return nil
	})
	return raw, err
}

// checkTicketTopic refuses policies under which messages would be lost or refused.
func checkTicketTopic(name string, c *eventlog.Control) error {
	switch {
	case !projector.TicketTopic(name):
		return nil
	case c.Op == eventlog.OpDeleteTopic:
		return event.Errorf(event.CodeTopicReserved, "The topic %q holds ticket messages, which tickets are made of; it cannot be deleted.", name).With("topic")
	case c.Policy != nil && (c.Policy.Compacts() || c.Policy.Ephemeral()):
		return event.Errorf(event.CodePolicyInvalid, "The topic %q holds ticket messages, of which all are kept: it is neither compacted nor ephemeral.", name).With("cleanup_policy")
	case c.Policy != nil && (c.Policy.Schema != "" || c.Policy.RequireHLC):
		return event.Errorf(event.CodePolicyInvalid, "The topic %q holds ticket messages, whose form the protocol fixes: it has neither a schema nor require_hlc.", name).With("schema")
	}
	return nil
}
