// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"signalbox/event"
)

// The library is given a base of our own, under which nothing can be found, and a
// loader that finds nothing: a $ref leads to a place in the schema itself or to the
// meta-schemas that are built in, never to the network or to a file.
const (
	schemaBase   = "https://schema.invalid/"
	schemaDraft  = "https://json-schema.org/draft/2020-12/schema"
	schemaVocab  = "https://schema.invalid/vocabulary"
	draftVersion = 2020
)

type noLoader struct{}

var errRemote = errors.New("nothing outside of the schema is read")

func (noLoader) Load(string) (any, error) { return nil, errRemote }

// compile compiles a schema, and has it count the work of every check.
//
// The library calls a vocabulary for each subschema, and each subschema asserts
// its format before it looks any further, whatever it is asked for. So the
// vocabulary collects the subschemas, and what they assert as a format is that
// there is work left. Formats themselves are annotations in this draft.
func compile(text string) (*schema, error) {
	document, fault := parse([]byte(text))
	if fault != nil {
		return nil, invalid("at %q %s.", fault.Pointer, fault.Text)
	}
	s := &schema{hash: event.SchemaHash(text)}
	if root, ok := document.(map[string]any); ok {
		if draft, has := root["$schema"]; has && strings.TrimSuffix(fmt.Sprint(draft), "#") != schemaDraft {
			return nil, invalid("has another $schema than %s, which is the only one that is understood.", schemaDraft)
		}
	}
	var all []*jsonschema.Schema
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(s.pattern)
	c.AssertVocabs()
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: schemaVocab, Compile: func(ctx *jsonschema.CompilerContext, _ map[string]any) (jsonschema.SchemaExt, error) {
		all = append(all, ctx.Enqueue(nil))
		if len(all) > subschemasMax {
			return nil, fmt.Errorf("more than %d subschemas", subschemasMax)
		}
		return nil, nil
	}})
	err := c.AddResource(schemaBase, document)
	if err == nil {
		s.root, err = c.Compile(schemaBase)
	}
	if err != nil {
		return nil, s.refuse(err)
	}
	for _, sub := range all {
		if sub.DraftVersion != draftVersion {
			return nil, invalid("has a part of another draft than 2020-12.")
		}
		weight := 1 + len(sub.AllOf) + len(sub.AnyOf) + len(sub.OneOf) + len(sub.Required) + len(sub.DependentRequired) + len(sub.DependentSchemas)
		if sub.Enum != nil {
			weight += len(sub.Enum.Values)
		}
		deep := sub.UniqueItems
		sub.Format = &jsonschema.Format{Name: "work", Validate: func(v any) error { return s.spend(weight + size(v, deep)) }}
	}
	return s, nil
}

// size is the work that a value makes for the subschema that is asked about it,
// apart from its parts; deep is with its parts, which are compared with each other.
func size(v any, deep bool) (n int) {
	switch v := v.(type) {
	case string:
		return len(v) / 64
	case map[string]any:
		n = len(v)
		for _, part := range v {
			if !deep {
				break
			}
			n += size(part, true)
		}
	case []any:
		n = len(v)
		for _, part := range v {
			if !deep {
				break
			}
			n += size(part, true)
		}
	}
	return n
}

// refuse says what is wrong with a schema.
func (s *schema) refuse(err error) *event.Error {
	if s.bad != nil {
		return s.bad // the library has only seen that it is no pattern
	}
	if broken := (*jsonschema.SchemaValidationError)(nil); errors.As(err, &broken) {
		if cause := (*jsonschema.ValidationError)(nil); errors.As(broken.Err, &cause) {
			fault := explain(cause)
			return invalid("is none of JSON Schema 2020-12: what is at %q %s.", fault.Pointer, fault.Text).Fact("pointer", fault.Pointer)
		}
	}
	if outside := (*jsonschema.LoadURLError)(nil); errors.As(err, &outside) {
		return invalid("has a reference that leads outside of it, to %.80q, and nothing is fetched. Put what it refers to under $defs.", outside.URL)
	}
	return invalid("cannot be compiled: %.200s.", strings.ReplaceAll(err.Error(), schemaBase, ""))
}

const (
	patternBytesMax = 1024
	// patternStepsMax bounds what one byte of text costs.
	patternStepsMax = 1000
	// patternStepsPerWork is how many steps of a pattern count as one of work.
	patternStepsPerWork = 64
)

// pattern is a regular expression that counts its work. Go's engine takes time in
// proportion to the text and to the size of the expression, and never goes back.
type pattern struct {
	*regexp.Regexp
	schema *schema
	steps  int
}

func (s *schema) pattern(expression string) (jsonschema.Regexp, error) {
	p, err := newPattern(expression)
	if err != nil {
		s.bad = invalid("has the pattern %.80q, which cannot be used: %w. Patterns are RE2, without look-around and back-references, and bounded in size.", expression, err)
		return nil, err
	}
	p.schema = s
	return p, nil
}

func newPattern(expression string) (*pattern, error) {
	if len(expression) > patternBytesMax {
		return nil, fmt.Errorf("it has more than %d bytes", patternBytesMax)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > patternStepsMax {
		return nil, fmt.Errorf("it repeats too much: %d steps, and at most %d are allowed", len(program.Inst), patternStepsMax)
	}
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	return &pattern{Regexp: compiled, steps: len(program.Inst)}, nil
}

// MatchString is false once there is no work left.
func (p *pattern) MatchString(text string) bool {
	if p.schema.spend(1+len(text)*p.steps/patternStepsPerWork) != nil {
		return false
	}
	return p.Regexp.MatchString(text)
}
