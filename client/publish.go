// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"

	"signalbox/event"
)

// attrHLC is the attribute that carries a hybrid logical clock stamp.
const attrHLC = "hlc"

// PublishOption changes how one call publishes.
type PublishOption func(http.Header)

// IdempotencyKey names the request. A repeated request with the same key gets the first answer, word for word, even
// where the event ids differ. Events alone need no key: their source and id already make a repeat recognisable; what a
// key adds is that the first receipt comes back (superseded stays superseded) instead of "duplicate".
func IdempotencyKey(key string) PublishOption {
	return func(h http.Header) { h.Set("Idempotency-Key", key) }
}

// IfPosition publishes only while one of these positions is the state of the event's key (see [Client.Key]).
func IfPosition(positions ...uint64) PublishOption {
	tags := make([]string, len(positions))
	for i, p := range positions {
		tags[i] = `"` + event.Cursor{Position: p}.String() + `"`
	}
	return func(h http.Header) { h.Set("If-Match", strings.Join(tags, ", ")) }
}

// IfPresent publishes only while the event's key has a state.
func IfPresent() PublishOption { return func(h http.Header) { h.Set("If-Match", "*") } }

// IfAbsent publishes only while the event's key has no state: it never had one, or it expired or was deleted.
func IfAbsent() PublishOption { return func(h http.Header) { h.Set("If-None-Match", "*") } }

// Publish publishes one event. A draft without an id is given one, and one without an hlc is stamped with the client's
// clock, once: every try sends the same bytes.
//
// A failed precondition is an error with code conflict, see [ConflictPosition].
func (c *Client) Publish(ctx context.Context, topic string, d event.Draft, opts ...PublishOption) (event.Receipt, error) {
	ev, err := c.Prepare(d)
	if err != nil {
		return event.Receipt{}, err
	}
	return c.PublishEvent(ctx, topic, ev, opts...)
}

// Prepare does what Publish does before it sends anything: it gives the draft an id and a stamp and validates it. An
// agent that must survive its own crash stores the result and passes it to PublishEvent as often as needed.
func (c *Client) Prepare(d event.Draft) (*event.Event, error) {
	if _, stamped := d.Extensions[attrHLC]; !stamped && c.clock != nil {
		d.Extensions = maps.Clone(d.Extensions)
		if d.Extensions == nil {
			d.Extensions = make(map[string]any, 1)
		}
		d.Extensions[attrHLC] = c.clock.Stamp().String()
	}
	return d.Event()
}

// PublishEvent publishes a prepared event as it is; it adds no stamp.
func (c *Client) PublishEvent(ctx context.Context, topic string, ev *event.Event, opts ...PublishOption) (event.Receipt, error) {
	var r event.Receipt
	err := c.publish(ctx, topic, "application/cloudevents+json", appendPublished(nil, ev), opts, &r)
	if err != nil {
		return event.Receipt{}, err
	}
	c.observe(r.HLC)
	return r, nil
}

// PublishBatch publishes events as one atomic batch of at most 1,000: all or none. The receipts are in the order of the
// events. Prepare makes the events from drafts.
func (c *Client) PublishBatch(ctx context.Context, topic string, evs []*event.Event, opts ...PublishOption) ([]event.Receipt, error) {
	body := []byte{'['}
	for i, ev := range evs {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendPublished(body, ev)
	}
	body = append(body, ']')
	var rs []event.Receipt
	if err := c.publish(ctx, topic, "application/cloudevents-batch+json", body, opts, &rs); err != nil {
		return nil, err
	}
	for _, r := range rs {
		c.observe(r.HLC)
	}
	return rs, nil
}

func (c *Client) publish(ctx context.Context, topic, contentType string, body []byte, opts []PublishOption, into any) error {
	h := http.Header{"Content-Type": {contentType}}
	for _, o := range opts {
		o(h)
	}
	_, _, err := c.do(ctx, call{method: http.MethodPost, url: c.topicPath(topic, "events"), header: h, body: body}, into)
	return err
}

// ConflictPosition tells a failed precondition from other errors. It returns the position that is now the state of the
// key, 0 when the key has none.
func ConflictPosition(err error) (position uint64, conflict bool) {
	var e *event.Error
	if !errors.As(err, &e) || e.Code != event.CodeConflict {
		return 0, false
	}
	etag, _ := e.Facts["etag"].(string)
	cur, err := event.ParseCursor(strings.Trim(etag, `"`))
	if err != nil {
		return 0, true
	}
	return cur.Position, true
}

// appendPublished appends an event in the JSON format. Of an event that was read from a broker it leaves out what only a
// broker may say (position, superseded, producer), so that an agent can pass on what it received.
func appendPublished(dst []byte, ev *event.Event) []byte {
	var own [2]event.Attribute
	n := 0
	for _, name := range []string{"expiry", attrHLC} {
		if v, ok := ev.Attribute(name); ok {
			own[n] = event.Attribute{Name: name, Value: v}
			n++
		}
	}
	dst, _, _ = ev.AppendMembers(append(dst, '{'), own[:n]...)
	return dst
}
