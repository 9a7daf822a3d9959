// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// The rows of the audit trail are written once and never change, so whoever reads
// them needs no snapshot: it has to stay below the number of leaves that are
// durable, which the apply loop announces. The nodes of the tree and the
// checkpoints are made from the leaves beside the apply loop, see
// [Store.WriteAudit].

// TreeNode is a b row.
type TreeNode struct {
	Root  [32]byte
	Chain [32]byte // the chain's head behind it; of level 1 only
}

func decodeTreeNode(b []byte) (n TreeNode, err error) {
	if len(b) != 64 {
		return n, Damagedf("a node of the audit tree has %d bytes", len(b))
	}
	copy(n.Root[:], b)
	copy(n.Chain[:], b[32:])
	return n, nil
}

// LeafRow is what one commit added to the audit trail.
type LeafRow struct {
	First   uint64
	Leaves  []byte // 32 bytes each
	Entries []byte // see audit.AppendEntry; nil where only the leaves were kept
}

// LeafRows calls each with the rows from that of a leaf on, until it returns
// false. A row is valid during the call. Entries are read only if asked for.
func (s *Store) LeafRows(from uint64, entries bool, each func(LeafRow) (more bool, err error)) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixLeaves}, UpperBound: []byte{prefixLeaves + 1}})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	var beside *pebble.Iterator
	if entries {
		if beside, err = s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixEntries}, UpperBound: []byte{prefixEntries + 1}}); err != nil {
			return readError(err)
		}
		defer func() { err = errors.Join(err, closeIterator(beside)) }()
	}
	ok, placed := it.SeekLT(appendUint64Key(nil, prefixLeaves, from+1)), false
	for ; ok; ok = it.Next() {
		l, err := decodeLeaves(it.Key(), it.Value())
		if err != nil {
			return err
		}
		row := LeafRow{First: l.First, Leaves: l.Leaves}
		if entries {
			row.Entries, placed = entriesAt(beside, l.First, placed)
		}
		more, err := each(row)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// entriesAt returns the l row of a commit, for ascending commits.
func entriesAt(it *pebble.Iterator, first uint64, placed bool) (entries []byte, stays bool) {
	if !placed {
		it.SeekGE(appendUint64Key(nil, prefixEntries, first))
	}
	for ; it.Valid(); it.Next() {
		switch at := binary.BigEndian.Uint64(it.Key()[1:]); {
		case at == first:
			return it.Value(), true
		case at > first:
			return nil, true
		}
	}
	return nil, true
}

// TreeNodes returns the nodes of a level in [from, to).
func (s *Store) TreeNodes(level uint8, from, to uint64) ([]TreeNode, error) {
	nodes := make([]TreeNode, 0, to-from)
	err := scanRange(s.db, appendTreeKey(nil, level, from), appendTreeKey(nil, level, to), func(key, value []byte) error {
		if binary.BigEndian.Uint64(key[2:]) != from+uint64(len(nodes)) {
			return Damagedf("node %d of level %d of the audit tree is missing", from+uint64(len(nodes)), level)
		}
		n, err := decodeTreeNode(value)
		nodes = append(nodes, n)
		return err
	})
	if err == nil && uint64(len(nodes)) != to-from {
		err = Damagedf("the audit tree has %d nodes of level %d from %d on in place of %d", len(nodes), level, from, to-from)
	}
	return nodes, err
}

// TreeSize returns how many nodes of a level there are.
func (s *Store) TreeSize(level uint8) (n uint64, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendTreeKey(nil, level, 0), UpperBound: []byte{prefixTree, level + 1}})
	if err != nil {
		return 0, readError(err)
	}
	if it.Last() {
		n = binary.BigEndian.Uint64(it.Key()[2:]) + 1
	}
	return n, closeIterator(it)
}

// Checkpoints calls each with the stored checkpoints from a size on, until it
// returns false. They are valid during the call.
func (s *Store) Checkpoints(from uint64, each func(size uint64, signed []byte) (more bool, err error)) error {
	return scanWhile(s.db, appendUint64Key(nil, prefixCheckpoint, from), []byte{prefixCheckpoint + 1}, func(key, value []byte) (bool, error) {
		return each(binary.BigEndian.Uint64(key[1:]), value)
	})
}

// LastCheckpoint returns the largest stored checkpoint that is not larger than a
// size; nil if there is none.
func (s *Store) LastCheckpoint(size uint64) (signed []byte, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixCheckpoint}, UpperBound: []byte{prefixCheckpoint + 1}})
	if err != nil {
		return nil, readError(err)
	}
	if it.SeekLT(appendUint64Key(nil, prefixCheckpoint, size+1)) {
		signed = append([]byte(nil), it.Value()...)
	}
	return signed, closeIterator(it)
}

// Outside returns how many entries of the trail a place outside is known to have.
func (s *Store) Outside(name string) (entries uint64, err error) {
	_, err = get(s.db, appendNameKey(nil, prefixOutside, name), func(value []byte) error {
		if len(value) != 8 {
			return Damagedf("the row of a place outside has %d bytes", len(value))
		}
		entries = binary.BigEndian.Uint64(value)
		return nil
	})
	return entries, err
}

// WriteAudit stores nodes of the tree, checkpoints, and how far places outside are, as
// [Store.Reclaim] does.
func (s *Store) WriteAudit(b *Batch) error { return s.Reclaim(b) }
