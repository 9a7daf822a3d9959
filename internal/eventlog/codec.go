// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"signalbox/event"
)

// formatByte begins every encoded proposal. A reader refuses any other.
const formatByte = 1

// ErrFormat is returned for bytes that are no proposal of a known format.
var ErrFormat = errors.New("eventlog: not a proposal of a known format")

const (
	bitBatch = 1 << iota
	bitIdempotency
	bitIfMatchAny
	bitIfNoneMatch
	bitIfMatch
	bitSchema
	bitMessage
	bitsKnown = 1<<iota - 1
)

// AppendBinary appends the proposal's encoding, without Local, to dst. It panics
// if a control entry does not encode, which its plain fields always do.
func (p *Proposal) AppendBinary(dst []byte) []byte {
	dst = append(dst, formatByte, byte(p.Kind))
	dst = binary.AppendUvarint(dst, uint64(p.Node))
	dst = binary.AppendUvarint(dst, p.Sequence)
	dst = binary.AppendVarint(dst, p.AdmittedMillis)
	dst = appendString(dst, p.Principal)
	dst = appendString(dst, p.Topic)
	switch p.Kind {
	case KindEvents:
		dst = p.appendRequest(dst)
		dst = p.appendEntries(dst)
	case KindControl:
		dst = appendJSON(dst, p.Control)
	case KindSubscription:
		dst = appendJSON(dst, p.Subscription)
		dst = p.appendEntries(dst)
	case KindReading:
		dst = appendJSON(dst, p.Reading)
	case KindRefusal:
		dst = appendString(dst, p.RefusedCode)
		dst = binary.AppendUvarint(dst, p.RefusedCount)
		if p.Message != nil {
			dst = appendJSON(dst, p.Message)
		}
	}
	return dst
}

// appendJSON panics if v does not encode, which plain fields always do.
func appendJSON(dst []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("eventlog: an entry does not encode: %v", err))
	}
	return appendString(dst, string(text))
}

func (p *Proposal) appendEntries(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p.Entries)))
	for i := range p.Entries {
		dst = p.Entries[i].appendBinary(dst)
	}
	return dst
}

func (p *Proposal) appendRequest(dst []byte) []byte {
	var bits byte
	set := func(on bool, bit byte) {
		if on {
			bits |= bit
		}
	}
	set(p.Batch, bitBatch)
	set(p.Idempotency.Set, bitIdempotency)
	set(p.Condition.IfMatchAny, bitIfMatchAny)
	set(p.Condition.IfNoneMatch, bitIfNoneMatch)
	set(p.Condition.IfMatch != nil, bitIfMatch)
	set(p.Schema.Hash != [16]byte{}, bitSchema)
	set(p.Message != nil, bitMessage)
	dst = append(dst, bits)
	if p.Idempotency.Set {
		dst = append(dst, p.Idempotency.Scope[:]...)
		dst = append(dst, p.Idempotency.Request[:]...)
	}
	if p.Condition.IfMatch != nil {
		dst = binary.AppendUvarint(dst, uint64(len(p.Condition.IfMatch)))
		for _, position := range p.Condition.IfMatch {
			dst = binary.AppendUvarint(dst, position)
		}
	}
	if p.Schema.Hash != [16]byte{} {
		dst = p.Schema.appendBinary(dst)
	}
	if p.Message != nil {
		dst = appendJSON(dst, p.Message)
	}
	return dst
}

func (c *SchemaCheck) appendBinary(dst []byte) []byte {
	dst = append(dst, c.Hash[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(c.Faults)))
	for _, f := range c.Faults {
		dst = binary.AppendUvarint(dst, uint64(f.Entry))
		for _, s := range []string{f.Pointer, f.Keyword, f.Text} {
			dst = appendString(dst, s)
		}
	}
	return dst
}

func (e *Entry) appendBinary(dst []byte) []byte {
	dst = appendString(dst, e.ID)
	dst = appendString(dst, e.Source)
	hasKey := byte(0)
	if e.HasKey {
		hasKey = 1
	}
	dst = append(dst, byte(e.Flags), hasKey)
	dst = appendString(dst, e.Key)
	dst = binary.AppendUvarint(dst, uint64(e.HLC))
	dst = binary.AppendVarint(dst, e.ExpiryMillis)
	dst = binary.AppendUvarint(dst, uint64(e.WireBytes))
	dst = append(dst, e.Identity.ID[:]...)
	dst = append(dst, e.Identity.Source[:]...)
	dst = append(dst, e.Content[:]...)
	dst = append(dst, e.Salt[:]...)
	dst = append(dst, e.Body[:]...)
	dst = binary.AppendUvarint(dst, uint64(e.DataOffset))
	dst = binary.AppendUvarint(dst, uint64(e.DataLength))
	return appendString(dst, string(e.Members))
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// DecodeProposal decodes what AppendBinary wrote. The result shares no memory
// with b.
func DecodeProposal(b []byte) (*Proposal, error) {
	r := reader{b: b}
	if r.byte() != formatByte {
		return nil, ErrFormat
	}
	p := &Proposal{Kind: Kind(r.byte())}
	p.Node = r.uint32()
	p.Sequence = r.uvarint()
	p.AdmittedMillis = r.varint()
	p.Principal = r.string()
	p.Topic = r.string()
	switch p.Kind {
	case KindEvents:
		r.request(p)
		r.entries(p)
		r.failed = r.failed || p.Message != nil && len(p.Entries) != 1
	case KindControl:
		if err := json.Unmarshal([]byte(r.string()), &p.Control); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if !p.Control.complete() {
			return nil, ErrFormat
		}
	case KindSubscription:
		if err := json.Unmarshal([]byte(r.string()), &p.Subscription); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if p.Subscription == nil || !p.Subscription.complete() {
			return nil, ErrFormat
		}
		r.entries(p)
	case KindReading:
		if json.Unmarshal([]byte(r.string()), &p.Reading) != nil || p.Reading == nil {
			return nil, ErrFormat
		}
	case KindRefusal:
		p.RefusedCode = r.string()
		p.RefusedCount = r.uvarint()
		if len(r.b) > 0 && (json.Unmarshal([]byte(r.string()), &p.Message) != nil || p.Message == nil) {
			return nil, ErrFormat
		}
	case KindTick, KindProbe:
	default:
		return nil, ErrFormat
	}
	if r.failed || len(r.b) != 0 {
		return nil, ErrFormat
	}
	return p, nil
}

// complete reports whether the entry has what its operation needs.
func (c *Control) complete() bool {
	switch c.Op {
	case OpConfigure:
		return c.Settings != nil
	case OpPutTopic:
		return c.Policy != nil
	case OpFound:
		return c.Founding != nil
	case OpAgent:
		return c.Change != ""
	case OpVerbs:
		return c.Verbs != ""
	case OpBus:
		return c.Key != ""
	case OpDeleteTopic, OpRetire, OpCompact:
		return true
	}
	return false
}

// reader consumes an encoding; once it has failed it yields zero values.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.failed = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.failed = true
		return 0
	}
	return uint32(v)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.failed = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.take(r.uvarint())) }

func (r *reader) request(p *Proposal) {
	bits := r.byte()
	if bits > bitsKnown {
		r.failed = true
		return
	}
	p.Batch = bits&bitBatch != 0
	p.Condition.IfMatchAny = bits&bitIfMatchAny != 0
	p.Condition.IfNoneMatch = bits&bitIfNoneMatch != 0
	if bits&bitIdempotency != 0 {
		p.Idempotency.Set = true
		copy(p.Idempotency.Scope[:], r.take(16))
		copy(p.Idempotency.Request[:], r.take(16))
	}
	if bits&bitIfMatch != 0 {
		p.Condition.IfMatch = make([]uint64, r.count())
		for i := range p.Condition.IfMatch {
			p.Condition.IfMatch[i] = r.uvarint()
		}
	}
	if bits&bitSchema != 0 {
		r.schema(&p.Schema)
	}
	if bits&bitMessage != 0 && (json.Unmarshal([]byte(r.string()), &p.Message) != nil || p.Message == nil) {
		r.failed = true
	}
}

// count is the length of a list whose entries take a byte or more each.
func (r *reader) count() uint64 {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.failed = true
		return 0
	}
	return n
}

func (r *reader) schema(c *SchemaCheck) {
	copy(c.Hash[:], r.take(16))
	if c.Hash == ([16]byte{}) {
		r.failed = true
	}
	for n := r.count(); n > 0 && !r.failed; n-- {
		f := SchemaFault{Entry: int(r.uint32())}
		f.Pointer, f.Keyword, f.Text = r.string(), r.string(), r.string()
		c.Faults = append(c.Faults, f)
	}
}

func (r *reader) entries(p *Proposal) {
	count := r.uvarint()
	if count > event.MaxBatch {
		r.failed = true
		return
	}
	p.Entries = make([]Entry, count)
	for i := range p.Entries {
		r.entry(&p.Entries[i])
	}
}

func (r *reader) entry(e *Entry) {
	e.ID = r.string()
	e.Source = r.string()
	e.Flags = EntryFlags(r.byte())
	hasKey := r.byte()
	if hasKey > 1 {
		r.failed = true
	}
	e.HasKey = hasKey == 1
	e.Key = r.string()
	e.HLC = event.HLC(r.uvarint())
	e.ExpiryMillis = r.varint()
	e.WireBytes = r.uint32()
	copy(e.Identity.ID[:], r.take(16))
	copy(e.Identity.Source[:], r.take(8))
	copy(e.Content[:], r.take(16))
	copy(e.Salt[:], r.take(16))
	copy(e.Body[:], r.take(32))
	e.DataOffset = r.uint32()
	e.DataLength = r.uint32()
	e.Members = append([]byte(nil), r.take(r.uvarint())...)
	if uint64(e.DataOffset)+uint64(e.DataLength) > uint64(len(e.Members)) {
		r.failed = true
	}
}
