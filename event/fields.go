// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ParseFields reads the members of a small JSON object, the parameters of a
// call, strictly: one that is unknown, there twice or of another type is
// refused. Into has for each name a *string, *int, *bool, *Duration, *Cursor
// or *[]string; any other type is a fault of the program, and panics. No body at
// all is an object without members.
func ParseFields(b []byte, into map[string]any) error {
	if blank(b) {
		return nil
	}
	err := eachMember(b, "", func(name string, v jsontext.Value) error {
		place, known := into[name]
		if !known {
			there := strings.Join(slices.Sorted(maps.Keys(into)), ", ")
			if there == "" {
				there = "none"
			}
			return Errorf(CodeParameterInvalid, "The member %q is unknown: there are %s.", clip(name), there).With(clip(name))
		}
		if !setField(place, v) {
			return Errorf(CodeParameterInvalid, "The member %s has a value of the wrong type, or a malformed one.", name).With(name)
		}
		return nil
	})
	if e := AsError(err); e != nil && e.Code == CodeSubscriptionInvalid {
		e.Code = CodeParameterInvalid
		return e
	}
	return err
}

// setField panics at a place of a type that it does not know.
func setField(place any, v jsontext.Value) (ok bool) {
	switch place := place.(type) {
	case *string:
		*place, ok = jsonString(v)
	case *int:
		*place, ok = jsonInt(v)
	case *bool:
		*place = v.Kind() == jsontext.KindTrue
		ok = *place || v.Kind() == jsontext.KindFalse
	case *Duration:
		d, err := jsonDuration(v)
		*place, ok = d, err == nil
	case *Cursor:
		var text string
		if text, ok = jsonString(v); ok {
			c, err := ParseCursor(text)
			*place, ok = c, err == nil
		}
	case *[]string:
		*place, ok = jsonStrings(v)
	default:
		panic(fmt.Sprintf("event: a field of type %T", place))
	}
	return ok
}
