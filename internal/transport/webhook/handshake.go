// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/broker"
)

// rateWanted is what the broker asks for, in requests a minute.
const rateWanted = 6000

// handshake asks an endpoint whether it wants events (CloudEvents webhook 4). Only
// headers give consent: a server that answers 200 to everything has not.
func (e *Engine) handshake(ctx context.Context, w *broker.Webhook, target *url.URL) {
	id := w.Document.ID
	consented, rate, reason, refused := e.ask(ctx, w, target)
	if ctx.Err() != nil {
		return
	}
	if refused {
		e.disable(ctx, &w.Document, reason)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := e.b.WebhookConsent(ctx, id, w.Document.Sink, consented, rate, reason, e.delay(w.Failures+1))
	if err != nil && !outdated(err) {
		e.log.Warn("what became of a handshake is not stored: it is made again", "subscription", id, "err", err)
	}
}

func (e *Engine) ask(ctx context.Context, w *broker.Webhook, target *url.URL) (consented bool, rate int, reason string, refused bool) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout(&w.Document))
	defer cancel()
	now := time.Now()
	req, err := e.request(ctx, w, target, http.MethodOptions, now)
	if err != nil {
		return false, 0, "the request cannot be made", false
	}
	req.Header.Set("Webhook-Request-Rate", strconv.Itoa(rateWanted))
	if e.opt.PublicURL != "" {
		req.Header.Set("Webhook-Request-Callback", strings.TrimSuffix(e.opt.PublicURL, "/")+"/v1/webhook-consents/"+e.b.ConsentToken(w.Document.ID, w.Document.Sink))
	}
	answer, err := e.transport(target).RoundTrip(req)
	if err != nil {
		o := e.failure(err, false, w.Document.ID)
		return false, 0, o.reason, o.disable != ""
	}
	e.finish(answer, cancel)
	consented, rate = consent(answer.Header, e.opt.Origin)
	if !consented {
		reason = "the endpoint has not consented to the handshake: it must answer OPTIONS with WebHook-Allowed-Origin"
		if w.Document.TokenExpired(now) {
			reason += missedToken(answer)
		}
	}
	return consented, rate, reason, false
}

// consent reads the headers that give it. A rate of 0 is any.
func consent(h http.Header, origin string) (consented bool, rate int) {
	allowed := strings.TrimSpace(h.Get("Webhook-Allowed-Origin"))
	if allowed != "*" && !strings.EqualFold(allowed, origin) {
		return false, 0
	}
	text := strings.TrimSpace(h.Get("Webhook-Allowed-Rate"))
	if text == "" || text == "*" {
		return true, 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return false, 0
	}
	return true, min(n, int(time.Minute/time.Millisecond))
}
