// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/event"
)

// Subscription is a durable subscription: its document, and how far it is.
type Subscription struct {
	event.Subscription
	Status SubscriptionStatus
}

// SubscriptionStatus is how far a subscription is.
type SubscriptionStatus struct {
	State       string       `json:"state"` // active, paused or disabled
	Cursor      event.Cursor `json:"cursor"`
	LagEvents   uint64       `json:"lag_events"` // events of its topics behind the cursor; 0 in lists
	LagSeconds  float64      `json:"lag_seconds"`
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
	DeadLetters uint64       `json:"dead_letters"`
	NextAttempt time.Time    `json:"next_attempt,omitzero"`
	LastError   string       `json:"last_error,omitempty"`
	ErrorAt     time.Time    `json:"last_error_time,omitzero"`
	Created     time.Time    `json:"created"`
	LastUsed    time.Time    `json:"last_used,omitzero"`

	Endpoint *EndpointStatus `json:"endpoint,omitempty"` // of a webhook
}

// EndpointStatus is how it stands with the endpoint of a webhook.
type EndpointStatus struct {
	Circuit      string    `json:"circuit"`  // closed, open (nothing is sent) or half_open (one attempt tells how to go on)
	Failures     int       `json:"failures"` // in a row
	FailingSince time.Time `json:"failing_since,omitzero"`
	HeldUntil    time.Time `json:"held_until,omitzero"`    // nothing is sent before
	Consent      string    `json:"consent,omitempty"`      // awaited or given, if there is a handshake
	AllowedRate  int       `json:"allowed_rate,omitempty"` // requests a minute; 0: any number
}

// MarshalJSON writes the document with the status as a member.
func (s Subscription) MarshalJSON() ([]byte, error) {
	status, err := json.Marshal(s.Status)
	if err != nil {
		return nil, err
	}
	document := s.AppendJSON(nil, false)
	document = append(document[:len(document)-1], `,"status":`...)
	return append(append(document, status...), '}'), nil
}

// UnmarshalJSON reads what the broker answers.
func (s *Subscription) UnmarshalJSON(b []byte) error {
	var answer struct {
		Status SubscriptionStatus `json:"status"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return err
	}
	s.Status = answer.Status
	return s.Subscription.UnmarshalJSON(b)
}

// NewSubscription returns a document of a kind, [event.KindPull], [event.KindStream] or [event.KindWebhook], with the
// defaults of the rest. Of a webhook the sink is to be set.
func NewSubscription(kind string, topics ...string) event.Subscription {
	s := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	s.Config.Kind = kind
	if kind == event.KindWebhook {
		s.Protocol, s.Config.MaxAttempts = event.ProtocolHTTP, 0 // as many as its schedule has
	}
	if len(topics) > 0 {
		s.Config.Topics = topics
	}
	return s
}

func (c *Client) subscriptionPath(id string, below ...string) string {
	path := c.base + "/v1/subscriptions/" + pathEscape(id)
	for _, s := range below {
		path += "/" + s
	}
	return path
}

// post sends a JSON body.
func (c *Client) post(ctx context.Context, k call, body, into any) (http.Header, error) {
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		k.body = b
	}
	if k.method == "" {
		k.method = http.MethodPost
	}
	k.header = http.Header{"Content-Type": {"application/json"}}
	_, header, err := c.do(ctx, k, into)
	return header, err
}

// CreateSubscription makes a subscription; the broker gives it the id. If no answer comes it is not tried again, for a
// second one could come into being: list them to find out.
func (c *Client) CreateSubscription(ctx context.Context, document event.Subscription) (Subscription, error) {
	var s Subscription
	_, err := c.post(ctx, call{url: c.base + "/v1/subscriptions", once: true}, document, &s)
	return s, err
}

// Subscription returns a subscription and how far it is.
func (c *Client) Subscription(ctx context.Context, id string) (Subscription, error) {
	var s Subscription
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.subscriptionPath(id)}, &s)
	return s, err
}

// Subscriptions returns all subscriptions, in the order in which they were created.
func (c *Client) Subscriptions(ctx context.Context) (all []Subscription, err error) {
	for next := c.base + "/v1/subscriptions"; next != ""; {
		var page []Subscription
		_, header, err := c.do(ctx, call{method: http.MethodGet, url: next}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next = c.nextPage(header)
	}
	return all, nil
}

// nextPage is the URL that a Link header leads to, "" if there is none.
func (c *Client) nextPage(h http.Header) string {
	link, ok := strings.CutSuffix(h.Get("Link"), `>; rel="next"`)
	if !ok {
		return ""
	}
	return c.base + strings.TrimPrefix(link, "<")
}

// PutSubscription replaces the document. The cursor does not move.
func (c *Client) PutSubscription(ctx context.Context, id string, document event.Subscription) (Subscription, error) {
	var s Subscription
	_, err := c.post(ctx, call{method: http.MethodPut, url: c.subscriptionPath(id)}, document, &s)
	return s, err
}

// DeleteSubscription ends a subscription, its dead letters included.
func (c *Client) DeleteSubscription(ctx context.Context, id string) error {
	_, _, err := c.do(ctx, call{method: http.MethodDelete, url: c.subscriptionPath(id)}, nil)
	return err
}

// PauseSubscription stops deliveries until ResumeSubscription.
func (c *Client) PauseSubscription(ctx context.Context, id string) (Subscription, error) {
	var s Subscription
	_, err := c.post(ctx, call{url: c.subscriptionPath(id, "pause")}, nil, &s)
	return s, err
}

// ResumeSubscription lets deliveries go on.
func (c *Client) ResumeSubscription(ctx context.Context, id string) (Subscription, error) {
	var s Subscription
	_, err := c.post(ctx, call{url: c.subscriptionPath(id, "resume")}, nil, &s)
	return s, err
}

// SeekSubscription moves the cursor: to "now", "earliest", a cursor or an RFC 3339 time.
func (c *Client) SeekSubscription(ctx context.Context, id, start string) (Subscription, error) {
	var s Subscription
	_, err := c.post(ctx, call{url: c.subscriptionPath(id, "seek")}, map[string]string{"start": start}, &s)
	return s, err
}

// Acknowledge moves the cursor of a stream subscription forward: everything up to it is dealt with.
func (c *Client) Acknowledge(ctx context.Context, id string, at event.Cursor) error {
	_, err := c.post(ctx, call{url: c.subscriptionPath(id, "ack")}, map[string]any{"cursor": at}, nil)
	return err
}

// SubscriptionLetter is a dead letter of a subscription: an event that it could not get rid of.
type SubscriptionLetter struct {
	Position event.Cursor    `json:"position"` // in the topic $dlq.<id>
	Topic    string          `json:"topic"`
	Cursor   event.Cursor    `json:"cursor"` // of the event where it was published
	Cause    string          `json:"cause"`
	Error    string          `json:"error,omitempty"`
	Attempts int             `json:"attempts"`
	Redrives int             `json:"redrives"`
	State    string          `json:"state"` // dead, or redriven while it is under way again
	Since    time.Time       `json:"since"`
	Event    json.RawMessage `json:"event"` // see event.DecodeDelivered
}

// LetterFilter selects dead letters; the zero value is all of them, but that quarantined ones are redriven only if
// they are named or asked for.
type LetterFilter struct {
	Positions []event.Cursor `json:"positions,omitempty"`
	Cause     string         `json:"cause,omitempty"`
	Topic     string         `json:"topic,omitempty"` // a name or pattern
	Type      string         `json:"type,omitempty"`
	Filter    string         `json:"filter,omitempty"` // an expression in CESQL
}

// DeadLetters returns the dead letters of a subscription, oldest first.
func (c *Client) DeadLetters(ctx context.Context, id string, f LetterFilter) (all []SubscriptionLetter, err error) {
	q := url.Values{}
	for name, value := range map[string]string{"cause": f.Cause, "topic": f.Topic, "type": f.Type, "filter": f.Filter} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for next := c.subscriptionPath(id, "dead-letters") + "?" + q.Encode(); next != ""; {
		var page []SubscriptionLetter
		_, header, err := c.do(ctx, call{method: http.MethodGet, url: next}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next = c.nextPage(header)
	}
	return all, nil
}

// Redrive has dead letters delivered again, to this subscription only. Progress, which may be nil, is told how many are
// under way so far, as long as there are more. It stops early, with full set, when as many events are pending as may be.
func (c *Client) Redrive(ctx context.Context, id string, f LetterFilter, progress func(moved int)) (moved int, full bool, err error) {
	return c.moveLetters(ctx, c.subscriptionPath(id, "redrive"), f, "", progress)
}

// Discard removes dead letters for good. The reason is logged.
func (c *Client) Discard(ctx context.Context, id string, f LetterFilter, reason string, progress func(moved int)) (moved int, err error) {
	moved, _, err = c.moveLetters(ctx, c.subscriptionPath(id, "discard"), f, reason, progress)
	return moved, err
}

// lettersPerCall keeps each call short, so that there is progress to show.
const lettersPerCall = 200

func (c *Client) moveLetters(ctx context.Context, path string, f LetterFilter, reason string, progress func(int)) (moved int, full bool, err error) {
	var after *event.Cursor
	for {
		body := struct {
			LetterFilter
			After  *event.Cursor `json:"after,omitempty"`
			Limit  int           `json:"limit"`
			Reason string        `json:"reason,omitempty"`
		}{f, after, lettersPerCall, reason}
		var answer struct {
			Redriven  int           `json:"redriven"`
			Discarded int           `json:"discarded"`
			Full      bool          `json:"full"`
			Next      *event.Cursor `json:"next"`
		}
		if _, err := c.post(ctx, call{url: path}, body, &answer); err != nil {
			return moved, false, err
		}
		moved += answer.Redriven + answer.Discarded
		if answer.Full || answer.Next == nil {
			return moved, answer.Full, nil
		}
		if progress != nil {
			progress(moved)
		}
		after = answer.Next
	}
}
