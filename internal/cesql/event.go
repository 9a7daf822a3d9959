// SPDX-License-Identifier: Apache-2.0

package cesql

// The attributes that have a slot of their own: those of the core and those by
// which most readers choose. All others are searched for by name.
const (
	slotID = iota
	slotSource
	slotType
	slotSubject
	slotTopic
	slotTime
	slotSpecVersion
	slotDataContentType
	slotDataSchema
	slotPartitionKey
	slots
	noSlot = -1
)

func slotOf[T string | []byte](name T) int {
	switch string(name) {
	case "id":
		return slotID
	case "source":
		return slotSource
	case "type":
		return slotType
	case "subject":
		return slotSubject
	case "topic":
		return slotTopic
	case "time":
		return slotTime
	case "specversion":
		return slotSpecVersion
	case "datacontenttype":
		return slotDataContentType
	case "dataschema":
		return slotDataSchema
	case "partitionkey":
		return slotPartitionKey
	}
	return noSlot
}

// DataForm says what the data of an event is to an expression.
type DataForm uint8

// The forms of data.
const (
	NoData    DataForm = iota // there is none
	JSONData                  // a JSON text
	OtherData                 // there is some, into which no path leads
)

// Event is what expressions are evaluated on. It refers to the memory of what
// it was filled with, which must not change meanwhile. Once it is filled, any
// number of machines may use it at the same time.
type Event struct {
	fixed [slots]Value
	extra []extra
	data  []byte
	form  DataForm
}

type extra struct {
	name  []byte
	value Value
}

// Reset empties the event, and keeps its memory.
func (e *Event) Reset() {
	clear(e.extra)
	*e = Event{extra: e.extra[:0]}
}

// Set sets an attribute that was not set yet. The event keeps name.
func (e *Event) Set(name []byte, v Value) {
	if slot := slotOf(name); slot != noSlot {
		e.fixed[slot] = v
		return
	}
	e.extra = append(e.extra, extra{name, v})
}

// SetData sets the data. JSON data should be valid and have no name twice in an
// object; of two the first counts, and what is malformed is a GenericError where
// it is met.
func (e *Event) SetData(form DataForm, data []byte) { e.form, e.data = form, data }

// Attribute is an attribute's name, made for looking it up in many events.
type Attribute struct {
	name string
	slot int
}

// NewAttribute returns the attribute of a name, which is in lower case.
func NewAttribute(name string) Attribute { return Attribute{name, slotOf(name)} }

// Name returns the name.
func (a Attribute) Name() string { return a.name }

// Lookup returns the value of an attribute; it is Absent if there is none.
func (e *Event) Lookup(a Attribute) Value { return *e.find(&a) }

func (e *Event) find(a *Attribute) *Value {
	if a.slot >= 0 {
		return &e.fixed[a.slot]
	}
	for i := range e.extra {
		if string(e.extra[i].name) == a.name {
			return &e.extra[i].value
		}
	}
	return &absent
}

var absent = Value{}
