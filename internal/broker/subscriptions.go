// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// subscriptionsMax bounds the subscriptions of a space. An idle one takes a few
// hundred bytes of disk and no memory.
const subscriptionsMax = 1_000_000

// SubscriptionInfo is a subscription's document and how far it is.
type SubscriptionInfo struct {
	Document event.Subscription // with its secrets, which no door may show
	Owner    string
	Created  time.Time
	Status   SubscriptionStatus
}

// SubscriptionStatus is how far a subscription is.
type SubscriptionStatus struct {
	Paused      bool
	Disabled    bool
	Endpoint    *EndpointStatus // of a webhook
	Cursor      event.Cursor
	LagEvents   uint64        // events of its topics behind the cursor, whatever its filters say of them
	LagTime     time.Duration // how long the oldest of these has been there
	Outstanding uint64        // handed out, or to be handed out again
	Ready       uint64        // of these, to be handed out again
	Parked      uint64        // waiting behind another of their key
	Matched     uint64
	Dropped     uint64 // by the filters
	Errors      uint64 // of these, where a filter failed
	HandedOut   uint64
	Acked       uint64
	Nacked      uint64
	TimedOut    uint64 // hand-outs that ended without an answer
	Buried      uint64 // events that became dead letters
	Quarantined uint64
	Gone        uint64 // events that expired or were superseded before they were settled
	Gaps        uint64
	Letters     uint64 // dead letters that there are
	NextAttempt time.Time
	Error       string
	ErrorAt     time.Time
	Used        time.Time
}

// CreateSubscription makes a durable subscription of a document that was read
// with event.ParseSubscription.
func (b *Broker) CreateSubscription(ctx context.Context, p identity.Principal, document event.Subscription) (SubscriptionInfo, error) {
	op := eventlog.Subscription{Op: eventlog.SubscriptionCreate, ID: newName(subscriptionIDLength), Document: &document, Owner: p.Subject()}
	if p.Subject() != "" {
		op.ID = agentSubscription + op.ID
	}
	err := b.checkSubscription(&document)
	if err == nil {
		err = b.mayRead(p, &document)
	}
	if field := document.Incomplete(); err == nil && field != "" {
		err = incomplete(field)
	}
	if err == nil {
		op.Terms, err = b.terms(&document)
	}
	if err == nil {
		err = b.beginAt(&op, &document, "config.start", document.Config.Start)
	}
	if err != nil {
		return SubscriptionInfo{}, b.refuse(p, projector.TopicSubscriptions, err)
	}
	if err := b.disk.check(); err != nil {
		return SubscriptionInfo{}, err
	}
	if _, err := b.subscribe(ctx, p, &op); err != nil {
		return SubscriptionInfo{}, err
	}
	return b.Subscription(op.ID)
}

func incomplete(field string) error {
	return event.Errorf(event.CodeSubscriptionInvalid, "The member %s lacks its secrets.", field).With(field)
}

func (b *Broker) refuse(p identity.Principal, topic string, err error) error {
	b.Refused(p, topic, event.AsError(err))
	return err
}

// UpdateSubscription replaces the document. The cursor does not move.
func (b *Broker) UpdateSubscription(ctx context.Context, p identity.Principal, id string, document event.Subscription) (SubscriptionInfo, error) {
	err := b.own(p, id)
	if err == nil {
		err = b.checkSubscription(&document)
	}
	if err == nil {
		err = b.mayRead(p, &document)
	}
	if err != nil {
		return SubscriptionInfo{}, b.refuse(p, projector.TopicSubscriptions, err)
	}
	terms, err := b.terms(&document)
	if err != nil {
		return SubscriptionInfo{}, err
	}
	op := eventlog.Subscription{Op: eventlog.SubscriptionUpdate, ID: id, Document: &document, Terms: terms}
	if _, err := b.subscribe(ctx, p, &op); err != nil {
		return SubscriptionInfo{}, err
	}
	b.deliveries.end(id, EndChanged)
	return b.Subscription(id)
}

// DeleteSubscription ends a subscription, its dead letters included, and
// returns it as it was.
func (b *Broker) DeleteSubscription(ctx context.Context, p identity.Principal, id string) (SubscriptionInfo, error) {
	info, err := b.Subscription(id)
	if err == nil && b.active(info.Owner) { // else nobody could
		err = b.own(p, id)
	}
	if err != nil {
		return SubscriptionInfo{}, err
	}
	if _, err := b.subscribe(ctx, p, &eventlog.Subscription{Op: eventlog.SubscriptionDelete, ID: id}); err != nil {
		return SubscriptionInfo{}, err
	}
	b.deliveries.end(id, EndDeleted)
	return info, nil
}

// PauseSubscription stops deliveries, or lets them go on. What is handed out may
// be settled meanwhile.
func (b *Broker) PauseSubscription(ctx context.Context, p identity.Principal, id string, pause bool) (SubscriptionInfo, error) {
	op := eventlog.Subscription{Op: eventlog.SubscriptionResume, ID: id}
	if pause {
		op.Op = eventlog.SubscriptionPause
	}
	if err := b.own(p, id); err != nil {
		return SubscriptionInfo{}, err
	}
	if _, err := b.subscribe(ctx, p, &op); err != nil {
		return SubscriptionInfo{}, err
	}
	if pause {
		b.deliveries.end(id, EndPaused)
	}
	return b.Subscription(id)
}

// SeekSubscription moves the cursor, forward or back, and forgets what is handed
// out. Start is as in the document.
func (b *Broker) SeekSubscription(ctx context.Context, p identity.Principal, id, start string) (SubscriptionInfo, error) {
	info, err := b.Subscription(id)
	if err == nil {
		err = b.own(p, id)
	}
	if err != nil {
		return SubscriptionInfo{}, err
	}
	op := eventlog.Subscription{Op: eventlog.SubscriptionSeek, ID: id}
	if err := b.beginAt(&op, &info.Document, "start", start); err != nil {
		return SubscriptionInfo{}, b.refuse(p, projector.TopicSubscriptions, err)
	}
	if _, err := b.subscribe(ctx, p, &op); err != nil {
		return SubscriptionInfo{}, err
	}
	b.deliveries.end(id, EndChanged)
	return b.Subscription(id)
}

// Subscription returns a subscription, or code subscription_unknown.
func (b *Broker) Subscription(id string) (SubscriptionInfo, error) {
	view := b.store.View(func() {})
	defer view.Close()
	number, config, state, ok, err := view.Subscription(id)
	if err != nil {
		return SubscriptionInfo{}, err
	}
	if !ok {
		return SubscriptionInfo{}, unknownSubscription(id)
	}
	info := b.subscriptionInfo(&config, &state)
	err = view.Outstanding(number, state.Epoch, func(_ uint64, row store.Pending) (bool, error) {
		// What may go at once is due now, since whenever.
		if at := time.UnixMilli(max(row.DueMillis, b.clock.Millis())); row.State == store.PendingReady && (info.Status.NextAttempt.IsZero() || at.Before(info.Status.NextAttempt)) {
			info.Status.NextAttempt = at
		}
		return true, nil
	})
	if err != nil {
		return SubscriptionInfo{}, err
	}
	info.Status.holdBack()
	lag, err := b.dispatch.Lag(config.Document.Config.Patterns(), state.Cursor)
	if err != nil {
		return SubscriptionInfo{}, err
	}
	info.Status.LagEvents = lag.Events
	if lag.Oldest != 0 {
		info.Status.LagTime = time.Duration(max(0, b.clock.Millis()-lag.Oldest)) * time.Millisecond
	}
	return info, nil
}

// holdBack has the next attempt be when there is one: not while the subscription is
// paused or disabled, nor before its endpoint may be sent something.
func (s *SubscriptionStatus) holdBack() {
	switch {
	case s.NextAttempt.IsZero():
	case s.Paused || s.Disabled:
		s.NextAttempt = time.Time{}
	case s.Endpoint != nil && s.Endpoint.HeldUntil.After(s.NextAttempt):
		s.NextAttempt = s.Endpoint.HeldUntil
	}
}

func unknownSubscription(id string) error {
	return event.Errorf(event.CodeSubscriptionUnknown, "There is no subscription %.40q.", id)
}

// Subscriptions returns up to limit subscriptions in the order in which they
// were created, after the one with the given id, and whether there are more.
// Their lag is not measured.
func (b *Broker) Subscriptions(after string, limit int) (infos []SubscriptionInfo, more bool, err error) {
	view := b.store.View(func() {})
	defer view.Close()
	first := uint32(0)
	if after != "" {
		number, _, _, ok, err := view.Subscription(after)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			return nil, false, unknownSubscription(after)
		}
		first = number
	}
	err = view.Subscriptions(first, func(number uint32, config store.SubscriptionConfig) (bool, error) {
		if len(infos) == limit {
			more = true
			return false, nil
		}
		state, _, err := view.SubscriptionState(number)
		infos = append(infos, b.subscriptionInfo(&config, &state))
		return true, err
	})
	return infos, more, err
}

func (b *Broker) subscriptionInfo(c *store.SubscriptionConfig, s *store.SubscriptionState) SubscriptionInfo {
	at := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
	info := SubscriptionInfo{
		Document: c.Document, Owner: c.Owner, Created: at(c.CreatedMillis),
		Status: SubscriptionStatus{
			Paused: s.Paused, Disabled: s.Disabled, Cursor: b.cursorOf(s),
			Outstanding: s.Outstanding, Ready: s.Ready, Parked: s.Parked,
			Matched: s.Matched, Dropped: s.Dropped, Errors: s.Errors,
			HandedOut: s.Handed, Acked: s.Acked, Nacked: s.Nacked, TimedOut: s.Lost,
			Buried: s.Buried, Quarantined: s.Quarantined, Gone: s.Gone, Gaps: s.Gaps, Letters: s.Letters,
			Error: s.Error, ErrorAt: at(s.ErrorMillis), Used: at(s.Used),
		},
	}
	if e := &s.Endpoint; s.Webhook {
		info.Status.Endpoint = &EndpointStatus{
			Failures: int(e.Failures), FailingSince: at(e.FailingSince), HeldUntil: at(e.HoldMillis), Consented: e.Consented, Rate: int(e.Rate),
			Circuit: CircuitClosed,
		}
		if e.Trips > 0 {
			info.Status.Endpoint.Circuit = CircuitHalfOpen
			if b.clock.Millis() < e.HoldMillis {
				info.Status.Endpoint.Circuit = CircuitOpen
			}
		}
	}
	return info
}

// The circuit of an endpoint.
const (
	CircuitClosed   = "closed"
	CircuitOpen     = "open"      // nothing is sent
	CircuitHalfOpen = "half_open" // one attempt tells how to go on
)

// EndpointStatus is how it stands with the endpoint of a webhook.
type EndpointStatus struct {
	Circuit      string
	Failures     int       // in a row
	FailingSince time.Time // since the first of them
	HeldUntil    time.Time // nothing is sent before
	Consented    bool      // by the webhook handshake
	Rate         int       // requests a minute that it allows; 0: any number
}

func (b *Broker) cursorOf(s *store.SubscriptionState) event.Cursor {
	c := event.Cursor{Position: s.Cursor, Incarnation: b.dispatch.Head().Incarnation}
	if s.Began > s.Cursor {
		c.Began = s.Began
	}
	return c
}

// checkSubscription refuses filters that cannot be evaluated.
func (b *Broker) checkSubscription(d *event.Subscription) error {
	if err := b.open(); err != nil {
		return err
	}
	d.Config.Topics, d.Types = distinct(d.Config.Topics), distinct(d.Types)
	if _, err := b.selected(d); err != nil || d.Config.Kind != event.KindWebhook {
		return err
	}
	if err := d.CheckCredential(time.UnixMilli(b.clock.Millis())); err != nil {
		return err
	}
	if b.options.CheckSink == nil {
		return event.Errorf(event.CodeSinkRefused, "This broker sends no webhooks.").With("sink")
	}
	return b.options.CheckSink(d.Sink)
}

// distinct is a list without what stands in it before.
func distinct(list []string) []string {
	out := list[:0:0]
	for _, text := range list {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// terms are those under which events find a webhook; none for other kinds, whose
// consumers come by themselves. The sketch knows them before they are stored.
func (b *Broker) terms(d *event.Subscription) ([][]byte, error) {
	if d.Config.Kind != event.KindWebhook {
		return nil, nil
	}
	f, err := b.filtered(d)
	if err != nil {
		return nil, err
	}
	terms := filter.Selection{Filter: f, Source: d.Source, Types: d.Types, Patterns: d.Config.Patterns()}.Terms()
	for _, term := range terms {
		b.due.note(term)
	}
	return terms, nil
}

// beginAt finds the place that a start means, which a field has. Opening a reader
// there refuses a cursor that is no place to begin at.
func (b *Broker) beginAt(op *eventlog.Subscription, d *event.Subscription, field, start string) error {
	spec := dispatch.Spec{Patterns: d.Config.Patterns(), View: d.Config.View, Durable: true}
	op.Now = start == "now"
	switch {
	case start == "now", start == "earliest":
		spec.Start.Now = op.Now
	case strings.HasPrefix(start, "@"):
		cursor, err := event.ParseCursor(start)
		if err != nil {
			return event.AsError(err).With(field)
		}
		spec.Start.Cursor = &cursor
	default:
		at, err := time.Parse(time.RFC3339, start)
		if err != nil {
			return event.Errorf(event.CodeCursorInvalid, "start=%.60q is neither now, earliest, a cursor nor an RFC 3339 time.", start).With(field)
		}
		spec.Start.Time = at
		op.Place = &eventlog.Place{Since: at.UnixMilli()}
	}
	reader, err := b.dispatch.Open(spec)
	var refused *event.Error
	if errors.As(err, &refused) {
		switch refused.Field {
		case "":
			return refused.With(field)
		case "view":
			return refused.With("config.view")
		}
	}
	if err != nil {
		return err
	}
	defer reader.Close()
	if op.Place == nil {
		op.Place = &eventlog.Place{}
	}
	op.Place.Cursor, op.Place.Began = reader.Cursor().Position, reader.Cursor().Began
	return nil
}

// subscribe proposes a change of a subscription and waits until it is durable.
func (b *Broker) subscribe(ctx context.Context, p identity.Principal, op *eventlog.Subscription, entries ...eventlog.Entry) (projector.Result, error) {
	if err := b.open(); err != nil {
		return projector.Result{}, err
	}
	result, err := b.propose(ctx, &eventlog.Proposal{
		Kind: eventlog.KindSubscription, AdmittedMillis: b.clock.Millis(), Principal: p.Subject(),
		Topic: projector.TopicSubscriptions, Subscription: op, Entries: entries,
	})
	if err == nil && result.Err != nil {
		return result, result.Err
	}
	return result, err
}

// errStale: a subscription changed between being read and being changed.
var errStale = errors.New("the subscription has changed meanwhile")

// notice makes an event of the broker's own about a subscription.
func (b *Broker) notice(id, typ string, data []byte) (eventlog.Entry, error) {
	text := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/v1/subscriptions/%s","type":%q,"subject":%q,"data":%s}`,
		newName(subscriptionIDLength), id, typ, id, data)
	e, err := event.DecodeDelivered(text)
	if err != nil {
		return eventlog.Entry{}, fmt.Errorf("broker: a notice about a subscription: %w", err)
	}
	entries, _, err := admission.Admit([]*event.Event{e}, b.clock.Millis(), event.Trace{})
	if err != nil {
		return eventlog.Entry{}, fmt.Errorf("broker: a notice about a subscription: %w", err)
	}
	return entries[0], nil
}

// subscriptionIDLength makes ids that nobody meets twice, in 82 bits.
const subscriptionIDLength = 16

// newName draws letters and digits.
func newName(length int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	raw := make([]byte, length)
	// Read never returns an error: it ends the process if the system has no
	// randomness.
	_, _ = rand.Read(raw)
	for i := range raw {
		raw[i] = alphabet[int(raw[i])%len(alphabet)]
	}
	return string(raw)
}
