// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/metrics"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

const (
	// surveyed is how many subscriptions one pass of the cleaner looks at. A hundred
	// thousand take some minutes, and a pass as long as that of a few thousand.
	surveyed = 5000
	// surveyedTime is how long one pass measures how far behind they are. What it
	// does not come to, the next one does; then no more are looked at until all are
	// measured.
	surveyedTime = 200 * time.Millisecond
)

// survey is what was found out of all subscriptions. It goes round over them a part
// at a time. Of those with the same topics only the one is measured that is furthest
// behind.
type survey struct {
	found atomic.Pointer[surveyFound] // in the last round; nil: none has ended yet
	held  atomic.Int64                // how many topics are kept for a subscription

	// Owned by the cleaner.
	holding map[uint32]bool         // numbers of the topics that are kept for a subscription
	after   uint32                  // the last one looked at in this round
	ended   bool                    // all have been looked at
	sets    map[string]*surveyedSet // that are to be measured, by their patterns
	so      surveyFound             // far in this round
	most    time.Duration           // surveyedTime
}

// surveyFound is what a round has found.
type surveyFound struct {
	lagEvents, lagMillis    uint64 // the greatest
	letters                 uint64 // dead letters that there are
	failing, open, disabled int    // endpoints of webhooks
}

// surveyedSet is of all subscriptions with the same topics the place that is
// furthest behind.
type surveyedSet struct {
	patterns []event.Pattern
	cursor   uint64
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
	if !s.ended && len(s.sets) == 0 {
		if err := s.next(b); err != nil {
			return err
		}
	}
	if err := s.measure(b); err != nil {
		return err
	}
	if s.ended && len(s.sets) == 0 {
		found := s.so
		s.found.Store(&found)
		s.after, s.ended, s.so = 0, false, surveyFound{}
	}
	return nil
}

// next looks at the next subscriptions. The view is closed before anything is
// measured.
func (s *survey) next(b *Broker) error {
	if s.sets == nil {
		s.sets = map[string]*surveyedSet{}
	}
	view := b.store.View(func() {})
	defer view.Close()
	n, now := 0, b.clock.Millis()
	s.ended = true
	return view.Subscriptions(s.after, func(number uint32, c store.SubscriptionConfig) (bool, error) {
		if n++; n > surveyed {
			s.ended = false
			return false, nil
		}
		s.after = number
		state, ok, err := view.SubscriptionState(number)
		if err != nil || !ok {
			return true, err
		}
		s.so.count(&state, now)
		key := strings.Join(c.Document.Config.Topics, " ")
		if set := s.sets[key]; set != nil {
			set.cursor = min(set.cursor, state.Cursor)
		} else {
			s.sets[key] = &surveyedSet{c.Document.Config.Patterns(), state.Cursor}
		}
		return true, nil
	})
}

// count adds a subscription.
func (f *surveyFound) count(state *store.SubscriptionState, now int64) {
	f.letters += state.Letters
	switch e := &state.Endpoint; {
	case state.Disabled:
		f.disabled++
	case e.Trips > 0 && now < e.HoldMillis:
		f.open++
	case e.Failures > 0:
		f.failing++
	}
}

// measure finds out how far behind the next sets are.
func (s *survey) measure(b *Broker) error {
	began := time.Now()
	for key, set := range s.sets {
		delete(s.sets, key)
		lag, err := b.dispatch.Lag(set.patterns, set.cursor)
		if err != nil {
			return err
		}
		s.so.lagEvents = max(s.so.lagEvents, lag.Events)
		if lag.Oldest > 0 {
			s.so.lagMillis = max(s.so.lagMillis, uint64(max(0, b.clock.Millis()-lag.Oldest)))
		}
		if time.Since(began) >= s.most { // one at least was measured
			break
		}
	}
	return nil
}

// sample tells what is looked up of subscriptions.
func (s *survey) sample(b *Broker, out metrics.Sample) {
	if count, err := b.store.LoadSubscriptions(); err == nil { // damage is met by apply, too
		out.Set("signalbox_subscriptions", float64(count.Count))
	}
	out.Set("signalbox_subscription_sessions", float64(b.deliveries.inUse()))
	out.Set("signalbox_subscription_held_topics", float64(s.held.Load()))
	found := surveyFound{}
	if last := s.found.Load(); last != nil {
		found = *last
	}
	out.Set("signalbox_subscription_lag_events", float64(found.lagEvents))
	out.Set("signalbox_subscription_lag_seconds", float64(found.lagMillis)/1000)
	out.Set("signalbox_subscription_dead_letters", float64(found.letters))
	out.Set("signalbox_webhook_endpoints", float64(found.failing), "failing")
	out.Set("signalbox_webhook_endpoints", float64(found.open), "open")
	out.Set("signalbox_webhook_endpoints", float64(found.disabled), "disabled")
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
