// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

const (
	// sweepEvery is how often the webhooks that nothing concerns come forward, as their
	// place holds back retention.
	sweepEvery = 5 * time.Minute
	// sweepSoon is after what time a sweep begins that is needed.
	sweepSoon = time.Second
	// sweepPage is how many webhooks a sweep queues at a time.
	sweepPage = 1024
	// sweptMax is how many positions the sweep of a start looks at, ten seconds or two. Who is
	// behind by more, as somebody may be who must not read what is next, is asked.
	sweptMax = 10_000_000
	// sweptTerms bounds the terms that a sweep remembers at a time, and sweptEvents
	// the events that it reads at a time.
	sweptTerms  = 65_536
	sweptEvents = 4096
	// sweptPatterns bounds the patterns with wildcards that each topic is held against.
	// With more of them all topics are read.
	sweptPatterns = 1024
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
		// come forward. They are asked, for events must not be read for them again: a sweep
		// reads those of the last five minutes, however many there are.
		if time.Since(last) >= sweepEvery {
			swept = max(swept, b.sweep(0, b.dispatch.Head().Position-swept+movedMin))
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
	if err := s.run(told, most); err != nil {
		b.logger.Error("webhooks cannot be looked for, and are later", "err", err)
		b.due.miss()
		return 0
	}
	if told > 0 { // then not everything was looked up
		return 0
	}
	switch err := s.move(); {
	case b.stopping():
		return 0
	case err != nil:
		b.logger.Error("webhooks do not come forward, and do later", "err", err)
		return 0
	}
	return s.head
}

// sweeper is a sweep on its way.
type sweeper struct {
	b      *Broker
	began  int64 // by the log clock
	head   uint64
	behind []hookPlace       // by number; who is queued is at the head
	terms  map[string]uint64 // under which there may be a webhook: the last position of an event with it
	unread []string          // topics of which not everything was looked up
	record filter.Record
}

func (s *sweeper) run(told, most uint64) error {
	var asked []uint32
	err := s.b.store.WebhookStates(0, func(number uint32, state store.SubscriptionState) bool {
		cursor := max(state.Cursor, told)
		switch {
		case state.Paused || state.Disabled:
		case state.Outstanding > 0 || state.Cursor+most < s.head || state.Endpoint.Failures > 0: // it may have to be asked for its consent
			asked = append(asked, number)
		case cursor < s.head:
			s.behind = append(s.behind, hookPlace{number, state.Epoch, cursor})
		}
		return true
	})
	if err != nil || !s.queue(asked) || len(s.behind) == 0 {
		return err
	}
	from := func(string) uint64 { return told } // of so little it is not worth to look whom it may concern
	if told == 0 {
		from = s.from()
	}
	s.read(s.b.dispatch.Topics(), from)
	s.askUnread()
	return nil
}

// from returns behind which position a topic is to be read: the lowest cursor of the
// webhooks that are behind and select it.
func (s *sweeper) from() func(topic string) uint64 {
	type selection struct {
		event.Pattern
		from uint64
	}
	exact, wild, others := map[string]uint64{}, map[string]*selection{}, s.head
	var asked []uint32
	for i := range s.behind {
		p := &s.behind[i]
		config, _, err := s.b.store.SubscriptionConfig(p.number) // without topics if it was deleted
		if err != nil || s.b.stopping() {
			asked, p.cursor = append(asked, p.number), s.head
			continue
		}
		for _, pattern := range config.Document.Config.Patterns() {
			name, named := pattern.Exact()
			known := wild[pattern.String()]
			switch {
			case named:
				if from, ok := exact[name]; !ok || p.cursor < from {
					exact[name] = p.cursor
				}
			case known != nil:
				known.from = min(known.from, p.cursor)
			case len(wild) < sweptPatterns:
				wild[pattern.String()] = &selection{pattern, p.cursor}
			default:
				others = min(others, p.cursor)
			}
		}
	}
	s.queue(asked)
	return func(topic string) uint64 {
		lowest := others
		if from, ok := exact[topic]; ok {
			lowest = min(lowest, from)
		}
		for _, w := range wild {
			if w.from < lowest && w.Match(topic) {
				lowest = w.from
			}
		}
		return lowest
	}
}

// read looks up what topics have behind the positions from which they are to be read. One
// that cannot be read keeps nobody from what is on the others.
func (s *sweeper) read(topics []store.Topic, from func(topic string) uint64) {
	failed := func(err error, topics ...store.Topic) {
		s.b.logger.Error("events cannot be looked up, and their webhooks are asked", "err", err, "topics", len(topics))
		for i := range topics {
			s.unread = append(s.unread, topics[i].Name)
		}
	}
	for i := range topics {
		t := &topics[i]
		if t.Policy.Ephemeral() {
			continue
		}
		if after := from(t.Name); t.Last > after {
			if err := s.topic(t, after); err != nil {
				failed(err, *t)
			}
		}
		if s.b.stopping() {
			return
		}
	}
	if err := s.tell(); err != nil { // of the events of any topic
		failed(err, topics...)
	}
}

// askUnread queues those who select what could not be looked up.
func (s *sweeper) askUnread() {
	var asked []uint32
	for i := range s.behind {
		p := &s.behind[i]
		if len(s.unread) == 0 || p.cursor == s.head {
			continue
		}
		config, _, err := s.b.store.SubscriptionConfig(p.number)
		if err != nil || slices.ContainsFunc(s.unread, config.Document.Config.Matches) {
			asked, p.cursor = append(asked, p.number), s.head
		}
	}
	s.queue(asked)
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

// topic notes the terms of a topic's events from behind a position up to the head.
func (s *sweeper) topic(t *store.Topic, from uint64) error {
	for n := sweptEvents; n == sweptEvents && !s.b.stopping(); {
		if n = 0; len(s.terms) >= sweptTerms {
			if err := s.tell(); err != nil {
				return err
			}
		}
		err := s.b.store.AllEvents(t, from, s.head, func(position uint64, row store.EventRow, _ bool) (bool, error) {
			s.note(t.Name, position, &row)
			n, from = n+1, position
			return n < sweptEvents, nil
		})
		if err != nil {
			return err
		}
		s.record.Reset()
	}
	return nil
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
		if s.b.stopping() { // then not everything may have been looked up, either
			return nil
		}
		p := &s.behind[i]
		if p.cursor+movedMin >= s.head {
			continue
		}
		config, state, ok, err := s.b.store.SubscriptionNumbered(p.number)
		switch {
		case err != nil:
			asked = append(asked, p.number)
			continue
		case !ok || state.Epoch != p.epoch || state.Cursor != p.cursor || config.UpdatedMillis+tickAfterMillis >= s.began:
			continue // it has moved or changed meanwhile, and its terms may have
		}
		of := s.passed(passed, &config, &state)
		if !of.ok {
			asked = append(asked, p.number)
			continue
		}
		if page = append(page, s.forward(&config, &state, of.events)); len(page) == movedPage {
			if err := s.commit(page); err != nil {
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
// something was removed that it is to be told of, its owner may not read, or nobody can.
type passedOf struct {
	events uint64
	ok     bool
}

// passed looks at the topics of a webhook. Those that moved together are counted together.
func (s *sweeper) passed(known map[passedKey]passedOf, c *store.SubscriptionConfig, state *store.SubscriptionState) (of passedOf) {
	reach, err := s.b.reachOf(identity.Named(c.Owner), c.Owner)
	if err != nil {
		return of
	}
	patterns, err := reach.narrow(c.Document.Config.Patterns())
	if err != nil {
		return of
	}
	key := passedKey{fmt.Sprint(patterns), state.Cursor, state.Began}
	of, ok := known[key]
	if ok {
		return of
	}
	of.events, ok, err = s.b.dispatch.Passed(patterns, s.b.cursorOf(state), s.head)
	of.ok = ok && err == nil
	if len(known) >= sweptTerms {
		clear(known)
	}
	known[key] = of
	return of
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
