// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// noteBus notes what the bus looks after: deadlines from which something follows,
// and what a heartbeat says of its agent.
func noteBus(note *eventlog.Message, m *ticket.Message, due dues) error {
	kind, _ := ticket.TypeOf(note.Type) // Parse took only types that there are
	for i := range kind.Deadlines {
		if d := &kind.Deadlines[i]; d.Missed != "" {
			note.Deadlines = append(note.Deadlines, eventlog.Deadline{Member: d.Member, Millis: due[d.Member]})
		}
	}
	if note.Type != ticket.TypeHeartbeat {
		return nil
	}
	note.Beat = &eventlog.Beat{}
	if err := read(m, note.Beat); err != nil {
		return err
	}
	_, err := ticket.ParseRange(note.Beat.Accepts)
	return err
}

// Unknown is what apply has to know of a message whose type is none of the protocol,
// once it has been verified under the key of its sender: nobody else is told of.
func Unknown(m *ticket.Message, key string) (*eventlog.Message, error) {
	public, err := ticket.DecodeKey(key)
	if err == nil {
		err = m.Verify(public)
	}
	h := m.Header()
	return &eventlog.Message{
		Key: key, Type: h.Type, Ticket: h.TicketID, Trace: h.TraceID, Cause: h.ID, ID: h.ID, From: h.From, To: h.To, Version: h.SchemaVersion,
	}, err
}
