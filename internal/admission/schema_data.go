// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"signalbox/internal/eventlog"
)

const (
	// valuesMax bounds the memory of data while it is checked, which is many
	// times that of its text.
	valuesMax = 50_000
	// A number is compared exactly, so one with a large exponent would be written
	// out.
	numberBytesMax    = 128
	numberExponentMax = 400
	// faultTextMax bounds what of a caller's text comes back to it.
	faultTextMax = 256
)

// parse reads valid JSON as the library wants it.
func parse(text []byte) (any, *eventlog.SchemaFault) {
	p := parser{dec: jsontext.NewDecoder(bytes.NewBuffer(text))}
	v := p.value()
	return v, p.fault
}

type parser struct {
	dec    *jsontext.Decoder
	values int
	fault  *eventlog.SchemaFault
}

func (p *parser) fail(text string) any {
	if p.fault == nil {
		p.fault = &eventlog.SchemaFault{Pointer: clip(string(p.dec.StackPointer())), Text: text}
	}
	return nil
}

// value reads the next value; once one has failed it is nil.
func (p *parser) value() any {
	if p.values++; p.values > valuesMax {
		return p.fail(fmt.Sprintf("has more than %d values up to here, which is too much to check", valuesMax))
	}
	token, err := p.dec.ReadToken()
	if err != nil {
		return p.fail("is not valid JSON")
	}
	switch token.Kind() {
	case jsontext.KindNull:
		return nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return token.Bool()
	case jsontext.KindString:
		return token.String()
	case jsontext.KindNumber:
		return p.number(token.String())
	case jsontext.KindBeginArray:
		array := []any{}
		for p.fault == nil && p.dec.PeekKind() != jsontext.KindEndArray {
			array = append(array, p.value())
		}
		p.end()
		return array
	}
	object := map[string]any{}
	for p.fault == nil && p.dec.PeekKind() != jsontext.KindEndObject {
		name, err := p.dec.ReadToken()
		if err != nil {
			return p.fail("is not valid JSON")
		}
		key := name.String()
		object[key] = p.value()
	}
	p.end()
	return object
}

func (p *parser) end() {
	if p.fault == nil {
		if _, err := p.dec.ReadToken(); err != nil {
			p.fail("is not valid JSON")
		}
	}
}

func (p *parser) number(text string) any {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if n, err := strconv.Atoi(exponent); exponent != "" && (err != nil || n > numberExponentMax || n < -numberExponentMax) || len(text) > numberBytesMax {
		return p.fail("is a number with more digits or a larger exponent than can be checked")
	}
	return json.Number(text)
}

// explain picks of everything that is broken what comes first in the data. Of
// alternatives that all fail only that they do is said, for which one was meant
// nobody knows.
func explain(broken *jsonschema.ValidationError) *eventlog.SchemaFault {
	var first *eventlog.SchemaFault
	var look func(e *jsonschema.ValidationError)
	look = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
			for _, cause := range e.Causes {
				look(cause)
			}
			return
		}
		fault := describe(e)
		if first == nil || fault.Pointer < first.Pointer || fault.Pointer == first.Pointer && fault.Keyword < first.Keyword {
			first = fault
		}
	}
	look(broken)
	if first == nil {
		first = &eventlog.SchemaFault{Text: "breaks the schema"}
	}
	return first
}

func describe(e *jsonschema.ValidationError) *eventlog.SchemaFault {
	var pointer strings.Builder
	for _, name := range e.InstanceLocation {
		pointer.WriteByte('/')
		pointer.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	fault := &eventlog.SchemaFault{Pointer: clip(pointer.String())}
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		fault.Keyword = path[len(path)-1]
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		fault.Text = fmt.Sprintf("lacks the member %q", clip(slices.Min(k.Missing)))
	case *kind.AdditionalProperties:
		fault.Text = fmt.Sprintf("has the member %q, which is not foreseen", clip(slices.Min(k.Properties)))
	case *kind.Type:
		fault.Text = fmt.Sprintf("is of type %s, not %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.FalseSchema:
		fault.Keyword, fault.Text = "false", "is not allowed"
	case *kind.Not:
		fault.Keyword, fault.Text = "not", "is what it must not be"
	case *kind.RefCycle:
		fault.Keyword, fault.Text = "$ref", "cannot be checked, for the schema refers to itself without end"
	default:
		fault.Text = "does not keep to `" + fault.Keyword + "`"
	}
	return fault
}

// clip makes foreign text fit for an answer.
func clip(text string) string {
	if len(text) > faultTextMax {
		text = strings.ToValidUTF8(text[:faultTextMax], "") + "…"
	}
	return text
}
