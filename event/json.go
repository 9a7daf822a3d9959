// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The decoder is jsontext's tokeniser with our rules for the envelope on top.
// It reads a 600-byte event in about half of the time that was allowed for it,
// duplicate names included, so there is no scanner of our own to get wrong.

// DecodeJSON reads one event in the JSON format from a producer. It refuses what
// only the broker may say: position, superseded, producer and signalbox types.
func DecodeJSON(b []byte) (*Event, error) { return decodeOne(b, fromProducer) }

// DecodeDelivered reads one event in the JSON format as the broker delivers it.
func DecodeDelivered(b []byte) (*Event, error) { return decodeOne(b, fromBroker) }

// DecodeBatch reads a batch in the JSON format (section 4) from a producer. It
// is all or nothing. A fault of one event is [CodeBatchAborted] with the facts
// index and cause, and has the fault as its Err.
func DecodeBatch(b []byte) ([]*Event, error) { return decodeMany(b, fromProducer, MaxBatch) }

// DecodeDeliveredBatch reads a batch as the broker answers it to a poll.
func DecodeDeliveredBatch(b []byte) ([]*Event, error) { return decodeMany(b, fromBroker, math.MaxInt) }

func decodeOne(b []byte, r rules) (*Event, error) {
	if tooMany(b) {
		return nil, membersFault()
	}
	s := getScratch()
	defer s.release()
	s.parse(b)
	e, err := s.readEvent(r)
	if err != nil {
		return nil, err
	}
	if !blank(b[s.dec.InputOffset():]) {
		return nil, Errorf(CodeJSONInvalid, "The body has text after the JSON object of the event.")
	}
	return e, nil
}

func decodeMany(b []byte, r rules, most int) ([]*Event, error) {
	if tooMany(b) {
		return nil, membersFault()
	}
	s := getScratch()
	defer s.release()
	s.parse(b)
	if s.dec.PeekKind() != jsontext.KindBeginArray {
		if _, err := s.dec.ReadToken(); err != nil {
			return nil, syntaxFault(err)
		}
		return nil, Errorf(CodeJSONInvalid, "A batch is a JSON array of events; send a single event as application/cloudevents+json.")
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return nil, syntaxFault(err)
	}
	// A batch of typical events needs no second allocation here.
	const typical = 512
	events := make([]*Event, 0, min(len(b)/typical+1, MaxBatch))
	for {
		kind := s.dec.PeekKind()
		if kind == jsontext.KindEndArray {
			break
		}
		if len(events) == most {
			return nil, Errorf(CodeBatchTooLarge, "The batch has more than %d events; split it.", most).Fact("limit", most)
		}
		e, err := s.readEvent(r)
		if err != nil {
			cause := AsError(err)
			aborted := Errorf(CodeBatchAborted, "The event at index %d was refused, so none was published: %s", len(events), cause.Message)
			aborted.Err = cause
			return nil, aborted.With(cause.Field).Fact("index", len(events)).Fact("cause", string(cause.Code))
		}
		events = append(events, e)
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return nil, syntaxFault(err)
	}
	if !blank(b[s.dec.InputOffset():]) {
		return nil, Errorf(CodeJSONInvalid, "The body has text after the JSON array of the batch.")
	}
	return events, nil
}

// readEvent reads the event that comes next in the input.
func (s *scratch) readEvent(r rules) (*Event, error) {
	s.begin()
	kind := s.dec.PeekKind()
	if _, err := s.dec.ReadToken(); err != nil {
		return nil, syntaxFault(err)
	}
	switch kind {
	case jsontext.KindBeginObject:
	case jsontext.KindBeginArray:
		return nil, Errorf(CodeJSONInvalid, "An event is a JSON object; send an array of events as application/cloudevents-batch+json.")
	default:
		return nil, Errorf(CodeJSONInvalid, "An event is a JSON object.")
	}
	var p payload
	for s.dec.PeekKind() != jsontext.KindEndObject {
		name, err := s.readValue()
		if err != nil {
			return nil, err
		}
		value, err := s.readValue()
		if err != nil {
			return nil, err
		}
		if err := s.addMember(name, value, &p); err != nil {
			return nil, err
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return nil, syntaxFault(err)
	}
	return s.assemble(r, p)
}

// readValue returns the place of the next value, or of the name of a member, in
// the input.
func (s *scratch) readValue() (span, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return span{}, syntaxFault(err)
	}
	end := int(s.dec.InputOffset())
	return span{start: end - len(v), end: end}, nil
}

// addMember takes one member of the JSON object.
func (s *scratch) addMember(quoted, value span, p *payload) error {
	raw := s.bytes(value)
	name := span{quoted.start + 1, quoted.end - 1, false}
	id := attrOf(s.bytes(name))
	if id == attrOther {
		name, _ = s.unquote(quoted)
		switch string(s.bytes(name)) {
		case nameData:
			return p.set(payloadJSON, raw)
		case nameDataBase64:
			return p.setBase64(raw)
		}
		id = attrOf(s.bytes(name)) // may have been written with escapes
	}
	if raw[0] == 'n' {
		// JSON format 2.2: null means unset. The name has to be one all the same.
		if fault := nameFault(s.bytes(name)); fault != "" {
			return invalid(s.bytes(name), fault)
		}
		return nil
	}
	m, err := s.next()
	if err != nil {
		return err
	}
	m.name, m.id, m.text = name, id, value
	s.settle(m)
	if raw[0] == '"' {
		m.text, m.plain = s.unquote(value)
		return nil
	}
	m.plain = true
	return s.setScalar(m, raw)
}

// setScalar takes a value that is not a string.
func (s *scratch) setScalar(m *member, raw []byte) error {
	switch raw[0] {
	case 't':
		m.kind, m.num = Boolean, 1
	case 'f':
		m.kind = Boolean
	case '{', '[':
		return invalid(s.bytes(m.name), "is an object or array; use a string, a boolean or an integer")
	default:
		n, err := strconv.ParseInt(string(raw), 10, 32) // refuses a fraction and an exponent
		if err != nil {
			return invalid(s.bytes(m.name), "is not an integer from -2147483648 to 2147483647 without fraction and exponent")
		}
		if n == 0 {
			m.text.start = m.text.end - 1 // JSON has a negative zero; the canonical string has not
		}
		m.kind, m.num = Integer, int32(n)
	}
	return nil
}

func (p *payload) setBase64(raw []byte) error {
	switch raw[0] {
	case 'n':
		return nil // JSON format 2.2: null means unset
	case '"':
		return p.set(payloadBase64, raw)
	}
	return Errorf(CodeEventInvalid, "The member data_base64 must be a JSON string.").With(nameDataBase64)
}

func (p *payload) set(form payloadForm, raw []byte) error {
	if p.form != payloadNone {
		// JSON format 3.1.1: the two members are mutually exclusive.
		return Errorf(CodeEventInvalid, "The event has both data and data_base64; send one.").With(nameDataBase64)
	}
	p.form, p.raw = form, raw
	return nil
}

// unquote finds the text of a valid JSON string, in place if it has no escapes,
// and reports whether it is sure to be printable ASCII.
func (s *scratch) unquote(quoted span) (text span, plain bool) {
	raw := s.bytes(quoted)
	text = span{quoted.start + 1, quoted.end - 1, quoted.kept}
	if plainASCII(raw) {
		return text, true
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return text, false
	}
	start := len(s.kept)
	s.kept, _ = jsontext.AppendUnquote(s.kept, raw) // cannot fail: the tokeniser took it
	return span{start, len(s.kept), true}, false
}

// syntaxFault turns an error of the tokeniser into one of ours: a name that is
// there twice is a fault of the event or of its data, the rest one of the JSON.
func syntaxFault(err error) *Error {
	duplicate, field, detail := explainSyntax(err)
	if !duplicate {
		return Errorf(CodeJSONInvalid, "The body is not valid JSON: %s.", detail)
	}
	if field == nameData {
		return Errorf(CodeDataInvalid, "The data is refused: %s.", detail).With(nameData)
	}
	return Errorf(CodeEventInvalid, "The event is refused: %s.", detail).With(field)
}

// explainSyntax gives the facts of an error of the tokeniser. The field is the
// member of the object at fault at the top, where a batch has its events.
func explainSyntax(err error) (duplicate bool, field, detail string) {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, "", "it is empty or ends too early"
		}
		return false, "", "it cannot be read"
	}
	offset := strconv.FormatInt(syntax.ByteOffset, 10)
	if errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
		return true, topField(syntax.JSONPointer), "the name " + strconv.Quote(clip(syntax.JSONPointer.LastToken())) + " is there twice in one object, at byte " + offset
	}
	if errors.Is(syntax.Err, io.ErrUnexpectedEOF) {
		return false, "", "it ends too early, at byte " + offset
	}
	return false, "", clip(syntax.Err.Error()) + " at byte " + offset
}

// topField is the first token of a pointer that is a name and not an index.
func topField(p jsontext.Pointer) string {
	for token := range p.Tokens() {
		if strings.Trim(token, "0123456789") != "" {
			return clip(token)
		}
	}
	return ""
}
