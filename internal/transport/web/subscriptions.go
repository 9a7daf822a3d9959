// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// subscriptionsMax bounds the subscriptions of one answer.
const subscriptionsMax = 1000

// statusDocument is the broker's own part of a subscription.
type statusDocument struct {
	State       string       `json:"state"` // active, paused or disabled
	Cursor      event.Cursor `json:"cursor"`
	LagEvents   *uint64      `json:"lag_events,omitempty"` // not in lists
	LagSeconds  *float64     `json:"lag_seconds,omitempty"`
	Outstanding uint64       `json:"outstanding"`
	Retrying    uint64       `json:"retrying"`
	Parked      uint64       `json:"parked"`
	Matched     uint64       `json:"matched"`
	Dropped     uint64       `json:"dropped"`
	Errors      uint64       `json:"filter_errors"`
	HandedOut   uint64       `json:"handed_out"`
	Acked       uint64       `json:"acknowledged"`
	Failed      uint64       `json:"failed"`
	TimedOut    uint64       `json:"timed_out"`
	Buried      uint64       `json:"dead_lettered"`
	Quarantined uint64       `json:"quarantined"`
	Gone        uint64       `json:"gone"`
	Gaps        uint64       `json:"gaps"`
	Letters     uint64       `json:"dead_letters"`
	NextAttempt *time.Time   `json:"next_attempt,omitempty"`
	Error       string       `json:"last_error,omitempty"`
	ErrorAt     *time.Time   `json:"last_error_time,omitempty"`
	Created     time.Time    `json:"created"`
	Used        *time.Time   `json:"last_used,omitempty"`

	Endpoint *endpointDocument `json:"endpoint,omitempty"`
}

func timeOrNone(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// subscriptionURL is absolute, since the standard's sink is a URI. The Host was
// checked, so it is a name by which the caller reaches the broker.
func subscriptionURL(r *http.Request, id string) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + "/v1/subscriptions/" + id
}

// appendSubscription appends a subscription as the API shows it: without its
// secrets, and with its own URL as the sink where it has no other.
func appendSubscription(dst []byte, r *http.Request, info *broker.SubscriptionInfo, listed bool) []byte {
	d := info.Document
	if d.Protocol == event.ProtocolSignalbox {
		d.Sink = subscriptionURL(r, d.ID)
	}
	s := &info.Status
	status := statusDocument{
		State: "active", Cursor: s.Cursor, Outstanding: s.Outstanding, Retrying: s.Ready, Parked: s.Parked,
		Matched: s.Matched, Dropped: s.Dropped, Errors: s.Errors, HandedOut: s.HandedOut, Acked: s.Acked,
		Failed: s.Nacked + s.TimedOut, TimedOut: s.TimedOut, Buried: s.Buried, Quarantined: s.Quarantined, Gone: s.Gone, Gaps: s.Gaps,
		Letters: s.Letters, NextAttempt: timeOrNone(s.NextAttempt), Error: s.Error, ErrorAt: timeOrNone(s.ErrorAt),
		Created: info.Created.UTC(), Used: timeOrNone(s.Used),
	}
	status.Endpoint = endpointOf(info)
	switch {
	case s.Disabled:
		status.State = "disabled"
	case s.Paused:
		status.State = "paused"
	}
	if !listed {
		seconds := float64(s.LagTime.Milliseconds()) / 1000 // Seconds has digits of its own
		status.LagEvents, status.LagSeconds = &s.LagEvents, &seconds
	}
	dst = d.AppendJSON(dst, false)
	dst = append(dst[:len(dst)-1], `,"status":`...)
	return append(appendJSON(dst, status), '}')
}

func (s *Server) answerSubscription(w http.ResponseWriter, r *http.Request, status int, info *broker.SubscriptionInfo) error {
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, status, "application/json", append(appendSubscription(nil, r, info, false), '\n'))
}

// listSubscriptions answers with an array, as the standard has it, of at most
// subscriptionsMax; a Link leads to the rest.
func (s *Server) listSubscriptions(w http.ResponseWriter, r *http.Request, q url.Values) error {
	limit, err := limitOf(q, subscriptionsMax)
	if err != nil {
		return err
	}
	infos, more, err := s.broker.Subscriptions(q.Get("after"), limit)
	if err != nil {
		return err
	}
	body := []byte{'['}
	for i := range infos {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendSubscription(body, r, &infos[i], true)
	}
	if more {
		next := url.Values{"after": {infos[len(infos)-1].Document.ID}, "limit": {strconv.Itoa(limit)}}
		w.Header().Set("Link", "</v1/subscriptions?"+next.Encode()+`>; rel="next"`)
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, http.StatusOK, "application/json", append(body, ']', '\n'))
}

func limitOf(q url.Values, most int) (int, error) {
	if !q.Has("limit") {
		return most, nil
	}
	n, ok := parseCount(q.Get("limit"), most)
	if !ok || n == 0 {
		return 0, event.Errorf(event.CodeParameterInvalid, "limit=%.20q is not a number from 1 on.", q.Get("limit")).With("limit")
	}
	return n, nil
}

// decodeSubscription reads the body as JSON whatever it says it is, as for a
// policy.
func (s *Server) decodeSubscription(r *http.Request) (event.Subscription, error) {
	body, held, err := s.readBody(r, event.MaxSubscriptionBytes)
	defer s.held.give(held)
	if err != nil {
		return event.Subscription{}, err
	}
	d, err := event.ParseSubscription(body)
	if err != nil {
		s.broker.Refused(principalOf(r), "$subscriptions", event.AsError(err))
	}
	return d, err
}

func (s *Server) createSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	d, err := s.decodeSubscription(r)
	if err != nil {
		return err
	}
	info, err := s.broker.CreateSubscription(r.Context(), principalOf(r), d)
	if err != nil {
		return err
	}
	w.Header().Set("Location", subscriptionURL(r, info.Document.ID))
	return s.answerSubscription(w, r, http.StatusCreated, &info)
}

func (s *Server) getSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	info, err := s.broker.Subscription(r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.answerSubscription(w, r, http.StatusOK, &info)
}

func (s *Server) putSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	d, err := s.decodeSubscription(r)
	if err != nil {
		return err
	}
	info, err := s.broker.UpdateSubscription(r.Context(), principalOf(r), r.PathValue("id"), d)
	if err != nil {
		return err
	}
	return s.answerSubscription(w, r, http.StatusOK, &info)
}

// deleteSubscription answers with what was deleted, as the standard has it.
func (s *Server) deleteSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	info, err := s.broker.DeleteSubscription(r.Context(), principalOf(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.answerSubscription(w, r, http.StatusOK, &info)
}

// subscriptionMethods are what the standard has OPTIONS answer.
func subscriptionMethods(allow string) func(*Server, http.ResponseWriter, *http.Request, url.Values) error {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request, _ url.Values) error {
		w.Header().Set("Allow", allow)
		w.WriteHeader(http.StatusOK)
		return nil
	}
}

// fields reads a small JSON body.
func (s *Server) fields(r *http.Request, into map[string]any) error {
	body, held, err := s.readBody(r, event.MaxSubscriptionBytes)
	defer s.held.give(held)
	if err != nil {
		return err
	}
	return event.ParseFields(body, into)
}

func (s *Server) pauseSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return s.setPaused(w, r, true)
}

func (s *Server) resumeSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	return s.setPaused(w, r, false)
}

func (s *Server) setPaused(w http.ResponseWriter, r *http.Request, pause bool) error {
	if err := s.fields(r, nil); err != nil {
		return err
	}
	info, err := s.broker.PauseSubscription(r.Context(), principalOf(r), r.PathValue("id"), pause)
	if err != nil {
		return err
	}
	return s.answerSubscription(w, r, http.StatusOK, &info)
}

func (s *Server) seekSubscription(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var start string
	if err := s.fields(r, map[string]any{"start": &start}); err != nil {
		return err
	}
	info, err := s.broker.SeekSubscription(r.Context(), principalOf(r), r.PathValue("id"), start)
	if err != nil {
		return err
	}
	return s.answerSubscription(w, r, http.StatusOK, &info)
}

// subscriptionEvents streams from the subscription's own cursor. Last-Event-ID
// acknowledges what the client had.
func (s *Server) subscriptionEvents(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p := reading{subscription: r.PathValue("id"), caller: callerOf(r)}
	if p.socket = wantsSocket(r); p.socket {
		if err := p.parseSocket(q); err != nil {
			return err
		}
	} else if err := s.checkPage(changing(r)); err != nil {
		return err // it would take the place of the client that has the stream
	} else if err := p.parseStream(q); err != nil {
		return err
	} else if stream, err := wantsStream(r.Header["Accept"]); err != nil || !stream {
		return event.Errorf(event.CodeNotAcceptable, "The events of a subscription are an event stream or a WebSocket: accept text/event-stream, or ask for the upgrade.").With("Accept")
	}
	if ids := r.Header["Last-Event-Id"]; len(ids) > 1 {
		return event.Errorf(event.CodeParameterInvalid, "There are %d Last-Event-ID headers: send one.", len(ids)).With("Last-Event-ID")
	} else if len(ids) == 1 && ids[0] != "" {
		c, err := event.ParseCursor(ids[0])
		if err != nil {
			return event.AsError(err).With("Last-Event-ID")
		}
		p.last = &c
	}
	if p.socket {
		return s.socket(w, r, p)
	}
	return s.eventStream(w, r, p)
}
