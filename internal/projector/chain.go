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

// append appends what is hashed of a leaf.
func (l *leaf) append(dst []byte, index uint64, logMillis int64) []byte {
	dst = append(dst, leafVersion)
	dst = binary.BigEndian.AppendUint64(dst, index)
	dst = append(dst, l.kind)
	dst = binary.BigEndian.AppendUint64(dst, uint64(logMillis))
	dst = binary.BigEndian.AppendUint64(dst, l.position)
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.hlc))
	dst = append(dst, l.flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(l.topic)))
	dst = append(dst, l.topic...)
	return append(dst, l.body[:]...)
}

// chain appends a leaf to the audit chain, and returns its index.
func (p *Projector) chain(l leaf) uint64 {
	index := p.space.Leaves
	p.scratch = l.append(p.scratch[:0], index, p.space.LogMillis)
	sum := sha256.Sum256(p.scratch)
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
