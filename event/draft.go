// SPDX-License-Identifier: Apache-2.0

package event

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"
)

// Draft is an event that a Go program is about to publish.
type Draft struct {
	// ID identifies the event together with Source; empty draws a UUIDv7.
	ID string
	// Source and Type are required.
	Source, Type string
	// Subject, DataSchema and Time are left out if empty.
	Subject, DataSchema string
	Time                time.Time
	// DataContentType is the type of Data. Empty means application/json if Data is
	// a JSON text, else that nothing is known about it.
	DataContentType string
	// Extensions are further attributes: string, bool, int, int32 or int64 within
	// 32 bits.
	Extensions map[string]any
	// Data is copied; nil means that there is none, which differs from empty.
	Data []byte
}

// Event validates the draft by the rules for a producer.
func (d Draft) Event() (*Event, error) {
	s := getScratch()
	defer s.release()
	s.begin()
	if d.ID == "" {
		d.ID = newID(time.Now())
	}
	var p payload
	if d.Data != nil {
		p = payload{payloadBytes, d.Data}
		if d.DataContentType == "" && checkJSON(d.Data) == nil {
			d.DataContentType = contentTypeJSON
		}
	}
	stamp := ""
	if !d.Time.IsZero() {
		stamp = d.Time.UTC().Format(time.RFC3339Nano)
	}
	for _, a := range [...]struct {
		name, text string
		required   bool
	}{
		{nameSpecVersion, specVersion, true},
		{nameID, d.ID, true},
		{nameSource, d.Source, true},
		{nameType, d.Type, true},
		{nameSubject, d.Subject, false},
		{nameTime, stamp, false},
		{nameDataContentType, d.DataContentType, false},
		{attrNames[attrDataSchema], d.DataSchema, false},
	} {
		if a.required || a.text != "" {
			if err := s.addValue(a.name, StringValue(a.text)); err != nil {
				return nil, err
			}
		}
	}
	for name, v := range d.Extensions {
		if err := s.addExtension(name, v); err != nil {
			return nil, err
		}
	}
	return s.assemble(fromProducer, p)
}

func (s *scratch) addExtension(name string, v any) error {
	var n int64
	switch v := v.(type) {
	case string:
		return s.addValue(name, StringValue(v))
	case bool:
		return s.addValue(name, BooleanValue(v))
	case int:
		n = int64(v)
	case int32:
		n = int64(v)
	case int64:
		n = v
	default:
		return invalid(name, "is neither a string nor a bool nor an int; convert it to one")
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return invalid(name, "is outside the 32 bits of a CloudEvents Integer; send it as a string")
	}
	return s.addValue(name, IntegerValue(int32(n)))
}

// newID draws a UUIDv7 (RFC 9562 5.7): ids that sort by time keep the
// deduplication index local. It is written here because it is these lines.
func newID(now time.Time) string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails: the runtime ends the process first
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint32(u[0:], uint32(ms>>16))
	binary.BigEndian.PutUint16(u[4:], uint16(ms))
	u[6] = 0x70 | u[6]&0x0f // version 7
	u[8] = 0x80 | u[8]&0x3f // variant of RFC 9562
	text := make([]byte, 36)
	hex.Encode(text[0:], u[0:4])
	hex.Encode(text[9:], u[4:6])
	hex.Encode(text[14:], u[6:8])
	hex.Encode(text[19:], u[8:10])
	hex.Encode(text[24:], u[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text)
}
