// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"

	"signalbox/event"
	"signalbox/internal/broker"
)

// settled is what became of one attempt.
type settled struct {
	sink     string
	verdicts []broker.WebhookVerdict
	halts    bool
}

// settle has what became of an attempt stored: by whoever stores outcomes of the
// endpoint just now, together with what else has come meanwhile, or at once.
func (e *Engine) settle(ctx context.Context, ep *endpoint, id string, s settled) {
	e.mu.Lock()
	ep.outcomes = append(ep.outcomes, s)
	if ep.settling {
		e.mu.Unlock()
		return
	}
	ep.settling = true
	for len(ep.outcomes) > 0 {
		n, verdicts := 0, 0
		for ; n < len(ep.outcomes) && verdicts < settleMin && ep.outcomes[n].sink == ep.outcomes[0].sink; n++ {
			verdicts += len(ep.outcomes[n].verdicts)
		}
		list := ep.outcomes[:n:n]
		ep.outcomes = ep.outcomes[n:]
		e.mu.Unlock()
		e.store(ctx, ep, id, list)
		e.mu.Lock()
	}
	ep.settling = false
	e.mu.Unlock()
}

// store has what became of attempts stored, whether the engine goes on or not.
func (e *Engine) store(ctx context.Context, ep *endpoint, id string, list []settled) {
	halting := 0
	defer func() { e.done(ep, len(list), halting) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	var verdicts []broker.WebhookVerdict
	for _, s := range list {
		verdicts = append(verdicts, s.verdicts...)
		if s.halts {
			halting++
		}
	}
	err := e.b.SettleWebhook(ctx, id, list[0].sink, verdicts)
	if err != nil && !outdated(err) {
		e.log.Warn("what became of deliveries is not stored: they are sent again after their deadline", "subscription", id, "deliveries", len(list), "err", err)
	}
}

func (e *Engine) disable(ctx context.Context, d *event.Subscription, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := e.b.DisableWebhook(ctx, d.ID, d.Sink, reason); err != nil && !outdated(err) {
		e.log.Warn("an endpoint cannot be disabled, and is tried again", "subscription", d.ID, "err", err)
	}
}

// outdated reports whether the subscription has ended, was changed or is disabled
// already, so that nothing more need be said of an attempt.
func outdated(err error) bool {
	code := event.AsError(err).Code
	return code == event.CodeSubscriptionUnknown || code == event.CodeSubscriptionConflict
}
