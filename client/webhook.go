// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/signature"
)

// ErrWebhookGone is what a handler returns that wants no more events: the broker disables the subscription.
var ErrWebhookGone = errors.New("client: no more events are wanted")

const (
	webhookBytes      = 32 << 20 // what the broker sends at most, a batch included
	webhookRemembered = 65_536   // ids; each takes some 100 bytes
)

// WebhookOptions says what a receiver accepts.
type WebhookOptions struct {
	// Keys are those by which signatures are checked, at least one: whpk_… is the public key of a broker, see
	// [Client.WebhookKeys], whsec_… a secret of the subscription. Give the old and the new one while they are rotated.
	Keys []string
	// Origin is the one that may send, as it calls itself in the handshake; "" is anybody. Who asks for another is not
	// given consent.
	Origin string
	// Rate is how many requests a minute the handshake allows; 0 is any number.
	Rate int
	// Now is the clock; nil is the machine's.
	Now func() time.Time
}

// WebhookReceiver is an [http.Handler] for the endpoint of a webhook. It refuses what is not signed by one of the keys,
// or was signed more than five minutes ago, answers the handshake, and hands each message to its function once: one that
// it has dealt with is acknowledged without that. It remembers the last 65,536 messages, in memory: a function whose
// effect must not happen twice across restarts names it by the event's source and id.
type WebhookReceiver struct {
	keys   []signature.Key
	opts   WebhookOptions
	most   int // messages that are remembered
	handle func(context.Context, *event.Event) error

	mu    sync.Mutex
	state map[string]bool // by webhook-id: whether it is dealt with, or just now being; guarded by mu
	done  []string        // those that are dealt with; guarded by mu
	next  int             // whose place in done the next one takes, the oldest's; guarded by mu
}

// NewWebhookReceiver returns a receiver that calls handle with each event, those of a batch one after the other. While
// handle returns an error the broker sends the message again; with [ErrWebhookGone] it sends nothing more.
func NewWebhookReceiver(o WebhookOptions, handle func(context.Context, *event.Event) error) (*WebhookReceiver, error) {
	r := &WebhookReceiver{opts: o, most: webhookRemembered, handle: handle, state: map[string]bool{}}
	for _, text := range o.Keys {
		k, err := signature.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("client: a key for webhooks: %w", err)
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return nil, errors.New("client: a receiver of webhooks needs a key")
	}
	if r.opts.Now == nil {
		r.opts.Now = time.Now
	}
	return r, nil
}

// ServeHTTP implements [http.Handler].
func (r *WebhookReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.Method {
	case http.MethodOptions:
		r.handshake(w, req)
	case http.MethodPost:
		status, text := r.receive(req)
		if text == "" {
			w.WriteHeader(status)
			return
		}
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, text, status)
	default:
		w.Header().Set("Allow", "OPTIONS, POST")
		http.Error(w, "Send events with POST.", http.StatusMethodNotAllowed)
	}
}

// handshake gives consent by headers, and only for the origin that is wanted (CloudEvents webhook 4.2).
func (r *WebhookReceiver) handshake(w http.ResponseWriter, req *http.Request) {
	origin := req.Header.Get("Webhook-Request-Origin")
	w.Header().Set("Allow", "OPTIONS, POST")
	if origin == "" || r.opts.Origin != "" && r.opts.Origin != origin {
		w.WriteHeader(http.StatusOK)
		return
	}
	rate := "*"
	if r.opts.Rate > 0 {
		rate = strconv.Itoa(r.opts.Rate)
	}
	w.Header().Set("Webhook-Allowed-Origin", origin)
	w.Header().Set("Webhook-Allowed-Rate", rate)
	w.WriteHeader(http.StatusOK)
}

func (r *WebhookReceiver) receive(req *http.Request) (status int, text string) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, webhookBytes))
	if err != nil {
		return http.StatusRequestEntityTooLarge, "The body is too large, or did not arrive."
	}
	h := req.Header
	id := h.Get(signature.HeaderID)
	if err := signature.Verify(r.keys, id, h.Get(signature.HeaderTimestamp), h.Get(signature.HeaderSignature), body, r.opts.Now()); err != nil {
		return http.StatusUnauthorized, "The request is not accepted: " + err.Error() + "."
	}
	mode, err := event.DetectMode(h.Get("Content-Type"))
	if err == nil && mode == event.Binary && h.Get("Ce-Specversion") == "" {
		err = errors.New("its Content-Type is not that of an event, and it has no ce-specversion")
	}
	if err != nil { // CloudEvents webhook 2.2
		return http.StatusUnsupportedMediaType, "The request is not an event: " + err.Error()
	}
	events, err := webhookEvents(mode, h, body)
	if err != nil {
		return http.StatusBadRequest, "The body is not an event: " + err.Error()
	}
	done, mine := r.begin(id)
	switch {
	case done:
		return http.StatusNoContent, ""
	case !mine:
		return http.StatusServiceUnavailable, "This message is being dealt with."
	}
	err = errors.New("the handler panicked")
	defer func() { r.end(id, err == nil) }()
	for _, ev := range events {
		if err = r.handle(req.Context(), ev); err != nil {
			break
		}
	}
	switch {
	case errors.Is(err, ErrWebhookGone):
		return http.StatusGone, "No more events are wanted."
	case err != nil:
		return http.StatusInternalServerError, "The event could not be dealt with."
	}
	return http.StatusNoContent, ""
}

func webhookEvents(mode event.Mode, h http.Header, body []byte) ([]*event.Event, error) {
	if mode == event.Batch {
		return event.DecodeDeliveredBatch(body)
	}
	decode := func() (*event.Event, error) { return event.DecodeDelivered(body) }
	if mode == event.Binary {
		decode = func() (*event.Event, error) { return event.DecodeDeliveredBinary(h, body) }
	}
	ev, err := decode()
	if err != nil {
		return nil, err
	}
	return []*event.Event{ev}, nil
}

// begin reports whether a message is dealt with, or else whether it is the caller's to deal with.
func (r *WebhookReceiver) begin(id string) (done, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done, known := r.state[id]
	if !known {
		r.state[id] = false
	}
	return done, !known
}

func (r *WebhookReceiver) end(id string, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !done {
		delete(r.state, id)
		return
	}
	r.state[id] = true
	if len(r.done) < r.most {
		r.done = append(r.done, id)
		return
	}
	delete(r.state, r.done[r.next])
	r.done[r.next] = id
	r.next = (r.next + 1) % r.most
}

// WebhookKey is a public key by which the signatures v1a of a broker are checked.
type WebhookKey struct {
	Public string    `json:"public"`         // whpk_…
	Until  time.Time `json:"until,omitzero"` // of one that was replaced: it signs until then
}

// WebhookKeys returns the public keys of the broker, the newest first.
func (c *Client) WebhookKeys(ctx context.Context) ([]WebhookKey, error) {
	var answer struct {
		Keys []WebhookKey `json:"keys"`
	}
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/.well-known/webhook-keys"}, &answer)
	return answer.Keys, err
}

// RotateWebhookKey has the broker sign with a new key. Until the overlap is over it signs with the old ones, too.
func (c *Client) RotateWebhookKey(ctx context.Context, overlap time.Duration) ([]WebhookKey, error) {
	var answer struct {
		Keys []WebhookKey `json:"keys"`
	}
	_, err := c.post(ctx, call{url: c.base + "/v1/admin/webhook-keys", once: true}, map[string]string{"overlap": event.Duration(overlap).String()}, &answer)
	return answer.Keys, err
}
