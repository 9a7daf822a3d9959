// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Selection says which members of a delivered event its reader wants. What
// makes it an event (specversion, id, source, type) and its place (position,
// topic, hlc) always stay. The zero value selects everything.
type Selection struct {
	attributes map[string]bool // nil: everything
	whole      bool            // all of data
	data       *branch         // parts of data
}

// branch is the members of an object that are selected; a leaf is selected whole.
type branch struct {
	names map[string]*branch // nil: a leaf
}

// ParseSelection reads names of attributes, "data", and paths into JSON data such
// as "data.order.id", in which a name may stand between quotation marks as in
// filters. An empty list selects everything.
func ParseSelection(names []string) (Selection, error) {
	if len(names) == 0 {
		return Selection{}, nil
	}
	if len(names) > MaxSelected {
		return Selection{}, Errorf(CodeSubscriptionInvalid, "The selection has %d names; use at most %d.", len(names), MaxSelected).With("select")
	}
	s := Selection{attributes: map[string]bool{}}
	for _, name := range []string{nameSpecVersion, nameID, nameSource, nameType, namePosition, nameTopic, nameHLC, nameSuperseded} {
		s.attributes[name] = true
	}
	for _, name := range names {
		path, isPath := strings.CutPrefix(name, nameData+".")
		switch {
		case name == nameData:
			s.whole = true
		case isPath:
			steps := selectionSteps(path)
			if steps == nil {
				return Selection{}, selectionFault(name)
			}
			if s.data == nil {
				s.data = &branch{names: map[string]*branch{}}
			}
			s.data.add(steps)
		case nameFault([]byte(name)) != "":
			return Selection{}, selectionFault(name)
		default:
			s.attributes[name] = true
		}
	}
	if s.whole || s.data != nil {
		s.attributes[nameDataContentType] = true
	}
	return s, nil
}

func selectionFault(name string) *Error {
	return Errorf(CodeSubscriptionInvalid, "%q is neither an attribute, nor data, nor a path of names such as data.order.id; elements of arrays are not selected one by one.", clip(name)).With("select")
}

// selectionSteps takes a path apart. It is nil if there is a fault.
func selectionSteps(path string) (steps []string) {
	if len(path) > MaxPathBytes {
		return nil
	}
	for more := true; more; {
		var name string
		if name, path, more = cutQuoted(path); name == "" {
			if name, path, more = strings.Cut(path, "."); CheckPath(name) != nil || strings.Contains(name, "[") || name == `''` || name == `""` {
				return nil
			}
		}
		if steps = append(steps, name); len(steps) > MaxPathDepth || textFault([]byte(name)) != "" {
			return nil
		}
	}
	return steps
}

// cutQuoted cuts off a name between quotation marks, behind which the path ends or goes
// on. What is anything else is left as it is, and name is empty.
func cutQuoted(path string) (name, rest string, more bool) {
	if path == "" || path[0] != '\'' && path[0] != '"' {
		return "", path, false
	}
	name, rest, closed := strings.Cut(path[1:], path[:1])
	if rest, more = strings.CutPrefix(rest, "."); !closed || name == "" || !more && rest != "" {
		return "", path, false
	}
	return name, rest, more
}

func (b *branch) add(steps []string) {
	name, more := steps[0], len(steps) > 1
	next, known := b.names[name]
	switch {
	case !more:
		b.names[name] = &branch{} // the whole member includes its parts
		return
	case !known:
		next = &branch{names: map[string]*branch{}}
		b.names[name] = next
	case next.names == nil:
		return
	}
	next.add(steps[1:])
}

// All reports whether everything is selected.
func (s *Selection) All() bool { return s.attributes == nil }

// AppendSelected appends what is selected of an event in the JSON format. Of
// data that is no JSON object, paths select nothing; then there is no data.
func (s *Selection) AppendSelected(dst, event []byte) []byte {
	start := len(dst)
	sc := getScratch()
	defer sc.release()
	sc.begin()
	sc.parse(event, jsontext.AllowDuplicateNames(true))
	if _, err := sc.dec.ReadToken(); err != nil {
		return append(dst, event...)
	}
	dst = append(dst, '{')
	for sc.dec.PeekKind() == jsontext.KindString {
		name, err := sc.readValue()
		if err != nil {
			return append(dst[:start], event...) // what the broker stored is valid
		}
		value, err := sc.readValue()
		if err != nil {
			return append(dst[:start], event...)
		}
		raw := sc.bytes(value)
		switch key := string(sc.bytes(span{name.start + 1, name.end - 1, false})); key {
		case nameData:
			if !s.whole {
				dst = s.appendData(dst, raw)
				continue
			}
		case nameDataBase64:
			if !s.whole {
				continue
			}
		default:
			if !s.attributes[key] {
				continue
			}
		}
		dst = appendMember(dst, sc.bytes(name), raw)
	}
	return append(bytes.TrimSuffix(dst, []byte{','}), '}')
}

// appendMember appends a member and a comma.
func appendMember(dst, name, value []byte) []byte {
	dst = append(append(dst, name...), ':')
	return append(append(dst, value...), ',')
}

func (s *Selection) appendData(dst, data []byte) []byte {
	if s.data == nil || len(data) == 0 || data[0] != '{' {
		return dst
	}
	dst = append(dst, `"data":`...)
	return append(s.data.append(dst, data), ',')
}

// append appends the selected members of an object.
func (b *branch) append(dst, object []byte) []byte {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return append(dst, "{}"...)
	}
	dst = append(dst, '{')
	for d.PeekKind() == jsontext.KindString {
		quoted, err := d.ReadValue()
		if err != nil {
			break
		}
		name := quoted.Clone()
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		key, _ := jsonString(name)
		next := b.names[key]
		switch {
		case next == nil:
		case next.names == nil:
			dst = appendMember(dst, name, value)
		case value.Kind() == jsontext.KindBeginObject:
			dst = append(append(dst, name...), ':')
			dst = append(next.append(dst, value), ',')
		}
	}
	return append(bytes.TrimSuffix(dst, []byte{','}), '}')
}
