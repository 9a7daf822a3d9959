// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net/http"
	"net/url"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/ticket"
)

// messageDocument is the receipt of a message but for what is JSON already.
type messageDocument struct {
	Outcome  event.Outcome `json:"outcome"`
	ID       string        `json:"id"`
	TicketID string        `json:"ticket_id"`
	Topic    string        `json:"topic"`
	Position uint64        `json:"position,string"`
	Cursor   event.Cursor  `json:"cursor"`
	HLC      string        `json:"hlc"`
	First    string        `json:"first,omitempty"`
}

// appendMessageReceipt appends a receipt. The result in it is byte for byte what its
// sender signed.
func appendMessageReceipt(dst []byte, r *broker.MessageReceipt) []byte {
	dst = appendJSON(dst, messageDocument{
		Outcome: r.Outcome, ID: r.ID, TicketID: r.TicketID, Topic: r.Topic, Position: r.Position, Cursor: r.Cursor, HLC: r.HLC.String(), First: r.First,
	})
	for _, part := range []struct {
		name string
		json []byte
	}{{"result", r.Result}, {"progress", r.Progress}} {
		if part.json != nil {
			dst = append(append(append(dst[:len(dst)-1], `,"`+part.name+`":`...), part.json...), '}')
		}
	}
	return dst
}

// postMessage reads the body as JSON whatever it says it is, as for policies.
func (s *Server) postMessage(w http.ResponseWriter, r *http.Request, q url.Values) error {
	caller := principalOf(r)
	ack := q.Get("ack")
	if q.Has("ack") && ack != "durable" && ack != "proof" {
		return event.Errorf(event.CodeParameterInvalid, "ack=%.20q is unknown for a message: use durable or proof.", ack).With("ack")
	}
	body, held, err := s.readBody(r, ticket.MaxMessageBytes)
	defer s.held.give(held)
	if err != nil {
		s.broker.Refused(caller, "", event.AsError(err))
		return err
	}
	// What has been queued takes effect whether its caller stays or leaves.
	receipt, err := s.broker.PostMessage(context.WithoutCancel(r.Context()), caller, body)
	if err != nil {
		return err
	}
	answer := appendMessageReceipt(nil, &receipt)
	if ack == "proof" {
		if answer, err = s.appendProof(r.Context(), answer, receipt.Position); err != nil {
			return err
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, http.StatusOK, "application/json", append(answer, '\n'))
}
