// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

const (
	// fetchBytes bounds the size of the events of one hand-out, beside FetchMax.
	fetchBytes = 4 << 20
	// candidatesMax bounds the events that one hand-out looks at, most of which
	// may only be parked.
	candidatesMax = 2000
	// planTime bounds the search for events that are selected.
	planTime = 2 * time.Second
	// planAttempts is how often a plan is made anew because the subscription
	// has changed under it.
	planAttempts = 10
	// webhookVisibility bounds the time after which an event is sent again of which
	// the broker died before it knew what had become of it. Attempts are shorter.
	webhookVisibility = 2 * time.Minute
	// movedMin is from how many positions on it is worth to store that nothing
	// was found in them.
	movedMin = 10_000
)

// plan is one look for events to hand out. What it finds is only proposed.
type plan struct {
	b     *Broker
	s     *session
	p     identity.Principal // who asks; of a webhook nobody
	id    string
	kind  string // that the subscription must have
	req   FetchRequest
	final bool // nobody will wait after it

	number  uint32
	config  store.SubscriptionConfig
	state   store.SubscriptionState
	reach   *reach
	hand    eventlog.HandOut
	json    map[uint64][]byte // by position
	counts  eventlog.Counts   // since the last candidate
	locked  map[[16]byte]bool // keys of candidates
	parked  int               // events that would be, with the candidates
	next    time.Duration     // until something that is ready becomes due
	arrived <-chan struct{}   // closed when there is something to read; nil: nothing is read for
	more    bool              // not everything was read up to the head
}

func (pl *plan) settings() *event.SubscriptionConfig { return &pl.config.Document.Config }

// run plans and proposes until a plan fits what the subscription is.
func (pl *plan) run(ctx context.Context) ([]HandedOut, error) {
	for attempts := 0; attempts < planAttempts; attempts++ {
		out, err := pl.once(ctx)
		if !errors.Is(err, errStale) {
			return out, err
		}
		if len(pl.hand.Gone) > 0 {
			attempts = 0 // each time there are fewer
		}
	}
	return nil, event.Errorf(event.CodeOverloaded, "The subscription changes faster than it can be read. Try again in a moment.")
}

const idleWait = time.Minute

func (pl *plan) once(ctx context.Context) ([]HandedOut, error) {
	var ok bool
	var err error
	pl.number, pl.config, pl.state, ok, err = pl.b.store.Subscription(pl.id)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, unknownSubscription(pl.id)
	case pl.settings().Kind != pl.kind:
		return nil, event.Errorf(event.CodeSubscriptionConflict, "The subscription's kind is %s: nothing can be fetched from it.", pl.settings().Kind)
	}
	asks := pl.p
	if pl.kind == event.KindWebhook {
		asks = identity.Named(pl.config.Owner)
	}
	if pl.reach, err = pl.b.reachOf(asks, pl.config.Owner); err != nil {
		return nil, err
	}
	place := eventlog.Place{Cursor: pl.state.Cursor, Began: pl.state.Began, Since: pl.state.Since}
	pl.hand = eventlog.HandOut{Epoch: pl.state.Epoch, From: place, To: place, Max: pl.req.Max, Visibility: pl.settings().Visibility.Std().Milliseconds()}
	if pl.kind == event.KindWebhook {
		pl.hand.Visibility = min(pl.hand.Visibility, webhookVisibility.Milliseconds())
	}
	if pl.req.Visibility != 0 {
		pl.hand.Visibility = pl.req.Visibility.Milliseconds()
	}
	pl.json, pl.counts, pl.next, pl.arrived = map[uint64][]byte{}, eventlog.Counts{}, idleWait, nil
	pl.more = false
	if !pl.state.Paused && !pl.state.Disabled {
		if err := pl.again(ctx); err != nil {
			return nil, err
		}
		if err := pl.read(ctx); err != nil {
			return nil, err
		}
	}
	if !pl.worth() {
		return nil, nil
	}
	return pl.propose(ctx)
}

// worth reports whether there is anything to store.
func (pl *plan) worth() bool {
	h := &pl.hand
	if len(h.Again)+len(h.Gone)+len(h.Events) > 0 {
		return true
	}
	if moved := h.To.Cursor - h.From.Cursor; moved >= movedMin || moved > 0 && pl.final {
		return true
	}
	// A worker that finds nothing is a sign of life, too.
	expires := pl.settings().ExpiresAfter.Std().Milliseconds()
	return expires > 0 && pl.b.clock.Millis()-pl.state.Used > expires/projector.UnusedShare
}

// gap logs what was removed behind the cursor, and has the plan made anew.
func (pl *plan) gap(ctx context.Context, cause error) error {
	if event.AsError(cause).Code != event.CodeCursorExpired {
		return cause
	}
	if err := pl.b.noteGap(ctx, pl.id, &pl.config.Document, &pl.state, event.AsError(cause)); err != nil {
		return err
	}
	return errStale
}

func (pl *plan) propose(ctx context.Context) ([]HandedOut, error) {
	// What is planned takes effect whether its caller stays or leaves: it is
	// counted as handed out, and comes back after its deadline.
	result, err := pl.b.subscribe(context.WithoutCancel(ctx), pl.p, &eventlog.Subscription{Op: eventlog.SubscriptionHandOut, ID: pl.id, HandOut: &pl.hand})
	if err != nil {
		return nil, err
	}
	if result.Delivery.Stale {
		pl.closeReader()
		return nil, errStale
	}
	selection, err := event.ParseSelection(pl.settings().Select)
	if err != nil {
		return nil, err
	}
	out := make([]HandedOut, len(result.Delivery.Handed))
	for i, h := range result.Delivery.Handed {
		json := pl.json[h.Position]
		if !selection.All() {
			json = selection.AppendSelected(nil, json)
		}
		out[i] = HandedOut{
			Token: formatToken(h.Position, h.Token), Attempt: int(h.Attempt), Deadline: time.UnixMilli(h.DueMillis), Event: json,
		}
	}
	if len(out) == 0 && len(pl.hand.Gone) > 0 {
		return nil, errStale // others of their keys may have come forward
	}
	return out, nil
}
