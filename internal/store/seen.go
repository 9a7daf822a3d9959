// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"signalbox/internal/eventlog"
)

// seenFilter spares apply the look-up of identities that were never seen,
// which almost all are: it was a fifth of the cost of publishing. It is a Bloom
// filter for each generation, kept in memory. It never errs when it says no;
// when it does not know (rows from before the start that are still being read,
// or more rows than it may hold) it says maybe.
//
// It belongs to the goroutine that applies, but for loaded.
type seenFilter struct {
	live   map[uint32]*bloomFilter                 // what was set since the start, by generation
	loaded atomic.Pointer[map[uint32]*bloomFilter] // what was there at the start; nil while it is being read
}

// seenFilterBytes bounds a generation's filter: some fifty million events in a
// window. Beyond that the rows are looked up.
const seenFilterBytes = 64 << 20

func newSeenFilter() *seenFilter { return &seenFilter{live: map[uint32]*bloomFilter{}} }

func (f *seenFilter) add(generation, topic uint32, identity *eventlog.IdentityHash) {
	b := f.live[generation]
	if b == nil {
		b = &bloomFilter{bytesMax: seenFilterBytes}
		f.live[generation] = b
	}
	b.add(identityHash(topic, identity))
}

func (f *seenFilter) mayHave(generation, topic uint32, identity *eventlog.IdentityHash) bool {
	loaded := f.loaded.Load()
	if loaded == nil {
		return true
	}
	h := identityHash(topic, identity)
	return f.live[generation].mayHave(h) || (*loaded)[generation].mayHave(h)
}

func (f *seenFilter) drop(generation uint32) {
	delete(f.live, generation)
	if loaded := f.loaded.Load(); loaded != nil {
		delete(*loaded, generation)
	}
}

// identityHash mixes what is a cryptographic hash already.
func identityHash(topic uint32, identity *eventlog.IdentityHash) [2]uint64 {
	return [2]uint64{
		binary.LittleEndian.Uint64(identity.ID[:8]) ^ binary.LittleEndian.Uint64(identity.Source[:]),
		binary.LittleEndian.Uint64(identity.ID[8:]) ^ uint64(topic)*0x9e3779b97f4a7c15,
	}
}

// LoadSeen reads the identities that were stored when the store was opened, so
// that they need not be looked up one by one. It is meant to run beside apply,
// and ends early when stop is closed. The view must have been taken before the
// first commit since.
func (s *Store) LoadSeen(v *View, stop <-chan struct{}) error {
	loaded := map[uint32]*bloomFilter{}
	rows := 0
	err := scan(v.snapshot, []byte{prefixSeen}, func(key, _ []byte) error {
		if rows++; rows%4096 == 0 {
			select {
			case <-stop:
				return errStop
			default:
			}
		}
		if len(key) != 1+4+4+16+8 {
			return fmt.Errorf("%w: a deduplication key has %d bytes", ErrDamaged, len(key))
		}
		var identity eventlog.IdentityHash
		copy(identity.ID[:], key[9:])
		copy(identity.Source[:], key[25:])
		generation := binary.BigEndian.Uint32(key[1:])
		if loaded[generation] == nil {
			loaded[generation] = &bloomFilter{bytesMax: seenFilterBytes}
		}
		loaded[generation].add(identityHash(binary.BigEndian.Uint32(key[5:]), &identity))
		return nil
	})
	if err == nil {
		s.seen.loaded.Store(&loaded)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// bloomFilter is a blocked Bloom filter (Putze, Sanders, Singler 2007) that
// grows by layers: each is filled to ten bits a key, and has twice the size of
// the one before. Six bits are set within one cache line of a layer. The nil
// filter is empty.
type bloomFilter struct {
	layers   []bloomLayer
	bytes    int
	bytesMax int
	full     bool // more was added than it holds: it knows nothing any more
}

type bloomLayer struct {
	blocks [][8]uint64
	room   int // how many more keys it takes
}

const (
	bloomBlockBytes  = 64
	bloomBlockKeys   = bloomBlockBytes * 8 / 10
	bloomFirstBlocks = 1 << 11
	bloomProbes      = 6
)

func (f *bloomFilter) add(h [2]uint64) {
	if f.full {
		return
	}
	if len(f.layers) == 0 || f.layers[len(f.layers)-1].room == 0 {
		blocks := bloomFirstBlocks << len(f.layers)
		if f.bytes+blocks*bloomBlockBytes > f.bytesMax {
			f.full, f.layers = true, nil
			return
		}
		f.bytes += blocks * bloomBlockBytes
		f.layers = append(f.layers, bloomLayer{blocks: make([][8]uint64, blocks), room: blocks * bloomBlockKeys})
	}
	layer := &f.layers[len(f.layers)-1]
	layer.room--
	block := layer.block(h)
	bit := h[1]
	for range bloomProbes {
		block[bit>>6&7] |= 1 << (bit & 63)
		bit >>= 9
	}
}

func (f *bloomFilter) mayHave(h [2]uint64) bool {
	if f == nil {
		return false
	}
	if f.full {
		return true
	}
	for i := range f.layers {
		if f.layers[i].mayHave(h) {
			return true
		}
	}
	return false
}

func (l *bloomLayer) block(h [2]uint64) *[8]uint64 {
	index, _ := bits.Mul64(h[0], uint64(len(l.blocks)))
	return &l.blocks[index]
}

func (l *bloomLayer) mayHave(h [2]uint64) bool {
	block := l.block(h)
	bit := h[1]
	for range bloomProbes {
		if block[bit>>6&7]&(1<<(bit&63)) == 0 {
			return false
		}
		bit >>= 9
	}
	return true
}
