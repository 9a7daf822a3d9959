// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// Admit verifies a message under the key of its sender, checks what it says, and
// prepares it for the log: as an event, and as what apply has to know of it.
func (c *Messages) Admit(m *ticket.Message, key string, verbs *ticket.Catalogue, nowMillis int64) (eventlog.Entry, *eventlog.Message, error) {
	public, err := ticket.DecodeKey(key)
	if err == nil {
		err = m.Verify(public)
	}
	if err == nil {
		err = c.Check(m, verbs)
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
	note, err := noteOf(m)
	if err != nil {
		return eventlog.Entry{}, nil, err
	}
	note.Key, note.Verbs = key, verbs.Version
	return entries[0], note, nil
}

func noteOf(m *ticket.Message) (*eventlog.Message, error) {
	h := m.Header()
	canonical, err := ticket.Canonical(m.Payload())
	if err != nil {
		return nil, err
	}
	payload := sha256.Sum256(canonical)
	note := &eventlog.Message{
		Type: h.Type, Ticket: h.TicketID, Trace: h.TraceID, Cause: h.CausationID, From: h.From, To: h.To,
		Nonce: h.Nonce, Idempotency: h.IdempotencyKey, SentMillis: h.Time.UnixMilli(), Payload: hex.EncodeToString(payload[:]),
	}
	switch h.Type {
	case ticket.TypeOpen:
		note.Op, _ = event.LookupJSON(m.Payload(), "op")
	case ticket.TypeResult:
		note.Execute, _ = event.LookupJSON(m.Payload(), "execute_id")
	case ticket.TypeHeartbeat:
		var p struct {
			Inflight []jsontext.Value `json:"inflight"`
		}
		if err := json.Unmarshal(m.Payload(), &p); err != nil {
			return nil, event.Errorf(event.CodePayloadInvalid, "The inflight of the heartbeat cannot be read.").With("payload/inflight")
		}
		for _, entry := range p.Inflight {
			id, _ := event.LookupJSON(entry, "execute_id")
			note.Inflight = append(note.Inflight, eventlog.Inflight{Execute: id, Progress: entry})
		}
	}
	return note, nil
}
