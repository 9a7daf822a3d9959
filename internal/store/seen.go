// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"

	"signalbox/internal/eventlog"
)

// Deduplication records are sought by identities, which are random, but stored
// in the order of first sight, in segments of a fixed number of records; within
// a segment they are ordered by identity. So what a memtable holds of them
// seldom overlaps with what was written before, and is not rewritten: sorted by
// identity throughout they were nearly all that was compacted, a sixth of the
// cost of publishing.
//
// In which segment an identity may be is told by the seenFilter.

const (
	// segmentRecords is about what one memtable takes in of events of half a
	// kilobyte.
	segmentRecords = 1 << 16
	// segmentsMax bounds the memory for the filters of a generation, of which
	// there are two, to 67 MB, for 33 million events in a window. The last segment
	// takes in whatever comes beyond, without a filter: then each event costs a
	// look-up more, beside the one in a thousand of every segment that is in vain.
	segmentsMax = 1 << 9
)

// seenFilter tells in which segments an identity may have a record: in none, for
// almost every event. It holds what is committed, in a Bloom filter for each
// segment. A filter is stored with the record that completes its segment, so that
// a start need not read all records again.
//
// It belongs to the goroutine that applies.
type seenFilter struct {
	generations map[uint32]*seenGeneration
}

// seenGeneration has one filter for each segment, the last of which has room;
// but the segment that has the number segmentsMax-1 has none.
type seenGeneration struct {
	filters []*bloomFilter
	held    uint32 // records in the last segment
}

// seenPlace is where a record goes: index is the number of records that the
// segment has before.
type seenPlace struct{ segment, index uint32 }

func (p seenPlace) next() seenPlace {
	if p.index+1 < segmentRecords || p.segment == segmentsMax-1 {
		return seenPlace{p.segment, p.index + 1}
	}
	return seenPlace{p.segment + 1, 0}
}

func newSeenFilter() *seenFilter { return &seenFilter{generations: map[uint32]*seenGeneration{}} }

// next is the place of the first record that is not committed.
func (f *seenFilter) next(generation uint32) seenPlace {
	g := f.generations[generation]
	if g == nil {
		return seenPlace{}
	}
	return seenPlace{uint32(max(len(g.filters), 1) - 1), g.held}
}

// add notes a committed record. It returns the filter of the segment that the
// record completes.
func (f *seenFilter) add(generation uint32, at seenPlace, identity [2]uint64) *bloomFilter {
	g := f.generation(generation)
	if len(g.filters) == 0 {
		g.filters = append(g.filters, newBloomFilter(0))
	}
	filter := g.filters[at.segment]
	filter.add(identity)
	next := at.next()
	g.held = next.index
	if next.segment == at.segment {
		return nil
	}
	g.filters = append(g.filters, newBloomFilter(next.segment))
	return filter
}

// candidates appends the segments that may have a record of the identity,
// the youngest first.
func (f *seenFilter) candidates(dst []uint32, generation uint32, identity [2]uint64) []uint32 {
	g := f.generations[generation]
	if g == nil {
		return dst
	}
	block := bloomBlock(identity)
	for i := len(g.filters) - 1; i >= 0; i-- {
		if g.filters[i].mayHave(block, identity) {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}

func (f *seenFilter) drop(generation uint32) { delete(f.generations, generation) }

// identityHash mixes what is a cryptographic hash already with the topic: many
// topics may have the same ids, and must not share their block.
func identityHash(topic uint32, identity *eventlog.IdentityHash) [2]uint64 {
	t := uint64(topic)
	return [2]uint64{
		binary.LittleEndian.Uint64(identity.ID[:8]) ^ binary.LittleEndian.Uint64(identity.Source[:]) ^ t*0xd1b54a32d192ed03,
		binary.LittleEndian.Uint64(identity.ID[8:]) ^ t*0x9e3779b97f4a7c15,
	}
}

// loadSeenFilter reads the filters of the complete segments, and the records of
// the one in each generation that is not.
func loadSeenFilter(r pebble.Reader) (*seenFilter, error) {
	f := newSeenFilter()
	err := scan(r, []byte{prefixFilter}, func(key, value []byte) error {
		generation, segment, err := decodeFilterKey(key, value)
		if err != nil {
			return err
		}
		g := f.generation(generation)
		if segment != uint32(len(g.filters)) {
			return Damagedf("the deduplication filter of segment %d is followed by that of segment %d", len(g.filters)-1, segment)
		}
		g.filters = append(g.filters, decodeBloomFilter(value))
		return nil
	})
	for from := []byte{prefixSeen}; err == nil && from != nil; {
		from, err = f.loadRecords(r, from)
	}
	return f, err
}

// loadRecords finds the first generation that has records from a key on, reads
// those of its last segment, and returns the key that is after the generation;
// nil if there was none.
func (f *seenFilter) loadRecords(r pebble.Reader, from []byte) (after []byte, err error) {
	key, err := firstKey(r, from, []byte{prefixSeen + 1})
	if err != nil || key == nil {
		return nil, err
	}
	k, err := decodeSeenKey(key)
	if err != nil {
		return nil, err
	}
	g := f.generation(k.generation)
	last := uint32(len(g.filters))
	g.filters = append(g.filters, newBloomFilter(last))
	after = successor(appendUint32Key(nil, prefixSeen, k.generation))
	// Without its filter a segment would be taken for the last one, and records
	// behind it would never be found.
	beyond, err := firstKey(r, appendSegmentKey(nil, prefixSeen, k.generation, last+1), after)
	if err != nil {
		return nil, err
	}
	if beyond != nil {
		return nil, Damagedf("the deduplication filter of segment %d of generation %d is missing", last, k.generation)
	}
	if g.filters[last] == nil {
		return after, nil // the one that is never complete
	}
	return after, scan(r, appendSegmentKey(nil, prefixSeen, k.generation, last), func(key, _ []byte) error {
		k, err := decodeSeenKey(key)
		if err == nil {
			g.filters[last].add(identityHash(k.topic, &k.identity))
			g.held++
		}
		return err
	})
}

func (f *seenFilter) generation(number uint32) *seenGeneration {
	g := f.generations[number]
	if g == nil {
		g = &seenGeneration{}
		f.generations[number] = g
	}
	return g
}

type seenKey struct {
	generation, segment, topic uint32
	identity                   eventlog.IdentityHash
}

func decodeSeenKey(key []byte) (k seenKey, err error) {
	if len(key) != 1+4+4+4+16+8 {
		return k, Damagedf("a deduplication key has %d bytes", len(key))
	}
	k.generation = binary.BigEndian.Uint32(key[1:])
	k.segment = binary.BigEndian.Uint32(key[5:])
	k.topic = binary.BigEndian.Uint32(key[9:])
	copy(k.identity.ID[:], key[13:])
	copy(k.identity.Source[:], key[29:])
	return k, nil
}

// bloomFilter is a blocked Bloom filter (Putze, Sanders, Singler 2007) of the
// identities of one segment, sixteen bits for each. Seven bits are set within
// one cache line. The nil filter knows nothing, and says maybe.
type bloomFilter struct {
	blocks [bloomBlocks][8]uint64
}

const (
	bloomBlockBytes = 64
	bloomBlocks     = segmentRecords * 16 / (bloomBlockBytes * 8)
	bloomProbes     = 7
)

func newBloomFilter(segment uint32) *bloomFilter {
	if segment >= segmentsMax-1 {
		return nil
	}
	return &bloomFilter{}
}

// bloomBlock is the number of an identity's block, the same in every filter.
func bloomBlock(h [2]uint64) uint64 {
	block, _ := bits.Mul64(h[0], bloomBlocks)
	return block
}

func (f *bloomFilter) add(h [2]uint64) {
	if f == nil {
		return
	}
	block := &f.blocks[bloomBlock(h)]
	bit := h[1]
	for range bloomProbes {
		block[bit>>6&7] |= 1 << (bit & 63)
		bit >>= 9
	}
}

func (f *bloomFilter) mayHave(at uint64, h [2]uint64) bool {
	if f == nil {
		return true
	}
	block := &f.blocks[at]
	bit := h[1]
	for range bloomProbes {
		if block[bit>>6&7]&(1<<(bit&63)) == 0 {
			return false
		}
		bit >>= 9
	}
	return true
}

func decodeFilterKey(key, value []byte) (generation, segment uint32, err error) {
	if len(key) != 1+4+4 || len(value) != bloomBlocks*bloomBlockBytes {
		return 0, 0, Damagedf("a deduplication filter has a key of %d and a value of %d bytes", len(key), len(value))
	}
	return binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint32(key[5:]), nil
}

func (f *bloomFilter) append(dst []byte) []byte {
	for i := range f.blocks {
		for _, word := range f.blocks[i] {
			dst = binary.LittleEndian.AppendUint64(dst, word)
		}
	}
	return dst
}

// decodeBloomFilter reads what decodeFilterKey has checked.
func decodeBloomFilter(b []byte) *bloomFilter {
	f := &bloomFilter{}
	for i := range f.blocks {
		for j := range f.blocks[i] {
			f.blocks[i][j] = binary.LittleEndian.Uint64(b[(8*i+j)*8:])
		}
	}
	return f
}
