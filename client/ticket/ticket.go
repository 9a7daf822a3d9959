// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"crypto/sha256"
	"encoding/hex"

	"signalbox/ticket"
)

// Ticket is everything that was said about a ticket, in the order of the log. Its
// state follows from that.
type Ticket struct {
	ID       string
	Trace    string
	Messages []*Message

	refusals map[string]error // of moves, by type and key; what the broker said last in this life of the process
}

// Refused returns why the broker refused a move when it was last made, nil if it did
// not. What it knows of other tickets, such as that a breaker is open, is learnt so.
func (t *Ticket) Refused(kind, key string) error { return t.refusals[kind+" "+key] }

func (t *Ticket) noteRefusal(m Move, err error) {
	if t.refusals == nil {
		t.refusals = map[string]error{}
	}
	t.refusals[m.Type+" "+m.Key] = err
}

// Message returns a message by its id, nil if there is none.
func (t *Ticket) Message(id string) *Message {
	for _, m := range t.Messages {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// Said reports whether an agent has said something under an idempotency key.
func (t *Ticket) Said(agent, kind, key string) bool {
	for _, m := range t.Messages {
		if m.From == agent && m.Type == kind && m.IdempotencyKey == key {
			return true
		}
	}
	return false
}

// add takes a message in. Whoever reads the log at two places may have it already.
func (t *Ticket) add(m *Message) bool {
	if t.Message(m.ID) != nil {
		return false
	}
	if t.Trace == "" {
		t.ID, t.Trace = m.TicketID, m.TraceID
	}
	t.Messages = append(t.Messages, m)
	return true
}

// Move is what an orchestrator says next about a ticket. Key names it within the
// ticket: a move that was made under that name is not made again.
type Move struct {
	Type    string // such as [ticket.TypeExecute]
	To      string // a role or a domain
	Cause   string // id of the message that it answers
	Key     string
	Payload any
}

// draft makes a message of a move. The ticket is a part of its name, and a name that
// is too long is replaced by its hash.
func (t *Ticket) draft(m Move) ticket.Draft {
	return ticket.Draft{
		Header: ticket.Header{
			Type: m.Type, TicketID: t.ID, TraceID: t.Trace, CausationID: m.Cause, To: m.To, IdempotencyKey: t.Key(m.Key),
		},
		Payload: m.Payload,
	}
}

// keyMax is how long an idempotency key may be.
const keyMax = 128

// Key is the idempotency key of a move by its name.
func (t *Ticket) Key(name string) string {
	key := t.ID + "/" + name
	if len(key) > keyMax {
		sum := sha256.Sum256([]byte(key))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return key
}
