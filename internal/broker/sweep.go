// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"slices"
	"time"

	"signalbox/internal/filter"
	"signalbox/internal/store"
)

const (
	// sweepEvery is how often webhooks are looked for that are far behind the head,
	// whether anything concerned them or not: their place holds back retention.
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
)

// sweepLoop finds the webhooks that events did not find: at the start, when
// something did not fit in memory, and now and then those that are far behind.
func (b *Broker) sweepLoop() {
	b.sweep(0, sweptMax)
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
			b.sweep(behind, sweptMax)
		}
		if time.Since(last) >= sweepEvery {
			b.advance()
			last = time.Now()
		}
	}
}

// hookPlace is how far a webhook is.
type hookPlace struct {
	number uint32
	cursor uint64
}

// sweep queues the webhooks that have events to be delivered again, or are told of
// none of what is behind a position and may have something to deliver there. To ask
// each of them would be to read everything behind it for each, of which nearly all
// would come to nothing. So the events are read once and looked up under their terms,
// as they are when they are new. Only who is behind by more than most is asked.
func (b *Broker) sweep(told, most uint64) {
	s := sweeper{b: b, head: b.dispatch.Head().Position, terms: map[string]uint64{}}
	if err := s.run(told, most); err != nil {
		b.logger.Error("webhooks cannot be looked for, and are later", "err", err)
		b.due.miss()
	}
}

// sweeper is a sweep on its way.
type sweeper struct {
	b      *Broker
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
			s.behind = append(s.behind, hookPlace{number, cursor})
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

// advance queues the webhooks that are far behind the head, a page at a time.
func (b *Broker) advance() {
	after, more := uint32(0), true
	for more {
		if !b.idle() {
			return
		}
		head := b.dispatch.Head().Position
		more = false
		var found []uint32
		err := b.store.WebhookStates(after, func(number uint32, s store.SubscriptionState) bool {
			after = number
			if !s.Paused && !s.Disabled && (s.Outstanding > 0 || s.Cursor+movedMin < head) {
				found = append(found, number)
			}
			more = len(found) == sweepPage
			return !more
		})
		b.due.addAll(found, inCrowd)
		if err != nil {
			b.logger.Error("webhooks cannot be looked for, and are later", "err", err)
			b.due.miss()
			return
		}
	}
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
