// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"crypto/sha256"
	"encoding/hex"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

// Ticket is everything that was said about a ticket, in the order of the log. Its
// state follows from that.
type Ticket struct {
	ID       string
	Trace    string
	Messages []*Message

	// Requesters have asked for the ticket, or amended it, in lower case. What they grant
	// does not count.
	Requesters []string
	// MovedBy is the id of the message that moved the ticket last.
	MovedBy string
	// Breakers are those that are open of the ticket's targets. Other tickets open
	// them, too, so they are not in its messages.
	Breakers []client.TicketBreaker
	// Verbs is the catalogue of verbs in force, by which the broker judges plans.
	Verbs *ticket.Catalogue

	cursor  event.Cursor   // of the last message that was read
	refused map[string]int // how often the broker has not taken a move, by its key
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
