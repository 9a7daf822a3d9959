// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// The causes of dead letters.
const (
	CauseAttempts    = "attempts"    // it was handed out as often as it may be
	CauseRejected    = "rejected"    // its consumer will never take it
	CauseQuarantined = "quarantined" // it kills its consumers, or has come back too often
)

// Spent returns the cause for which a pending event is not handed out again, ""
// if it is. An event whose consumers fall silent, while others of the
// subscription are acknowledged, is taken to be what silences them.
func Spent(e *store.Pending, c *event.SubscriptionConfig, acked uint64) (cause string) {
	switch {
	case int(e.Lost) >= c.QuarantineAfter && acked > e.AckedAt:
		return CauseQuarantined
	case int(e.Attempts) >= c.MaxAttempts:
		return CauseAttempts
	}
	return ""
}

// pendingEvent returns a pending event as the group so far has left it.
func (p *Projector) pendingEvent(s *subscription, position uint64, parked bool) (store.Pending, bool, error) {
	if row, ok := p.subscribed.pending[pendingKey{s.number, s.Epoch, position, parked}]; ok {
		return row, row.State != 0, nil
	}
	return p.lookup.Pending(s.number, s.Epoch, position, parked)
}

// setPending writes a pending event and counts it. What it replaces has been
// taken out of the counts.
func (p *Projector) setPending(s *subscription, position uint64, row store.Pending) {
	p.batch.SetPending(s.number, s.Epoch, position, &row)
	p.subscribed.pending[pendingKey{s.number, s.Epoch, position, row.State == store.PendingParked}] = row
	s.count(row.State, 1)
}

// count adds to the counts of pending events; with -1 it takes away.
func (s *subscription) count(state store.PendingState, n uint64) {
	switch state {
	case store.PendingParked:
		s.Parked += n
	case store.PendingReady:
		s.Ready += n
		fallthrough
	case store.PendingOut:
		s.Outstanding += n
	}
}

const less = ^uint64(0) // added, it takes one away

// replace changes a pending event that is not parked.
func (p *Projector) replace(s *subscription, position uint64, before store.PendingState, row store.Pending) {
	s.count(before, less)
	p.setPending(s, position, row)
}

func (p *Projector) removePending(s *subscription, position uint64, row *store.Pending) {
	parked := row.State == store.PendingParked
	p.batch.DeletePendingEvent(s.number, s.Epoch, position, parked)
	p.subscribed.pending[pendingKey{s.number, s.Epoch, position, parked}] = store.Pending{}
	s.count(row.State, less)
}

func (p *Projector) keyList(s *subscription, key [16]byte) (store.KeyList, bool, error) {
	if list, ok := p.subscribed.lists[listKey{s.number, s.Epoch, key}]; ok {
		return list, list.First != 0, nil
	}
	return p.lookup.KeyList(s.number, s.Epoch, key)
}

func (p *Projector) setKeyList(s *subscription, key [16]byte, list store.KeyList) {
	if list.First == 0 {
		p.batch.DeleteKeyList(s.number, s.Epoch, key)
	} else {
		p.batch.SetKeyList(s.number, s.Epoch, key, list)
	}
	p.subscribed.lists[listKey{s.number, s.Epoch, key}] = list
}

// enqueue makes an event pending: ready, or parked if others of its key are
// pending. It reports which; nothing happens if as many are parked as may be.
func (p *Projector) enqueue(s *subscription, position uint64, row store.Pending) (state store.PendingState, err error) {
	row.State = store.PendingReady
	if !row.Ordered {
		p.setPending(s, position, row)
		return row.State, nil
	}
	list, waits, err := p.keyList(s, row.Key)
	switch {
	case err != nil:
		return 0, err
	case !waits:
		p.setPending(s, position, row)
		p.setKeyList(s, row.Key, store.KeyList{First: position, Last: position})
		return row.State, nil
	case int(s.Parked) >= s.settings().MaxParked:
		return 0, nil
	}
	last, ok, err := p.pendingEvent(s, list.Last, list.Last != list.First)
	if err != nil || !ok {
		return 0, broken(err, "the last pending event of a key is missing")
	}
	last.Next = position
	s.count(last.State, less)
	p.setPending(s, list.Last, last)
	p.setKeyList(s, row.Key, store.KeyList{First: list.First, Last: position})
	row.State = store.PendingParked
	p.setPending(s, position, row)
	return row.State, nil
}

func broken(err error, what string) error {
	if err != nil {
		return err
	}
	return store.Damagedf("%s", what)
}

// settle takes an event out that will not be delivered again, and brings the
// next of its key forward.
func (p *Projector) settle(s *subscription, position uint64, row *store.Pending) error {
	p.removePending(s, position, row)
	if !row.Ordered {
		return nil
	}
	if row.Next == 0 {
		p.setKeyList(s, row.Key, store.KeyList{})
		return nil
	}
	list, ok, err := p.keyList(s, row.Key)
	if err != nil || !ok {
		return broken(err, "the list of a key with parked events is missing")
	}
	next, ok, err := p.pendingEvent(s, row.Next, true)
	if err != nil || !ok {
		return broken(err, "a parked event is missing")
	}
	p.removePending(s, row.Next, &next)
	next.State = store.PendingReady
	p.setPending(s, row.Next, next)
	p.setKeyList(s, row.Key, store.KeyList{First: row.Next, Last: list.Last})
	return nil
}

// handOut gives events to a consumer. It is durable before a byte leaves, so an
// attempt is counted whatever becomes of the consumer, and of the broker.
func (p *Projector) handOut(s *subscription, proposal *eventlog.Proposal, d *Delivery) error {
	h := proposal.Subscription.HandOut
	from := eventlog.Place{Cursor: s.Cursor, Began: s.Began, Since: s.Since}
	if s.Epoch != h.Epoch || from != h.From || s.settings().Kind == event.KindStream {
		d.Stale = true
		return nil
	}
	if p.keepSubscription(s); !s.Webhook || len(h.Again)+len(h.Gone)+len(h.Events) > 0 { // else it only comes forward
		s.stirs = true
	}
	if h.Max > 0 { // else it is the broker, who takes out what is gone
		s.Used = p.space.LogMillis
	}
	now := max(proposal.AdmittedMillis, p.space.LogMillis)
	if s.Paused || s.Disabled || s.Webhook && now < s.Endpoint.HoldMillis {
		return nil
	}
	for _, position := range h.Gone {
		row, ok, err := p.pendingEvent(s, position, false)
		if err != nil {
			return err
		}
		if ok && row.State == store.PendingReady {
			s.Gone++
			if err := p.finish(s, position, &row); err != nil {
				return err
			}
		}
	}
	for _, position := range h.Again {
		row, ok, err := p.pendingEvent(s, position, false)
		if err != nil {
			return err
		}
		if ok && row.State == store.PendingReady && row.DueMillis <= now && len(d.Handed) < h.Max && !s.taken() && Spent(&row, s.settings(), s.Acked) == "" {
			p.hand(s, position, row, now+h.Visibility, d)
		}
	}
	return p.handNew(s, h, now, d)
}

// handNew takes candidates in order until enough are handed out, or as many are
// pending as may be. The cursor ends where it stopped.
func (p *Projector) handNew(s *subscription, h *eventlog.HandOut, now int64, d *Delivery) error {
	last := h.From.Cursor
	for i := range h.Events {
		c := &h.Events[i]
		if len(d.Handed) >= h.Max || int(s.Outstanding) >= s.settings().MaxOutstanding || s.taken() {
			return p.stop(s, c, last)
		}
		_, known, err := p.pendingEvent(s, c.Position, false)
		if err != nil {
			return err
		}
		if held, err := p.withheld(s, c.Topic, c.Position); err != nil || held {
			if err != nil {
				return err
			}
			s.pass(&c.Before)
			s.Dropped++
			last = c.Position
			continue
		}
		state := store.PendingReady
		if !known { // a notice may be among the subscription's topics, too
			if state, err = p.enqueue(s, c.Position, store.Pending{Topic: c.Topic, Ordered: c.Ordered, Key: c.Key}); err != nil {
				return err
			}
		}
		if state == 0 {
			return p.stop(s, c, last)
		}
		s.pass(&c.Before)
		s.Matched++
		last = c.Position
		if state == store.PendingReady && !known {
			row, _, err := p.pendingEvent(s, c.Position, false)
			if err != nil {
				return err
			}
			p.hand(s, c.Position, row, now+h.Visibility, d)
		}
	}
	s.pass(&h.Rest)
	s.Cursor, s.Began, s.Since = h.To.Cursor, h.To.Began, h.To.Since
	return nil
}

// taken reports whether nothing may be handed out because somebody has an event: in
// strict order, and while an endpoint is probed, whatever the planner knew of its circuit.
// Of what is ready beside it there may be more: dead letters that come again, and notices.
func (s *subscription) taken() bool {
	return (s.settings().Order == event.OrderStrict || s.probing()) && s.Outstanding > s.Ready
}

// stop ends before a candidate, which is looked at again from there.
func (p *Projector) stop(s *subscription, c *eventlog.Candidate, last uint64) error {
	s.Cursor = last
	return nil
}

func (s *subscription) pass(c *eventlog.Counts) {
	s.Dropped, s.Errors = s.Dropped+c.Dropped, s.Errors+c.Errors
}

func (p *Projector) hand(s *subscription, position uint64, row store.Pending, due int64, d *Delivery) {
	if row.Attempts == 0 {
		row.AckedAt = s.Acked
	}
	s.Token++
	s.Handed++
	row.Attempts++
	row.Token, row.DueMillis, row.State = s.Token, due, store.PendingOut
	p.replace(s, position, store.PendingReady, row)
	p.armDeadline(s, due)
	d.Handed = append(d.Handed, Handed{Position: position, Token: row.Token, Attempt: row.Attempts, DueMillis: due})
}

// armDeadline sees to it that a deadline is looked at. A subscription has one
// timer, for the earliest.
func (p *Projector) armDeadline(s *subscription, due int64) {
	if s.Timer == 0 || due < s.Timer {
		s.Timer = due
		p.batch.SetTimer(store.Timer{DueMillis: due, Topic: s.number, Kind: store.TimerDeadline})
	}
}

// settleAll applies what consumers said. A hand-out that is not the last one of
// its event has nothing to say any more: somebody else may have it now.
func (p *Projector) settleAll(s *subscription, proposal *eventlog.Proposal, d *Delivery) error {
	settles := proposal.Subscription.Settle
	d.Settled = make([]bool, len(settles))
	now := max(proposal.AdmittedMillis, p.space.LogMillis)
	p.use(s)
	same, counted := s.isOf(proposal.Subscription), false // counted: the request that v is of
	for i := range settles {
		v := &settles[i]
		counted = counted && v.With
		row, ok, err := p.pendingEvent(s, v.Position, false)
		if err != nil {
			return err
		}
		// An acknowledgement that comes too late still counts while nobody else
		// has the event.
		late := row.State == store.PendingReady && v.Verdict == eventlog.VerdictAck
		if !ok || row.Token != v.Token || v.Token == 0 || row.State != store.PendingOut && !late {
			continue
		}
		d.Settled[i] = true
		switch v.Verdict {
		case eventlog.VerdictAck:
			s.Acked++
			if same {
				s.Endpoint.Recovered()
			}
			if err := p.delivered(s, row.Topic, v.Position); err != nil {
				return err
			}
			if err := p.finish(s, v.Position, &row); err != nil {
				return err
			}
		case eventlog.VerdictExtend:
			row.DueMillis = now + v.Delay
			p.replace(s, v.Position, row.State, row)
			p.armDeadline(s, row.DueMillis)
		case eventlog.VerdictReturn:
			row.Attempts = max(row.Attempts, 1) - 1
			row.State, row.DueMillis = store.PendingReady, now
			p.replace(s, v.Position, store.PendingOut, row)
		default:
			s.Nacked++
			p.fail(s, v.Error)
			if same && !counted {
				p.endpointFailed(s, now, v.Hold)
				counted = true
			}
			if v.Unanswered {
				row.Lost++
			}
			row.State, row.DueMillis, row.Error = store.PendingReady, now+v.Delay, v.Error
			p.replace(s, v.Position, store.PendingOut, row)
			p.reportSpent(s, &row)
		}
	}
	return nil
}

// finish settles an event for good. A dead letter that has come back and was
// taken is one no more.
func (p *Projector) finish(s *subscription, position uint64, row *store.Pending) error {
	if row.Letter != 0 {
		if err := p.removeLetter(s, row.Letter); err != nil {
			return err
		}
	}
	return p.settle(s, position, row)
}

func (p *Projector) fail(s *subscription, text string) {
	if text != "" {
		s.ErrorMillis, s.Error = p.space.LogMillis, text
	}
}

// reportSpent has the broker make a dead letter of an event that is spent. It
// holds the event, which apply does not.
func (p *Projector) reportSpent(s *subscription, row *store.Pending) {
	if Spent(row, s.settings(), s.Acked) != "" {
		p.subscribed.stirred = append(p.subscribed.stirred, Stirred{Number: s.number, ID: s.id(), Spent: true})
	}
}

// deadlineSpacing keeps a subscription with many deadlines from being looked
// through more often.
const deadlineSpacing = 1000 // ms of log time

// lookDeadlines takes back what was handed out and not settled in time. It
// returns how many rows it went through.
func (p *Projector) lookDeadlines(timer store.Timer) (rows int, err error) {
	s, err := p.numbered(timer.Topic)
	if err != nil || s == nil || s.Timer != timer.DueMillis {
		return 0, err
	}
	s.Timer = 0
	p.touchSubscription(s)
	next := int64(0)
	late := map[uint64]store.Pending{}
	var order []uint64
	err = p.store.Outstanding(s.number, s.Epoch, func(position uint64, row store.Pending) (bool, error) {
		rows++
		switch {
		case row.State != store.PendingOut:
		case row.DueMillis <= p.space.LogMillis:
			late[position] = row
			order = append(order, position)
		case next == 0 || row.DueMillis < next:
			next = row.DueMillis
		}
		return true, nil
	})
	if err != nil {
		return rows, err
	}
	for _, position := range order {
		row := late[position]
		s.Lost++
		row.Lost++
		row.State, row.Error = store.PendingReady, "there was no answer by the deadline"
		p.fail(s, row.Error)
		p.replace(s, position, store.PendingOut, row)
		p.reportSpent(s, &row)
	}
	if next > 0 {
		p.armDeadline(s, max(next, p.space.LogMillis+deadlineSpacing))
	}
	return rows, nil
}
