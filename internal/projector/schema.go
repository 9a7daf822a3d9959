// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// schemaBytesMax bounds what the schemas of all topics take in memory.
const schemaBytesMax = 64 << 20

// setPolicy sets a topic's policy and what is kept ready of it.
func (p *Projector) setPolicy(t *topic, policy event.Policy) {
	p.schemaBytes += len(policy.Schema) - len(t.Policy.Schema)
	t.Policy, t.schema = policy, event.SchemaHash(policy.Schema)
}

// schemasFit reports why a topic cannot have a schema of that size.
func (p *Projector) schemasFit(name, schema string) *event.Error {
	before := 0
	if t := p.topics[name]; t != nil {
		before = len(t.Policy.Schema)
	}
	if len(schema) > before && p.schemaBytes-before+len(schema) > schemaBytesMax {
		return event.Errorf(event.CodePolicyInvalid, "With this schema those of all topics would have more than %d bytes. Make it shorter, or remove others.", schemaBytesMax).With("schema")
	}
	return nil
}

// checkSchema decides from what admission found whether the data of an entry keeps
// to the topic's schema. Checking itself takes too long for apply; what admission
// has checked against is in the proposal, so the answer does not depend on when a
// change of the policy came in between.
func checkSchema(t *topic, proposal *eventlog.Proposal, i int) *event.Error {
	if proposal.Entries[i].Flags&eventlog.FlagJSON != 0 && proposal.Schema.Hash != t.schema {
		return event.Errorf(event.CodePolicyChanged, "The schema of topic %q changed while the event was on its way. Send it again.", t.Name)
	}
	return CheckFound(t.Name, t.Policy, &proposal.Schema, proposal.Entries, i)
}

// CheckFound says of one entry what admission found by the topic's schema.
func CheckFound(topic string, policy event.Policy, found *eventlog.SchemaCheck, entries []eventlog.Entry, i int) *event.Error {
	e := &entries[i]
	if e.Flags&eventlog.FlagBare != 0 && (policy.Compacts() || policy.Ephemeral() && e.HasKey) {
		return nil // it removes its key
	}
	if e.Flags&eventlog.FlagJSON == 0 {
		return event.Errorf(event.CodeDataNotJSON, "Topic %q has a schema, and the event has no JSON data. Send JSON with a JSON `datacontenttype`.", topic).With("data")
	}
	at := slices.IndexFunc(found.Faults, func(f eventlog.SchemaFault) bool { return f.Entry == i })
	if at < 0 {
		return nil
	}
	fault := &found.Faults[at]
	return event.Errorf(event.CodeSchemaViolation, "The data at %q %s.", fault.Pointer, fault.Text).
		With("data").Fact("pointer", fault.Pointer).Fact("keyword", fault.Keyword)
}
