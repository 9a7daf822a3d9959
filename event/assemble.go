// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"math"
	"strings"
)

// Every way to an Event (JSON, headers, a Draft) collects its attributes as
// members in a scratch and ends in assemble, so that there is one place where
// validity is decided and one where memory is allocated: the Event, its
// attributes, one string for all their text, and its data.

// rules says whose event it is.
type rules uint8

const (
	fromProducer rules = iota // what the broker adds is refused
	fromBroker                // what the broker adds is read
)

// assemble validates the members and makes the event.
func (s *scratch) assemble(r rules, p payload) (*Event, error) {
	if p.form == payloadJSON && !s.hasType {
		// JSON format 3.1.2: proceed as if it were application/json, and say so when
		// converting. Saying it at once makes all modes hash the same.
		if err := s.addValue(nameDataContentType, StringValue(contentTypeJSON)); err != nil {
			return nil, err
		}
	}
	s.sort()
	e := &Event{}
	var seen [len(attrNames)]bool
	for i, at := range s.order {
		m := &s.members[at]
		if i > 0 && s.compare(m, &s.members[s.order[i-1]]) == 0 {
			return nil, invalid(s.bytes(m.name), "is there more than once")
		}
		if err := s.check(e, m, r); err != nil {
			return nil, err
		}
		seen[m.id] = true
	}
	for _, id := range [...]attrID{attrSpecVersion, attrIdent, attrSource, attrType} {
		if !seen[id] {
			return nil, Errorf(CodeEventInvalid, "The event has no %s; every event needs specversion, id, source and type.", attrNames[id]).With(attrNames[id])
		}
	}
	if err := e.setData(p, s.build(e)); err != nil {
		return nil, err
	}
	return e, nil
}

// build copies the members into e and returns the datacontenttype.
func (s *scratch) build(e *Event) (contentType string) {
	size := 0
	for i := range s.members {
		m := &s.members[i]
		if m.id == attrOther {
			size += m.name.end - m.name.start
		}
		size += m.text.end - m.text.start
	}
	var arena strings.Builder
	arena.Grow(size)
	// The four required attributes are fields of the event.
	e.attrs = make([]Attribute, 0, len(s.members)-4)
	for _, at := range s.order {
		m := &s.members[at]
		start := arena.Len()
		arena.Write(s.bytes(m.text))
		text := arena.String()[start:]
		name := attrNames[m.id]
		switch m.id {
		case attrSpecVersion:
			continue
		case attrIdent:
			e.id = text
			continue
		case attrSource:
			e.source = text
			continue
		case attrType:
			e.typ = text
			continue
		case attrDataContentType:
			contentType = text
		case attrOther:
			start = arena.Len()
			arena.Write(s.bytes(m.name))
			name = arena.String()[start:]
		}
		e.attrs = append(e.attrs, Attribute{name, Value{text, m.num, m.kind}})
	}
	return contentType
}

// invalid is a fault of one attribute.
func invalid[T string | []byte](name T, fault string) *Error {
	n := clip(string(name))
	return Errorf(CodeEventInvalid, "The attribute %q %s.", n, fault).With(n)
}

// check validates one attribute and notes in e what the broker reads of it.
func (s *scratch) check(e *Event, m *member, r rules) error {
	text := s.bytes(m.text)
	if m.id == attrOther {
		if fault := nameFault(s.bytes(m.name)); fault != "" {
			return invalid(s.bytes(m.name), fault)
		}
	}
	if len(text) > MaxAttributeBytes {
		return invalid(s.bytes(m.name), "is longer than 64 KiB; put what is not metadata into data")
	}
	if !m.plain {
		if fault := textFault(text); fault != "" {
			return invalid(s.bytes(m.name), fault)
		}
	}
	switch {
	case m.id == attrOther && isLetterName(s.bytes(m.name)):
		return reserved(string(s.bytes(m.name)), r)
	case m.id == attrOther:
		return nil
	case m.id == attrSuperseded || m.id == attrExpiry:
		return e.checkTyped(m, text, r)
	case m.kind != String:
		return invalid(s.bytes(m.name), "must be a string")
	}
	return e.checkString(m.id, text, r)
}

// checkString validates the known attributes that are strings.
func (e *Event) checkString(id attrID, text []byte, r rules) error {
	name := attrNames[id]
	// Core: the required attributes and subject MUST be non-empty; so do the
	// extensions say of partitionkey, correlationid and causationid.
	if len(text) == 0 && id < attrTraceParent {
		return invalid(name, "is empty")
	}
	switch id {
	case attrSpecVersion:
		if string(text) != specVersion {
			return invalid(name, `must be "1.0"`)
		}
	case attrIdent:
		if looksLikeCursor(text) {
			return Errorf(CodeIDReserved, "The id %q looks like a cursor; use an id that does not begin with @ and a digit.", clip(string(text))).With(nameID)
		}
	case attrSource, attrDataRef:
		if !isURIReference(text) {
			return invalid(name, "is not a URI-reference (RFC 3986)")
		}
	case attrType:
		// Those of ticket messages are judged where it is known which topic they are for.
		if r == fromProducer && bytes.HasPrefix(text, []byte("signalbox.")) && !bytes.HasPrefix(text, []byte("signalbox.ticket.")) {
			return Errorf(CodeAttributeReserved, "Types that begin with signalbox. belong to the broker; use another type.").With(nameType)
		}
	case attrTime, attrRecordedTime:
		if _, ok := parseTimestamp(text); !ok {
			return invalid(name, "is not an RFC 3339 time such as 2026-01-31T12:00:00Z")
		}
	case attrExpiryTime:
		if _, ok := parseTimestamp(text); !ok {
			return Errorf(CodeExpiryInvalid, "The expirytime %q is not an RFC 3339 time such as 2026-01-31T12:00:00Z.", clip(string(text))).With(nameExpiryTime)
		}
	case attrDataSchema:
		if !isAbsoluteURI(text) {
			return invalid(name, "is not an absolute URI (RFC 3986 section 4.3, which has no fragment)")
		}
	case attrHLC:
		if e.hlc = parseHLC(text); e.hlc == 0 {
			_, err := ParseHLC(string(text))
			return err
		}
	case attrPosition:
		n, ok := parseDigits(text, math.MaxUint64)
		if r == fromBroker && (!ok || n == 0) {
			return invalid(name, "is not a position")
		}
		e.position = n
		return reserved(name, r)
	case attrProducer, attrTopic:
		return reserved(name, r)
	}
	return nil
}

// checkTyped validates the known attributes that are not strings.
func (e *Event) checkTyped(m *member, text []byte, r rules) error {
	if m.id == attrSuperseded {
		if string(text) != "true" && string(text) != "false" {
			return invalid(nameSuperseded, "must be a boolean")
		}
		// Binary mode carries the canonical string (HTTP binding 3.1.3.2).
		m.kind, m.num = Boolean, 0
		if e.superseded = string(text) == "true"; e.superseded {
			m.num = 1
		}
		return reserved(nameSuperseded, r)
	}
	n, ok := parseDigits(text, MaxExpirySeconds)
	if !ok || n == 0 {
		return Errorf(CodeExpiryInvalid, "The expiry %q is not a number of whole seconds from 1 to %d.", clip(string(text)), MaxExpirySeconds).With(nameExpiry)
	}
	m.kind, m.num = Integer, int32(n)
	return nil
}

// isLetterName tells the attributes that say why an event is a dead letter.
func isLetterName(name []byte) bool {
	rest, ok := bytes.CutPrefix(name, []byte("dlq"))
	if !ok {
		return false
	}
	switch string(rest) {
	case "cause", "attempts", "topic", "position", "error":
		return true
	}
	return false
}

func reserved(name string, r rules) error {
	if r == fromBroker {
		return nil
	}
	return Errorf(CodeAttributeReserved, "The attribute %s is set by the broker on delivery; leave it out.", name).With(name)
}
