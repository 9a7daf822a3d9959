// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"signalbox/event"
)

// leafVersion is the layout of a leaf:
//
//	SHA-256(version ‖ index ‖ kind ‖ log_ms ‖ position ‖ HLC ‖ flags ‖ topic ‖ digest)
//
// with version, kind and flags one byte each, the other numbers 8 bytes
// big-endian, topic preceded by its length in 4 bytes, and digest 32 bytes. The
// chain is head' = SHA-256(head ‖ leaf), from 32 zero bytes on.
const leafVersion = 1

// Kind says what an entry is about. The numbers are part of the leaf.
type Kind byte

// The kinds of entries.
const (
	KindEvent    Kind = 1 // an event that was decided; flags: the outcome; digest: SHA-256(salt ‖ body)
	KindControl  Kind = 2 // a change of topics, settings or subscriptions; digest: SHA-256(detail)
	KindRefusal  Kind = 3 // a request that was refused; digest: SHA-256(detail)
	KindDelivery Kind = 4 // what was handed out to a subscription, or became of it; digest: SHA-256(detail)
	KindExpiry   Kind = 5 // an event that its expirytime removed; digest: SHA-256 of nothing
)

var kindNames = [...]string{KindEvent: "event", KindControl: "control", KindRefusal: "refusal", KindDelivery: "delivery", KindExpiry: "expiry"}

// String returns the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// ParseKind returns the kind of a name.
func ParseKind(name string) (Kind, bool) {
	for k, n := range kindNames {
		if n == name && n != "" {
			return Kind(k), true
		}
	}
	return 0, false
}

// Entry is one entry of the audit trail: whatever its leaf is made of.
type Entry struct {
	Index     uint64 // from 0, without gaps
	Kind      Kind
	LogMillis int64
	Position  uint64 // of an event and its expiry
	HLC       event.HLC
	Flags     byte
	Topic     string
	Digest    [32]byte
	// Detail is what Digest is the hash of, where no event is.
	Detail []byte
}

// Flags of an event's entry under which it got its position.
const (
	flagAccepted   = 1
	flagSuperseded = 2
)

// Places reports whether the entry is that by which an event got the position.
func (e *Entry) Places(position uint64) bool {
	return e.Kind == KindEvent && (e.Flags == flagAccepted || e.Flags == flagSuperseded) && e.Position == position
}

// Detailed is an entry that says what it is about by itself.
func Detailed(kind Kind, topic string, detail []byte) Entry {
	return Entry{Kind: kind, Topic: topic, Digest: sha256.Sum256(detail), Detail: detail}
}

// Leaf returns the entry's leaf.
func (e *Entry) Leaf() [32]byte {
	var scratch [256]byte
	return sha256.Sum256(e.appendLeaf(scratch[:0]))
}

func (e *Entry) appendLeaf(dst []byte) []byte {
	dst = append(dst, leafVersion)
	dst = binary.BigEndian.AppendUint64(dst, e.Index)
	dst = append(dst, byte(e.Kind))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.LogMillis))
	dst = binary.BigEndian.AppendUint64(dst, e.Position)
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.HLC))
	dst = append(dst, e.Flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.Topic)))
	dst = append(dst, e.Topic...)
	return append(dst, e.Digest[:]...)
}

// NextChain returns the head of the chain after a leaf.
func NextChain(head, leaf [32]byte) [32]byte {
	var b [64]byte
	copy(b[:32], head[:])
	copy(b[32:], leaf[:])
	return sha256.Sum256(b[:])
}

// AppendEntry appends the stored form of an entry, which lacks its index. It does
// not depend on the entries before it, so that rows can be put behind each other.
func AppendEntry(dst []byte, e *Entry) []byte {
	dst = append(dst, byte(e.Kind), e.Flags)
	dst = binary.AppendUvarint(dst, uint64(e.LogMillis))
	dst = binary.AppendUvarint(dst, e.Position)
	// A clock that nobody set is near the log's time, so the difference is short.
	dst = binary.AppendVarint(dst, int64(uint64(e.HLC)-uint64(e.LogMillis)<<16))
	dst = binary.AppendUvarint(dst, uint64(len(e.Topic)))
	dst = append(dst, e.Topic...)
	dst = append(dst, e.Digest[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(e.Detail)))
	return append(dst, e.Detail...)
}

// DecodeEntry decodes the first stored entry in b and returns what follows it.
// Detail aliases b.
func DecodeEntry(b []byte) (e Entry, rest []byte, err error) {
	r := reader{b: b}
	e.Kind, e.Flags = Kind(r.byte()), r.byte()
	e.LogMillis = int64(r.uvarint())
	e.Position = r.uvarint()
	e.HLC = event.HLC(uint64(e.LogMillis)<<16 + uint64(r.varint()))
	e.Topic = string(r.take(r.uvarint()))
	copy(e.Digest[:], r.take(32))
	if n := r.uvarint(); n > 0 {
		e.Detail = r.take(n)
	}
	if r.failed {
		return Entry{}, nil, fmt.Errorf("audit: the bytes of an entry do not decode")
	}
	return e, r.b, nil
}

// reader consumes a stored entry; once it has failed it yields zero values.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return nil
	}
	out := r.b[:n:n]
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
	return r.advance(v, n)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	return int64(r.advance(uint64(v), n))
}

func (r *reader) advance(v uint64, n int) uint64 {
	if r.failed || n <= 0 {
		r.failed = true
		return 0
	}
	r.b = r.b[n:]
	return v
}
