// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"encoding/base64"

	"github.com/go-json-experiment/json/jsontext"
)

// setData checks the datacontenttype, decides what kind of data the payload is
// and copies it.
func (e *Event) setData(p payload, contentType string) error {
	var m mediaType
	if contentType != "" {
		var ok bool
		if m, ok = parseMediaType(contentType); !ok {
			return invalid(nameDataContentType, "is not a media type (RFC 2046)")
		}
	}
	switch p.form {
	case payloadNone:
		return nil
	case payloadJSON:
		return e.setMember(p.raw, m)
	case payloadBase64:
		return e.setBase64(p.raw, m)
	}
	switch {
	case m.isJSON():
		if err := checkJSON(p.raw); err != nil {
			return err
		}
		e.dataKind = JSONData
	case m.isText(p.raw):
		e.dataKind = TextData
	default:
		// Without a content type nothing is guessed.
		e.dataKind = BinaryData
	}
	e.data = append(make([]byte, 0, len(p.raw)), p.raw...) // not nil, even if empty
	return nil
}

// setMember takes the member "data" (JSON format 3.1.2).
func (e *Event) setMember(raw []byte, m mediaType) error {
	if m.isJSON() {
		if tooDeep(raw) {
			return nestingFault()
		}
		e.dataKind, e.data = JSONData, bytes.Clone(raw)
		return nil
	}
	if raw[0] != '"' {
		return Errorf(CodeDataInvalid, "The datacontenttype is not JSON, so data must be a JSON string; or send data_base64.").With(nameData)
	}
	text, err := jsontext.AppendUnquote(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return Errorf(CodeDataInvalid, "The data is not a valid JSON string: %w", err).With(nameData)
	}
	// A JSON string is Unicode. Under another charset its bytes would leave in
	// binary mode with a label that lies about them.
	if !m.fits(text) {
		return Errorf(CodeDataInvalid, "The datacontenttype declares a charset that the data is not in; send data_base64, or declare utf-8.").With(nameData)
	}
	e.dataKind, e.data = TextData, text
	return nil
}

// setBase64 takes the member "data_base64" (RFC 4648 section 4, with padding).
func (e *Event) setBase64(raw []byte, m mediaType) error {
	fault := func() *Error {
		return Errorf(CodeDataInvalid, "The data_base64 is not base64 with padding (RFC 4648 section 4).").With(nameDataBase64)
	}
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		var err error
		if text, err = jsontext.AppendUnquote(nil, raw); err != nil {
			return fault()
		}
	}
	// The decoder of the standard library skips line breaks; the format has none.
	if bytes.ContainsAny(text, "\r\n") {
		return fault()
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil {
		return fault()
	}
	e.dataKind, e.data = BinaryData, data[:n]
	if m.isJSON() {
		if err := checkJSON(e.data); err != nil {
			return err
		}
		e.dataKind = JSONData
	}
	return nil
}

// checkJSON reports whether b is one JSON text that is valid UTF-8, has no
// duplicate names and is not too deep.
func checkJSON(b []byte) error {
	if tooMany(b) {
		return membersFault()
	}
	s := getScratch()
	defer s.release()
	s.parse(b)
	_, err := s.dec.ReadValue()
	if err != nil {
		_, _, detail := explainSyntax(err)
		return Errorf(CodeDataInvalid, "The datacontenttype is JSON but the data is not valid JSON: %s.", detail).With(nameData)
	}
	if !blank(b[s.dec.InputOffset():]) {
		return Errorf(CodeDataInvalid, "The data has text after its JSON value.").With(nameData)
	}
	if tooDeep(b) {
		return nestingFault()
	}
	return nil
}

func nestingFault() *Error {
	return Errorf(CodeDataInvalid, "The data is nested deeper than %d levels.", MaxNesting).With(nameData)
}

// tooDeep reports whether valid JSON is nested beyond [MaxNesting]. Data with
// few brackets, which is nearly all data, is settled by counting them.
func tooDeep(b []byte) bool {
	if bytes.Count(b, []byte("{"))+bytes.Count(b, []byte("[")) <= MaxNesting {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxNesting {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func membersFault() *Error {
	return Errorf(CodeDataInvalid, "The data has an object with more than %d members, with those of the objects around it.", MaxMembers).With(nameData)
}

// tooMany reports whether JSON, which may be invalid, has objects open at one
// time with more than [MaxMembers] members seen. What has few colons, which is
// nearly everything, is settled by counting them.
func tooMany(b []byte) bool {
	if bytes.Count(b, []byte(":")) <= MaxMembers {
		return false
	}
	const deepest = 10_000 // the tokeniser's own limit; beyond it the scan need not be exact
	var counts []int       // members seen of each open object or array
	open, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if len(counts) == deepest {
				return true
			}
			counts = append(counts, 0)
		case len(counts) == 0:
		case c == '}' || c == ']':
			open -= counts[len(counts)-1]
			counts = counts[:len(counts)-1]
		case c == ':':
			counts[len(counts)-1]++
			if open++; open > MaxMembers {
				return true
			}
		}
	}
	return false
}

// blank reports whether b is JSON white space only.
func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}
