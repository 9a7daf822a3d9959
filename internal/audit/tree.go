// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Hash is a hash of the Merkle tree.
type Hash = tlog.Hash

// LeafHash returns the tree's hash of a leaf, which is that of [tlog.RecordHash]
// without its allocation.
func LeafHash(leaf [32]byte) Hash {
	var b [33]byte
	copy(b[1:], leaf[:])
	return sha256.Sum256(b[:])
}

// Range computes the root of a growing tree. It holds one hash for each one bit
// of the tree's size.
type Range struct {
	size   uint64
	hashes []Hash // roots of complete subtrees, the largest first
}

// NewRange goes on behind a tree of which the roots of its complete subtrees are
// known, the largest first; it reports false if their number is not that of such
// a tree.
func NewRange(size uint64, subtrees []Hash) (Range, bool) {
	return Range{size, append([]Hash(nil), subtrees...)}, len(subtrees) == bits.OnesCount64(size)
}

// Size is the number of leaves.
func (r *Range) Size() uint64 { return r.size }

// Subtrees are the roots of the complete subtrees, the largest first.
func (r *Range) Subtrees() []Hash { return r.hashes }

// Add appends the hash of a leaf, or of a complete subtree if the range is one of
// subtrees of that size.
func (r *Range) Add(h Hash) {
	for n := r.size; n&1 == 1; n >>= 1 {
		last := len(r.hashes) - 1
		h = tlog.NodeHash(r.hashes[last], h)
		r.hashes = r.hashes[:last]
	}
	r.hashes = append(r.hashes, h)
	r.size++
}

// Root returns the root of the tree as it is.
func (r *Range) Root() Hash {
	if r.size == 0 {
		return sha256.Sum256(nil)
	}
	h := r.hashes[len(r.hashes)-1]
	for i := len(r.hashes) - 2; i >= 0; i-- {
		h = tlog.NodeHash(r.hashes[i], h)
	}
	return h
}

// Root returns the root over complete subtrees of equal size, or over leaves.
func Root(hashes []Hash) Hash {
	var r Range
	for _, h := range hashes {
		r.Add(h)
	}
	return r.Root()
}

// Nodes returns the root of the complete subtree n over 2^level leaves.
type Nodes func(level int, n uint64) (Hash, error)

// ReadHashes implements tlog.HashReader.
func (nodes Nodes) ReadHashes(indexes []int64) ([]Hash, error) {
	hashes := make([]Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		var err error
		if hashes[i], err = nodes(level, uint64(n)); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

// TreeRoot returns the root over so many leaves.
func TreeRoot(size uint64, nodes Nodes) (Hash, error) { return tlog.TreeHash(int64(size), nodes) }

// ProveInclusion returns the hashes which show that a leaf is in the tree.
func ProveInclusion(size, index uint64, nodes Nodes) ([]Hash, error) {
	proof, err := tlog.ProveRecord(int64(size), int64(index), nodes)
	return append([]Hash{}, proof...), err // never null in JSON
}

// ProveConsistency returns the hashes which show that the tree over to leaves
// begins with the one over from leaves.
func ProveConsistency(from, to uint64, nodes Nodes) ([]Hash, error) {
	if from == 0 || from == to {
		return []Hash{}, nil // the empty tree is the beginning of any, and each of itself
	}
	proof, err := tlog.ProveTree(int64(to), int64(from), nodes)
	return append([]Hash{}, proof...), err
}
