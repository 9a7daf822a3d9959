// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// Deadlines of messages. Each that something follows from has a row and a timer from
// the commit of its message on, until a message or a delivery meets it, or until the
// tick that finds it missed. So what is open costs nothing to whatever does not
// concern it.

// undelivered is an execute that its agent has not acknowledged yet.
type undelivered struct {
	position uint64
	key      string // of its deadline
}

// keepDue stores what a message that was accepted has to be answered by, and settles
// what it answers itself, and what follows from the ticket's rules.
func (p *Projector) keepDue(proposal *eventlog.Proposal, j *judged, v store.Verdict) error {
	m, id := proposal.Message, proposal.Entries[0].ID
	if m.From == ticket.RoleBus {
		p.discharge(id)
	} else if err := p.meet(m); err != nil { // what the bus says of a silence does not end it
		return err
	}
	if err := p.settleDeadlines(j); err != nil {
		return err
	}
	for _, d := range m.Deadlines {
		p.openDeadline(id, m, proposal.Topic, v.Position, d)
	}
	if m.Beat != nil {
		if err := p.heard(proposal, v); err != nil {
			return err
		}
	}
	p.expect(proposal, v.Position)
	return p.withhold(m, id, v.Position)
}

// meet closes the deadlines that a message meets: of those that it names. What meets
// that of a request to the gate depends on what the ticket's rules make of all its
// grants, see settleDeadlines.
func (p *Projector) meet(m *eventlog.Message) error {
	for _, id := range []string{m.Cause, m.Execute} {
		if id == "" || id == ticket.None {
			continue
		}
		var answered store.MessageRow
		if ok, err := p.messageRow(store.MessageID, id, &answered); err != nil || !ok || answered.Ticket != m.Ticket {
			if err != nil {
				return err
			}
			continue
		}
		kind, ok := ticket.TypeOf(answered.Type)
		if !ok || answered.Type == ticket.TypeApprovalRequest && answered.To == ticket.RoleGate {
			continue
		}
		for i := range kind.Deadlines {
			if d := &kind.Deadlines[i]; d.MetBy(m.Type) {
				if err := p.met(joined(m.Ticket, id, d.Member), m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// memberExpires is the deadline of a request for approval.
const memberExpires = "expires_at"

// settleDeadlines closes the deadlines of those messages to which, as a message has noted, no
// answer is expected any more, and opens those of requests that wait again.
func (p *Projector) settleDeadlines(j *judged) error {
	for _, id := range j.settled {
		var m store.MessageRow
		if _, err := p.messageRow(store.MessageID, id, &m); err != nil {
			return err
		}
		kind, _ := ticket.TypeOf(m.Type)
		for i := range kind.Deadlines {
			if err := p.met(joined(m.Ticket, id, kind.Deadlines[i].Member), j.m); err != nil {
				return err
			}
		}
	}
	for _, r := range j.again {
		m, row, err := p.undated(j.m.Ticket, j.t, r)
		if err != nil {
			return err
		}
		if m != nil {
			p.openDeadline(r.ID, m, row.Topic, row.Position, expiryOf(r))
		}
	}
	return nil
}

func expiryOf(r *store.RequestRow) eventlog.Deadline {
	return eventlog.Deadline{Member: memberExpires, Millis: r.ExpiresMillis}
}

// undated finds the message of a request of which no deadline is open; nil: one is.
func (p *Projector) undated(id string, t *store.TicketRow, r *store.RequestRow) (*eventlog.Message, *store.MessageRow, error) {
	var m store.MessageRow
	if _, err := p.messageRow(store.MessageID, r.ID, &m); err != nil {
		return nil, nil, err
	}
	var open store.DeadlineRow
	if ok, err := p.messageRow(store.MessageDeadline, joined(id, r.ID, memberExpires), &open); ok || err != nil {
		return nil, nil, err
	}
	return &eventlog.Message{Type: m.Type, Ticket: id, From: m.From, To: m.To, Trace: t.Trace}, &m, nil
}

// levelOfWaiting is the feature level from which on every request that waits for the gate
// has its deadline.
const levelOfWaiting = 8

// raiseWaiting opens the deadlines of requests that wait and have none: up to level 5 any
// grant closed them, also one that did not suffice or counts no more. They may be
// written before the level is there, for an older version does with them what it does
// with its own.
func (p *Projector) raiseWaiting(r *raise) error {
	return p.store.EachTicket(func(id string, t *store.TicketRow) error {
		if ticket.Terminal(t.State) {
			return nil
		}
		for i := range t.Requests {
			q := &t.Requests[i]
			if !unanswered(t, q, p.space.LogMillis) || !serves(t, q) || carriedOut(q.Kind, t.Requests[i:]) {
				continue // the last two were not made void in these versions
			}
			m, of, err := p.undated(id, t, q)
			if err != nil {
				return err
			}
			if m == nil {
				continue
			}
			if row, ok := deadlineRow(m, of.Topic, of.Position, expiryOf(q)); ok {
				key := joined(id, q.ID, memberExpires)
				r.batch.SetTimer(timerOf(key, &row))
				if err := r.row(store.MessageDeadline, key, encoded(row)); err != nil {
					return err
				}
				p.bus.counts.Open++
			}
		}
		return nil
	})
}

// carriedOut reports whether a plan is carried out that requests are about.
func carriedOut(kind string, requests []store.RequestRow) bool {
	return kind == requestPlan && slices.ContainsFunc(requests, func(r store.RequestRow) bool { return r.Kind == requestPlan && used(&r) })
}

// met closes a deadline if it is open. A proposal meets that of its own slice only.
func (p *Projector) met(key string, m *eventlog.Message) error {
	var row store.DeadlineRow
	ok, err := p.messageRow(store.MessageDeadline, key, &row)
	if err != nil || !ok || m.Proposed != nil && m.Proposed.Slice != row.Slice {
		return err
	}
	p.batch.DeleteTimer(timerOf(key, &row))
	p.closeDeadline(key, &row)
	return nil
}

func timerOf(key string, row *store.DeadlineRow) store.Timer {
	return store.Timer{DueMillis: row.Due, Topic: row.Index, Position: row.Position, Kind: store.TimerMessage, Key: key}
}

// deadlineRow makes the row of a deadline. It is none where admission took the deadline
// from the registry of another version.
func deadlineRow(m *eventlog.Message, topic string, position uint64, d eventlog.Deadline) (row store.DeadlineRow, known bool) {
	kind, known := ticket.TypeOf(m.Type)
	index := -1
	if known {
		index = slices.IndexFunc(kind.Deadlines, func(of ticket.Deadline) bool { return of.Member == d.Member })
	}
	if index < 0 {
		return row, false
	}
	row = store.DeadlineRow{
		Type: m.Type, From: m.From, To: m.To, Trace: m.Trace, Topic: topic, Position: position, Index: uint32(index), Due: d.Millis,
	}
	if m.Asked != nil {
		row.Slice = m.Asked.Slice
	}
	return row, true
}

func (p *Projector) openDeadline(id string, m *eventlog.Message, topic string, position uint64, d eventlog.Deadline) {
	row, ok := deadlineRow(m, topic, position, d)
	if !ok {
		return
	}
	key := joined(m.Ticket, id, d.Member)
	p.setMessageRow(store.MessageDeadline, key, row)
	p.batch.SetTimer(timerOf(key, &row))
	p.bus.counts.Open++
	p.noteUndelivered(key, &row)
}

func missedBy(row *store.DeadlineRow) ticket.Deadline {
	if kind, ok := ticket.TypeOf(row.Type); ok && int(row.Index) < len(kind.Deadlines) {
		return kind.Deadlines[row.Index]
	}
	return ticket.Deadline{}
}

func (p *Projector) noteUndelivered(key string, row *store.DeadlineRow) {
	if missedBy(row).Missed != ticket.MissedDeadLetter {
		return
	}
	list := p.bus.undelivered[row.Topic]
	at, _ := slices.BinarySearchFunc(list, row.Position, byPosition)
	p.bus.undelivered[row.Topic] = slices.Insert(list, at, undelivered{row.Position, key})
}

func byPosition(u undelivered, position uint64) int {
	switch {
	case u.position < position:
		return -1
	case u.position > position:
		return 1
	}
	return 0
}

// closeDeadline forgets a deadline that was met or missed.
func (p *Projector) closeDeadline(key string, row *store.DeadlineRow) {
	p.dropMessageRow(store.MessageDeadline, key)
	p.bus.counts.Open--
	if list := p.bus.undelivered[row.Topic]; missedBy(row).Missed == ticket.MissedDeadLetter {
		if at, ok := slices.BinarySearchFunc(list, row.Position, byPosition); ok {
			list = slices.Delete(list, at, at+1)
		}
		if p.bus.undelivered[row.Topic] = list; len(list) == 0 {
			delete(p.bus.undelivered, row.Topic)
		}
	}
}

// delivered notes that a subscription has acknowledged an event. If the event is an
// execute, and the subscription that of an agent which it was sent to, it has been
// delivered.
func (p *Projector) delivered(s *subscription, topic string, position uint64) error {
	list := p.bus.undelivered[topic]
	at, ok := slices.BinarySearchFunc(list, position, byPosition)
	if !ok {
		return nil
	}
	key := list[at].key
	var row store.DeadlineRow
	ok, err := p.messageRow(store.MessageDeadline, key, &row)
	if err != nil || !ok || !slices.Contains(p.receivers(row.To), s.config.Owner) {
		return err
	}
	p.batch.DeleteTimer(timerOf(key, &row))
	p.closeDeadline(key, &row)
	_, id, _ := deadlineOf(key)
	return p.executeDelivered(id)
}

// deadlineOf takes the key of a deadline apart.
func deadlineOf(key string) (of, id, member string) {
	of, rest, _ := strings.Cut(key, "\x00")
	id, member, _ = strings.Cut(rest, "\x00")
	return of, id, member
}

// deliveredUpTo is delivered for a stream, which acknowledges by its cursor.
func (p *Projector) deliveredUpTo(s *subscription, after, to uint64) error {
	if len(p.bus.undelivered) == 0 {
		return nil
	}
	patterns := s.settings().Patterns()
	topics := make([]string, 0, len(p.bus.undelivered))
	for _, topic := range sortedKeys(p.bus.undelivered) {
		if slices.ContainsFunc(patterns, func(pattern event.Pattern) bool { return pattern.Match(topic) }) {
			topics = append(topics, topic)
		}
	}
	for _, topic := range topics {
		for _, u := range slices.Clone(p.bus.undelivered[topic]) {
			if u.position <= after || u.position > to {
				continue
			}
			if kept, err := p.withheld(s, topic, u.position); kept || err != nil { // its cursor went past it
				if err != nil {
					return err
				}
				continue
			}
			if err := p.delivered(s, topic, u.position); err != nil {
				return err
			}
		}
	}
	return nil
}

// missedDetail is what the entry of a missed deadline says.
type missedDetail struct {
	Ticket   string `json:"ticket"`
	Message  string `json:"message"`
	Deadline string `json:"deadline"`
	Due      int64  `json:"due_ms"`
	Owed     string `json:"owed"` // id of the message that the bus has to send
}

// missDeadline fires the timer of a deadline that nothing has met: from this commit on
// the bus has a message to send, and nothing more is executed for the ticket.
func (p *Projector) missDeadline(timer store.Timer) error {
	var row store.DeadlineRow
	ok, err := p.messageRow(store.MessageDeadline, timer.Key, &row)
	if err != nil || !ok || row.Due != timer.DueMillis {
		return err
	}
	p.closeDeadline(timer.Key, &row)
	of, id, member := deadlineOf(timer.Key)
	var t store.TicketRow
	if ok, err := p.messageRow(store.MessageTicket, of, &t); err != nil || ok && ticket.Terminal(t.State) {
		return err // nothing is expected of anybody any more
	}
	p.bus.counts.Missed++
	o := store.ObligationRow{
		Reason: member + "_missed", Severity: severityWarning, Ticket: of, Trace: row.Trace, Cause: id,
		Refs: []string{id}, Context: row.Topic, Asks: []string{askOf(&row, member)},
	}
	to, above := ticket.Above(row.To)
	d := missedBy(&row)
	switch {
	case d.Missed == ticket.MissedDeadLetter:
		p.page(&o)
		o.Letter, o.Position = row.Topic, row.Position
	case !above:
		p.page(&o)
	default:
		o.To = to
	}
	owed := p.owe(&o, timer.Key)
	e := audit.Detailed(audit.KindExpiry, row.Topic, mustDetail(missedDetail{of, id, member, row.Due, owed}))
	e.Position = row.Position
	p.chain(e)
	p.concern(audit.KindExpiry, of)
	if d.Missed == ticket.MissedDeadLetter {
		return p.executeUndelivered(id) // the other slices go on
	}
	return p.deadlineMissed(of, "the "+member+" of "+id+", as "+owed+" says")
}

func askOf(row *store.DeadlineRow, member string) string {
	return "The " + row.Type + " of " + row.From + " to " + row.To + " had no answer by its " + member + ". Decide how the ticket goes on."
}
