// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"math/bits"
)

// bloomFilter is a Bloom filter of the identities of one segment (Bloom 1970): of
// 70,000 strangers it takes one for known. That matters, as there are hundreds of
// segments, and each such mistake costs a look-up, mostly of a block that is in no
// cache. The nil filter knows nothing, and says maybe.
type bloomFilter [bloomBits / 64]uint64

const (
	bloomBits   = segmentRecords * 24
	bloomProbes = 12
)

// probes are the bits of an identity, the same in every filter.
type probes [bloomProbes]uint32

// probesOf derives them from two hashes (Kirsch and Mitzenmacher 2006).
func probesOf(h [2]uint64) (at probes) {
	for i := range at {
		bit, _ := bits.Mul64(h[0], bloomBits)
		at[i] = uint32(bit)
		h[0] += h[1]
	}
	return at
}

func (f *bloomFilter) add(at *probes) {
	if f == nil {
		return
	}
	for _, bit := range at {
		f[bit/64] |= 1 << (bit % 64)
	}
}

func (f *bloomFilter) mayHave(at *probes) bool {
	if f == nil {
		return true
	}
	for _, bit := range at {
		if f[bit/64]>>(bit%64)&1 == 0 {
			return false
		}
	}
	return true
}

func (f *bloomFilter) append(dst []byte) []byte {
	for _, word := range f {
		dst = binary.LittleEndian.AppendUint64(dst, word)
	}
	return dst
}

// decodeBloomFilter reads what loadFilter has checked.
func decodeBloomFilter(b []byte) *bloomFilter {
	f := &bloomFilter{}
	for i := range f {
		f[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return f
}

// bloomSlices are the filters of 64 segments, transposed: word b has bit b of each
// filter, that of filter s in its bit s. So a probe asks all of them with one access
// to memory, and after a few none is left (bit-sliced signatures, as in BitFunnel,
// Goodwin et al. 2017). They are 12 MiB.
type bloomSlices [bloomBits]uint64

// add puts in filters that are not there yet, the first as that of segment s.
func (b *bloomSlices) add(s int, filters ...*bloomFilter) {
	if len(filters) == 1 {
		b.addOne(s, filters[0])
		return
	}
	var square [64]uint64
	for word := range len(bloomFilter{}) {
		clear(square[:])
		for i, f := range filters {
			square[s+i] = f[word]
		}
		transpose(&square)
		for i, w := range square {
			b[64*word+i] |= w
		}
	}
}

// addOne is add for the one filter that a record completes, beside which there is
// nothing to transpose.
func (b *bloomSlices) addOne(s int, f *bloomFilter) {
	for word, w := range f {
		row := (*[64]uint64)(b[64*word:])
		for i := range row {
			row[i] |= w >> i & 1 << s
		}
	}
}

// mayHave has a bit for each segment that may have the identity.
func (b *bloomSlices) mayHave(at *probes) uint64 {
	segments := ^uint64(0)
	for _, bit := range at {
		if segments &= b[bit]; segments == 0 {
			break
		}
	}
	return segments
}

// transpose exchanges rows and columns of a square of bits: those of its quarters
// that are not on the diagonal, then those of each quarter, and so on.
func transpose(square *[64]uint64) {
	low := ^uint64(0)
	for half := 32; half > 0; half /= 2 {
		low ^= low << half
		for row := range 64 {
			if row&half != 0 {
				continue
			}
			differ := (square[row]>>half ^ square[row+half]) & low
			square[row] ^= differ << half
			square[row+half] ^= differ
		}
	}
}
