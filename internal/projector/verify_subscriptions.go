// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"bytes"
	"maps"
	"slices"

	"signalbox/internal/store"
)

// verifiedSubscription is what was found of one subscription.
type verifiedSubscription struct {
	id      string
	config  bool
	state   *store.SubscriptionState
	pending map[uint64]store.Pending // of its epoch
	lists   map[[16]byte]store.KeyList
	letters uint64
	terms   map[string]bool // under which events find it: whether there is a row
}

// subscriptions checks the rows of subscriptions against each other. Those of
// the deliveries of one subscription are in memory at a time, which is bounded
// by what may be pending.
func (v *verifier) subscriptions() error {
	count, err := v.in.SubscriptionCount()
	if err != nil {
		return err
	}
	v.letterTopics = map[string]*verified{}
	for _, number := range slices.Sorted(maps.Keys(v.topics)) {
		v.letterTopics[v.topics[number].Name] = v.topics[number]
	}
	found := map[uint32]*verifiedSubscription{}
	if err := v.subscriptionRows(found); err != nil {
		return err
	}
	if err := v.terms(found); err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(found)) {
		s := found[number]
		v.tally.Subscriptions++
		if number == 0 || number > count.Last {
			v.badSubscription(s, "The subscription's number %d was never given out; the last is %d.", number, count.Last)
		}
		if s.id == "" || !s.config || s.state == nil {
			v.badSubscription(s, "Of subscription number %d the id, the document or the state is missing.", number)
		}
	}
	if len(found) != int(count.Count) {
		v.badSubscription(&verifiedSubscription{}, "There are %d subscriptions, and %d were counted.", len(found), count.Count)
	}
	return v.deliveries(found)
}

func (v *verifier) badSubscription(s *verifiedSubscription, format string, args ...any) {
	v.found(Finding{What: "subscription", Key: s.id, Explanation: sprintf(format, args...)})
}

func (v *verifier) subscriptionRows(found map[uint32]*verifiedSubscription) error {
	at := func(number uint32) *verifiedSubscription {
		if found[number] == nil {
			found[number] = &verifiedSubscription{}
		}
		return found[number]
	}
	err := v.in.SubscriptionConfigs(func(c store.SubscriptionConfigAt, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		s := at(c.Number)
		s.config, s.id = true, c.Document.ID
		for _, term := range c.Terms {
			if s.terms == nil {
				s.terms = map[string]bool{}
			}
			s.terms[string(term)] = false
		}
		return v.row()
	})
	if err != nil {
		return err
	}
	err = v.in.SubscriptionIDs(func(c store.SubscriptionIDAt, err error) error {
		if err != nil {
			v.undecoded(Finding{Key: c.ID}, err)
			return v.row()
		}
		if s := at(c.Number); s.id != c.ID {
			v.badSubscription(s, "Number %d is that of %q, whose document is that of %q.", c.Number, c.ID, s.id)
		}
		return v.row()
	})
	if err != nil {
		return err
	}
	return v.in.SubscriptionStates(func(c store.SubscriptionStateAt, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		s := at(c.Number)
		s.state = &c.SubscriptionState
		if c.Cursor > v.space.Position {
			v.badSubscription(s, "The cursor %d is beyond the last position, %d.", c.Cursor, v.space.Position)
		}
		for _, t := range []store.Timer{
			{DueMillis: c.Timer, Topic: c.Number, Kind: store.TimerDeadline},
			{DueMillis: c.UnusedTimer, Topic: c.Number, Kind: store.TimerUnused},
		} {
			if t.DueMillis == 0 || !v.complete("timers") {
				continue
			}
			armed, err := v.in.HasTimer(t)
			if err != nil {
				return err
			}
			if !armed {
				v.badSubscription(s, "The timer that is to be due at %d is not armed.", t.DueMillis)
			}
		}
		return v.row()
	})
}

// deliveries walks the rows of deliveries, and judges those of a subscription
// when it has them all.
func (v *verifier) deliveries(found map[uint32]*verifiedSubscription) error {
	at := uint32(0)
	judged := map[uint32]bool{}
	judge := func() {
		if s := found[at]; s != nil && s.state != nil {
			v.judgePending(s)
			judged[at] = true
			s.pending, s.lists = nil, nil
		}
	}
	err := v.in.Deliveries(func(d store.DeliveryAt, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		if d.Number != at {
			judge()
			at = d.Number
		}
		s := found[d.Number]
		if s == nil || s.state == nil {
			v.badSubscription(&verifiedSubscription{}, "There is a row of deliveries of subscription number %d, which does not exist.", d.Number)
			return v.row()
		}
		return v.delivery(s, &d)
	})
	if err != nil {
		return err
	}
	judge()
	for _, number := range slices.Sorted(maps.Keys(found)) {
		if s := found[number]; !judged[number] && s.state != nil {
			v.judgePending(s)
		}
	}
	return nil
}

func (v *verifier) delivery(s *verifiedSubscription, d *store.DeliveryAt) error {
	switch {
	case d.Letter != nil:
		s.letters++
		if err := v.letter(s, d); err != nil {
			return err
		}
	case d.Epoch != s.state.Epoch:
		v.badSubscription(s, "There is a row of deliveries of epoch %d, and the subscription is in epoch %d.", d.Epoch, s.state.Epoch)
	case d.List != nil:
		if s.lists == nil {
			s.lists = map[[16]byte]store.KeyList{}
		}
		s.lists[d.Key] = *d.List
	case d.Pending != nil:
		if s.pending == nil {
			s.pending = map[uint64]store.Pending{}
		}
		if _, twice := s.pending[d.Position]; twice || d.Parked != (d.Pending.State == store.PendingParked) {
			v.badSubscription(s, "The event at position %d is pending twice, or in another way than its row says.", d.Position)
		}
		s.pending[d.Position] = *d.Pending
		if d.Position > v.space.Position || d.Pending.Token > s.state.Token {
			v.badSubscription(s, "The pending event at position %d, handed out as %d, is beyond the last position %d or the last hand-out %d.", d.Position, d.Pending.Token, v.space.Position, s.state.Token)
		}
	}
	return v.row()
}

// letter checks that a dead letter still has its event.
func (v *verifier) letter(s *verifiedSubscription, d *store.DeliveryAt) error {
	topic := v.letterTopics[LetterTopic(s.id)]
	if topic == nil || d.Position <= topic.RetiredTo {
		v.badSubscription(s, "The dead letter at position %d has no topic, or was removed from it.", d.Position)
		return nil
	}
	stored, err := v.in.HasEvent(topic.Number, d.Position)
	if err == nil && !stored {
		v.badSubscription(s, "The dead letter at position %d is not stored: an event is lost.", d.Position)
	}
	return err
}

// judgePending checks the counts of a subscription and the lists of its keys.
func (v *verifier) judgePending(s *verifiedSubscription) {
	out, ready, parked, listed := uint64(0), uint64(0), uint64(0), 0
	timed := false
	for _, position := range slices.Sorted(maps.Keys(s.pending)) {
		p := s.pending[position]
		switch p.State {
		case store.PendingParked:
			parked++
		case store.PendingReady:
			ready++
			out++
		default:
			out++
			timed = true
		}
		if p.Ordered {
			listed++
		}
	}
	if out != s.state.Outstanding || ready != s.state.Ready || parked != s.state.Parked || s.letters != s.state.Letters {
		v.badSubscription(s, "%d events are out or ready, %d of them ready, %d parked, and there are %d dead letters; the state says %d, %d, %d and %d.",
			out, ready, parked, s.letters, s.state.Outstanding, s.state.Ready, s.state.Parked, s.state.Letters)
	}
	if timed && s.state.Timer == 0 {
		v.badSubscription(s, "Events are handed out, and no timer is armed for their deadlines.")
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.lists), func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
		list := s.lists[key]
		position, steps := list.First, 0
		for p, ok := s.pending[position]; ok && p.Ordered && p.Key == key && (p.State == store.PendingParked) == (position != list.First); p, ok = s.pending[position] {
			steps++
			if p.Next == 0 || steps > len(s.pending) {
				break
			}
			position = p.Next
		}
		listed -= steps
		if steps == 0 || position != list.Last {
			v.badSubscription(s, "The list of the pending events of a key, from position %d to %d, is broken at %d.", list.First, list.Last, position)
		}
	}
	if listed != 0 {
		v.badSubscription(s, "%d pending events that have a key are in no list.", listed)
	}
}
