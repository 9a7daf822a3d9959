// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
)

// The limits of a document of filters.
const (
	// MaxDocumentBytes stops one subscription from holding a document that costs
	// more than its events.
	MaxDocumentBytes = 64 << 10

	// MaxDepth stops dialects that contain others from exhausting the stack.
	MaxDepth = 16

	// MaxParts is the greatest number of conditions in a document. Each costs some
	// ten nanoseconds for every event.
	MaxParts = 256
)

// field is the member of a subscription that holds the document; errors name
// places in it by JSON Pointers below that.
const field = "filters"

// ParseDocument makes a filter of the value of a subscription's member filters:
// an array of filter expressions, all of which must hold (Subscriptions API,
// filters). An empty array lets everything pass. It fails with code
// filter_invalid, or filter_unsupported for a dialect that is not known.
func ParseDocument(document []byte) (*Filter, error) { return Options{}.ParseDocument(document) }

// ParseDocument is [ParseDocument] with options.
func (o Options) ParseDocument(document []byte) (*Filter, error) {
	if len(document) > MaxDocumentBytes {
		return nil, event.Errorf(event.CodeFilterInvalid, "The filters have %d bytes, the limit is %d.", len(document), MaxDocumentBytes).With(field)
	}
	d := decoder{options: o, dec: jsontext.NewDecoder(bytes.NewBuffer(document))}
	kids, err := d.list()
	if err == nil {
		_, trailing := d.dec.ReadToken()
		if !errors.Is(trailing, io.EOF) {
			err = d.fault("There is something after the array of filters.")
		}
	}
	if err != nil {
		return nil, err
	}
	return newFilter(&part{op: opAll, kids: kids}), nil
}

// decoder reads a document token by token.
type decoder struct {
	options Options
	dec     *jsontext.Decoder
	depth   int
	parts   int
}

// at is the place that was read last.
func (d *decoder) at() string { return field + string(d.dec.StackPointer()) }

func (d *decoder) fault(format string, args ...any) *event.Error {
	return event.Errorf(event.CodeFilterInvalid, "%s", fmt.Sprintf(format, args...)).With(d.at())
}

// next reads a token, which must be of a kind.
func (d *decoder) next(kind jsontext.Kind, what string) (jsontext.Token, *event.Error) {
	have := d.dec.PeekKind()
	t, err := d.dec.ReadToken()
	if err != nil {
		return t, d.malformed(err)
	}
	if have != kind {
		return t, d.fault("There must be %s here.", what)
	}
	return t, nil
}

func (d *decoder) malformed(err error) *event.Error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return d.fault("A name is there twice in one object.")
	}
	return d.fault("The filters are not valid JSON.")
}

// list reads an array of filter expressions.
func (d *decoder) list() (list []*part, err *event.Error) {
	if _, err := d.next(jsontext.KindBeginArray, "an array of filters"); err != nil {
		return nil, err
	}
	for d.dec.PeekKind() != jsontext.KindEndArray {
		p, err := d.filter()
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return nil, d.malformed(err)
	}
	return list, nil
}

// filter reads one filter expression, an object whose one member is named after
// the dialect.
func (d *decoder) filter() (*part, *event.Error) {
	if d.depth++; d.depth > MaxDepth {
		return nil, d.fault("The filters are nested deeper than %d levels.", MaxDepth)
	}
	defer func() { d.depth-- }()
	if _, err := d.next(jsontext.KindBeginObject, `a filter such as {"exact":{"type":"a.b"}}`); err != nil {
		return nil, err
	}
	if d.dec.PeekKind() == jsontext.KindEndObject {
		return nil, d.fault("A filter must name its dialect, as in {\"exact\":{\"type\":\"a.b\"}}.")
	}
	t, err := d.next(jsontext.KindString, "the name of a dialect")
	if err != nil {
		return nil, err
	}
	p, err := d.dialect(t.String())
	if err != nil {
		return nil, err
	}
	if d.dec.PeekKind() == jsontext.KindString {
		_, _ = d.dec.ReadToken() // for the place; the fault is there whatever it is
		return nil, d.fault("A filter has one dialect; combine several with `all` or `any`.")
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return nil, d.malformed(err)
	}
	return p, nil
}

func (d *decoder) dialect(name string) (*part, *event.Error) {
	switch name {
	case "exact":
		return d.attributes(opExact)
	case "prefix":
		return d.attributes(opPrefix)
	case "suffix":
		return d.attributes(opSuffix)
	case "all":
		return d.combination(opAll)
	case "any":
		return d.combination(opAny)
	case "not":
		p, err := d.filter()
		return &part{op: opNot, kids: []*part{p}}, err
	case "sql", "cesql": // the standard's name and that of Knative
		return d.expression()
	}
	return nil, event.Errorf(event.CodeFilterUnsupported, "There is no filter dialect of that name; there are exact, prefix, suffix, all, any, not and sql.").With(d.at())
}

// count counts a condition.
func (d *decoder) count() *event.Error {
	if d.parts++; d.parts > MaxParts {
		return d.fault("The filters have more than %d conditions.", MaxParts)
	}
	return nil
}

func (d *decoder) combination(o op) (*part, *event.Error) {
	kids, err := d.list()
	if err != nil {
		return nil, err
	}
	if len(kids) == 0 {
		return nil, d.fault("There must be at least one filter in `%s`.", opNames[o])
	}
	return &part{op: o, kids: kids}, nil
}

func (d *decoder) expression() (*part, *event.Error) {
	t, err := d.next(jsontext.KindString, "a CESQL expression as a string")
	if err == nil {
		err = d.count()
	}
	if err != nil {
		return nil, err
	}
	p, err := d.options.parseSQL(t.String())
	if err != nil {
		return nil, err.With(d.at())
	}
	return p, nil
}

// attributes reads an object of attributes and what they are to be, to begin or
// to end with.
func (d *decoder) attributes(o op) (*part, *event.Error) {
	if _, err := d.next(jsontext.KindBeginObject, "an object of attributes and values"); err != nil {
		return nil, err
	}
	all := &part{op: opAll}
	for d.dec.PeekKind() != jsontext.KindEndObject {
		name, err := d.next(jsontext.KindString, "the name of an attribute")
		if err != nil {
			return nil, err
		}
		p := &part{op: o, name: name.String()}
		if !attributeName(p.name) {
			return nil, d.fault("The name of an attribute has a-z and 0-9 only and is not `data`.")
		}
		value, err := d.next(jsontext.KindString, "a string")
		if err != nil {
			return nil, err
		}
		if p.value = value.String(); p.value == "" {
			return nil, d.fault("The value must not be empty.")
		}
		if err := d.count(); err != nil {
			return nil, err
		}
		all.kids = append(all.kids, p)
	}
	if len(all.kids) == 0 {
		return nil, d.fault("There must be at least one attribute in `%s`.", opNames[o])
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return nil, d.malformed(err)
	}
	return all, nil
}

func attributeName(name string) bool {
	if name == "" || name == "data" || len(name) > event.MaxNameBytes {
		return false
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
