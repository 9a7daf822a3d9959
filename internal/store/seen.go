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
	// there are two, to 101 MB, for 33 million events in a window. The last segment
	// takes in whatever comes beyond, without a filter: then each event costs a
	// look-up more.
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

// seenGeneration has a filter for each segment; but the segment that has the number
// segmentsMax-1 has none.
type seenGeneration struct {
	complete uint32         // segments without room
	slices   []*bloomSlices // their filters, 64 in each
	open     *bloomFilter   // that of the next segment
	held     uint32         // records in that
}

// completed takes in the filters of the next segments, of which there are no more
// than the last slices have room for.
func (g *seenGeneration) completed(filters ...*bloomFilter) {
	if g.complete%64 == 0 {
		g.slices = append(g.slices, &bloomSlices{})
	}
	g.slices[g.complete/64].add(int(g.complete%64), filters...)
	g.complete += uint32(len(filters))
	g.open = newBloomFilter(g.complete)
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
	return seenPlace{g.complete, g.held}
}

// add notes a committed record. It returns the filter of the segment that the
// record completes.
func (f *seenFilter) add(generation uint32, at seenPlace, identity [2]uint64) *bloomFilter {
	g := f.generation(generation)
	probes := probesOf(identity)
	g.open.add(&probes)
	next := at.next()
	g.held = next.index
	if next.segment == at.segment {
		return nil
	}
	full := g.open
	g.completed(full)
	return full
}

// candidates appends the segments that may have a record of the identity,
// the youngest first.
func (f *seenFilter) candidates(dst []uint32, generation uint32, identity [2]uint64) []uint32 {
	g := f.generations[generation]
	if g == nil {
		return dst
	}
	at := probesOf(identity)
	if g.open.mayHave(&at) {
		dst = append(dst, g.complete)
	}
	for i := len(g.slices) - 1; i >= 0; i-- {
		for found := g.slices[i].mayHave(&at); found != 0; {
			s := bits.Len64(found) - 1
			dst = append(dst, uint32(64*i+s))
			found &^= 1 << s
		}
	}
	return dst
}

func (f *seenFilter) drop(generation uint32) { delete(f.generations, generation) }

// identityHash mixes what is a cryptographic hash already with the topic: many
// topics may have the same ids.
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
	var waiting []*bloomFilter // they go in together, which is cheaper
	var g *seenGeneration
	flush := func() {
		if len(waiting) > 0 {
			g.completed(waiting...)
			waiting = waiting[:0]
		}
	}
	err := scan(r, []byte{prefixFilter}, func(key, value []byte) error {
		generation, segment, filter, err := loadFilter(r, key, value)
		if err != nil {
			return err
		}
		if next := f.generation(generation); next != g {
			flush()
			g = next
		}
		if due := g.complete + uint32(len(waiting)); segment != due {
			return Damagedf("there is a deduplication filter of segment %d where that of segment %d should be", segment, due)
		}
		if waiting = append(waiting, filter); segment%64 == 63 {
			flush()
		}
		return nil
	})
	flush()
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
	last := g.complete
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
	if g.open == nil {
		return after, nil // the one that is never complete
	}
	g.held, err = g.open.fill(r, k.generation, last)
	return after, err
}

// fill adds the records of a segment, and counts them.
func (f *bloomFilter) fill(r pebble.Reader, generation, segment uint32) (records uint32, err error) {
	err = scan(r, appendSegmentKey(nil, prefixSeen, generation, segment), func(key, _ []byte) error {
		k, err := decodeSeenKey(key)
		if err == nil {
			at := probesOf(identityHash(k.topic, &k.identity))
			f.add(&at)
			records++
		}
		return err
	})
	return records, err
}

func (f *seenFilter) generation(number uint32) *seenGeneration {
	g := f.generations[number]
	if g == nil {
		g = &seenGeneration{open: newBloomFilter(0)}
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

func newBloomFilter(segment uint32) *bloomFilter {
	if segment >= segmentsMax-1 {
		return nil
	}
	return &bloomFilter{}
}

// filterBytesBefore is how long filters were up to feature level 3. Such a segment is
// read again, until its generation is gone.
const filterBytesBefore = segmentRecords * 16 / 8

// loadFilter reads the row of a complete segment's filter.
func loadFilter(r pebble.Reader, key, value []byte) (generation, segment uint32, f *bloomFilter, err error) {
	if len(key) != 1+4+4 || len(value) != bloomBits/8 && len(value) != filterBytesBefore {
		return 0, 0, nil, Damagedf("a deduplication filter has a key of %d and a value of %d bytes", len(key), len(value))
	}
	generation, segment = binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint32(key[5:])
	if len(value) == filterBytesBefore {
		f = &bloomFilter{}
		_, err = f.fill(r, generation, segment)
		return generation, segment, f, err
	}
	return generation, segment, decodeBloomFilter(value), nil
}
