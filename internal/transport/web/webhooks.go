// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// endpointDocument is how it stands with the endpoint of a webhook.
type endpointDocument struct {
	Circuit      string     `json:"circuit"`
	Failures     int        `json:"failures"`
	FailingSince *time.Time `json:"failing_since,omitempty"`
	HeldUntil    *time.Time `json:"held_until,omitempty"`
	Consent      string     `json:"consent,omitempty"`
	AllowedRate  int        `json:"allowed_rate,omitempty"`
}

// endpointOf says what a subscriber can see of its endpoint; nil for other kinds.
func endpointOf(info *broker.SubscriptionInfo) *endpointDocument {
	e := info.Status.Endpoint
	if e == nil {
		return nil
	}
	d := &endpointDocument{Circuit: e.Circuit, Failures: e.Failures, FailingSince: timeOrNone(e.FailingSince), HeldUntil: timeOrNone(e.HeldUntil), AllowedRate: e.Rate}
	if info.Document.Config.Handshake {
		d.Consent = "awaited"
		if e.Consented {
			d.Consent = "given"
		}
	}
	return d
}

// webhookKey is a public key by which webhooks can be checked.
type webhookKey struct {
	Public string     `json:"public"`
	Until  *time.Time `json:"until,omitempty"`
}

// webhookKeys answers with the keys of the signature v1a, the newest first.
func (s *Server) webhookKeys(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	// Receivers ask again well within any overlap.
	w.Header().Set("Cache-Control", "max-age=300")
	return s.answerKeys(w, s.broker.WebhookKeys())
}

func (s *Server) answerKeys(w http.ResponseWriter, keys []broker.SigningKey) error {
	list := make([]webhookKey, len(keys))
	for i, k := range keys {
		list[i] = webhookKey{Public: k.Key.Public(), Until: timeOrNone(k.Until)}
	}
	return s.whole(w, http.StatusOK, "application/json", append(appendJSON(nil, map[string]any{"keys": list}), '\n'))
}

// rotateWebhookKey draws a new key.
func (s *Server) rotateWebhookKey(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	text := "24h"
	if err := s.fields(r, map[string]any{"overlap": &text}); err != nil {
		return err
	}
	overlap, err := event.ParseDuration(text)
	if err != nil {
		return event.AsError(err).With("overlap")
	}
	keys, err := s.broker.RotateWebhookKey(r.Context(), principalOf(r), overlap.Std())
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.answerKeys(w, keys)
}

// consent is the callback of a handshake (CloudEvents webhook 4.1.3): whoever was
// given the URL consents by calling it, with GET, too, so that a person can.
func (s *Server) consent(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	rate := 0
	if text := strings.TrimSpace(r.Header.Get("Webhook-Allowed-Rate")); text != "" && text != "*" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 60_000 {
			return event.Errorf(event.CodeParameterInvalid, "WebHook-Allowed-Rate is %.20q and must be * or requests a minute, from 1 to 60000.", text).With("WebHook-Allowed-Rate")
		}
		rate = n
	}
	if err := s.broker.Consent(r.Context(), r.PathValue("token"), rate); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
