// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/broker"
)

const (
	// refBytesMax stops references that would bloat the answers.
	refBytesMax = 64
	// messageBytesMax lets the largest batch pass with the members around it.
	messageBytesMax = batchBytesMax + 4<<10
)

// message is what a client says in the subprotocol signalbox.v1: an operation
// and its members, as docs/websocket.md lists them.
type message struct {
	op          string
	ref         string
	topic       string
	cursor      string
	idempotency []string // as header values, which have the same rules
	ifMatch     []string
	ifNoneMatch []string
	event       []byte // a part of the input
	events      []byte
}

// decodeMessage reads one message. Like a query, it is strict: every member
// known and given once, because one that is ignored would be taken for obeyed.
// An error comes beside what was read, so that its answer can have the ref.
func decodeMessage(b []byte) (m message, err error) {
	// Members are told apart here, and those of events by their own decoder, which
	// bounds how many it looks at.
	dec := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true))
	if dec.PeekKind() != jsontext.KindBeginObject {
		return m, event.Errorf(event.CodeJSONInvalid, "A message is a JSON object.")
	}
	if _, err := dec.ReadToken(); err != nil {
		return m, notJSON()
	}
	given := map[string]bool{}
	for dec.PeekKind() != jsontext.KindEndObject {
		token, err := dec.ReadToken()
		if err != nil {
			return m, notJSON()
		}
		name := token.String()
		if given[name] {
			return m, notJSON()
		}
		given[name] = true
		if err := m.readMember(dec, b, name); err != nil {
			return m, err
		}
	}
	if _, err := dec.ReadToken(); err != nil || len(bytes.TrimLeft(b[dec.InputOffset():], " \t\r\n")) > 0 {
		return m, notJSON()
	}
	return m, m.check()
}

func notJSON() error {
	return event.Errorf(event.CodeJSONInvalid, "The message is not one JSON object in UTF-8 with each member once and nothing after it.")
}

func (m *message) readMember(dec *jsontext.Decoder, b []byte, name string) error {
	switch name {
	case "op":
		return readText(dec, name, &m.op)
	case "ref":
		return readText(dec, name, &m.ref)
	case "topic":
		return readText(dec, name, &m.topic)
	case "cursor":
		return readText(dec, name, &m.cursor)
	case "idempotency_key":
		return readHeader(dec, name, &m.idempotency)
	case "if_match":
		return readHeader(dec, name, &m.ifMatch)
	case "if_none_match":
		return readHeader(dec, name, &m.ifNoneMatch)
	case "event":
		return readRaw(dec, b, &m.event)
	case "events":
		return readRaw(dec, b, &m.events)
	}
	return event.Errorf(event.CodeParameterInvalid, "The member %.40q is unknown; docs/websocket.md lists what a message may have.", name).With(name)
}

func readText(dec *jsontext.Decoder, name string, into *string) error {
	if dec.PeekKind() != jsontext.KindString {
		return event.Errorf(event.CodeParameterInvalid, "The member %s must be a string.", name).With(name)
	}
	token, err := dec.ReadToken()
	if err != nil {
		return notJSON()
	}
	*into = token.String()
	return nil
}

func readHeader(dec *jsontext.Decoder, name string, into *[]string) error {
	var text string
	err := readText(dec, name, &text)
	*into = []string{text}
	return err
}

// readRaw leaves a value for the decoder of events, which judges it.
func readRaw(dec *jsontext.Decoder, b []byte, into *[]byte) error {
	v, err := dec.ReadValue()
	if err != nil {
		return notJSON()
	}
	end := int(dec.InputOffset())
	*into = b[end-len(v) : end]
	return nil
}

// check holds the members against the operation.
func (m *message) check() error {
	switch {
	case len(m.ref) > refBytesMax:
		m.ref = ""
		return event.Errorf(event.CodeParameterInvalid, "A ref has %d bytes at most.", refBytesMax).With("ref")
	case m.op == "ack":
		if m.topic != "" || m.event != nil || m.events != nil || m.idempotency != nil || m.ifMatch != nil || m.ifNoneMatch != nil {
			return event.Errorf(event.CodeParameterInvalid, "An ack has op, cursor and perhaps ref.").With("op")
		}
		return nil
	case m.op != "publish":
		return event.Errorf(event.CodeParameterInvalid, "The op %.40q is unknown; there are publish and ack.", m.op).With("op")
	case m.ref == "":
		return event.Errorf(event.CodeParameterInvalid, "A publish needs a ref, by which you know its answer.").With("ref")
	case m.cursor != "":
		return event.Errorf(event.CodeParameterInvalid, "The member cursor belongs to an ack.").With("cursor")
	case (m.event == nil) == (m.events == nil):
		return event.Errorf(event.CodeParameterInvalid, "A publish has either event, one event, or events, a batch.").With("event")
	}
	return nil
}

// publish is the request that a publish asks for; topic is that of the URL.
func (m *message) publish(topic string) (req broker.PublishRequest, err error) {
	if req.Topic = m.topic; req.Topic == "" {
		req.Topic = topic
	}
	if req.Topic == "" {
		return req, event.Errorf(event.CodeParameterInvalid, "The URL has several topics: say in topic which one the event is for.").With("topic")
	}
	if req.IdempotencyKey, err = idempotencyKey(http.Header{"Idempotency-Key": m.idempotency}); err != nil {
		return req, err
	}
	if req.IfMatch, req.IfNoneMatch, err = preconditions(http.Header{"If-Match": m.ifMatch, "If-None-Match": m.ifNoneMatch}); err != nil {
		return req, err
	}
	if req.Batch = m.events != nil; req.Batch {
		req.Events, err = event.DecodeBatch(m.events)
		return req, err
	}
	e, err := event.DecodeJSON(m.event)
	req.Events = []*event.Event{e}
	return req, err
}
