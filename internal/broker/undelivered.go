// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// lettersOwedMax bounds the dead letters of one execute; no more agents serve a domain.
const lettersOwedMax = 90

// bury makes a dead letter of an execute that was not delivered in time, with its
// bytes, attempts and errors, in each subscription of the agents that it was for. From
// there it can be redriven. Afterwards o says where they are.
func (s *bus) bury(o *obligation) error {
	ids, err := s.subscribers(o)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.buryIn(id, o); err != nil && event.AsError(err).Code != event.CodeSubscriptionUnknown {
			return err
		}
	}
	view := s.b.store.View(func() {})
	defer view.Close()
	_, err = view.Message(store.MessageObligation, o.id, &o.ObligationRow)
	return err
}

// subscribers are the subscriptions of the agents that an execute was for. A stream among
// them was not given it either, or has not acknowledged it.
func (s *bus) subscribers(o *obligation) (ids []string, err error) {
	view := s.b.store.View(func() {})
	var m store.MessageRow
	_, err = view.Message(store.MessageID, o.Cause, &m)
	view.Close()
	if err != nil {
		return nil, err
	}
	registry := s.b.registry.Load()
	err = s.b.store.SubscriptionStates(func(number uint32, _ store.SubscriptionState) error {
		config, ok, err := s.b.store.SubscriptionConfig(number)
		if err != nil || !ok || config.Owner == "" || len(ids) == lettersOwedMax {
			return err
		}
		agent, err := registry.Agent(config.Owner)
		settings := &config.Document.Config
		if err == nil && slices.Contains(agent.Domains, m.To) &&
			slices.ContainsFunc(settings.Patterns(), func(p event.Pattern) bool { return p.Match(o.Letter) }) {
			ids = append(ids, config.Document.ID)
		}
		return nil
	})
	return ids, err
}

// buryIn makes the dead letter of one subscription. If apply has made it before, or the
// subscription may not have it, nothing happens.
func (s *bus) buryIn(id string, o *obligation) error {
	number, _, state, ok, err := s.b.store.Subscription(id)
	if err != nil || !ok || slices.Contains(o.Buried, number) {
		return err
	}
	row := store.Pending{Topic: o.Letter}
	err = s.b.store.Outstanding(number, state.Epoch, func(position uint64, pending store.Pending) (bool, error) {
		if position == o.Position {
			row = pending
		}
		return position != o.Position, nil
	})
	if err != nil {
		return err
	}
	reason := row.Error
	if reason == "" {
		reason = "it was not acknowledged by its deliver_by"
	}
	l := burial{b: s.b, id: id, row: &row, topic: o.Letter, op: eventlog.Bury{Position: o.Position, Cause: projector.CauseUndelivered, Error: reason, Owed: o.id, Topic: o.Letter}}
	found, err := l.stored()
	if err != nil || !found {
		return err
	}
	if err := l.write(); err != nil {
		return err
	}
	_, err = s.b.subscribe(context.Background(), identity.Anonymous(), &eventlog.Subscription{Op: eventlog.SubscriptionBury, ID: id, Bury: &l.op}, l.entries...)
	return err
}

// stored takes the event as it is stored, although it has expired.
func (l *burial) stored() (found bool, err error) {
	t, err := l.b.dispatch.Topic(l.topic)
	if err != nil {
		return false, err
	}
	view := l.b.store.View(func() {})
	defer view.Close()
	return view.Event(t.Number, l.op.Position, func(row store.EventRow) error {
		row.Members = append([]byte(nil), row.Members...)
		l.original, l.members, l.offset = row, row.Members, row.DataOffset
		return nil
	})
}
