// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"crypto/sha256"
	"encoding/binary"

	"signalbox/event"
)

// leafVersion is the layout of an audit leaf:
//
//	SHA-256(version ‖ index ‖ kind ‖ log_ms ‖ position ‖ HLC ‖ flags ‖ topic ‖ body)
//
// with version, kind and flags one byte each, the other numbers 8 bytes
// big-endian, topic preceded by its length in 4 bytes, and body the 32 bytes
// SHA-256(salt ‖ body). The chain is head' = SHA-256(head ‖ leaf), from 32
// zero bytes on.
const leafVersion = 1

// Kinds of audit leaves.
const (
	leafEvent   = 1 // flags: the outcome
	leafControl = 2 // body: the control entry, unsalted
	leafRefusal = 3 // body: the code
)

type leaf struct {
	kind     byte
	position uint64
	hlc      event.HLC
	flags    byte
	topic    string
	body     [32]byte
}

// chain appends a leaf to the audit chain, and returns its index.
func (p *Projector) chain(l leaf) uint64 {
	index := p.space.Leaves
	b := append(p.scratch[:0], leafVersion)
	b = binary.BigEndian.AppendUint64(b, index)
	b = append(b, l.kind)
	b = binary.BigEndian.AppendUint64(b, uint64(p.space.LogMillis))
	b = binary.BigEndian.AppendUint64(b, l.position)
	b = binary.BigEndian.AppendUint64(b, uint64(l.hlc))
	b = append(b, l.flags)
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.topic)))
	b = append(b, l.topic...)
	b = append(b, l.body[:]...)
	p.scratch = b

	sum := sha256.Sum256(b)
	p.leaves = append(p.leaves, sum[:]...)
	p.space.Leaves++
	p.space.Chain = NextChain(p.space.Chain, sum)
	return index
}

// NextChain returns the chain head after a leaf.
func NextChain(head, leaf [32]byte) [32]byte {
	var b [64]byte
	copy(b[:32], head[:])
	copy(b[32:], leaf[:])
	return sha256.Sum256(b[:])
}

func (p *Projector) refusalLeaf(topic, code string) {
	p.chain(leaf{kind: leafRefusal, topic: topic, body: sha256.Sum256([]byte(code))})
}
