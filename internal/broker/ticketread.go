// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/store"
	"signalbox/ticket"
)

const (
	// TicketsMax bounds the tickets of one answer, and ticketScanMax those that are
	// looked at for it, with the messages by which it is told who may see them.
	TicketsMax    = 1000
	ticketScanMax = 20_000
	// TicketMessagesMax bounds the messages of one answer, and ticketPageBytes what
	// they have together: one more may go beyond it.
	TicketMessagesMax = 1000
	ticketPageBytes   = 4 << 20
)

// TicketQuery says which tickets are wanted; what is zero asks for nothing.
type TicketQuery struct {
	As      identity.Principal // who asks
	States  []string
	Domain  string    // one of its slices is of it
	Agent   string    // has sent a message of it
	Updated time.Time // its last message is not older, by log time
	After   string    // the ticket before the first one, by name
	Limit   int       // 0: 100
}

// TicketSummary is a ticket among others.
type TicketSummary struct {
	ID       string       `json:"ticket_id"`
	Trace    string       `json:"trace_id"`
	State    string       `json:"state"`
	Terminal bool         `json:"terminal"`
	Revision int          `json:"revision"`
	Tier     *int         `json:"tier"`
	Domains  []string     `json:"domains"`
	Opened   time.Time    `json:"opened"`
	Moved    time.Time    `json:"moved"`
	Updated  time.Time    `json:"updated"` // log time of its last message
	Cursor   event.Cursor `json:"cursor"`  // of its last message
}

// Tickets returns tickets by name, and the name after which to go on; "" at the end.
// Whoever may read a message of a ticket, or has sent one, sees that it is there.
func (b *Broker) Tickets(q TicketQuery) (list []TicketSummary, next string, err error) {
	list = []TicketSummary{}
	r := b.reach(q.As)
	if err := r.mayAsk(); err != nil {
		return nil, "", err
	}
	limit := min(cmp.Or(q.Limit, 100), TicketsMax)
	view := b.store.View(func() {})
	defer view.Close()
	last, scanned := "", 0
	err = listed(view, &q, func(id string, row *store.TicketRow) (bool, error) {
		if len(list) == limit || scanned >= ticketScanMax {
			next = last
			return false, nil
		}
		last = id
		scanned++
		s := summaryOf(id, row)
		if q.Domain != "" && !slices.Contains(s.Domains, q.Domain) {
			return true, nil
		}
		seen, sent, err := r.concerned(view, id, q.Agent, &scanned)
		if err != nil || !seen || !sent {
			return true, err
		}
		if err := b.updated(view, &s); err != nil || s.Updated.Before(q.Updated) {
			return true, err
		}
		list = append(list, s)
		return true, nil
	})
	return list, next, err
}

// listed calls each with the tickets behind q.After that are in a state which is asked
// for, by name, until it returns false. Those in others are not looked at.
func listed(view *store.View, q *TicketQuery, each func(id string, row *store.TicketRow) (more bool, err error)) error {
	if q.States == nil {
		return view.Tickets(q.After, each)
	}
	var parts []part[string]
	for _, state := range ticket.States() {
		if !slices.Contains(q.States, state.Name) {
			continue
		}
		parts = append(parts, partOf(func(after *string, each func(string) bool) error {
			from := q.After
			if after != nil {
				from = *after
			}
			return view.TicketsIn(state.Name, from, func(id string) (bool, error) { return each(id), nil })
		}))
	}
	return merged(strings.Compare, parts, func(id string) (bool, error) {
		var row store.TicketRow
		ok, err := view.Message(store.MessageTicket, id, &row)
		if err != nil || !ok {
			return true, err
		}
		return each(id, &row)
	})
}

// mayAsk refuses who says nothing of who they are, where that matters.
func (r *reach) mayAsk() error {
	if r.open || !r.lost && r.who.Subject() != "" {
		return nil
	}
	return r.refusal(messageTopics.String())
}

// concerned reports whether a ticket is seen, and whether an agent has sent a message
// of it; "" asks for none.
func (r *reach) concerned(view *store.View, id, agent string, scanned *int) (seen, sent bool, err error) {
	seen, sent = r.open, agent == ""
	err = view.MessagesOf(id, 0, func(_ uint64, row store.OfTicketRow) (bool, error) {
		*scanned++
		seen = seen || row.From == r.who.Subject() || r.topic(row.Topic) == nil
		sent = sent || row.From == agent
		return !(seen && sent), nil
	})
	return seen, sent, err
}

func summaryOf(id string, row *store.TicketRow) TicketSummary {
	info := ticketInfo(id, row)
	s := TicketSummary{
		ID: id, Trace: info.Trace, State: info.State, Terminal: info.Terminal, Revision: info.Revision, Tier: info.Tier, Domains: []string{}, Opened: info.Opened, Moved: info.MovedAt,
	}
	for i := range info.Slices {
		if domain := info.Slices[i].Domain; !slices.Contains(s.Domains, domain) {
			s.Domains = append(s.Domains, domain)
		}
	}
	return s
}

// updated finds the last message of a ticket.
func (b *Broker) updated(view *store.View, s *TicketSummary) error {
	position, row, err := view.LastOf(s.ID)
	if err != nil {
		return err
	}
	s.Cursor, s.Updated = b.cursorAt(position), s.Moved
	_, _, err = b.storedMessage(view, row.Topic, position, func(e *store.EventRow) { s.Updated = moment(e.LogMillis) })
	return err
}

func (b *Broker) cursorAt(position uint64) event.Cursor {
	return event.Cursor{Position: position, Incarnation: b.dispatch.Head().Incarnation}
}

// storedMessage calls use with a message, if it is still stored, which only an
// operator's retention ends.
func (b *Broker) storedMessage(view *store.View, topic string, position uint64, use func(*store.EventRow)) (known, stored bool, err error) {
	t, err := b.dispatch.Topic(topic)
	if err != nil {
		return false, false, nil // the topic of no message
	}
	stored, err = view.Event(t.Number, position, func(e store.EventRow) error {
		use(&e)
		return nil
	})
	return true, stored, err
}

// TicketView is a ticket as an agent sees it.
type TicketView struct {
	TicketInfo
	Updated   time.Time        `json:"updated"` // log time of its last message
	Cursor    event.Cursor     `json:"cursor"`  // of its last message
	Deadlines []TicketDeadline `json:"deadlines"`
	Messages  []TicketMessage  `json:"-"`
	Next      event.Cursor     `json:"-"` // where to go on; position 0: there are no more
}

// TicketMessage is a message of a ticket, as it was sent.
type TicketMessage struct {
	Cursor  event.Cursor
	Topic   string
	Time    time.Time // log time
	Message []byte    // nil: an operator's retention has removed it
}

// ReadTicket returns a ticket and up to limit of those messages after a cursor that
// may be read and, where messages are held until they are outside, are there. It fails
// with code ticket_unknown, also for whoever may not see it, and with cursor_foreign for
// a cursor of another log.
func (b *Broker) ReadTicket(as identity.Principal, id string, after event.Cursor, limit int) (t TicketView, err error) {
	view := b.store.View(func() {})
	defer view.Close()
	r, err := b.reachTicket(view, as, id)
	if err == nil {
		err = b.here(after)
	}
	if err != nil {
		return t, err
	}
	if t.TicketInfo, err = b.Ticket(id); err != nil {
		return t, err
	}
	r.redact(&t.TicketInfo)
	if t.Deadlines, err = r.deadlines(view, id); err != nil {
		return t, err
	}
	s := TicketSummary{ID: id, Moved: t.MovedAt}
	if err := b.updated(view, &s); err != nil {
		return t, err
	}
	t.Updated, t.Cursor = s.Updated, s.Cursor
	size := 0
	err = view.MessagesOf(id, after.Position, func(position uint64, row store.OfTicketRow) (bool, error) {
		if r.topic(row.Topic) != nil {
			return true, nil
		}
		if !b.dispatch.Shown(row.Topic, position) {
			return false, nil // nobody is given it before it is outside
		}
		if len(t.Messages) == limit || size >= ticketPageBytes {
			t.Next = t.Messages[len(t.Messages)-1].Cursor
			return false, nil
		}
		m := TicketMessage{Cursor: b.cursorAt(position), Topic: row.Topic}
		_, _, err := b.storedMessage(view, row.Topic, position, func(e *store.EventRow) {
			m.Time, m.Message = moment(e.LogMillis), bytes.Clone(e.Members[e.DataOffset:e.DataOffset+e.DataLength])
		})
		size += len(m.Message)
		t.Messages = append(t.Messages, m)
		return true, err
	})
	if err == nil && len(t.Messages) > 0 {
		b.gave(as, t.Messages)
	}
	return t, err
}

// gave notes in the audit trail who was given messages of a ticket: those that are
// stored. Of what an operator's retention has removed nobody is given anything.
func (b *Broker) gave(to identity.Principal, messages []TicketMessage) {
	w := &dispatch.Window{Cursor: messages[len(messages)-1].Cursor}
	for i := range messages {
		if messages[i].Message != nil {
			w.Deliveries = append(w.Deliveries, dispatch.Delivery{Position: messages[i].Cursor.Position, Message: true})
		}
	}
	b.Recipient(to, "ticket", []event.Pattern{messageTopics}, false).Given(w)
}

// reachTicket returns what somebody may read, with code ticket_unknown if that is
// nothing of a ticket.
func (b *Broker) reachTicket(view *store.View, as identity.Principal, id string) (*reach, error) {
	r := b.reach(as)
	if err := r.mayAsk(); err != nil {
		return nil, err
	}
	scanned := 0
	seen, _, err := r.concerned(view, id, "", &scanned)
	if err != nil || seen && scanned > 0 {
		return r, err
	}
	return nil, event.Errorf(event.CodeTicketUnknown, "There is no ticket %.128q of which you may read anything.", id).With("ticket_id")
}

// redact leaves out what only messages say that the agent may not read: of slices of
// other domains all but what every ticket.state and plan says of them, and approvals
// where the gate is not the agent's.
func (r *reach) redact(t *TicketInfo) {
	root := ticket.TopicRoot + "." + r.registry.Space + "."
	for i := range t.Slices {
		if s := &t.Slices[i]; r.topic(root+"plan."+s.Domain) != nil {
			*s = TicketSlice{ID: s.ID, Domain: s.Domain, State: s.State, Hash: s.Hash}
		}
	}
	if r.topic(root+"approval."+ticket.RoleGate) != nil {
		t.Approvals = []TicketApproval{}
	}
}

// deadlines are those that are open of messages that may be read, the next one first.
func (r *reach) deadlines(view *store.View, id string) ([]TicketDeadline, error) {
	open := []TicketDeadline{}
	err := view.Deadlines(id, func(message, member string, row *store.DeadlineRow) {
		if r.topic(row.Topic) == nil {
			open = append(open, TicketDeadline{Message: message, Type: row.Type, To: row.To, Member: member, Due: moment(row.Due)})
		}
	})
	slices.SortStableFunc(open, func(a, b TicketDeadline) int { return a.Due.Compare(b.Due) })
	return open, err
}

// FollowTicket says what a stream of a ticket reads: the messages of it that may be
// read, those whose time is over included, from its first one on or from a cursor.
func (b *Broker) FollowTicket(as identity.Principal, id string, from *event.Cursor) (req ReadRequest, err error) {
	view := b.store.View(func() {})
	defer view.Close()
	if _, err := b.reachTicket(view, as, id); err != nil {
		return req, err
	}
	first := uint64(0)
	err = view.MessagesOf(id, 0, func(position uint64, _ store.OfTicketRow) (bool, error) {
		first = position
		return false, nil
	})
	if err != nil {
		return req, err
	}
	pattern, err := event.ParsePattern(ticket.TopicRoot + "." + b.registry.Load().Space + ".>")
	if err != nil {
		return req, err
	}
	req = ReadRequest{As: as, Patterns: []event.Pattern{pattern}, Expired: true}
	if req.Filter, err = filter.ParseText("subject = '" + id + "'"); err != nil { // ids have no quotes
		return req, err
	}
	if from == nil {
		// What was removed before this reader came took nothing from it.
		start := b.cursorAt(max(first, 1) - 1)
		start.Began = b.dispatch.Head().Position
		from = &start
	}
	req.Start = dispatch.Start{Cursor: from, Exact: true}
	return req, nil
}
