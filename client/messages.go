// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"

	"signalbox/event"
)

// MessageReceipt is the broker's answer to a message of the ticket protocol that it did not refuse.
type MessageReceipt struct {
	Outcome  event.Outcome `json:"outcome"` // accepted, or duplicate: it was here before and has no effect
	ID       string        `json:"id"`
	TicketID string        `json:"ticket_id"`
	Topic    string        `json:"topic"`
	Position uint64        `json:"position,string"`
	Cursor   event.Cursor  `json:"cursor"`
	HLC      event.HLC     `json:"hlc"`
	// First is the id of the message whose request this one repeats under another id.
	First string `json:"first,omitempty"`
	// Result is, where a repeated execute has one, the envelope of its result as it was signed; Progress is, while it has
	// none, what the latest heartbeat says of it.
	Result   json.RawMessage `json:"result,omitempty"`
	Progress json.RawMessage `json:"progress,omitempty"`
}

// PostMessage sends a signed message of the ticket protocol, byte for byte, at every try. Package
// [signalbox/client/ticket] makes the messages of an agent.
func (c *Client) PostMessage(ctx context.Context, envelope []byte) (MessageReceipt, error) {
	var r MessageReceipt
	h := http.Header{"Content-Type": {"application/json"}}
	_, _, err := c.do(ctx, call{method: http.MethodPost, url: c.base + "/v1/messages", header: h, body: envelope}, &r)
	if err == nil {
		c.observe(r.HLC)
	}
	return r, err
}
