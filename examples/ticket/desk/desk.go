// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

// bodyMax bounds what the ticketing system sends; what is large there stays there.
const bodyMax = 64 << 10

// desk is the bridge between the two.
type desk struct {
	sender *ticketclient.Sender
	secret []byte
	system string // the URL of the ticketing system
	http   *http.Client
}

// handler takes the webhooks of both sides.
func (d *desk) handler(ctx context.Context, c *client.Client) (http.Handler, error) {
	keys, err := c.WebhookKeys(ctx)
	if err != nil {
		return nil, err
	}
	var accepted []string
	for _, k := range keys {
		accepted = append(accepted, k.Public)
	}
	receiver, err := client.NewWebhookReceiver(client.WebhookOptions{Keys: accepted}, d.writeBack)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /desk", d.intake)
	mux.Handle("/signalbox", receiver)
	return mux, nil
}

// opened is the webhook of the ticketing system: a ticket was opened, changed or
// withdrawn.
type opened struct {
	Number   string `json:"number"`
	Event    string `json:"event"` // open, amend or cancel
	Title    string `json:"title"`
	Asset    string `json:"asset"`
	Reporter string `json:"reporter"`
	Priority int    `json:"priority"`
	Change   int    `json:"change"` // counts the changes of the ticket
}

// numberForm is what a number has to be to be a part of a ticket's name.
var numberForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,40}$`)

// intake turns a webhook into a ticket.open. The text of the ticket stays where it
// is: here is a reference to it.
func (d *desk) intake(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax))
	if err != nil {
		http.Error(w, "The body cannot be read.", http.StatusBadRequest)
		return
	}
	mac := hmac.New(sha256.New, d.secret)
	mac.Write(body)
	if !hmac.Equal([]byte(r.Header.Get("X-Desk-Signature")), []byte(hex.EncodeToString(mac.Sum(nil)))) {
		http.Error(w, "The signature is wrong.", http.StatusUnauthorized)
		return
	}
	var o opened
	if json.Unmarshal(body, &o) != nil || !numberForm.MatchString(o.Number) {
		http.Error(w, "It is no ticket.", http.StatusBadRequest)
		return
	}
	_, err = d.sender.Send(r.Context(), ticket.Draft{
		// A webhook that is sent again has the same name, and opens nothing twice.
		Header: ticket.Header{
			Type: ticket.TypeOpen, TicketID: "DESK-" + o.Number, TraceID: "desk-" + o.Number, To: ticket.RoleOrchestrator,
			IdempotencyKey: fmt.Sprintf("desk/%s/%s/%d", o.Number, o.Event, o.Change),
		},
		Payload: &ticketclient.Open{
			Op: o.Event, SourceRef: "desk:" + o.Asset, Title: o.Title, BodyRef: "desk:" + o.Number + "/body", Requester: o.Reporter, Priority: o.Priority,
		},
	})
	if err != nil {
		http.Error(w, event.AsError(err).Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// writeBack notes in the ticketing system what has become of a ticket. The broker
// sends a move again until this has worked, so a note has the id of its move.
func (d *desk) writeBack(ctx context.Context, ev *event.Event) error {
	m, err := ticketclient.DecodeMessage(ev.Data())
	if err != nil {
		return err
	}
	state, ok := m.Payload.(*ticketclient.State)
	number, ours := strings.CutPrefix(m.TicketID, "DESK-")
	if !ok || !ours {
		return nil
	}
	note, err := json.Marshal(map[string]any{
		"id": m.ID, "text": fmt.Sprintf("%s: %s", state.To, state.ReasonCode), "resolution": state.Resolution, "close": state.To == "CLOSED" || state.To == "CANCELLED",
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.system+"/tickets/"+number+"/notes", bytes.NewReader(note))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		return fmt.Errorf("the ticketing system answers %s", res.Status)
	}
	return nil
}
