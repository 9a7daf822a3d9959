// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

const (
	// schemaCacheBytes bounds the compiled schemas by their text, which takes some
	// fifty times as much memory when it is compiled.
	schemaCacheBytes = 2 << 20
	// subschemasMax bounds how deep one value can be asked about.
	subschemasMax = 500
	// requestWorkMax and eventWorkMax bound the checks of one request and of one
	// event: a schema of a few lines can ask for more than any machine can do.
	requestWorkMax = 500_000
	eventWorkMax   = 100_000
)

// Schemas has the JSON Schemas of topics, each compiled once. All methods are safe
// for concurrent use.
type Schemas struct {
	mu      sync.Mutex
	entries map[string]*schemaEntry // by text; guarded by mu
	bytes   int                     // of the texts; guarded by mu
}

type schemaEntry struct {
	once   sync.Once
	schema *schema // set by once
	err    error   // set by once
}

// NewSchemas returns an empty cache.
func NewSchemas() *Schemas { return &Schemas{entries: map[string]*schemaEntry{}} }

// Compile reports whether a text is a JSON Schema that can be kept to, with code
// policy_invalid if it is not.
func (s *Schemas) Compile(text string) error {
	_, err := s.get(text)
	return err
}

// Check checks the data of a request's entries against a schema.
func (s *Schemas) Check(text string, entries []eventlog.Entry) (check eventlog.SchemaCheck, err error) {
	compiled, err := s.get(text)
	if err != nil {
		return check, err
	}
	check.Hash = compiled.hash
	compiled.mu.Lock()
	defer compiled.mu.Unlock()
	left := requestWorkMax
	for i := range entries {
		e := &entries[i]
		if e.Flags&eventlog.FlagJSON == 0 {
			continue // apply knows whether that is a tombstone
		}
		work := min(left, eventWorkMax)
		compiled.left = work
		if fault := compiled.check(e.Members[e.DataOffset : e.DataOffset+e.DataLength]); fault != nil {
			fault.Entry = i
			check.Faults = append(check.Faults, *fault)
		}
		left -= work - max(compiled.left, 0)
	}
	return check, nil
}

func (s *Schemas) get(text string) (*schema, error) {
	s.mu.Lock()
	e := s.entries[text]
	if e == nil {
		for old := range s.entries { // whichever: what is in use comes back
			if s.bytes+len(text) <= schemaCacheBytes {
				break
			}
			s.bytes -= len(old)
			delete(s.entries, old)
		}
		e = &schemaEntry{}
		s.entries[text] = e
		s.bytes += len(text)
	}
	s.mu.Unlock()
	e.once.Do(func() { e.schema, e.err = compile(text) })
	return e.schema, e.err
}

// schema is a compiled JSON Schema.
type schema struct {
	hash [16]byte
	root *jsonschema.Schema
	bad  *event.Error // of a pattern; set while it is compiled

	mu   sync.Mutex // one check at a time, for they share what counts the work
	left int        // work that the check may still do; guarded by mu
}

var errWork = errors.New("more work than allowed")

// spend counts work, and fails once there is none left. The check then comes to its
// end: whatever it still asks fails at once.
func (s *schema) spend(work int) error {
	if s.left -= work; s.left < 0 {
		s.left = -1
		return errWork
	}
	return nil
}

// check returns how data breaks the schema, nil if it keeps to it.
func (s *schema) check(data []byte) *eventlog.SchemaFault {
	value, fault := parse(data)
	if fault != nil {
		return fault
	}
	err := s.root.Validate(value)
	if s.left < 0 {
		return &eventlog.SchemaFault{Text: "takes more work to check than is allowed; send less at once"}
	}
	if broken := (*jsonschema.ValidationError)(nil); errors.As(err, &broken) {
		return explain(broken)
	}
	return nil
}

// invalid is the refusal of a schema.
func invalid(format string, args ...any) *event.Error {
	return event.Errorf(event.CodePolicyInvalid, "The policy field schema "+format, args...).With("schema")
}
