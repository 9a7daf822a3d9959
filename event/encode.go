// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

// AppendJSON appends the event in the JSON format, with what the broker added to
// a delivered one.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = e.appendRequired(append(dst, '{'))
	for i := range e.attrs {
		if e.attrs[i].Name != nameDataContentType {
			dst = appendAttribute(dst, &e.attrs[i])
		}
	}
	dst, _, _ = e.appendData(dst)
	return dst
}

// AppendMembers appends the event in the JSON format from the first member to
// the closing brace, without the opening one, so that the broker can put what it
// knows later (position, hlc) in front of it without encoding again. It leaves
// out what the broker writes itself: hlc, expiry (which became expirytime),
// position, superseded and producer. Extra attributes take their places in the
// order and win over those of the event.
//
// The value of data or data_base64 is out[dataOffset:dataOffset+dataLen]; its
// length is zero if there is none.
func (e *Event) AppendMembers(dst []byte, extra ...Attribute) (out []byte, dataOffset, dataLen int) {
	dst = e.appendRequired(dst)
	if len(extra) > 1 {
		extra = slices.Clone(extra)
		slices.SortFunc(extra, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	}
	for i := range e.attrs {
		a := &e.attrs[i]
		for len(extra) > 0 && extra[0].Name < a.Name {
			dst, extra = appendAttribute(dst, &extra[0]), extra[1:]
		}
		if len(extra) > 0 && extra[0].Name == a.Name {
			continue // comes in its place in the next round, or after the loop
		}
		switch a.Name {
		case nameDataContentType, nameHLC, nameExpiry, namePosition, nameSuperseded, nameProducer, nameTopic:
			continue
		}
		dst = appendAttribute(dst, a)
	}
	for i := range extra {
		dst = appendAttribute(dst, &extra[i])
	}
	return e.appendData(dst)
}

func (e *Event) appendRequired(dst []byte) []byte {
	dst = appendString(append(dst, `"specversion":"1.0","id":`...), e.id)
	dst = appendString(append(dst, `,"source":`...), e.source)
	return appendString(append(dst, `,"type":`...), e.typ)
}

func appendAttribute(dst []byte, a *Attribute) []byte {
	dst = append(append(append(dst, `,"`...), a.Name...), `":`...) // names need no escapes
	if a.Value.kind == String {
		return appendString(dst, a.Value.text)
	}
	return append(dst, a.Value.text...)
}

// appendData ends the object with the content type and the data.
func (e *Event) appendData(dst []byte) (out []byte, offset, length int) {
	if contentType := e.DataContentType(); contentType != "" {
		dst = appendString(append(dst, `,"datacontenttype":`...), contentType)
	}
	switch e.dataKind {
	case NoData:
		return append(dst, '}'), 0, 0
	case JSONData:
		dst = append(dst, `,"data":`...)
		offset = len(dst)
		dst = append(dst, e.data...)
	case TextData:
		dst = append(dst, `,"data":`...)
		offset = len(dst)
		dst = appendString(dst, e.data)
	case BinaryData:
		dst = append(dst, `,"data_base64":`...)
		offset = len(dst)
		dst = append(base64.StdEncoding.AppendEncode(append(dst, '"'), e.data), '"')
	}
	length = len(dst) - offset
	return append(dst, '}'), offset, length
}

// appendString appends valid UTF-8 as a JSON string with no more escapes than
// RFC 8259 section 7 demands.
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}

// WireBytes is the size that limits apply to: the least that any mode of any
// binding could have carried the event in. Measured so, an event of 64 KiB on
// the wire passes a limit of 64 KiB (core, Size Limits), though the form that is
// stored may be longer, by base64 for instance.
func (e *Event) WireBytes() int {
	// A member of a JSON object costs at least four bytes beside its name and value:
	// two quotes, a colon and a comma. A header costs more.
	const overhead = 4
	n := len(nameSpecVersion+specVersion+nameID+nameSource+nameType) + 4*overhead +
		len(e.id) + len(e.source) + len(e.typ) + len(e.data)
	for i := range e.attrs {
		a := &e.attrs[i]
		if a.Name == nameDataContentType && a.Value.text == contentTypeJSON {
			continue // may have been implied by the JSON format and not sent
		}
		n += len(a.Name) + len(a.Value.text) + overhead
	}
	return n
}

// NeedsLineFold reports whether JSON has line breaks, which only data has that
// was received with them.
func NeedsLineFold(members []byte) bool {
	return bytes.IndexByte(members, '\n') >= 0 || bytes.IndexByte(members, '\r') >= 0
}

// FoldLines turns line breaks in JSON into spaces, in place, so that it fits the
// line of an SSE stream or of NDJSON. In valid JSON line breaks only stand between
// tokens, where any white space means the same.
func FoldLines(b []byte) {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
}
