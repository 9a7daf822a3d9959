// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"maps"
	"slices"

	"signalbox/internal/store"
)

// messages checks what is known of ticket messages: every row names a message, and
// every message has its event.
func (v *verifier) messages() error {
	topics := map[string]*verified{}
	for _, number := range slices.Sorted(maps.Keys(v.topics)) {
		topics[v.topics[number].Name] = v.topics[number]
	}
	return v.in.Messages(func(m store.MessageAt, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		var id string
		if owing, fault := v.owing(&m); owing {
			err = fault
		} else if index, fault := v.ofEntry(&m); index {
			err = fault
		} else if m.Kind == store.MessageID {
			v.tally.Messages++
			err = v.messageEvent(&m, topics)
		} else if m.Kind == store.MessageOfTicket {
			err = v.ofTicket(&m)
		} else if m.Kind == store.MessageTicket {
			err = v.ticket(&m)
		} else if m.Kind == store.MessageStanding {
			err = v.standing(&m)
		} else if id, err = namedBy(&m); err == nil {
			var known bool
			if known, err = v.in.HasMessage(id); err == nil && !known {
				v.found(Finding{What: "message", Key: m.Key, Explanation: sprintf("A row of kind %q names the message %q, which is not there.", m.Kind, id)})
			}
		}
		if err != nil {
			v.undecoded(Finding{Key: m.Key}, err)
		}
		return v.row()
	})
}

// namedBy is the message that a row is about.
func namedBy(m *store.MessageAt) (id string, err error) {
	switch m.Kind {
	case store.MessageNonce:
		err = store.DecodeMessage(m.Kind, m.Value, &id)
	case store.MessageIdempotency:
		var row store.IdempotencyRow
		err = store.DecodeMessage(m.Kind, m.Value, &row)
		id = row.ID
	case store.MessageBreaker:
		var row store.BreakerRow
		err = store.DecodeMessage(m.Kind, m.Value, &row)
		id = row.Message
	case store.MessageExecution:
		var row store.ExecutionRow
		err = store.DecodeMessage(m.Kind, m.Value, &row)
		id = m.Key
	}
	return id, err
}

func (v *verifier) messageEvent(m *store.MessageAt, topics map[string]*verified) error {
	var row store.MessageRow
	if err := store.DecodeMessage(m.Kind, m.Value, &row); err != nil {
		return err
	}
	if err := v.inTicket(m.Key, &row); err != nil {
		return err
	}
	t := topics[row.Topic]
	if t == nil {
		v.found(Finding{What: "message", Topic: row.Topic, Key: m.Key, Explanation: "The message is on a topic that does not exist."})
		return nil
	}
	if row.Position <= t.RetiredTo {
		return nil
	}
	if err := v.foundBy(m.Key, &row, t); err != nil {
		return err
	}
	stored, err := v.in.HasEvent(t.Number, row.Position)
	if err == nil && !stored {
		v.found(Finding{What: "message", Topic: row.Topic, Position: row.Position, Key: m.Key, Explanation: "The message is not stored: an event is lost."})
	}
	return err
}
