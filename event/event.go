// SPDX-License-Identifier: Apache-2.0

package event

import (
	"slices"
	"time"
)

// DataKind says how the data of an event is carried in JSON.
type DataKind uint8

// The kinds of data.
const (
	NoData     DataKind = iota // there is none, which differs from empty data and from null
	JSONData                   // a JSON text, under "data" as it is
	TextData                   // UTF-8 text, under "data" as a JSON string
	BinaryData                 // bytes, under "data_base64"
)

// Event is a valid CloudEvents 1.0 event that cannot be changed. It is safe for
// concurrent use. It holds on to none of the memory it was decoded from.
type Event struct {
	id, source, typ string
	attrs           []Attribute // sorted by name; all but specversion, id, source and type
	data            []byte
	hlc             HLC
	position        uint64
	dataKind        DataKind
	superseded      bool
}

// ID returns the id, which together with the source identifies the event.
func (e *Event) ID() string { return e.id }

// Source returns the source.
func (e *Event) Source() string { return e.source }

// Type returns the type.
func (e *Event) Type() string { return e.typ }

// Attributes returns all attributes but specversion, id, source and type,
// sorted by name. The caller must not change the slice.
func (e *Event) Attributes() []Attribute { return e.attrs }

// Attribute looks an attribute up by name, the four required ones included.
func (e *Event) Attribute(name string) (Value, bool) {
	for i := range e.attrs {
		if e.attrs[i].Name == name {
			return e.attrs[i].Value, true
		}
	}
	switch name {
	case nameID:
		return StringValue(e.id), true
	case nameSource:
		return StringValue(e.source), true
	case nameType:
		return StringValue(e.typ), true
	case nameSpecVersion:
		return StringValue(specVersion), true
	}
	return Value{}, false
}

func (e *Event) text(name string) string {
	v, _ := e.Attribute(name)
	return v.text
}

// Data returns the data as received; nil means that there is none. The caller
// must not change it.
func (e *Event) Data() []byte { return e.data }

// DataKind says how the data is carried in JSON.
func (e *Event) DataKind() DataKind { return e.dataKind }

// DataContentType returns the datacontenttype, or "".
func (e *Event) DataContentType() string { return e.text(nameDataContentType) }

// Subject returns the subject, or "".
func (e *Event) Subject() string { return e.text(nameSubject) }

// Partitionkey returns the partitionkey, or "".
func (e *Event) Partitionkey() string { return e.text(namePartitionKey) }

// Key returns the entity that the event is about as its attributes give it: the
// partitionkey, else the subject. Neither can be empty. A topic's key_from is
// applied by the broker, with [LookupJSON].
func (e *Event) Key() (string, bool) {
	if v, ok := e.Attribute(namePartitionKey); ok {
		return v.text, true
	}
	v, ok := e.Attribute(nameSubject)
	return v.text, ok
}

// Time returns the time attribute.
func (e *Event) Time() (time.Time, bool) { return e.timestamp(nameTime) }

// ExpiryTime returns the expirytime attribute.
func (e *Event) ExpiryTime() (time.Time, bool) { return e.timestamp(nameExpiryTime) }

// Expiry returns the relative expiry in seconds, from 1; 0 means that there is none.
func (e *Event) Expiry() int32 {
	v, _ := e.Attribute(nameExpiry)
	return v.Int()
}

func (e *Event) timestamp(name string) (time.Time, bool) {
	v, ok := e.Attribute(name)
	if !ok {
		return time.Time{}, false
	}
	return parseTimestamp(v.text)
}

// HLC returns the stamp that the event carries, or 0.
func (e *Event) HLC() HLC { return e.hlc }

// Position returns the position of a delivered event, or 0.
func (e *Event) Position() uint64 { return e.position }

// Topic returns the topic that an event was delivered from; "" before that.
func (e *Event) Topic() string {
	v, _ := e.Attribute(nameTopic)
	return v.String()
}

// Superseded reports whether a newer HLC had already won when the event was applied.
func (e *Event) Superseded() bool { return e.superseded }

// Equal reports whether two events have the same attributes, of the same kinds,
// and the same data of the same kind.
func (e *Event) Equal(f *Event) bool {
	return e.id == f.id && e.source == f.source && e.typ == f.typ && e.dataKind == f.dataKind &&
		slices.Equal(e.attrs, f.attrs) && string(e.data) == string(f.data)
}
