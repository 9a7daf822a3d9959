// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"signalbox/internal/eventlog"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

const (
	// sweepEvery is how often the webhooks that nothing concerns come forward, as their
	// place holds back retention; earlier if a sweep would look at more than it may.
	sweepEvery = 5 * time.Minute
	// sweepSoon is after what time a sweep begins that is needed.
	sweepSoon = time.Second
	// sweepPage is how many webhooks a sweep queues at a time.
	sweepPage = 1024
	// sweptMax is how many positions a sweep looks at, ten seconds or two. Who is behind
	// by more, as somebody may be who must not read what is next, is asked.
	sweptMax = 10_000_000
	// sweptTerms bounds the terms that a sweep remembers at a time, and sweptEvents
	// the events that it reads at a time.
	sweptTerms  = 65_536
	sweptEvents = 4096
	// movedPage is how many webhooks a sweep moves in one commit, so that nobody who
	// publishes waits for more of them.
	movedPage = 128
)

// sweepLoop finds the webhooks that events did not find: at the start, when
// something did not fit in memory, and now and then all that are behind.
func (b *Broker) sweepLoop() {
	swept := b.sweep(0, sweptMax)
	soon := time.NewTicker(sweepSoon)
	defer soon.Stop()
	last := time.Now()
	for {
		select {
		case <-b.stop:
			return
		case <-soon.C:
		}
		if behind := b.due.takeMissed(); behind != nothingMissed {
			swept = max(swept, b.sweep(behind, sweptMax))
		}
		// Nobody is further behind than the last sweep has left them but who could not
		// come forward. They are asked, for others must not be read for again.
		most := b.dispatch.Head().Position - swept + movedMin
		if time.Since(last) >= sweepEvery || most > sweptMax/2 {
			swept = max(swept, b.sweep(0, min(most, sweptMax)))
			last = time.Now()
		}
	}
}

// hookPlace is how far a webhook is.
type hookPlace struct {
	number, epoch uint32
	cursor        uint64
}

// sweep queues the webhooks that have events to be delivered again, or are told of
// none of what is behind a position and may have something to deliver there. To ask
// each of them would be to read everything behind it for each, of which nearly all
// would come to nothing. So the events are read once and looked up under their terms,
// as they are when they are new. Only who is behind by more than most is asked. Of a
// sweep of all that is behind them the others come forward, to the head as it was, which it
// returns; else 0.
func (b *Broker) sweep(told, most uint64) (head uint64) {
	s := sweeper{b: b, began: b.clock.Millis(), head: b.dispatch.Head().Position, terms: map[string]uint64{}}
	err := s.run(told, most)
	if err == nil && told == 0 && !b.stopping() { // then not everything may have been looked up
		err = s.move()
	}
	switch {
	case b.stopping():
	case err != nil:
		b.logger.Error("webhooks cannot be looked for, and are later", "err", err)
		b.due.miss()
	case told == 0:
		return s.head
	}
	return 0
}

// sweeper is a sweep on its way.
type sweeper struct {
	b      *Broker
	began  int64 // by the log clock
	head   uint64
	behind []hookPlace       // that are not queued, by number
	terms  map[string]uint64 // under which there may be a webhook: the last position of an event with it
	record filter.Record
}

func (s *sweeper) run(told, most uint64) error {
	var asked []uint32
	from := s.head
	err := s.b.store.WebhookStates(0, func(number uint32, state store.SubscriptionState) bool {
		cursor := max(state.Cursor, told)
		switch {
		case state.Paused || state.Disabled:
		case state.Outstanding > 0 || state.Cursor+most < s.head || state.Endpoint.Failures > 0: // it may have to be asked for its consent
			asked = append(asked, number)
		case cursor < s.head:
			s.behind = append(s.behind, hookPlace{number, state.Epoch, cursor})
			from = min(from, cursor)
		}
		return true
	})
	if err != nil || !s.queue(asked) {
		return err
	}
	topics := s.b.dispatch.Topics()
	for i := range topics {
		if t := &topics[i]; !t.Policy.Ephemeral() && t.Last > from {
			if more, err := s.topic(t, from); err != nil || !more {
				return err
			}
		}
	}
	return s.tell()
}

// take reports whether a webhook has not come to a position, and takes it out.
func (s *sweeper) take(number uint32, position uint64) bool {
	i, ok := slices.BinarySearchFunc(s.behind, number, func(p hookPlace, n uint32) int { return cmp.Compare(p.number, n) })
	if !ok || s.behind[i].cursor >= position {
		return false
	}
	s.behind[i].cursor = s.head
	return true
}

// queue queues webhooks, and waits while there are enough to do. Whoever an event
// finds meanwhile does not wait for them. It reports whether the broker goes on.
func (s *sweeper) queue(numbers []uint32) bool {
	for page := range slices.Chunk(numbers, sweepPage) {
		if !s.b.idle() {
			return false
		}
		s.b.due.addAll(page, inCrowd)
	}
	return true
}

// topic notes the terms of a topic's events from behind a position up to the head. It
// reports whether the broker goes on.
func (s *sweeper) topic(t *store.Topic, from uint64) (more bool, err error) {
	for n := sweptEvents; n == sweptEvents; {
		if n = 0; len(s.terms) >= sweptTerms {
			if err := s.tell(); err != nil {
				return false, err
			}
		}
		err := s.b.store.AllEvents(t, from, s.head, func(position uint64, row store.EventRow, _ bool) (bool, error) {
			s.note(t.Name, position, &row)
			n, from = n+1, position
			return n < sweptEvents, nil
		})
		if err != nil || s.b.stopping() {
			return false, err
		}
		s.record.Reset()
	}
	return true, nil
}

func (s *sweeper) note(topic string, position uint64, row *store.EventRow) {
	s.record.Fill(filter.Delivered{Topic: topic, Position: position, HLC: row.HLC, Superseded: row.Flags&store.EventSuperseded != 0}, row.Members)
	filter.Lookups(&s.record, func(term []byte) {
		if s.b.due.knows(term) && s.terms[string(term)] < position {
			s.terms[string(term)] = position
		}
	})
}

// tell queues the webhooks under the terms that were noted who have not come to the
// last event with them.
func (s *sweeper) tell() error {
	for term, last := range s.terms {
		var found []uint32
		err := s.b.store.Term([]byte(term), func(number uint32) bool {
			if s.take(number, last) {
				found = append(found, number)
			}
			return true
		})
		if err != nil || !s.queue(found) {
			return err
		}
	}
	clear(s.terms)
	return nil
}

// move brings those forward whom nothing concerned, without asking them. What they count
// as dropped are the events of their topics, which nobody has to look at for that.
func (s *sweeper) move() error {
	var asked []uint32
	var page []*eventlog.Proposal
	passed := map[passedKey]passedOf{}
	for i := range s.behind {
		p := &s.behind[i]
		if p.cursor+movedMin >= s.head {
			continue
		}
		config, state, ok, err := s.b.store.SubscriptionNumbered(p.number)
		switch {
		case err != nil:
			return err
		case !ok || state.Epoch != p.epoch || state.Cursor != p.cursor || config.UpdatedMillis+tickAfterMillis >= s.began:
			continue // it has moved or changed meanwhile, and its terms may have
		}
		of, err := s.passed(passed, &config, &state)
		switch {
		case err != nil:
			return err
		case !of.ok:
			asked = append(asked, p.number)
			continue
		}
		if page = append(page, s.forward(&config, &state, of.events)); len(page) == movedPage {
			if err := s.commit(page); err != nil || s.b.stopping() {
				return err
			}
			page = page[:0:0]
		}
	}
	if err := s.commit(page); err != nil {
		return err
	}
	s.queue(asked)
	return nil
}

// passedKey is whose events were counted, and from where on.
type passedKey struct {
	topics        string
	cursor, began uint64
}

// passedOf are the events that were passed; ok is false if the webhook has to be asked, for
// something was removed that it is to be told of, or its owner may not read.
type passedOf struct {
	events uint64
	ok     bool
}

// passed looks at the topics of a webhook. Those that moved together are counted together.
func (s *sweeper) passed(known map[passedKey]passedOf, c *store.SubscriptionConfig, state *store.SubscriptionState) (of passedOf, err error) {
	reach, err := s.b.reachOf(identity.Named(c.Owner), c.Owner)
	if err != nil {
		return of, nil
	}
	patterns, err := reach.narrow(c.Document.Config.Patterns())
	if err != nil {
		return of, nil
	}
	key := passedKey{fmt.Sprint(patterns), state.Cursor, state.Began}
	of, ok := known[key]
	if ok {
		return of, nil
	}
	of.events, of.ok, err = s.b.dispatch.Passed(patterns, s.b.cursorOf(state), s.head)
	if len(known) >= sweptTerms {
		clear(known)
	}
	known[key] = of
	return of, err
}

// forward proposes that a webhook goes on at the head. That it is there counts as a use
// of it, as being asked does.
func (s *sweeper) forward(c *store.SubscriptionConfig, state *store.SubscriptionState, dropped uint64) *eventlog.Proposal {
	h := eventlog.HandOut{Epoch: state.Epoch, From: eventlog.Place{Cursor: state.Cursor, Began: state.Began, Since: state.Since}, Max: 1}
	h.To = h.From
	h.To.Cursor = s.head
	if h.To.Began <= s.head {
		h.To.Began = 0
	}
	h.Rest.Dropped = dropped
	return &eventlog.Proposal{
		Kind: eventlog.KindSubscription, AdmittedMillis: s.b.clock.Millis(), Topic: projector.TopicSubscriptions,
		Subscription: &eventlog.Subscription{Op: eventlog.SubscriptionHandOut, ID: c.Document.ID, HandOut: &h},
	}
}

// commit proposes a page, and waits for the last of it. One that does not fit any more
// does nothing: whoever it is of was found by an event meanwhile.
func (s *sweeper) commit(page []*eventlog.Proposal) error {
	for i, p := range page {
		if i < len(page)-1 {
			if err := s.b.append(context.Background(), p); err != nil {
				return err
			}
			continue
		}
		if _, err := s.b.propose(context.Background(), p); err != nil {
			return err
		}
	}
	return nil
}

// idle waits while there are webhooks enough to be looked at, and reports whether the
// broker goes on.
func (b *Broker) idle() bool {
	for {
		if queued, _ := b.due.figures(); queued <= sweepPage {
			return !b.stopping()
		}
		select {
		case <-b.stop:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (b *Broker) stopping() bool {
	select {
	case <-b.stop:
		return true
	default:
		return false
	}
}
