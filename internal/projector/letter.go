// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// gap notes what was removed before a subscription read it. The subscription
// goes on behind it, and its consumer is told: a stream until it acknowledges
// something behind the gap, any other by an event that it has to settle.
func (p *Projector) gap(s *subscription, proposal *eventlog.Proposal, d *Delivery) error {
	g := proposal.Subscription.Gap
	if (eventlog.Place{Cursor: s.Cursor, Began: s.Began, Since: s.Since}) != g.From {
		d.Stale = true
		return nil
	}
	s.Gaps++
	s.Cursor, s.Began, s.Since = g.To.Cursor, g.To.Began, g.To.Since
	p.touchSubscription(s)
	position := p.notice(proposal, 0)
	if s.settings().Kind == event.KindStream {
		if s.GapTo == 0 {
			s.GapFrom = g.From.Cursor
		}
		s.GapTo = g.Lost
		return nil
	}
	p.setPending(s, position, store.Pending{State: store.PendingReady, Topic: TopicSubscriptions})
	return nil
}

// bury makes a dead letter of an event, and settles it in the same commit. It
// is refused, and the event kept, if somebody has it again.
func (p *Projector) bury(s *subscription, proposal *eventlog.Proposal, d *Delivery) error {
	b := proposal.Subscription.Bury
	row, ok, err := p.pendingEvent(s, b.Position, false)
	if err != nil {
		return err
	}
	overdue, err := p.overdue(s, b)
	if err != nil {
		return err
	}
	held := b.Token != 0 && row.State == store.PendingOut && row.Token == b.Token
	spent := b.Token == 0 && row.State == store.PendingReady && Spent(&row, s.settings(), s.Acked) != ""
	if !overdue && (!ok || !held && !spent) {
		d.Stale = true
		return nil
	}
	p.touchSubscription(s)
	s.Buried++
	p.fail(s, b.Error)
	if b.Cause == CauseQuarantined {
		s.Quarantined++
	}
	topic, redrives := row.Topic, uint32(0)
	if !ok {
		topic = b.Topic // it was never handed out
	}
	if row.Letter != 0 {
		if old, ok, err := p.letter(s, row.Letter); err != nil {
			return err
		} else if ok {
			topic, redrives = old.Topic, old.Redrives
		}
		if err := p.removeLetter(s, row.Letter); err != nil {
			return err
		}
	}
	var of []string // tickets, of which there is one if the event is a message
	if TicketTopic(topic) {
		if of, err = p.ticketsAt([][2]uint64{{b.Position, b.Position}}, nil); err != nil {
			return err
		}
	}
	if len(proposal.Entries) > 0 { // an event that is a dead letter already leaves none
		d.Letter = p.post(proposal, LetterTopic(s.id()), letterPolicy(s.settings()), &proposal.Entries[0]).Position
		p.concern(audit.KindEvent, of...)
		s.Letters++
		p.setLetter(s, d.Letter, store.Letter{
			Ordered: row.Ordered, Key: row.Key, Position: b.Position, Topic: topic, Attempts: row.Attempts, Redrives: redrives,
			Prefix: b.Prefix, LogMillis: p.space.LogMillis, Cause: b.Cause, Error: b.Error,
		})
	}
	if len(proposal.Entries) > 1 {
		p.post(proposal, TopicQuarantine, noticePolicy(), &proposal.Entries[1])
		p.concern(audit.KindEvent, of...)
	}
	if overdue {
		if err := p.undelivered(s, b.Owed, d.Letter); err != nil || !ok {
			return err
		}
	}
	return p.settle(s, b.Position, &row)
}

func (p *Projector) letter(s *subscription, position uint64) (store.Letter, bool, error) {
	if l, ok := p.subscribed.letters[letterKey{s.number, position}]; ok {
		return l, l.Topic != "", nil
	}
	return p.lookup.Letter(s.number, position)
}

func (p *Projector) setLetter(s *subscription, position uint64, l store.Letter) {
	p.batch.SetLetter(s.number, position, &l)
	p.subscribed.letters[letterKey{s.number, position}] = l
}

// removeLetter forgets a dead letter and its event.
func (p *Projector) removeLetter(s *subscription, position uint64) error {
	if _, ok, err := p.letter(s, position); err != nil || !ok {
		return err // retention was first
	}
	p.batch.DeleteLetter(s.number, position)
	p.subscribed.letters[letterKey{s.number, position}] = store.Letter{}
	s.Letters--
	if t := p.topics[LetterTopic(s.id())]; t != nil && position > t.RetiredTo {
		p.batch.DeleteEvent(t.Number, position)
	}
	return nil
}

// redrive has dead letters delivered again, to this subscription only.
func (p *Projector) redrive(s *subscription, op *eventlog.Subscription, d *Delivery) error {
	p.use(s)
	for _, position := range op.Letters {
		l, ok, err := p.letter(s, position)
		if err != nil {
			return err
		}
		if !ok || l.Redriven == s.Epoch || l.Cause == CauseQuarantined && !op.Force {
			continue
		}
		for _, parked := range []bool{false, true} {
			_, pending, err := p.pendingEvent(s, l.Position, parked)
			if err != nil {
				return err
			}
			ok = ok && !pending // after a seek the event itself may be under way
		}
		if !ok {
			continue
		}
		if int(s.Outstanding) >= s.settings().MaxOutstanding {
			d.Full = true
			return nil
		}
		state, err := p.enqueue(s, l.Position, store.Pending{Topic: LetterTopic(s.id()), Ordered: l.Ordered, Key: l.Key, Letter: position})
		if err != nil {
			return err
		}
		if state == 0 {
			d.Full = true
			return nil
		}
		l.Redriven = s.Epoch
		l.Redrives++
		p.setLetter(s, position, l)
		d.moved(&l)
	}
	return nil
}

// moved counts a dead letter that was redriven or discarded.
func (d *Delivery) moved(l *store.Letter) {
	d.Moved++
	if TicketTopic(l.Topic) {
		d.messages = append(d.messages, l.Position)
	}
}

// discard removes dead letters for good. The notice has the reason.
func (p *Projector) discard(s *subscription, proposal *eventlog.Proposal, d *Delivery) error {
	for _, position := range proposal.Subscription.Letters {
		l, ok, err := p.letter(s, position)
		if err != nil {
			return err
		}
		if !ok || l.Redriven == s.Epoch {
			continue
		}
		if err := p.removeLetter(s, position); err != nil {
			return err
		}
		d.moved(&l)
	}
	if d.Moved > 0 {
		p.notice(proposal, 0)
	}
	p.use(s)
	return nil
}

// retireLetters forgets the dead letters that retention has removed. Their
// number is that of events which failed, so it is not cut into portions.
func (p *Projector) retireLetters(id string, to uint64) error {
	s, err := p.find(id)
	if err != nil || s == nil {
		return err
	}
	gone := uint64(0)
	err = p.store.Letters(s.number, to, func() { gone++ })
	if err != nil || gone == 0 {
		return err
	}
	p.batch.DeleteLetters(s.number, to)
	s.Letters -= gone
	p.touchSubscription(s)
	return nil
}

func noticePolicy() event.Policy {
	policy := event.DefaultPolicy()
	retention := event.Duration(noticeRetention)
	policy.Retention = &retention
	return policy
}

func letterPolicy(c *event.SubscriptionConfig) event.Policy {
	policy := event.DefaultPolicy()
	policy.Retention, policy.MaxEventBytes = nil, event.MaxMaxEventBytes
	if retention := c.DeadLetterRetention; retention > 0 {
		policy.Retention = &retention
	}
	return policy
}
