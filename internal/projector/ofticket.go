// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/internal/store"
	"signalbox/ticket"
)

// levelOfTicket is the feature level from which on every message of a ticket has a
// row by its position.
const levelOfTicket = 3

// keepOfTicket stores at which position a ticket got a message, so that reading a
// ticket is a scan and never a search. Heartbeats are of no ticket.
func (p *Projector) keepOfTicket(id string, m *store.MessageRow) {
	if m.Ticket == ticket.None {
		return
	}
	p.setMessageRow(store.MessageOfTicket, store.OfTicketKey(m.Ticket, m.Position), ofTicketRow(id, m))
}

func ofTicketRow(id string, m *store.MessageRow) store.OfTicketRow {
	return store.OfTicketRow{ID: id, Type: m.Type, From: m.From, Topic: m.Topic}
}

// ofTicket checks the row of a message by its position: there is such a message.
func (v *verifier) ofTicket(m *store.MessageAt) error {
	of, position, err := store.ParseOfTicketKey(m.Key)
	if err != nil {
		return err
	}
	var row store.OfTicketRow
	if err := store.DecodeMessage(m.Kind, m.Value, &row); err != nil {
		return err
	}
	var message store.MessageRow
	ok, err := v.in.Message(store.MessageID, row.ID, &message)
	if err == nil && (!ok || message.Ticket != of || message.Position != position || message.Type != row.Type || message.From != row.From || message.Topic != row.Topic) {
		v.found(Finding{What: "message", Topic: row.Topic, Position: position, Key: m.Key, Explanation: sprintf("The ticket %q has the message %q at this position, which is not what the message itself says.", of, row.ID)})
	}
	return err
}

// inTicket checks that a message is among those of its ticket.
func (v *verifier) inTicket(id string, row *store.MessageRow) error {
	if row.Ticket == ticket.None || v.tally.Settings.FeatureLevel < levelOfTicket {
		return nil
	}
	var listed store.OfTicketRow
	ok, err := v.in.Message(store.MessageOfTicket, store.OfTicketKey(row.Ticket, row.Position), &listed)
	if err == nil && (!ok || listed.ID != id) {
		v.found(Finding{What: "message", Topic: row.Topic, Position: row.Position, Key: id, Explanation: sprintf("The message is not among those of its ticket %q.", row.Ticket)})
	}
	return err
}
