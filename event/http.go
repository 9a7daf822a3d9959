// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mode is how HTTP carries events (HTTP binding 1.3).
type Mode uint8

// The content modes.
const (
	Binary     Mode = iota // attributes in headers, data in the body
	Structured             // one event in the body
	Batch                  // several events in the body
)

// DetectMode tells the mode from a Content-Type (HTTP binding 3). What claims to
// be an event format that is not understood, or JSON in another charset than
// UTF-8, is [CodeMediaTypeUnsupported] rather than guessed at.
func DetectMode(contentType string) (Mode, error) {
	if contentType == "" || contentType == contentTypeJSON {
		return Binary, nil
	}
	m, ok := parseMediaType(contentType)
	if !ok {
		// Also what cannot be parsed is seen by its prefix, so that a mangled
		// structured event is not taken for the data of a binary one.
		essence, _, _ := strings.Cut(contentType, ";")
		m.main, m.sub, _ = strings.Cut(strings.ToLower(strings.TrimSpace(essence)), "/")
	}
	if !strings.EqualFold(m.main, "application") {
		return Binary, nil
	}
	name, format, _ := strings.Cut(strings.ToLower(m.sub), "+")
	mode := Structured
	switch name {
	case "cloudevents":
	case "cloudevents-batch":
		mode = Batch
	default:
		return Binary, nil
	}
	if !ok || format != "json" || !m.readable() {
		return 0, Errorf(CodeMediaTypeUnsupported, "The media type %q is not understood; send application/cloudevents+json or application/cloudevents-batch+json in UTF-8.", clip(contentType)).With(headerContentType)
	}
	return mode, nil
}

// headerPrefix begins the headers of attributes (HTTP binding 3.1.3.1).
const headerPrefix = "ce-"

const headerContentType = "Content-Type"

// DecodeBinary reads an event in binary mode from a producer. An empty body is
// no data. Without a Content-Type data is bytes of no known type. Header names
// may be in any case, so that other transports can use it too.
func DecodeBinary(h http.Header, body []byte) (*Event, error) {
	return decodeBinary(h, body, fromProducer)
}

// DecodeDeliveredBinary is [DecodeBinary] for events from the broker, which have
// its attributes.
func DecodeDeliveredBinary(h http.Header, body []byte) (*Event, error) {
	return decodeBinary(h, body, fromBroker)
}

func decodeBinary(h http.Header, body []byte, r rules) (*Event, error) {
	s := getScratch()
	defer s.release()
	s.begin()
	for key, values := range h {
		var err error
		switch {
		case len(key) >= len(headerPrefix) && strings.EqualFold(key[:len(headerPrefix)], headerPrefix):
			err = s.addHeader(key, values)
		case strings.EqualFold(key, headerContentType):
			err = s.addContentType(values)
		}
		if err != nil {
			return nil, err
		}
	}
	var p payload
	if len(body) > 0 {
		p = payload{payloadBytes, body}
	}
	return s.assemble(r, p)
}

// addContentType takes the content type, which is the datacontenttype (HTTP
// binding 3.1.1) as it stands: a media type is not percent-encoded.
func (s *scratch) addContentType(values []string) error {
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return nil
	case len(values) > 1:
		return Errorf(CodeHeaderInvalid, "The header Content-Type is there %d times; send it once.", len(values)).With(headerContentType)
	}
	if _, ok := parseMediaType(values[0]); !ok {
		return Errorf(CodeHeaderInvalid, "The Content-Type %q is not a media type.", clip(values[0])).With(headerContentType)
	}
	return s.addValue(nameDataContentType, StringValue(values[0]))
}

// addHeader takes one ce- header.
func (s *scratch) addHeader(key string, values []string) error {
	if len(values) != 1 {
		return Errorf(CodeHeaderInvalid, "The header %s is there %d times; send it once.", clip(key), len(values)).With(clip(key))
	}
	name := s.keep(key[len(headerPrefix):])
	folded := s.bytes(name)
	for i, c := range folded {
		// Header names fold case (RFC 9110 5.1), attribute names do not.
		if 'A' <= c && c <= 'Z' {
			folded[i] = c | 0x20
		}
	}
	id := attrOf(folded)
	if id == attrDataContentType {
		// HTTP binding 3.1.1: MUST NOT be present.
		return Errorf(CodeHeaderInvalid, "The header ce-datacontenttype is not allowed; the content type is in Content-Type.").With(clip(key))
	}
	text, fault := s.headerValue(values[0])
	if fault != "" {
		return Errorf(CodeHeaderInvalid, "The header %s %s.", clip(key), fault).With(clip(key))
	}
	m, err := s.next()
	if err != nil {
		return err
	}
	m.name, m.id, m.text = name, id, text
	s.settle(m)
	return nil
}

// headerValue decodes a header value (HTTP binding 3.1.3.2): a quoted string is
// unquoted, then there is exactly one round of percent-decoding. A conforming
// sender encodes space, quote, percent and all that is not ASCII. Of what others
// send, plain spaces and plain UTF-8 have one meaning and are taken; a percent
// sign that encodes nothing, and a quote in the middle, have not.
func (s *scratch) headerValue(v string) (place span, fault string) {
	place = s.keep(v)
	text := s.bytes(place)
	if bytes.IndexByte(text, '"') >= 0 {
		var ok bool
		if text, ok = unquoteHeader(text); !ok {
			return span{}, "has a quotation mark that does not enclose the whole value; send it as %22"
		}
	}
	text, ok := unpercent(text)
	if !ok {
		return span{}, "has a % that is not followed by two hexadecimal digits; send it as %25"
	}
	if !utf8.Valid(text) {
		return span{}, "is not UTF-8 after percent-decoding"
	}
	// Decoding made the text shorter, in its place.
	return span{place.start, place.start + len(text), true}, ""
}

// unquoteHeader decodes a quoted-string (RFC 9110 5.6.4) in place.
func unquoteHeader(b []byte) ([]byte, bool) {
	if b[0] != '"' {
		return nil, false
	}
	out := b[:0]
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			return out, i == len(b)-1
		case '\\':
			if i++; i == len(b) {
				return nil, false
			}
		}
		out = append(out, b[i])
	}
	return nil, false
}

// unpercent does one round of percent-decoding in place.
func unpercent(b []byte) ([]byte, bool) {
	first := bytes.IndexByte(b, '%')
	if first < 0 {
		return b, true
	}
	out := b[:first]
	for i := first; i < len(b); i++ {
		c := b[i]
		if c == '%' {
			if i+2 >= len(b) || unhex(b[i+1]) < 0 || unhex(b[i+2]) < 0 {
				return nil, false
			}
			c = byte(unhex(b[i+1])<<4 | unhex(b[i+2]))
			i += 2
		}
		out = append(out, c)
	}
	return out, true
}

// EncodeBinary sets the headers of binary mode and returns the body.
func (e *Event) EncodeBinary(h http.Header) (body []byte) {
	set := func(name, value string) {
		h[canonicalHeader(name)] = []string{escapeHeader(value)}
	}
	set(nameSpecVersion, specVersion)
	set(nameID, e.id)
	set(nameSource, e.source)
	set(nameType, e.typ)
	for i := range e.attrs {
		a := &e.attrs[i]
		if a.Name == nameDataContentType {
			h[headerContentType] = []string{a.Value.text}
			continue
		}
		set(a.Name, a.Value.text)
	}
	return e.data
}

// canonicalHeader is the key under which http.Header finds "ce-name".
func canonicalHeader(name string) string {
	b := append(make([]byte, 0, len(headerPrefix)+len(name)), "Ce-"...)
	b = append(b, name...)
	if c := b[len(headerPrefix)]; 'a' <= c && c <= 'z' {
		b[len(headerPrefix)] = c - ('a' - 'A')
	}
	return string(b)
}

// escapeHeader percent-encodes as HTTP binding 3.1.3.2 demands, with upper-case digits.
func escapeHeader(v string) string {
	plain := func(c byte) bool { return c > 0x20 && c < 0x7f && c != '"' && c != '%' }
	if !slices.ContainsFunc([]byte(v), func(c byte) bool { return !plain(c) }) {
		return v
	}
	const hex = "0123456789ABCDEF"
	var b bytes.Buffer
	for i := 0; i < len(v); i++ {
		if c := v[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
