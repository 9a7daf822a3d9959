// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/cesql"
)

// Record is an event as filters see it, with the attributes that it has on
// delivery. Reading an event takes as long as copying its attributes and does
// not touch data. It can be filled again and again; meanwhile it refers to what
// it was filled from.
type Record struct {
	event cesql.Event
	text  []byte // what is not in the members as it is
}

// Event returns what filters are evaluated on. It is valid until the record is
// filled again.
func (r *Record) Event() *cesql.Event { return &r.event }

// Reset empties the record, which then refers to nothing, and keeps its memory.
func (r *Record) Reset() { r.event.Reset() }

// Delivered is what the broker puts before the members of a stored event.
type Delivered struct {
	Topic      string
	Position   uint64
	HLC        event.HLC
	Superseded bool
}

// Fill reads an event from its members, as [event.Event.AppendMembers] writes
// them.
func (r *Record) Fill(d Delivered, members []byte) {
	r.event.Reset()
	r.text = r.text[:0]
	r.set("topic", cesql.TextValue(r.keep(append(r.text, d.Topic...))))
	if d.Position != 0 { // of an ephemeral topic
		r.set("position", cesql.TextValue(r.keep(strconv.AppendUint(r.text, d.Position, 10))))
	}
	r.set("hlc", cesql.TextValue(r.keep(d.HLC.AppendTo(r.text))))
	if d.Superseded {
		r.set("superseded", cesql.BooleanValue(true))
	}
	r.members(members)
}

// FillFrom reads an event that was decoded, such as one that somebody asks about.
func (r *Record) FillFrom(e *event.Event) {
	r.event.Reset()
	r.text = r.text[:0]
	r.members(e.AppendJSON(nil)[1:])
}

// FillDelivered reads an event from the JSON that is delivered, which has what
// the broker puts before the members.
func (r *Record) FillDelivered(json []byte) {
	r.event.Reset()
	r.text = r.text[:0]
	if len(json) > 1 {
		r.members(json[1:])
	}
}

// keep takes text that was appended to r.text and returns what was added.
func (r *Record) keep(appended []byte) []byte {
	added := appended[len(r.text):]
	r.text = appended
	return added
}

func (r *Record) set(name string, v cesql.Value) {
	r.event.Set(r.keep(append(r.text, name...)), v)
}

// members reads the members up to the data, which are the last one but for the
// closing brace. They were written by the broker, without white space; whatever
// else it may meet, it stops at.
func (r *Record) members(b []byte) {
	contentType := []byte(nil)
	for len(b) > 2 && b[0] == '"' {
		n := bytes.IndexByte(b[1:], '"')
		if n < 0 || n+3 >= len(b) || b[n+2] != ':' {
			return
		}
		name, rest := b[1:n+1], b[n+3:]
		switch string(name) {
		case "data":
			form := cesql.OtherData
			if isJSON(contentType) {
				form = cesql.JSONData
			}
			r.event.SetData(form, rest[:len(rest)-1])
			return
		case "data_base64":
			r.event.SetData(cesql.OtherData, rest[:len(rest)-1])
			return
		}
		end := valueEnd(rest)
		if end <= 0 || end >= len(rest) {
			return
		}
		v := r.value(rest[:end])
		if string(name) == "datacontenttype" {
			contentType = v.Text()
		}
		r.event.Set(name, v)
		b = rest[end+1:]
	}
}

// isJSON says what the member data is; without a content type it is JSON (JSON
// format 3.1.1).
func isJSON(contentType []byte) bool {
	return contentType == nil || string(contentType) == "application/json" || event.IsJSON(string(contentType))
}

// valueEnd returns the position after an attribute's value, which is no object
// or array.
func valueEnd(b []byte) int {
	if len(b) > 0 && b[0] == '"' {
		for i := 1; i < len(b); i++ {
			switch b[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return -1
	}
	return bytes.IndexAny(b, ",}")
}

func (r *Record) value(raw []byte) cesql.Value {
	if raw[0] == '"' {
		if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
			return cesql.TextValue(inner)
		}
		text, err := jsontext.AppendUnquote(r.text, raw)
		if err != nil {
			return cesql.Value{}
		}
		return cesql.TextValue(r.keep(text))
	}
	switch string(raw) {
	case "true":
		return cesql.BooleanValue(true)
	case "false":
		return cesql.BooleanValue(false)
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil {
		return cesql.Value{}
	}
	return cesql.IntegerValue(int32(n))
}
