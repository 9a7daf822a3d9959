// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Verdict is what a worker says of events that it was handed.
type Verdict struct {
	Tokens []string
	// Delay is after what time nack has them handed out again, and for how long
	// extend keeps them.
	Delay  time.Duration
	Reason string // of nack and reject; cut to reasonBytes
}

const (
	// settleMax bounds the tokens of one request.
	settleMax = 1000
	// reasonBytes bounds what a consumer may have stored with an event.
	reasonBytes = 512
	// delayMax bounds how long an event can be put off.
	delayMax = 24 * time.Hour
)

// Ack says that events are done with. The result has for each token whether it
// was that of the last hand-out; one that is not has no effect.
func (b *Broker) Ack(ctx context.Context, p identity.Principal, id string, v Verdict) ([]bool, error) {
	return b.settle(ctx, p, id, eventlog.VerdictAck, v)
}

// Nack has events handed out again after the delay.
func (b *Broker) Nack(ctx context.Context, p identity.Principal, id string, v Verdict) ([]bool, error) {
	return b.settle(ctx, p, id, eventlog.VerdictNack, v)
}

// Extend moves deadlines to the delay from now.
func (b *Broker) Extend(ctx context.Context, p identity.Principal, id string, v Verdict) ([]bool, error) {
	if v.Delay < time.Second || v.Delay > event.MaxVisibility.Std() {
		return nil, event.Errorf(event.CodeParameterInvalid, "Say for how long, from 1s to 12h.").With("visibility")
	}
	return b.settle(ctx, p, id, eventlog.VerdictExtend, v)
}

func (b *Broker) settle(ctx context.Context, p identity.Principal, id, verdict string, v Verdict) ([]bool, error) {
	if v.Delay < 0 || v.Delay > delayMax {
		return nil, event.Errorf(event.CodeParameterInvalid, "The delay must be from 0s to 24h.").With("delay")
	}
	settles := make([]eventlog.Settle, len(v.Tokens))
	for i, text := range v.Tokens {
		position, token, err := parseToken(text)
		if err != nil {
			return nil, err
		}
		settles[i] = eventlog.Settle{Position: position, Token: token, Verdict: verdict, Delay: v.Delay.Milliseconds(), Error: cut(v.Reason)}
	}
	if err := checkTokens(v.Tokens); err != nil {
		return nil, err
	}
	if err := b.own(p, id); err != nil {
		return nil, err
	}
	result, err := b.subscribe(ctx, p, &eventlog.Subscription{Op: eventlog.SubscriptionSettle, ID: id, Settle: settles})
	if err != nil {
		return nil, err
	}
	return result.Delivery.Settled, nil
}

func checkTokens(tokens []string) error {
	if len(tokens) == 0 || len(tokens) > settleMax {
		return event.Errorf(event.CodeParameterInvalid, "Send 1 to %d tokens.", settleMax).With("tokens")
	}
	return nil
}

// cut shortens text to what is stored, at the start of a character.
func cut(s string) string {
	if len(s) <= reasonBytes {
		return s
	}
	end := reasonBytes
	for end > 0 && s[end]&0xc0 == 0x80 {
		end--
	}
	return s[:end]
}

// Reject makes dead letters of events at once: no worker will ever take them.
func (b *Broker) Reject(ctx context.Context, p identity.Principal, id string, v Verdict) ([]bool, error) {
	if err := checkTokens(v.Tokens); err != nil {
		return nil, err
	}
	if err := b.own(p, id); err != nil {
		return nil, err
	}
	number, _, state, ok, err := b.store.Subscription(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, unknownSubscription(id)
	}
	done := make([]bool, len(v.Tokens))
	for i, text := range v.Tokens {
		position, token, err := parseToken(text)
		if err != nil {
			return nil, err
		}
		row, ok, err := b.store.Pending(number, state.Epoch, position)
		if err != nil {
			return nil, err
		}
		if !ok || row.Token != token || row.State != store.PendingOut {
			continue
		}
		err = b.buryOne(ctx, id, position, &row, token, projector.CauseRejected, cut(v.Reason))
		if err != nil && event.AsError(err).Code != event.CodeSubscriptionConflict {
			return nil, err
		}
		done[i] = err == nil
	}
	return done, nil
}
