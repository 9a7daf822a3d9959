// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"

	"signalbox/event"
	"signalbox/internal/broker"
)

// handle takes a message, on the goroutine that listens.
func (v *socketVoice) handle(message []byte, held int) {
	r := &reply{held: held}
	var err error
	if v.plain {
		err = v.handleEvent(message, r)
	} else {
		err = v.handleMessage(message, r)
	}
	if err != nil {
		r.refused = event.AsError(err)
	} else if r.pending == nil { // an acknowledgement, which has no answer
		v.s.held.give(held)
		return
	}
	select {
	case v.replies <- r:
		v.nudge()
	case <-v.done:
		v.s.held.give(held)
	}
}

func (v *socketVoice) handleEvent(message []byte, r *reply) error {
	if v.topic == "" {
		return event.Errorf(event.CodeParameterInvalid, "The URL has several topics, so it is not clear for which the event is: send events to the URL of one.").With("topics")
	}
	e, err := event.DecodeJSON(message)
	if err != nil {
		v.s.broker.Refused(v.caller, v.topic, event.AsError(err))
		return err
	}
	r.subject = e
	return v.submit(broker.PublishRequest{Topic: v.topic, Events: []*event.Event{e}}, r)
}

func (v *socketVoice) handleMessage(message []byte, r *reply) error {
	m, err := decodeMessage(message)
	r.ref = m.ref
	switch {
	case err != nil:
		return err
	case m.op == "ack":
		return v.ack(m.cursor)
	}
	req, err := m.publish(v.topic)
	if err != nil {
		v.s.broker.Refused(v.caller, req.Topic, event.AsError(err))
		return err
	}
	return v.submit(req, r)
}

func (v *socketVoice) submit(req broker.PublishRequest, r *reply) (err error) {
	r.batch = req.Batch
	r.pending, err = v.s.broker.Submit(context.Background(), v.caller, req, v.notify)
	return err
}

// ack notes what the reader has done with: everything up to a cursor that it
// was told.
func (v *socketVoice) ack(text string) error {
	c, err := event.ParseCursor(text)
	if err != nil {
		return event.AsError(err).With("cursor")
	}
	if sent := v.sent.Load(); c.Position > sent || c.Incarnation != "" && c.Incarnation != v.s.broker.Head().Incarnation {
		return event.Errorf(event.CodeCursorInvalid, "The cursor %s is none that this socket has sent; its last was position %d.", c, sent).With("cursor")
	}
	if v.subscription != "" {
		// Who listens waits for it, so that a client is not faster than the disk.
		if _, err := v.s.broker.Acknowledge(context.Background(), v.caller, v.subscription, c); err != nil {
			return err
		}
	}
	if c.Position > v.acked.Load() {
		v.acked.Store(c.Position)
		v.nudge()
	}
	return nil
}
