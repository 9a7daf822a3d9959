// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"strconv"
)

// EncodeMessage encodes a row about messages, as encoding/json does. The rows that
// every message has are written directly, which takes a fifth of the time.
func EncodeMessage(row any) ([]byte, error) {
	w := rowWriter{plain: true}
	switch r := row.(type) {
	case string:
		w.text("", r)
		if w.plain {
			return w.b, nil
		}
	case MessageRow:
		w.b = append(make([]byte, 0, 384), `{"content":[`...)
		for i, c := range r.Content {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = strconv.AppendUint(w.b, uint64(c), 10)
		}
		w.b = append(w.b, ']')
		w.text(`,"type":`, r.Type)
		w.text(`,"ticket":`, r.Ticket)
		w.text(`,"from":`, r.From)
		w.text(`,"to":`, r.To)
		w.text(`,"topic":`, r.Topic)
		w.text(`,"position":`, strconv.FormatUint(r.Position, 10))
		w.text(`,"hlc":`, strconv.FormatUint(r.HLC, 10))
	case OfTicketRow:
		w.text(`{"id":`, r.ID)
		w.text(`,"type":`, r.Type)
		w.text(`,"from":`, r.From)
		w.text(`,"topic":`, r.Topic)
	case IdempotencyRow:
		w.text(`{"payload":`, r.Payload)
		w.text(`,"id":`, r.ID)
	default:
		w.plain = false
	}
	if !w.plain {
		return json.Marshal(row)
	}
	return append(w.b, '}'), nil
}

// rowWriter writes the members of a row.
type rowWriter struct {
	b     []byte
	plain bool // no text so far needs an escape
}

func (w *rowWriter) text(before, text string) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			w.plain = false
			return
		}
	}
	w.b = append(append(append(append(w.b, before...), '"'), text...), '"')
}
