// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/sha256"
	"encoding/hex"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// Admit verifies a message under the key of its sender, checks what it says, and
// prepares it for the log: as an event, and as what apply has to know of it.
func (c *Messages) Admit(m *ticket.Message, key string, verbs *ticket.Catalogue, nowMillis int64) (eventlog.Entry, *eventlog.Message, error) {
	err := c.keys.verify(m, key)
	var due dues
	if err == nil {
		due, err = c.check(m, verbs)
	}
	if err != nil {
		return eventlog.Entry{}, nil, err
	}
	ev, err := m.Event()
	if err != nil {
		return eventlog.Entry{}, nil, err
	}
	entries, _, err := Admit([]*event.Event{ev}, nowMillis, event.Trace{})
	if err != nil {
		return eventlog.Entry{}, nil, err
	}
	note, err := noteOf(m, due, verbs)
	if err != nil {
		return eventlog.Entry{}, nil, err
	}
	note.Key, note.Verbs = key, verbs.Version
	return entries[0], note, nil
}

func noteOf(m *ticket.Message, due dues, verbs *ticket.Catalogue) (*eventlog.Message, error) {
	h := m.Header()
	payload := sha256.Sum256(m.CanonicalPayload())
	note := &eventlog.Message{
		Version: h.SchemaVersion, Type: h.Type, Ticket: h.TicketID, Trace: h.TraceID, Cause: h.CausationID, From: h.From, To: h.To,
		Nonce: h.Nonce, Idempotency: h.IdempotencyKey, SentMillis: h.Time.UnixMilli(), Payload: hex.EncodeToString(payload[:]),
	}
	if err := noteTicket(note, m, due, verbs); err != nil {
		return nil, err
	}
	return note, noteBus(note, m, due)
}
