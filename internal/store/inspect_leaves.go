// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// LeavesAt is an L row: the leaves from First on, 32 bytes each.
type LeavesAt struct {
	First  uint64
	Leaves []byte
}

func decodeLeaves(key, value []byte) (l LeavesAt, err error) {
	if len(key) != 1+8 {
		return l, badKey("leaves", key)
	}
	l.First, l.Leaves = binary.BigEndian.Uint64(key[1:]), value
	if len(value) == 0 || len(value)%32 != 0 {
		return l, Damagedf("a row of audit leaves has %d bytes, which is no multiple of 32", len(value))
	}
	return l, nil
}

// EntriesAt is an l row.
type EntriesAt struct {
	First   uint64
	Entries []byte
}

// Entries walks the l rows. A row is valid during the call.
func (in *Inspector) Entries(each func(EntriesAt, error) error) error {
	return walk(in, prefixEntries, func(key, value []byte) (e EntriesAt, err error) {
		if len(key) != 1+8 {
			return e, badKey("entries", key)
		}
		return EntriesAt{binary.BigEndian.Uint64(key[1:]), value}, nil
	}, each)
}

// Leaves walks the L rows. A row is valid during the call.
func (in *Inspector) Leaves(each func(LeavesAt, error) error) error {
	return walk(in, prefixLeaves, decodeLeaves, each)
}

// unreadLeaves are how many leaves after one that cannot be read are not tried:
// about half of what a block holds. To read a damaged block takes Pebble a second,
// since it looks for the bit that was flipped.
const unreadLeaves = 256

// Leaf returns one audit leaf. It is fast for indexes that ascend slowly.
func (in *Inspector) Leaf(index uint64) (leaf [32]byte, ok bool, err error) {
	if in.leafErr != nil && index-in.unread < unreadLeaves {
		return leaf, false, in.leafErr
	}
	if !in.leaves.Valid() || !covers(in.leaves, index) {
		if !in.leaves.SeekLT(appendUint64Key(nil, prefixLeaves, index+1)) || !covers(in.leaves, index) {
			if err := in.leaves.Error(); err != nil {
				in.unread, in.leafErr = index, readError(err)
				return leaf, false, in.leafErr
			}
			return leaf, false, nil
		}
	}
	l, err := decodeLeaves(in.leaves.Key(), in.leaves.Value())
	if err != nil {
		return leaf, false, nil // the walk over the leaves reports it
	}
	copy(leaf[:], l.Leaves[32*(index-l.First):])
	return leaf, true, nil
}

func covers(it *pebble.Iterator, index uint64) bool {
	l, err := decodeLeaves(it.Key(), it.Value())
	return err == nil && index >= l.First && index-l.First < uint64(len(l.Leaves)/32)
}
