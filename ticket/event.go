// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"time"

	"signalbox/event"
)

// EventType begins the type of the event that a message is carried as.
const EventType = "signalbox.ticket."

// Event returns the event that the message is carried as, with the envelope byte
// for byte as its data. A heartbeat is keyed by its agent, any other message by its
// ticket.
func (m *Message) Event() (*event.Event, error) {
	expires, err := m.Expires()
	if err != nil {
		return nil, err
	}
	h := &m.header
	more := map[string]any{"partitionkey": h.TicketID, "correlationid": h.TraceID, "expirytime": expires.UTC().Format(time.RFC3339Nano)}
	if h.TicketID == None {
		more["partitionkey"] = h.From
	}
	if h.CausationID != None {
		more["causationid"] = h.CausationID
	}
	return event.Draft{
		ID: h.ID, Source: h.From, Type: EventType + h.Type, Subject: h.TicketID, Time: h.Time,
		DataContentType: "application/json", Extensions: more, Data: m.raw,
	}.Event()
}
