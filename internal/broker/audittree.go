// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"

	"signalbox/internal/audit"
	"signalbox/internal/store"
)

// auditTree keeps the upper levels of the Merkle tree: of every complete subtree
// over 256^level leaves, from level 1 on, the root. Whatever lies below is
// computed from the leaves, which are stored anyway, so that the tree takes a
// quarter of a byte for each leaf.
type auditTree struct {
	store *store.Store
	nodes uint64 // of level 1 that are stored
	chain [32]byte
	// pending are the nodes of each level that are stored, since the last complete
	// node above them.
	pending [auditLevels][]audit.Hash
}

const (
	auditFan    = 256 // nodes under one of the level above
	auditBits   = 8
	auditLevels = 64/auditBits + 1
	// auditBatchNodes bounds what one write holds in memory.
	auditBatchNodes = 4096
)

// load finds out how far the stored tree is.
func (t *auditTree) load() error {
	for level := 1; level < auditLevels; level++ {
		n, err := t.store.TreeSize(uint8(level))
		if err != nil || n == 0 {
			return err
		}
		nodes, err := t.store.TreeNodes(uint8(level), n&^(auditFan-1), n)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			t.pending[level] = append(t.pending[level], node.Root)
		}
		if level > 1 {
			continue
		}
		t.nodes = n
		last, err := t.store.TreeNodes(1, n-1, n)
		if err != nil {
			return err
		}
		t.chain = last[0].Chain
	}
	return nil
}

// build stores the nodes that so many durable leaves complete.
func (t *auditTree) build(size uint64) (err error) {
	if size/auditFan <= t.nodes {
		return nil
	}
	before := *t
	for level := range t.pending {
		before.pending[level] = append([]audit.Hash(nil), t.pending[level]...)
	}
	defer func() {
		if err != nil {
			*t = before // as what is stored
		}
	}()
	batch, held := t.store.NewBatch(), 0
	var below audit.Range
	err = t.leaves(t.nodes*auditFan, size/auditFan*auditFan, func(leaf [32]byte) error {
		t.chain = audit.NextChain(t.chain, leaf)
		below.Add(audit.LeafHash(leaf))
		if below.Size() < auditFan {
			return nil
		}
		t.add(batch, 1, t.nodes, below.Root(), t.chain)
		t.nodes++
		below = audit.Range{}
		if held++; held < auditBatchNodes {
			return nil
		}
		held = 0
		err := t.store.WriteAudit(batch)
		batch.Close()
		batch = t.store.NewBatch()
		return err
	})
	defer batch.Close()
	if err != nil {
		return err
	}
	return t.store.WriteAudit(batch)
}

// add stores a node, and the one above that it completes.
func (t *auditTree) add(batch *store.Batch, level int, n uint64, root audit.Hash, chain [32]byte) {
	batch.SetTreeNode(uint8(level), n, &store.TreeNode{Root: root, Chain: chain})
	t.pending[level] = append(t.pending[level], root)
	if len(t.pending[level]) == auditFan {
		above := audit.Root(t.pending[level])
		t.pending[level] = t.pending[level][:0]
		t.add(batch, level+1, n/auditFan, above, chain)
	}
}

// leaves calls each with the leaves in [from, to).
func (t *auditTree) leaves(from, to uint64, each func(leaf [32]byte) error) error {
	next := from
	if from == to {
		return nil
	}
	err := t.store.LeafRows(from, false, func(row store.LeafRow) (bool, error) {
		if row.First > next {
			return false, store.Damagedf("audit leaf %d is missing", next)
		}
		for at := 32 * (next - row.First); at < uint64(len(row.Leaves)) && next < to; at += 32 {
			if err := each([32]byte(row.Leaves[at:])); err != nil {
				return false, err
			}
			next++
		}
		return next < to, nil
	})
	if err == nil && next < to {
		err = store.Damagedf("audit leaf %d is missing", next)
	}
	return err
}

// hash returns the root of the complete subtree n over 2^level leaves.
func (t *auditTree) hash(level int, n uint64) (audit.Hash, error) {
	base, count := level/auditBits, uint64(1)<<(level%auditBits)
	var r audit.Range
	if base == 0 {
		err := t.leaves(n*count, (n+1)*count, func(leaf [32]byte) error {
			r.Add(audit.LeafHash(leaf))
			return nil
		})
		return r.Root(), err
	}
	nodes, err := t.store.TreeNodes(uint8(base), n*count, (n+1)*count)
	for _, node := range nodes {
		r.Add(node.Root)
	}
	return r.Root(), err
}

func (t *auditTree) root(size uint64) (audit.Hash, error) {
	h, err := audit.TreeRoot(size, t.hash)
	if err != nil {
		return h, fmt.Errorf("broker: the root over %d audit leaves: %w", size, err)
	}
	return h, nil
}

// before returns what an export from an entry on begins with: the chain's head,
// and the roots of the complete subtrees. The tree must be built up to there.
func (t *auditTree) before(size uint64) (chain [32]byte, subtrees []audit.Hash, err error) {
	whole := size / auditFan
	if whole > 0 {
		nodes, err := t.store.TreeNodes(1, whole-1, whole)
		if err != nil {
			return chain, nil, err
		}
		chain = nodes[0].Chain
	}
	err = t.leaves(whole*auditFan, size, func(leaf [32]byte) error {
		chain = audit.NextChain(chain, leaf)
		return nil
	})
	if err != nil {
		return chain, nil, err
	}
	start := uint64(0)
	for level := 63; level >= 0; level-- {
		if size&(1<<level) == 0 {
			continue
		}
		h, err := t.hash(level, start>>level)
		if err != nil {
			return chain, nil, err
		}
		subtrees = append(subtrees, h)
		start += 1 << level
	}
	return chain, subtrees, nil
}
