// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/validjson"
)

// membersMax is how many members the form of an object can tell apart.
const membersMax = 64

// formCompiler compiles the schemas under $defs. A keyword that it does not know
// is an error: a form that passed it over would take what the schema refuses.
type formCompiler struct {
	defs  map[string]map[string]jsontext.Value
	forms map[string]*form // by name; nil while it is compiled
}

func newFormCompiler(schema []byte) (*formCompiler, error) {
	var document struct {
		Defs map[string]map[string]jsontext.Value `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &document); err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	return &formCompiler{defs: document.Defs, forms: map[string]*form{}}, nil
}

// def compiles the schema of a name.
func (c *formCompiler) def(name string) (*form, error) {
	if f, has := c.forms[name]; has {
		if f == nil {
			return nil, fmt.Errorf("%s: it refers to itself", name)
		}
		return f, nil
	}
	schema, ok := c.defs[name]
	if !ok {
		return nil, fmt.Errorf("%s: there is no such schema", name)
	}
	c.forms[name] = nil
	f, err := c.compile(schema)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.forms[name] = f
	return f, nil
}

// compile compiles one schema. What only some kinds of values are asked about is
// collected first, for the keywords stand in any order.
func (c *formCompiler) compile(schema map[string]jsontext.Value) (*form, error) {
	f := &form{}
	text, number := textForm{most: -1}, numberForm{least: math.MinInt64, most: math.MaxInt64}
	array, object := arrayForm{most: -1}, objectForm{most: -1, members: map[string]member{}}
	keywords := formKeywords()
	parts := formParts{formCompiler: c, form: f, text: &text, number: &number, array: &array, object: &object}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		take, known := keywords[keyword]
		if !known {
			return nil, fmt.Errorf("the keyword %s is none that payloads are checked by", keyword)
		}
		if err := take(&parts, schema[keyword]); err != nil {
			return nil, fmt.Errorf("%s: %w", keyword, err)
		}
	}
	if (f.when == nil) != (f.then == nil) {
		return nil, fmt.Errorf("if and then go together")
	}
	f.text, f.number, f.array, f.object = &text, &number, &array, &object
	if _, has := schema["$ref"]; has && len(schema) == 1 {
		return f.all[0], nil // it says nothing else, and a value is not to be read twice
	}
	return f, nil
}

// formParts is a form that is being compiled.
type formParts struct {
	*formCompiler
	form   *form
	text   *textForm
	number *numberForm
	array  *arrayForm
	object *objectForm
}

// formKeywords has the keywords that the schemas of payloads may use.
func formKeywords() map[string]func(*formParts, jsontext.Value) error {
	return map[string]func(*formParts, jsontext.Value) error{
		"type":              (*formParts).takeType,
		"enum":              (*formParts).takeEnum,
		"const":             (*formParts).takeConst,
		"$ref":              (*formParts).takeRef,
		"allOf":             func(p *formParts, v jsontext.Value) error { return p.list(v, &p.form.all) },
		"anyOf":             func(p *formParts, v jsontext.Value) error { return p.list(v, &p.form.any) },
		"if":                func(p *formParts, v jsontext.Value) error { return p.sub(v, &p.form.when) },
		"then":              func(p *formParts, v jsontext.Value) error { return p.sub(v, &p.form.then) },
		"pattern":           (*formParts).takePattern,
		"format":            (*formParts).takeFormat,
		"minLength":         func(p *formParts, v jsontext.Value) error { return whole(v, &p.text.least) },
		"maxLength":         func(p *formParts, v jsontext.Value) error { return whole(v, &p.text.most) },
		"minimum":           func(p *formParts, v jsontext.Value) error { return whole(v, &p.number.least) },
		"maximum":           func(p *formParts, v jsontext.Value) error { return whole(v, &p.number.most) },
		"items":             func(p *formParts, v jsontext.Value) error { return p.sub(v, &p.array.items) },
		"minItems":          func(p *formParts, v jsontext.Value) error { return whole(v, &p.array.least) },
		"maxItems":          func(p *formParts, v jsontext.Value) error { return whole(v, &p.array.most) },
		"uniqueItems":       func(p *formParts, v jsontext.Value) error { return json.Unmarshal(v, &p.array.unique) },
		"properties":        (*formParts).takeProperties,
		"required":          (*formParts).takeRequired,
		"dependentRequired": (*formParts).takeDependent,
		"maxProperties":     func(p *formParts, v jsontext.Value) error { return whole(v, &p.object.most) },
	}
}

// whole reads a limit that is a whole number.
func whole[T int | int64](v jsontext.Value, into *T) error { return json.Unmarshal(v, into) }

func (p *formParts) sub(v jsontext.Value, into **form) error {
	var schema map[string]jsontext.Value
	err := json.Unmarshal(v, &schema)
	if err == nil {
		*into, err = p.compile(schema)
	}
	return err
}

func (p *formParts) list(v jsontext.Value, into *[]*form) error {
	var schemas []jsontext.Value
	if err := json.Unmarshal(v, &schemas); err != nil {
		return err
	}
	for _, schema := range schemas {
		var one *form
		if err := p.sub(schema, &one); err != nil {
			return err
		}
		*into = append(*into, one)
	}
	return nil
}

func (p *formParts) takeType(v jsontext.Value) error {
	var name string
	if err := json.Unmarshal(v, &name); err != nil {
		return err
	}
	named := map[string]kinds{"object": isObject, "array": isArray, "string": isString, "number": isNumber, "integer": isNumber, "boolean": isBoolean, "null": isNull}
	p.form.kinds = named[name]
	p.number.integer = name == "integer"
	if p.form.kinds == 0 {
		return fmt.Errorf("%q is no type", name)
	}
	return nil
}

func (p *formParts) takeEnum(v jsontext.Value) error {
	var values []jsontext.Value
	if err := json.Unmarshal(v, &values); err != nil {
		return err
	}
	if len(values) == 0 {
		return fmt.Errorf("no value is allowed")
	}
	return p.allow(values...)
}

func (p *formParts) takeConst(v jsontext.Value) error { return p.allow(v) }

// allow takes the values of enum or of const. With both a value would have to be
// among either's (JSON Schema Validation, section 6.1), which no payload asks for.
func (p *formParts) allow(values ...jsontext.Value) error {
	if p.form.allowed != nil {
		return fmt.Errorf("enum and const do not go together: say the values once")
	}
	for _, value := range values {
		if err := p.allowOne(value); err != nil {
			return err
		}
	}
	return nil
}

// allowOne takes what can be compared as it is written.
func (p *formParts) allowOne(v jsontext.Value) error {
	switch kind := validjson.Kind(v.Kind()); {
	case kind == validjson.True || kind == validjson.False || kind == validjson.Null:
	case kind == validjson.String && !strings.Contains(string(v), `\`):
	default:
		return fmt.Errorf("%s cannot be compared as it is written", v)
	}
	p.form.allowed = append(p.form.allowed, v.Clone())
	return nil
}

func (p *formParts) takeRef(v jsontext.Value) error {
	var ref string
	if err := json.Unmarshal(v, &ref); err != nil {
		return err
	}
	name, ok := strings.CutPrefix(ref, "#/$defs/")
	if !ok {
		return fmt.Errorf("%q is not one of $defs", ref)
	}
	f, err := p.def(name)
	p.form.all = append(p.form.all, f)
	return err
}

func (p *formParts) takePattern(v jsontext.Value) error {
	var pattern string
	err := json.Unmarshal(v, &pattern)
	if err == nil {
		p.text.pattern, err = regexp.Compile(pattern)
	}
	return err
}

func (p *formParts) takeFormat(v jsontext.Value) error {
	var format string
	if err := json.Unmarshal(v, &format); err != nil || format != "date-time" {
		return fmt.Errorf("%s is none that is checked", v)
	}
	p.text.dateTime = true
	return nil
}

// name returns the member of a name, which it makes.
func (p *formParts) name(name string) (member, error) {
	m, has := p.object.members[name]
	if !has {
		if len(p.object.members) == membersMax {
			return m, fmt.Errorf("there are more than %d members", membersMax)
		}
		m.bit = 1 << len(p.object.members)
		p.object.members[name] = m
	}
	return m, nil
}

func (p *formParts) takeProperties(v jsontext.Value) error {
	var properties map[string]jsontext.Value
	if err := json.Unmarshal(v, &properties); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		m, err := p.name(name)
		if err == nil {
			err = p.sub(properties[name], &m.form)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.object.members[name] = m
	}
	return nil
}

func (p *formParts) takeRequired(v jsontext.Value) error { return p.names(v, &p.object.required) }

func (p *formParts) names(v jsontext.Value, into *uint64) error {
	var names []string
	if err := json.Unmarshal(v, &names); err != nil {
		return err
	}
	for _, name := range names {
		m, err := p.name(name)
		if err != nil {
			return err
		}
		*into |= m.bit
	}
	return nil
}

func (p *formParts) takeDependent(v jsontext.Value) error {
	var lists map[string]jsontext.Value
	if err := json.Unmarshal(v, &lists); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		m, err := p.name(name)
		d := dependence{of: m.bit}
		if err == nil {
			err = p.names(lists[name], &d.required)
		}
		if err != nil {
			return err
		}
		p.object.dependent = append(p.object.dependent, d)
	}
	return nil
}
