// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The cleanup policies.
const (
	CleanupDelete        = "delete"
	CleanupCompact       = "compact"
	CleanupCompactDelete = "compact,delete"
)

// What becomes of a topic's events.
const (
	DurabilityDurable   = "durable"   // they are in the log before they are acknowledged
	DurabilityEphemeral = "ephemeral" // they are in memory only, for whoever is connected
)

// Policy is how a topic keeps its events.
type Policy struct {
	// Durability is one of the two above.
	Durability string
	// CleanupPolicy is one of the three above: keep by age and size, keep the
	// last event of each key, or both.
	CleanupPolicy string
	// Retention is how long "delete" keeps events; nil means for ever.
	Retention *Duration
	// RetentionBytes is how many bytes of events "delete" keeps, of the newest
	// ones; 0 means that there is no such limit.
	RetentionBytes int64
	// MinCompactionLag is how long an event of a compacted topic stays in its
	// history although it is superseded.
	MinCompactionLag Duration
	// DeleteRetention is how long a tombstone stays visible.
	DeleteRetention Duration
	// KeyFrom is the path into data that gives the key of an event whose
	// attributes give none; "" means that there is no such path.
	KeyFrom string
	// RequireHLC refuses events that carry no hlc of their producer.
	RequireHLC bool
	// Schema is the JSON Schema (draft 2020-12) that data must satisfy, as JSON; ""
	// means that there is none.
	Schema string
	// MaxEventBytes is the greatest [Event.WireBytes].
	MaxEventBytes int
}

// DefaultPolicy returns the policy of a topic that came into being by its first use.
func DefaultPolicy() Policy {
	week := 7 * Day
	return Policy{
		Durability:      DurabilityDurable,
		CleanupPolicy:   CleanupDelete,
		Retention:       &week,
		DeleteRetention: Day,
		MaxEventBytes:   DefaultMaxEventBytes,
	}
}

// Ephemeral reports whether the topic's events are kept in memory only.
func (p Policy) Ephemeral() bool { return p.Durability == DurabilityEphemeral }

// Compacts reports whether the topic keeps a state.
func (p Policy) Compacts() bool { return p.CleanupPolicy != CleanupDelete }

// Deletes reports whether the topic drops events by age and size.
func (p Policy) Deletes() bool { return p.CleanupPolicy != CleanupCompact }

// Equal reports whether two policies say the same.
func (p Policy) Equal(q Policy) bool {
	if (p.Retention == nil) != (q.Retention == nil) || p.Retention != nil && *p.Retention != *q.Retention {
		return false
	}
	p.Retention, q.Retention = nil, nil
	return p == q
}

// Validate reports the first field that is out of its range.
func (p Policy) Validate() error {
	if p.Durability != DurabilityDurable && p.Durability != DurabilityEphemeral {
		return policyFault("durability", `is not "durable" or "ephemeral"`)
	}
	if p.Ephemeral() && p.CleanupPolicy != CleanupDelete {
		return policyFault("cleanup_policy", `must be left at "delete" on an ephemeral topic, which keeps the last event of each key in any case`)
	}
	if p.Ephemeral() && p.RetentionBytes != 0 {
		return policyFault("retention_bytes", "must be left out on an ephemeral topic, whose memory the broker bounds")
	}
	if p.Ephemeral() && p.MinCompactionLag != 0 {
		return policyFault("min_compaction_lag", "must be left out on an ephemeral topic, which has no history")
	}
	if p.Ephemeral() && p.DeleteRetention != Day {
		return policyFault("delete_retention", "must be left out on an ephemeral topic, where a key that was removed is guarded for a minute")
	}
	switch p.CleanupPolicy {
	case CleanupDelete, CleanupCompact, CleanupCompactDelete:
	default:
		return policyFault("cleanup_policy", `is not "delete", "compact" or "compact,delete"`)
	}
	if r := p.Retention; r != nil && (*r <= 0 || *r > maxDuration) {
		return policyFault("retention", "must be more than nothing and at most 100 years; null means unlimited")
	}
	if p.RetentionBytes < 0 || p.RetentionBytes > maxRetentionBytes {
		return policyFault("retention_bytes", "must be from 1 to 2^50 (1 PiB); null means unlimited")
	}
	if p.MinCompactionLag < 0 || p.MinCompactionLag > maxDuration {
		return policyFault("min_compaction_lag", "must be at most 100 years")
	}
	if p.DeleteRetention < 0 || p.DeleteRetention > maxDuration {
		return policyFault("delete_retention", "must be at most 100 years")
	}
	if p.KeyFrom != "" {
		if err := CheckPath(p.KeyFrom); err != nil {
			return policyFault("key_from", "is not a path such as order.id")
		}
	}
	if p.Schema != "" {
		if _, ok := normalSchema([]byte(p.Schema)); !ok {
			return schemaFault()
		}
	}
	if p.MaxEventBytes < MinMaxEventBytes || p.MaxEventBytes > MaxMaxEventBytes {
		return policyFault("max_event_bytes", "must be from 65536 to 16777216: events of 64 KiB always pass")
	}
	return nil
}

// maxRetentionBytes is 1 PiB, which no disk has and every JSON number can say.
const maxRetentionBytes = 1 << 50

func schemaFault() *Error {
	return policyFault("schema", "is not a JSON object of at most 65536 bytes without white space, nested at most 128 deep")
}

func policyFault(field, fault string) *Error {
	return Errorf(CodePolicyInvalid, "The policy field %s %s.", field, fault).With(field)
}

// MarshalJSON writes every field, so that what was read can be put back.
func (p Policy) MarshalJSON() ([]byte, error) {
	dst := appendString([]byte(`{"cleanup_policy":`), p.CleanupPolicy)
	dst = append(dst, `,"retention":`...)
	if p.Retention == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, p.Retention.String())
	}
	dst = append(dst, `,"retention_bytes":`...)
	if p.RetentionBytes == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, p.RetentionBytes, 10)
	}
	dst = appendString(append(dst, `,"min_compaction_lag":`...), p.MinCompactionLag.String())
	dst = appendString(append(dst, `,"delete_retention":`...), p.DeleteRetention.String())
	dst = append(dst, `,"key_from":`...)
	if p.KeyFrom == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, p.KeyFrom)
	}
	dst = strconv.AppendBool(append(dst, `,"require_hlc":`...), p.RequireHLC)
	dst = append(dst, `,"signed":false,"schema":`...)
	if p.Schema == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, p.Schema...)
	}
	dst = strconv.AppendInt(append(dst, `,"max_event_bytes":`...), int64(p.MaxEventBytes), 10)
	dst = appendString(append(dst, `,"durability":`...), p.Durability)
	return append(dst, '}'), nil
}

// UnmarshalJSON is [ParsePolicy] for what was stored. What an ephemeral topic could
// once be given, to no effect, is passed over instead of refused.
func (p *Policy) UnmarshalJSON(b []byte) error {
	parsed, err := parsePolicy(b)
	if err != nil {
		return err
	}
	if parsed.Ephemeral() {
		parsed.MinCompactionLag, parsed.DeleteRetention = 0, Day
	}
	if err := parsed.Validate(); err != nil {
		return err
	}
	*p = parsed
	return nil
}

// ParsePolicy reads a policy. A field that is absent has its default; null means
// unlimited for retention and retention_bytes, and none for key_from
// and schema. A field that is unknown or
// comes twice is refused, because a policy that was not understood would lose data.
func ParsePolicy(b []byte) (Policy, error) {
	p, err := parsePolicy(b)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return Policy{}, err
	}
	return p, nil
}

// parsePolicy reads the fields, each as far as it can be judged alone.
func parsePolicy(b []byte) (Policy, error) {
	p := DefaultPolicy()
	d := jsontext.NewDecoder(bytes.NewBuffer(b))
	if d.PeekKind() != jsontext.KindBeginObject {
		return Policy{}, Errorf(CodePolicyInvalid, "The policy is not a JSON object.")
	}
	if _, err := d.ReadToken(); err != nil {
		return Policy{}, policySyntax(err)
	}
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return Policy{}, policySyntax(err)
		}
		field := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return Policy{}, policySyntax(err)
		}
		if err := p.set(field, value); err != nil {
			return Policy{}, err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return Policy{}, policySyntax(err)
	}
	if !blank(b[d.InputOffset():]) {
		return Policy{}, Errorf(CodePolicyInvalid, "The policy has text after its JSON object.")
	}
	return p, nil
}

func policySyntax(err error) *Error {
	_, field, detail := explainSyntax(err)
	return Errorf(CodePolicyInvalid, "The policy is not valid JSON: %s.", detail).With(field)
}

// set assigns one member of the JSON object.
func (p *Policy) set(field string, v jsontext.Value) error {
	isNull := v.Kind() == jsontext.KindNull
	ok := true
	switch field {
	case "durability":
		p.Durability, ok = jsonString(v)
	case "cleanup_policy":
		p.CleanupPolicy, ok = jsonString(v)
	case "retention":
		if isNull {
			p.Retention = nil
			return nil
		}
		d, err := jsonDuration(v)
		if err != nil {
			return err.With(field)
		}
		p.Retention = &d
	case "retention_bytes":
		p.RetentionBytes, ok = jsonLimit(v)
	case "min_compaction_lag":
		d, err := jsonDuration(v)
		if err != nil {
			return err.With(field)
		}
		p.MinCompactionLag = d
	case "delete_retention":
		d, err := jsonDuration(v)
		if err != nil {
			return err.With(field)
		}
		p.DeleteRetention = d
	case "key_from":
		if isNull {
			p.KeyFrom = ""
			return nil
		}
		p.KeyFrom, ok = jsonString(v)
	case "require_hlc":
		ok = v.Kind() == jsontext.KindTrue || v.Kind() == jsontext.KindFalse
		p.RequireHLC = v.Kind() == jsontext.KindTrue
	case "schema":
		if isNull {
			p.Schema = ""
			return nil
		}
		if p.Schema, ok = normalSchema(v); !ok {
			return schemaFault()
		}
	case "signed":
		if v.Kind() == jsontext.KindTrue {
			return Errorf(CodeSignedUnsupported, "Signatures are not verified yet, so `signed` cannot be true: the topic would take unsigned events all the same.").With(field)
		}
		ok = v.Kind() == jsontext.KindFalse
	case "max_event_bytes":
		var n uint64
		n, ok = parseDigits([]byte(v), MaxMaxEventBytes)
		p.MaxEventBytes = int(n)
	default:
		return Errorf(CodePolicyInvalid, "The policy has no field %q.", clip(field)).With(clip(field))
	}
	if !ok {
		return policyFault(field, "has a value of the wrong type or out of range")
	}
	return nil
}

func jsonString(v jsontext.Value) (string, bool) {
	if v.Kind() != jsontext.KindString {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err == nil
}

// jsonLimit reads a whole number from 1 on, or null for 0.
func jsonLimit(v jsontext.Value) (int64, bool) {
	if v.Kind() == jsontext.KindNull {
		return 0, true
	}
	n, ok := parseDigits([]byte(v), maxRetentionBytes)
	return int64(n), ok && n > 0
}

func jsonDuration(v jsontext.Value) (Duration, *Error) {
	s, ok := jsonString(v)
	if !ok {
		return 0, Errorf(CodePolicyInvalid, "A duration is a JSON string, such as \"7d\".")
	}
	d, err := ParseDuration(s)
	if err != nil {
		return 0, AsError(err)
	}
	return d, nil
}
