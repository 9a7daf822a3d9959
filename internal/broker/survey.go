// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync/atomic"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/metrics"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// surveyed is how many subscriptions one pass of the cleaner looks at, to find
// which is furthest behind. So a hundred thousand cost no more at a time than a
// few hundred, and a round over them takes longer.
const surveyed = 200

// surveyedTopics bounds the topics that one pass holds against the patterns of
// subscriptions: with many topics it looks at fewer subscriptions, and at one at
// least.
const surveyedTopics = 200_000

// survey is what was found out of all subscriptions.
type survey struct {
	lagEvents, lagMillis atomic.Uint64 // the greatest of the last round
	held                 atomic.Int64  // how many topics are kept for a subscription

	// Owned by the cleaner.
	holding       map[uint32]bool // numbers of the topics that are kept for a subscription
	after         uint32          // the last one looked at in this round
	events, since uint64          // the greatest so far; since in ms
}

// hold notes whether a topic is kept for a subscription.
func (s *survey) hold(topic uint32, held bool) {
	switch {
	case !held:
		delete(s.holding, topic)
	case s.holding == nil:
		s.holding = map[uint32]bool{topic: true}
	default:
		s.holding[topic] = true
	}
	s.held.Store(int64(len(s.holding)))
}

// look goes on with the round over all subscriptions.
func (s *survey) look(b *Broker) error {
	some, more, err := s.next(b)
	if err != nil {
		return err
	}
	for i := range some {
		lag, err := b.dispatch.Lag(some[i].patterns, some[i].cursor)
		if err != nil {
			return err
		}
		s.events = max(s.events, lag.Events)
		if lag.Oldest > 0 {
			s.since = max(s.since, uint64(max(0, b.clock.Millis()-lag.Oldest)))
		}
	}
	if more {
		return nil
	}
	s.lagEvents.Store(s.events)
	s.lagMillis.Store(s.since)
	s.after, s.events, s.since = 0, 0, 0
	return nil
}

// surveyedOne is what is looked at of a subscription.
type surveyedOne struct {
	patterns []event.Pattern
	cursor   uint64
}

// next returns the subscriptions of this pass, and whether the round has more. The
// view is closed before anything is measured.
func (s *survey) next(b *Broker) (some []surveyedOne, more bool, err error) {
	most := min(surveyed, 1+surveyedTopics/(1+len(b.dispatch.Topics())))
	view := b.store.View(func() {})
	defer view.Close()
	n := 0
	err = view.Subscriptions(s.after, func(number uint32, c store.SubscriptionConfig) (bool, error) {
		if n++; n > most {
			more = true
			return false, nil
		}
		s.after = number
		state, ok, err := view.SubscriptionState(number)
		if err == nil && ok {
			some = append(some, surveyedOne{c.Document.Config.Patterns(), state.Cursor})
		}
		return true, err
	})
	return some, more, err
}

// sample tells what is looked up of subscriptions.
func (s *survey) sample(b *Broker, out metrics.Sample) {
	if count, err := b.store.LoadSubscriptions(); err == nil { // damage is met by apply, too
		out.Set("signalbox_subscriptions", float64(count.Count))
	}
	out.Set("signalbox_subscription_sessions", float64(b.deliveries.inUse()))
	out.Set("signalbox_subscription_lag_events", float64(s.lagEvents.Load()))
	out.Set("signalbox_subscription_lag_seconds", float64(s.lagMillis.Load())/1000)
	out.Set("signalbox_subscription_held_topics", float64(s.held.Load()))
}

// countDeliveries adds a commit's deliveries to the metrics.
func (b *Broker) countDeliveries(c *store.DeliveryCounts) {
	if *c == (store.DeliveryCounts{}) {
		return
	}
	m := &b.metrics.Subscriptions
	add(m.Matched, int(c.Matched))
	add(m.Dropped, int(c.Dropped))
	add(m.Failed, int(c.Errors))
	add(m.HandedOut, int(c.Handed))
	add(m.Acked, int(c.Acked))
	add(m.Nacked, int(c.Nacked))
	add(m.TimedOut, int(c.Lost))
	add(m.Gone, int(c.Gone))
	add(m.Spent, int(c.Buried-c.Quarantined))
	add(m.Quarantined, int(c.Quarantined))
	add(m.Gaps, int(c.Gaps))
}

// countMoves counts what an entry about a subscription has moved.
func (b *Broker) countMoves(p *eventlog.Proposal, r *projector.Result) {
	if p.Kind != eventlog.KindSubscription || r.Err != nil {
		return
	}
	switch op := p.Subscription; {
	case op.Op == eventlog.SubscriptionRedrive:
		add(b.metrics.Subscriptions.Redriven, r.Delivery.Moved)
	case op.Op == eventlog.SubscriptionDiscard:
		add(b.metrics.Subscriptions.Discarded, r.Delivery.Moved)
	case op.Op == eventlog.SubscriptionDelete && op.IfUnused:
		b.metrics.Subscriptions.Expired.Inc()
	}
}
