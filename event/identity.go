// SPDX-License-Identifier: Apache-2.0

package event

import (
	"crypto/sha256"
	"encoding/binary"
)

// HashID returns the truncated SHA-256 of an event id, under which the broker
// remembers it.
func HashID(id string) (h [16]byte) {
	sum := sha256.Sum256([]byte(id))
	copy(h[:], sum[:])
	return h
}

// HashSource returns the truncated SHA-256 of an event source.
func HashSource(source string) (h [8]byte) {
	sum := sha256.Sum256([]byte(source))
	copy(h[:], sum[:])
	return h
}

// Digest sums up the state of a compacted topic in 256 buckets, so that two
// parties that hold the same state can see so, and find where they differ if
// they do not. The zero value is the digest of an empty state.
type Digest [256][32]byte

// Toggle adds the winner of a key to the digest, or takes it out again: its
// bucket, chosen by the first byte of SHA-256(key), is XORed with SHA-256 over
// key, HLC, source and id, each preceded by its length in 4 bytes, the HLC
// packed in 8; all integers are big-endian.
func (d *Digest) Toggle(key string, hlc HLC, source, id string) {
	b := make([]byte, 0, 24+len(key)+len(source)+len(id))
	part := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	part(key)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint64(b, uint64(hlc))
	part(source)
	part(id)
	sum := sha256.Sum256(b)
	bucket := &d[sha256.Sum256([]byte(key))[0]]
	for i := range bucket {
		bucket[i] ^= sum[i]
	}
}
