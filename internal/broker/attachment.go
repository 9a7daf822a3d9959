// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Attachment is a connection that has the stream of a subscription. It belongs
// to one goroutine, but for what ends it.
type Attachment struct {
	b       *Broker
	p       identity.Principal
	id      string
	session *session
	ended   chan struct{}
	reason  string // why, set before ended is closed
	expires int64  // ms; 0: the subscription never ends by itself; guarded by deliveries.mu
	noted   int64  // when it was noted that the subscription is in use; guarded by deliveries.mu
}

// Gap is what was removed before a subscription read it.
type Gap struct {
	From event.Cursor `json:"from"` // everything up to here was seen
	To   event.Cursor `json:"to"`   // up to here something was removed
}

// Attach gives the stream of a subscription to a connection, in place of any
// other, and opens a reader at its cursor. Last, if given, acknowledges first.
// Gap is one that the client may not have been told of yet.
func (b *Broker) Attach(ctx context.Context, p identity.Principal, id string, last *event.Cursor) (a *Attachment, reader *dispatch.Reader, gap *Gap, err error) {
	if err := b.own(p, id); err != nil {
		return nil, nil, nil, err
	}
	if last != nil {
		if _, err := b.Acknowledge(ctx, p, id, *last); err != nil {
			return nil, nil, nil, err
		}
	}
	session := b.deliveries.enter(id)
	a = &Attachment{b: b, p: p, id: id, session: session, ended: make(chan struct{})}
	b.deliveries.take(session, a)
	reader, gap, err = a.Open(ctx)
	if err == nil && a.expiring() {
		err = b.noteUse(ctx, id)
	}
	if err != nil {
		if reader != nil {
			reader.Close()
		}
		a.Close()
		return nil, nil, nil, err
	}
	return a, reader, gap, nil
}

// Open opens a reader at the subscription's cursor. If something was removed
// behind it, that is logged, and the reader goes on behind it.
func (a *Attachment) Open(ctx context.Context) (*dispatch.Reader, *Gap, error) {
	for range planAttempts {
		_, config, state, ok, err := a.b.store.Subscription(a.id)
		switch {
		case err != nil:
			return nil, nil, err
		case !ok:
			return nil, nil, unknownSubscription(a.id)
		case config.Document.Config.Kind != event.KindStream:
			return nil, nil, event.Errorf(event.CodeSubscriptionConflict, "The subscription's kind is %s: fetch its events instead.", config.Document.Config.Kind)
		case state.Paused:
			a.b.deliveries.stop(a, EndPaused)
		}
		reach, err := a.b.reachOf(a.p, config.Owner)
		if err != nil {
			return nil, nil, err
		}
		spec, err := a.b.specOf(reach, &config.Document, &state, a.count)
		if err != nil {
			return nil, nil, err
		}
		reach.withhold(&spec)
		spec.Select, _ = event.ParseSelection(config.Document.Config.Select) // it was checked when it was set
		a.b.deliveries.noted(a, a.b.clock.Millis(), config.Document.Config.ExpiresAfter.Std().Milliseconds())
		reader, err := a.b.dispatch.Open(spec)
		if err == nil {
			return reader, a.b.gapOf(&state), nil
		}
		if event.AsError(err).Code != event.CodeCursorExpired {
			return nil, nil, err
		}
		if err := a.b.noteGap(ctx, a.id, &config.Document, &state, event.AsError(err)); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, event.Errorf(event.CodeOverloaded, "The subscription changes faster than it can be read. Try again in a moment.")
}

// Ended is closed when the connection has lost the stream. It may be asked of
// nil, which never does.
func (a *Attachment) Ended() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.ended
}

// Reason is why the stream has ended, "" while it has not.
func (a *Attachment) Reason() string {
	select {
	case <-a.Ended():
		return a.reason
	default:
		return ""
	}
}

// end does nothing the second time. It is called with deliveries.mu held.
func (a *Attachment) end(reason string) {
	select {
	case <-a.ended:
	default:
		a.reason = reason
		close(a.ended)
	}
}

// Close gives the stream up, and stores what was counted.
func (a *Attachment) Close() {
	a.b.deliveries.release(a.session, a)
	if a.session.matched.Load()+a.session.dropped.Load() > 0 || a.expiring() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// The counts are figures for people; losing them to a full queue is no harm. That
		// it was in use was noted not long ago.
		_, _ = a.b.Acknowledge(ctx, a.p, a.id, event.Cursor{})
	}
	a.b.deliveries.leave(a.id, a.session)
}

// expiring reports whether the subscription ends by itself when it is not used.
func (a *Attachment) expiring() bool {
	a.b.deliveries.mu.Lock()
	defer a.b.deliveries.mu.Unlock()
	return a.expires > 0
}

// noteUse notes that a stream's client is there, which has nothing to acknowledge.
func (b *Broker) noteUse(ctx context.Context, id string) error {
	_, err := b.subscribe(ctx, identity.Anonymous(), &eventlog.Subscription{Op: eventlog.SubscriptionAcknowledge, ID: id, Place: &eventlog.Place{}})
	return err
}

func (a *Attachment) count(c dispatch.Counts) {
	a.session.matched.Add(c.Matched)
	a.session.dropped.Add(c.Dropped)
	a.session.failed.Add(c.Failed)
}

// here fails with code cursor_foreign for a cursor that is not of this log.
func (b *Broker) here(c event.Cursor) error {
	head := b.dispatch.Head()
	switch {
	case c.Incarnation != "" && c.Incarnation != head.Incarnation:
		return event.Errorf(event.CodeCursorForeign, "The cursor %s belongs to another log: this one was created or restored since.", c)
	case c.Position > head.Position:
		return event.Errorf(event.CodeCursorForeign, "The cursor %s is beyond the log's head %s.", c, head)
	}
	return nil
}

// Acknowledge moves a stream's cursor forward: its client has everything up to it. A long
// way is gone in parts.
func (b *Broker) Acknowledge(ctx context.Context, p identity.Principal, id string, c event.Cursor) (event.Cursor, error) {
	if err := b.own(p, id); err != nil {
		return event.Cursor{}, err
	}
	if err := b.here(c); err != nil { // apply refuses what is beyond the head too, but behind the first parts of a long way
		return event.Cursor{}, err
	}
	for {
		part, err := b.acknowledgedAtOnce(id, c.Position)
		if err != nil {
			return event.Cursor{}, err
		}
		if part == c.Position {
			break
		}
		op := eventlog.Subscription{Op: eventlog.SubscriptionAcknowledge, ID: id, Place: &eventlog.Place{Cursor: part}}
		if _, err := b.subscribe(ctx, p, &op); err != nil {
			return event.Cursor{}, err
		}
	}
	op := eventlog.Subscription{Op: eventlog.SubscriptionAcknowledge, ID: id, Place: &eventlog.Place{Cursor: c.Position, Began: c.Began}}
	s := b.deliveries.enter(id)
	defer b.deliveries.leave(id, s)
	op.Counts = &eventlog.Counts{Matched: s.matched.Swap(0), Dropped: s.dropped.Swap(0), Errors: s.failed.Swap(0)}
	if _, err := b.subscribe(ctx, p, &op); err != nil {
		return event.Cursor{}, err
	}
	view := b.store.View(func() {})
	defer view.Close()
	_, _, state, ok, err := view.Subscription(id)
	if err == nil && !ok {
		err = unknownSubscription(id)
	}
	return b.cursorOf(&state), err
}

// acknowledgedAtOnce returns how far on the way to a position one entry can go that is
// found by every ticket whose messages it acknowledges.
func (b *Broker) acknowledgedAtOnce(id string, to uint64) (part uint64, err error) {
	view := b.store.View(func() {})
	_, config, state, ok, err := view.Subscription(id)
	view.Close()
	if err != nil || !ok || to <= state.Cursor+projector.TicketsOfEntryMax { // each ticket has a message
		return to, err
	}
	of := func(p event.Pattern) bool { _, messages := p.Both(messageTopics); return messages }
	if !slices.ContainsFunc(config.Document.Config.Patterns(), of) {
		return to, nil
	}
	part = to
	messages, tickets := 0, map[string]bool{}
	err = b.store.TicketsAt(state.Cursor+1, to, func(position uint64, of string) (bool, error) {
		if messages++; messages > projector.MessagesOfEntryMax || !tickets[of] && len(tickets) == projector.TicketsOfEntryMax {
			part = position - 1
			return false, nil
		}
		tickets[of] = true
		return true, nil
	})
	return part, err
}

// specOf is what a subscription reads. Counted is told what became of the events.
func (b *Broker) specOf(r *reach, d *event.Subscription, s *store.SubscriptionState, counted func(dispatch.Counts)) (dispatch.Spec, error) {
	cursor := b.cursorOf(s)
	spec := dispatch.Spec{Patterns: d.Config.Patterns(), View: d.Config.View, Durable: true, Counted: counted, Start: dispatch.Start{Cursor: &cursor, Exact: true}}
	if s.Since != 0 {
		spec.Since = time.UnixMilli(s.Since)
	}
	var err error
	if spec.Filter, err = b.selected(d); err != nil {
		return spec, err
	}
	return spec, r.limit(&spec)
}

func (b *Broker) gapOf(s *store.SubscriptionState) *Gap {
	if s.GapTo == 0 {
		return nil
	}
	incarnation := b.dispatch.Head().Incarnation
	return &Gap{From: event.Cursor{Position: s.GapFrom, Incarnation: incarnation}, To: event.Cursor{Position: s.GapTo, Incarnation: incarnation}}
}

// noteGap logs that something was removed before a subscription read it. What
// the subscription reads next is behind that.
func (b *Broker) noteGap(ctx context.Context, id string, d *event.Subscription, s *store.SubscriptionState, cause *event.Error) error {
	removed, _ := cause.Facts["removed_to"].(string)
	to, err := event.ParseCursor(removed)
	if err != nil {
		return cause
	}
	from := eventlog.Place{Cursor: s.Cursor, Began: s.Began, Since: s.Since}
	behind := from
	behind.Began = max(to.Position, s.Began)
	data, err := json.Marshal(map[string]any{
		"subscription": id, "from": b.cursorOf(s), "to": to, "topics": cause.Facts["topics"],
	})
	if err != nil {
		return err
	}
	entry, err := b.notice(id, "signalbox.subscription.gap", data)
	if err != nil {
		return err
	}
	op := eventlog.Subscription{Op: eventlog.SubscriptionGap, ID: id, Gap: &eventlog.Gap{From: from, To: behind, Lost: to.Position}}
	_, err = b.subscribe(ctx, identity.Anonymous(), &op, entry)
	return err
}

// keeper does what apply has found to be due and cannot do itself, for it has
// neither randomness nor the events.
func (b *Broker) keeper() {
	for {
		select {
		case <-b.stop:
			return
		case <-b.deliveries.wake:
		}
		calls := b.deliveries.called()
		for _, id := range slices.Sorted(maps.Keys(calls)) {
			a := calls[id]
			if a.used || a.unused && b.deliveries.attached(id) {
				if err := b.noteUse(context.Background(), id); err != nil {
					b.logger.Debug("the use of a subscription is not noted", "subscription", id, "err", err)
				}
			}
			if a.unused {
				b.endUnused(id)
			}
			if a.spent {
				b.burySpent(id)
			}
			if a.failing {
				b.disableFailing(id)
			}
		}
	}
}

// endUnused ends a subscription that has expired, with a notice.
func (b *Broker) endUnused(id string) {
	info, err := b.Subscription(id)
	if err != nil {
		return // it has ended
	}
	data, err := json.Marshal(map[string]any{"subscription": id, "cursor": info.Status.Cursor, "expires_after": info.Document.Config.ExpiresAfter.String(), "used": info.Status.Used.UTC()})
	if err != nil {
		return
	}
	entry, err := b.notice(id, "signalbox.subscription.expired", data)
	if err != nil {
		b.logger.Error("a subscription cannot be ended", "subscription", id, "err", err)
		return
	}
	op := eventlog.Subscription{Op: eventlog.SubscriptionDelete, ID: id, IfUnused: true, Reason: "unused"}
	if _, err := b.subscribe(context.Background(), identity.Anonymous(), &op, entry); err != nil {
		return // somebody came back, or it is tried again in a minute
	}
	b.logger.Info("a subscription that nobody used has ended", "subscription", id, "topic", projector.TopicSubscriptions)
	b.deliveries.end(id, EndDeleted)
}
