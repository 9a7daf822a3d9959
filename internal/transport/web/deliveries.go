// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
)

// fetchSubscription hands events out. It may be held for as long as a poll.
func (s *Server) fetchSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	most, wait, visibility := 1, event.Duration(0), event.Duration(0)
	if err := s.fields(r, map[string]any{"max": &most, "wait": &wait, "visibility": &visibility}); err != nil {
		return err
	}
	if most < 1 || most > broker.FetchMax {
		return event.Errorf(event.CodeParameterInvalid, "max must be from 1 to %d.", broker.FetchMax).With("max")
	}
	s.streams.enter()
	defer s.streams.leave(nil)
	lift(w)
	handed, err := s.broker.Fetch(r.Context(), principalOf(r), r.PathValue("id"), broker.FetchRequest{
		Max: most, Visibility: visibility.Std(), Wait: min(wait.Std(), waitMax),
	})
	if err != nil {
		return err
	}
	size := len(`{"events":[]}`)
	for i := range handed {
		size += len(handed[i].Event) + 128
	}
	if err := s.held.take(size); err != nil {
		return err // they come back after their deadline
	}
	defer s.held.give(size)
	body := append(make([]byte, 0, size), `{"events":[`...)
	for i := range handed {
		h := &handed[i]
		if i > 0 {
			body = append(body, ',')
		}
		body = append(append(append(body, `{"token":"`...), h.Token...), `","attempt":`...)
		body = strconv.AppendInt(body, int64(h.Attempt), 10)
		body = h.Deadline.UTC().AppendFormat(append(body, `,"deadline":"`...), time.RFC3339Nano)
		body = append(append(append(body, `","event":`...), h.Event...), '}')
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, http.StatusOK, "application/json", append(body, "]}\n"...))
}

// settled is what became of one token.
type settled struct {
	Token   string `json:"token"`
	Settled bool   `json:"settled"` // false: it is not that of the last hand-out
}

// verdict answers a call that says something of events by their tokens.
func (s *Server) verdict(w http.ResponseWriter, r *http.Request, fields map[string]any, v *broker.Verdict,
	say func(context.Context, identity.Principal, string, broker.Verdict) ([]bool, error)) error {
	var one string
	fields["tokens"], fields["token"] = &v.Tokens, &one
	if err := s.fields(r, fields); err != nil {
		return err
	}
	return s.say(w, r, one, v, say)
}

func (s *Server) say(w http.ResponseWriter, r *http.Request, one string, v *broker.Verdict,
	say func(context.Context, identity.Principal, string, broker.Verdict) ([]bool, error)) error {
	if one != "" {
		v.Tokens = append(v.Tokens, one)
	}
	// What was said takes effect whether the caller stays or leaves.
	done, err := say(context.WithoutCancel(r.Context()), principalOf(r), r.PathValue("id"), *v)
	if err != nil {
		return err
	}
	results := make([]settled, len(done))
	for i := range done {
		results[i] = settled{v.Tokens[i], done[i]}
	}
	return s.json(w, http.StatusOK, map[string]any{"results": results})
}

// ackSubscription acknowledges events by their tokens, or a stream by its cursor.
func (s *Server) ackSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var v broker.Verdict
	var one string
	var cursor event.Cursor
	if err := s.fields(r, map[string]any{"tokens": &v.Tokens, "token": &one, "cursor": &cursor}); err != nil {
		return err
	}
	if cursor == (event.Cursor{}) {
		return s.say(w, r, one, &v, s.broker.Ack)
	}
	if one != "" || v.Tokens != nil {
		return event.Errorf(event.CodeParameterInvalid, "Send tokens or a cursor, not both.").With("cursor")
	}
	at, err := s.broker.Acknowledge(r.Context(), principalOf(r), r.PathValue("id"), cursor)
	if err != nil {
		return err
	}
	return s.json(w, http.StatusOK, map[string]any{"cursor": at})
}

func (s *Server) nackSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var v broker.Verdict
	var delay event.Duration
	fields := map[string]any{"delay": &delay, "reason": &v.Reason}
	return s.verdict(w, r, fields, &v, func(ctx context.Context, p identity.Principal, id string, v broker.Verdict) ([]bool, error) {
		v.Delay = delay.Std()
		return s.broker.Nack(ctx, p, id, v)
	})
}

func (s *Server) extendSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var v broker.Verdict
	var visibility event.Duration
	return s.verdict(w, r, map[string]any{"visibility": &visibility}, &v, func(ctx context.Context, p identity.Principal, id string, v broker.Verdict) ([]bool, error) {
		v.Delay = visibility.Std()
		return s.broker.Extend(ctx, p, id, v)
	})
}

func (s *Server) rejectSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var v broker.Verdict
	return s.verdict(w, r, map[string]any{"reason": &v.Reason}, &v, s.broker.Reject)
}

// letterDocument is a dead letter as the API shows it.
type letterDocument struct {
	Position event.Cursor `json:"position"` // in the topic of dead letters
	Topic    string       `json:"topic"`
	Cursor   event.Cursor `json:"cursor"` // of the event where it was published
	Cause    string       `json:"cause"`
	Error    string       `json:"error,omitempty"`
	Attempts int          `json:"attempts"`
	Redrives int          `json:"redrives"`
	State    string       `json:"state"` // dead, or redriven while it is under way again
	Since    time.Time    `json:"since"`
	Event    rawJSON      `json:"event"`
}

// rawJSON is JSON as it is.
type rawJSON []byte

// MarshalJSON returns it.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

func (s *Server) listLetters(w http.ResponseWriter, r *http.Request, q url.Values) error {
	limit, err := limitOf(q, broker.LetterMax)
	if err != nil {
		return err
	}
	var after event.Cursor
	if q.Has("after") {
		if after, err = event.ParseCursor(q.Get("after")); err != nil {
			return event.AsError(err).With("after")
		}
	}
	which := broker.LetterFilter{Cause: q.Get("cause"), Topic: q.Get("topic"), Type: q.Get("type")}
	if which.Filter, err = parseFilter(q); err != nil {
		return err
	}
	letters, next, err := s.broker.Letters(principalOf(r), r.PathValue("id"), which, after.Position, limit)
	if err != nil {
		return err
	}
	documents := make([]letterDocument, len(letters))
	for i := range letters {
		l := &letters[i]
		documents[i] = letterDocument{
			Position: l.Position, Topic: l.Topic, Cursor: l.At, Cause: l.Cause, Error: l.Error, Attempts: l.Attempts,
			Redrives: l.Redrives, State: "dead", Since: l.Since.UTC(), Event: l.Event,
		}
		if l.Redriven {
			documents[i].State = "redriven"
		}
	}
	if next != 0 {
		link := *r.URL
		q := link.Query()
		q.Set("after", event.Cursor{Position: next}.String())
		w.Header().Set("Link", "<"+link.EscapedPath()+"?"+q.Encode()+`>; rel="next"`)
	}
	return s.json(w, http.StatusOK, documents)
}

// letterCall is the body of a redrive or a discard.
type letterCall struct {
	filter    broker.LetterFilter
	positions []string
	after     event.Cursor
	limit     int
	reason    string
}

func (s *Server) letterCall(r *http.Request, reason bool) (c letterCall, err error) {
	c.limit = broker.LetterMax
	var expression string
	fields := map[string]any{
		"positions": &c.positions, "cause": &c.filter.Cause, "topic": &c.filter.Topic, "type": &c.filter.Type, "filter": &expression,
		"after": &c.after, "limit": &c.limit,
	}
	if reason {
		fields["reason"] = &c.reason
	}
	if err := s.fields(r, fields); err != nil {
		return c, err
	}
	if c.limit < 1 || c.limit > broker.LetterMax || len(c.positions) > broker.LetterMax {
		return c, event.Errorf(event.CodeParameterInvalid, "limit must be from 1 to %d, and so must be the number of positions.", broker.LetterMax).With("limit")
	}
	if expression != "" {
		if c.filter.Filter, err = filter.ParseText(expression); err != nil {
			return c, err
		}
	}
	for _, text := range c.positions {
		at, err := event.ParseCursor(text)
		if err != nil {
			return c, event.AsError(err).With("positions")
		}
		c.filter.Positions = append(c.filter.Positions, at.Position)
	}
	return c, nil
}

func (s *Server) redriveLetters(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	c, err := s.letterCall(r, false)
	if err != nil {
		return err
	}
	moved, err := s.broker.Redrive(r.Context(), principalOf(r), r.PathValue("id"), c.filter, c.after.Position, c.limit)
	return s.moved(w, moved, err, "redriven")
}

func (s *Server) discardLetters(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	c, err := s.letterCall(r, true)
	if err != nil {
		return err
	}
	moved, err := s.broker.Discard(r.Context(), principalOf(r), r.PathValue("id"), c.filter, c.after.Position, c.limit, c.reason)
	return s.moved(w, moved, err, "discarded")
}

// moved says how many dead letters a call has moved, and where the next one goes
// on.
func (s *Server) moved(w http.ResponseWriter, m broker.LetterMove, err error, what string) error {
	if err != nil {
		return err
	}
	answer := map[string]any{what: m.Moved, "full": m.Full}
	if m.Next != 0 {
		answer["next"] = event.Cursor{Position: m.Next}
	}
	return s.json(w, http.StatusOK, answer)
}
