// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// fate is what becomes of an attempt to send an event to an endpoint. The endpoint is
// none, and there are no connections: what the broker decides of webhooks it decides
// by what it is told.
type fate int

const (
	delivered fate = iota
	failed
	silent // there was no answer
	slow   // there is none yet
)

// webhookVisibility is the longest that an attempt may take.
const webhookVisibility = 2 * time.Minute

// hook makes a webhook of a subscription. The sender's hand-outs count as use.
func (w *world) hook(d *event.Subscription) {
	d.Protocol, d.Sink = event.ProtocolHTTP, fmt.Sprintf("https://hook.test/%d", w.number)
	d.Config.Kind, d.Config.ExpiresAfter = event.KindWebhook, 0
	d.Config.DisableAfter = event.Duration(pick(w.rng, 0, 10*time.Minute, 24*time.Hour))
}

// visibility is for how long an event is somebody's, in ms.
func (p *pull) visibility() int64 {
	if p.sink != "" {
		return min(p.config.Visibility.Std(), webhookVisibility).Milliseconds()
	}
	return p.config.Visibility.Std().Milliseconds()
}

func (w *world) fates() fate {
	return pick(w.rng, delivered, delivered, delivered, failed, failed, silent, slow)
}

// send does what the engine of webhooks does: it takes what is due to be looked at, is
// handed out what there is, and says what became of it. It reports how many events it
// was handed out.
func (w *world) send(fates func() fate) (sent int) {
	over, cancel := context.WithCancel(context.Background())
	cancel() // it does not wait
	for looks := 0; looks < 100 && !w.lost(); looks++ {
		number, err := w.broker.NextWebhook(over)
		if err != nil {
			return sent
		}
		hook, ok, err := w.broker.Webhook(number)
		if err != nil {
			w.fail("webhook %d: %v", number, err)
		}
		at := slices.IndexFunc(w.pulls, func(p *pull) bool { return p.id == hook.Document.ID })
		switch {
		case !ok, hook.Wait < 0:
			continue
		case at < 0:
			w.fail("webhook %d is %s, which nobody made", number, hook.Document.ID)
		case hook.Wait > 0:
			w.broker.WebhookAgain(number, hook.Wait)
			continue
		}
		p := w.pulls[at]
		if p.paused {
			w.fail("%s is paused, and may be sent to", p)
		}
		most := 1 + w.rng.IntN(4)
		if hook.Probing {
			most = 1
		}
		list := w.fetch(p, most)
		for _, d := range list {
			if f := fates(); f != slow && !w.lost() {
				w.judgeSent(p, d, f)
			}
		}
		if sent += len(list); len(list) > 0 {
			w.broker.WebhookAgain(number, 0) // there may be more
		}
		w.settle()
	}
	return sent
}

// judgeSent says what became of an attempt. It has no effect if the event is somebody
// else's by now.
func (w *world) judgeSent(p *pull, d *deal, f fate) {
	now := w.broker.LogMillis()
	v := broker.WebhookVerdict{Token: d.token, Delivered: f == delivered}
	if !v.Delivered {
		v.Delay, v.Hold = pick(w.rng, 0, 5*time.Second, 5*time.Minute), pick(w.rng, 0, 0, time.Minute)
		v.Unanswered, v.Reason = f == silent, "because"
	}
	ctx, cancel := w.waiting()
	defer cancel()
	err := w.broker.SettleWebhook(ctx, p.id, p.sink, []broker.WebhookVerdict{v})
	w.settle()
	w.note("%s: @%d has fate %d", p, d.position, f)
	switch surely := d.out(now) && !d.perhaps; {
	case w.lost(), err == nil && !surely:
		d.perhaps = true
	case err != nil:
		w.fail("%s: settling @%d: %v", p, d.position, err)
	case v.Delivered:
		d.acked = true
		w.counts["sent"]++
	default:
		d.ready = now + v.Delay.Milliseconds()
		w.counts["not sent"]++
	}
}

// drainHook has the endpoint be well until nothing is left for it.
func (w *world) drainHook(p *pull) {
	info, err := w.broker.Subscription(p.id)
	if err == nil && info.Status.Disabled { // else nobody must have to tell it that there is something
		ctx, cancel := w.waiting()
		defer cancel()
		_, err = w.broker.PauseSubscription(ctx, anonymous(), p.id, false)
		w.settle()
	}
	if err != nil {
		w.fail("%s: %v", p, err)
	}
	well := func() fate { return delivered }
	for idle := 0; idle < 3; idle++ {
		if w.send(well) > 0 {
			idle = 0
		}
		w.pass(15*time.Minute, 2*time.Second)
	}
}
