// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/signature"
)

// Webhook is a subscription whose events the broker sends, as it is just now.
type Webhook struct {
	Document event.Subscription // with its secrets
	// Wait is for how long nothing may be sent; negative: until it is changed.
	Wait time.Duration
	// Proven says that the last attempt succeeded, Probing that the circuit was
	// open, so that one attempt has to tell whether to go on, and Probed that this
	// attempt is under way: until it has ended nothing is handed out.
	Proven, Probing, Probed bool
	Failures                int  // since something succeeded last
	Consented               bool // by the webhook handshake
	Rate                    int  // requests a minute that the endpoint allows; 0: any number
}

// Webhook returns a webhook by its number; ok is false if there is none any more.
func (b *Broker) Webhook(number uint32) (w Webhook, ok bool, err error) {
	c, s, ok, err := b.store.SubscriptionNumbered(number)
	if err != nil || !ok || !s.Webhook {
		return Webhook{}, false, err
	}
	e := &s.Endpoint
	w = Webhook{
		Document: c.Document, Proven: s.Acked > 0 && e.Failures == 0, Probing: e.Trips > 0,
		Failures: int(e.Failures), Consented: e.Consented, Rate: int(e.Rate),
	}
	switch now := b.clock.Millis(); {
	case s.Paused || s.Disabled:
		w.Wait = -1
	case now < e.HoldMillis:
		w.Wait = time.Duration(e.HoldMillis-now) * time.Millisecond
	default:
		w.Probed = w.Probing && s.Outstanding > s.Ready
	}
	return w, true, nil
}

// HandOutWebhook hands out up to limit events of a webhook, counted durably as
// attempts before it returns. Next is after what time there may be more: 0 at
// once, negative when something happens.
func (b *Broker) HandOutWebhook(ctx context.Context, id string, limit int) (handed []HandedOut, next time.Duration, err error) {
	s := b.deliveries.enter(id)
	defer b.deliveries.leave(id, s)
	if err := s.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer s.unlock()
	pl := plan{b: b, s: s, p: identity.Anonymous(), id: id, kind: event.KindWebhook, req: FetchRequest{Max: min(limit, FetchMax)}, final: true}
	handed, err = pl.run(ctx)
	switch code := event.AsError(err); {
	case err == nil:
	case code.Code == event.CodeNotPermitted || code.Code == event.CodeTokenInvalid || code.Code == event.CodeUnauthenticated:
		return nil, -1, nil // its owner may not read: nothing is sent, and its place is kept
	default:
		return nil, 0, err
	}
	switch {
	case pl.more:
		return handed, 0, nil
	case pl.next < idleWait:
		return handed, pl.next, nil
	}
	return handed, -1, nil
}

// WebhookVerdict is what became of an attempt.
type WebhookVerdict struct {
	Token     string
	Delivered bool
	Unsent    bool // nothing of it left: it is no attempt
	// Of an attempt that failed: when the event may be tried again, for how long the
	// endpoint wants to be left alone, whether it gave no answer, and why.
	Delay, Hold time.Duration
	Unanswered  bool
	Reason      string
	With        bool // the event was in one request with that of the verdict before it
}

// SettleWebhook says what became of attempts at a sink.
func (b *Broker) SettleWebhook(ctx context.Context, id, sink string, verdicts []WebhookVerdict) error {
	op := &eventlog.Subscription{Op: eventlog.SubscriptionSettle, ID: id, Sink: sink}
	for i := range verdicts {
		v := &verdicts[i]
		position, token, err := parseToken(v.Token)
		if err != nil {
			return err
		}
		s := eventlog.Settle{Position: position, Token: token, Verdict: eventlog.VerdictAck, With: v.With}
		switch {
		case v.Unsent:
			s.Verdict = eventlog.VerdictReturn
		case !v.Delivered:
			s.Verdict, s.Error, s.Unanswered = eventlog.VerdictNack, cut(v.Reason), v.Unanswered
			s.Delay, s.Hold = min(v.Delay, delayMax).Milliseconds(), min(v.Hold, delayMax).Milliseconds()
		}
		op.Settle = append(op.Settle, s)
	}
	_, err := b.subscribe(ctx, identity.Anonymous(), op)
	return err
}

// WebhookConsent notes what became of the handshake with a sink: what rate it
// allows, 0 for any, or why it has not consented and when to ask again. It fails
// with code subscription_conflict if the subscription has another sink by now.
func (b *Broker) WebhookConsent(ctx context.Context, id, sink string, consented bool, rate int, reason string, again time.Duration) error {
	op := &eventlog.Subscription{Op: eventlog.SubscriptionEndpoint, ID: id, Sink: sink, Endpoint: &eventlog.Endpoint{
		Consented: consented, Rate: uint32(max(0, rate)), Error: cut(reason), Hold: min(again, delayMax).Milliseconds(),
	}}
	_, err := b.subscribe(ctx, identity.Anonymous(), op)
	return err
}

// DisableWebhook has nothing more sent to a sink until the subscription is resumed,
// and tells of it. It fails with code subscription_conflict if that is so already, or
// the subscription has another sink by now.
func (b *Broker) DisableWebhook(ctx context.Context, id, sink, reason string) error {
	return b.disableWebhook(ctx, id, sink, reason, false)
}

// disableFailing disables an endpoint that has failed for as long as its
// subscriber allows.
func (b *Broker) disableFailing(id string) {
	err := b.disableWebhook(context.Background(), id, "", "it has done nothing but fail for as long as disable_after allows", true)
	if err != nil && event.AsError(err).Code != event.CodeSubscriptionConflict && event.AsError(err).Code != event.CodeSubscriptionUnknown {
		b.logger.Error("an endpoint cannot be disabled, and is after its next failure", "subscription", id, "err", err)
	}
}

func (b *Broker) disableWebhook(ctx context.Context, id, sink, reason string, ifFailing bool) error {
	info, err := b.Subscription(id)
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"subscription": id, "cursor": info.Status.Cursor, "reason": reason, "last_error": info.Status.Error})
	if err != nil {
		return err
	}
	entry, err := b.notice(id, "signalbox.subscription.disabled", data)
	if err != nil {
		return err
	}
	op := &eventlog.Subscription{Op: eventlog.SubscriptionDisable, ID: id, Sink: sink, Reason: cut(reason), IfFailing: ifFailing}
	if _, err := b.subscribe(ctx, identity.Anonymous(), op, entry); err != nil {
		return err
	}
	b.logger.Warn("an endpoint is disabled", "subscription", id, "reason", reason, "topic", projector.TopicSubscriptions,
		"todo", "its place is kept: resume the subscription when the endpoint is well")
	return nil
}

// ConsentToken names a subscription to its sink, which may consent by it. Nobody
// else can make one, and it is of no use for another sink that the subscription
// gets.
func (b *Broker) ConsentToken(id, sink string) string {
	return id + "." + b.consentMark(b.WebhookKeys()[0], id, sink)
}

func (b *Broker) consentMark(k SigningKey, id, sink string) string {
	sum := sha256.Sum256([]byte(signature.Sign([]signature.Key{k.Key}, "consent", time.Unix(0, 0), []byte(id+" "+sink))))
	return hex.EncodeToString(sum[:16])
}

// Consent is the answer of an endpoint to a handshake, by the token that it was
// given. It fails with code subscription_unknown.
func (b *Broker) Consent(ctx context.Context, token string, rate int) error {
	id, mark, _ := strings.Cut(token, ".")
	_, c, _, ok, err := b.store.Subscription(id)
	if err != nil {
		return err
	}
	sink := c.Document.Sink
	for _, k := range b.WebhookKeys() {
		if ok && subtle.ConstantTimeCompare([]byte(b.consentMark(k, id, sink)), []byte(mark)) == 1 {
			return b.WebhookConsent(ctx, id, sink, true, rate, "", 0)
		}
	}
	return event.Errorf(event.CodeSubscriptionUnknown, "No endpoint was given this token.")
}
