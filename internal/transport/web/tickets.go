// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/ticket"
)

// ticketsDocument is a list of tickets as the API shows it.
type ticketsDocument struct {
	Tickets []broker.TicketSummary `json:"tickets"`
	Next    string                 `json:"next,omitempty"` // the ticket after which to go on
}

// listTickets answers with tickets by name; a Link leads to the rest.
func (s *Server) listTickets(w http.ResponseWriter, r *http.Request, q url.Values) error {
	limit, err := limitOf(q, broker.TicketsMax)
	if err != nil {
		return err
	}
	query := broker.TicketQuery{As: principalOf(r), Domain: q.Get("domain"), Agent: q.Get("agent"), After: q.Get("after"), Limit: limit}
	if q.Has("state") {
		query.States = strings.Split(q.Get("state"), ",")
		for _, state := range query.States {
			if known := stateNames(); !slices.Contains(known, state) {
				return event.Errorf(event.CodeParameterInvalid, "state=%.40q is none of the states of a ticket: %s.", state, strings.Join(known, ", ")).With("state")
			}
		}
	}
	if q.Has("updated") {
		if query.Updated, err = time.Parse(time.RFC3339, q.Get("updated")); err != nil {
			return event.Errorf(event.CodeParameterInvalid, "updated=%.40q is not a time such as 2026-11-29T10:00:00Z.", q.Get("updated")).With("updated")
		}
	}
	list, next, err := s.broker.Tickets(query)
	if err != nil {
		return err
	}
	if next != "" {
		linkNext(w, r, "after", next)
	}
	return s.json(w, http.StatusOK, ticketsDocument{list, next})
}

func stateNames() (names []string) {
	for _, s := range ticket.States() {
		names = append(names, s.Name)
	}
	return names
}

// linkNext leads to the rest of a list, which goes on after one of its members.
func linkNext(w http.ResponseWriter, r *http.Request, name, after string) {
	q := r.URL.Query()
	q.Set(name, after)
	w.Header().Set("Link", "<"+r.URL.EscapedPath()+"?"+q.Encode()+`>; rel="next"`)
}

// messageOfTicket is a message but for itself, which is JSON already.
type messageOfTicket struct {
	Cursor event.Cursor `json:"cursor"`
	Topic  string       `json:"topic"`
	Time   *time.Time   `json:"time,omitempty"` // log time
}

// getTicket answers with a ticket and its messages, each byte for byte as its sender
// signed it.
func (s *Server) getTicket(w http.ResponseWriter, r *http.Request, q url.Values) error {
	limit, err := limitOf(q, broker.TicketMessagesMax)
	if err != nil {
		return err
	}
	var after event.Cursor
	if q.Has("after") {
		if after, err = event.ParseCursor(q.Get("after")); err != nil {
			return event.AsError(err).With("after")
		}
	}
	t, err := s.broker.ReadTicket(principalOf(r), r.PathValue("ticket"), after, limit)
	if err != nil {
		return err
	}
	size := 64 << 10
	for i := range t.Messages {
		size += len(t.Messages[i].Message) + 256
	}
	if err := s.held.take(size); err != nil {
		return err
	}
	defer s.held.give(size)
	b := append(make([]byte, 0, size), appendJSON(nil, &t)...)
	b = append(b[:len(b)-1], `,"messages":[`...)
	for i := range t.Messages {
		m := &t.Messages[i]
		if i > 0 {
			b = append(b, ',')
		}
		document := messageOfTicket{Cursor: m.Cursor, Topic: m.Topic}
		if m.Message != nil {
			document.Time = &m.Time
		}
		b = appendJSON(b, document)
		if m.Message != nil {
			b = append(append(append(b[:len(b)-1], `,"message":`...), m.Message...), '}')
		}
	}
	b = append(b, ']')
	if t.Next != (event.Cursor{}) {
		linkNext(w, r, "after", t.Next.String())
		b = appendJSON(append(b, `,"next":`...), t.Next)
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, http.StatusOK, "application/json", append(b, "}\n"...))
}

// ticketStream follows a ticket from its first message on, or from a cursor.
func (s *Server) ticketStream(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p := reading{caller: callerOf(r), from: traceOf(r.Header)}
	if err := p.parseStream(q); err != nil {
		return err
	}
	if stream, err := wantsStream(r.Header["Accept"]); err != nil || !stream {
		return event.Errorf(event.CodeNotAcceptable, "A ticket is followed as an event stream: accept text/event-stream, or read it at once without /stream.").With("Accept")
	}
	everything, err := event.ParsePatterns(">")
	if err == nil {
		err = p.parseStart(r, q, everything)
	}
	if err != nil {
		return err
	}
	start := p.request.Start
	if p.request, err = s.broker.FollowTicket(p.caller.Principal, r.PathValue("ticket"), start.Cursor); err != nil {
		return err
	}
	if start.Now || !start.Time.IsZero() {
		p.request.Start = start
	}
	return s.eventStream(w, r, p)
}
