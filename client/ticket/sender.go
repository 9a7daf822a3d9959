// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"crypto/ed25519"
	"errors"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

// Sender signs and sends what one agent says. It is safe for concurrent use.
type Sender struct {
	c    *client.Client
	name string
	key  ed25519.PrivateKey
}

// NewSender returns the sender of a registered agent, who also says to the broker
// which agent it is.
func NewSender(c *client.Client, name string, key ed25519.PrivateKey) *Sender {
	return &Sender{c: c.With(client.WithToken(Tokens(c, name, key))), name: name, key: key}
}

// Name is that of the agent.
func (s *Sender) Name() string { return s.name }

// Sign makes a message of the agent. What a draft leaves open is filled in, as
// [ticket.Draft] says.
func (s *Sender) Sign(d ticket.Draft) (*ticket.Message, error) {
	d.From = s.name
	return d.Sign(s.key)
}

// Send signs a message and sends it until there is an answer. A repetition, told by
// the idempotency key, has no effect and is no error: the receipt says so.
func (s *Sender) Send(ctx context.Context, d ticket.Draft) (client.MessageReceipt, error) {
	m, err := s.Sign(d)
	if err != nil {
		return client.MessageReceipt{}, err
	}
	return s.Resend(ctx, m)
}

// Resend sends a message that was signed before, perhaps by an earlier life of the
// process. One that the broker has is a duplicate. One that has become too old, or was
// signed with a key that the agent has another one for since, is signed once more under the
// same idempotency key: if the broker has it, it is a repetition.
func (s *Sender) Resend(ctx context.Context, m *ticket.Message) (client.MessageReceipt, error) {
	receipt, err := s.c.PostMessage(ctx, m.Bytes())
	rotated := refusedAs(err, event.CodeSignatureInvalid) && !s.signed(m)
	if !rotated && !refusedAs(err, event.CodeMessageStale) {
		return receipt, err
	}
	h := m.Header()
	again, err := s.Sign(ticket.Draft{
		Header: ticket.Header{
			Type: h.Type, TicketID: h.TicketID, TraceID: h.TraceID, CausationID: h.CausationID, To: h.To, IdempotencyKey: h.IdempotencyKey,
		},
		Payload: m.Payload(),
	})
	if err != nil {
		return client.MessageReceipt{}, err
	}
	return s.c.PostMessage(ctx, again.Bytes())
}

// signed reports whether a message was signed with the key that the sender has now.
func (s *Sender) signed(m *ticket.Message) bool {
	public, _ := s.key.Public().(ed25519.PublicKey)
	return m.Verify(public) == nil
}

// Answer begins a draft that answers a message: it is of the same ticket and trace.
func Answer(to *ticket.Header, kind, target, key string, payload any) ticket.Draft {
	return ticket.Draft{
		Header: ticket.Header{
			Type: kind, TicketID: to.TicketID, TraceID: to.TraceID, CausationID: to.ID, To: target, IdempotencyKey: key,
		},
		Payload: payload,
	}
}

// refusedForGood says whether the broker itself has refused what an agent says, or asks
// about a ticket, and will whoever says it again: for the words, or because the ticket or
// the agent is not there or has no right to it. Every other error may pass: a proxy
// answers in place of the broker, the broker fails, a clock that is set makes a token
// count again, and an agent whose key was revoked may get another one.
func refusedForGood(err error) bool {
	return refusedAs(err,
		event.CodeTicketUnknown, event.CodeNotPermitted, event.CodeAgentUnknown,
		event.CodeMessageInvalid, event.CodeMessageTypeUnknown, event.CodePayloadInvalid, event.CodeVersionUnsupported,
		event.CodeVerbUnknown, event.CodeVerbDenied, event.CodeSecretRefused, event.CodeEventTooLarge, event.CodeRequestTooLarge,
		event.CodeNonceReused, event.CodeIdempotencyConflict, event.CodeCorrelationInvalid, event.CodeAlreadyAnswered,
		event.CodeTicketMoveIllegal, event.CodePlanConflict, event.CodePlanStale, event.CodeDeadlineMissed)
}

func refusedAs(err error, codes ...event.Code) bool {
	e := (*event.Error)(nil)
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}

// retryable says whether an error can pass by itself: the broker cannot be reached,
// or says so.
func retryable(err error) bool {
	e := (*event.Error)(nil)
	return !errors.As(err, &e) || e.Code.Class().Retryable
}
