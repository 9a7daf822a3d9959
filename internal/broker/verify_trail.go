// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/audit"
	"signalbox/internal/store"
)

// trailCheck compares the audit trail of a directory, leaf by leaf, with its tree, with
// the checkpoints in it, and with those that were kept elsewhere.
type trailCheck struct {
	v        *verification
	store    *store.Store
	tree     audit.Range
	block    audit.Range // since the last complete node of level 1
	expected []audit.Checkpoint
	keys     *audit.Keys        // nil: they cannot be read
	stored   []audit.Checkpoint // the next ones in the directory
	ended    bool               // there are no more than these
	proved   uint64
	nodes    uint64 // of the tree that are stored
	compared uint64
}

func newTrailCheck(v *verification, s *store.Store, kept []audit.Checkpoint) *trailCheck {
	c := &trailCheck{v: v, store: s, expected: slices.Clone(kept)}
	slices.SortFunc(c.expected, func(a, b audit.Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	nodes, err := s.TreeSize(1)
	if err == nil {
		c.nodes = nodes
	} // what cannot be read is made again from the leaves
	if keys, err := ownKeys(v.fs, v.dir); err == nil {
		c.keys = &keys
	}
	return c
}

// leaf is told of every leaf in order.
func (c *trailCheck) leaf(leaf, chain [32]byte) {
	h := audit.LeafHash(leaf)
	c.tree.Add(h)
	c.block.Add(h)
	size := c.tree.Size()
	if c.block.Size() == auditFan {
		c.node(size/auditFan-1, store.TreeNode{Root: c.block.Root(), Chain: chain})
		c.block = audit.Range{}
	}
	for ; len(c.expected) > 0 && c.expected[0].Size <= size; c.expected = c.expected[1:] {
		c.compare(&c.expected[0], chain, "a checkpoint that was kept elsewhere")
	}
	for c.next() && c.stored[0].Size <= size {
		c.compare(&c.stored[0], chain, "a checkpoint in the directory")
		c.stored = c.stored[1:]
	}
}

func (c *trailCheck) node(n uint64, want store.TreeNode) {
	if n >= c.nodes {
		return // the tree is made when it is next asked for
	}
	got, err := c.store.TreeNodes(1, n, n+1)
	if err == nil && got[0] == want {
		return
	}
	leaf := n * auditFan
	c.v.add(VerifyFinding{What: "audit_tree", Leaf: &leaf, Action: actionAudit,
		Explanation: fmt.Sprintf("The audit tree has another node over the leaves from %d on than they give: one of them was changed, or the node.", leaf)})
}

// next has the next checkpoint in the directory, if there is one.
func (c *trailCheck) next() bool {
	const ahead = 256
	if len(c.stored) > 0 || c.ended {
		return len(c.stored) > 0
	}
	c.ended = true
	err := c.store.Checkpoints(c.tree.Size(), func(size uint64, signed []byte) (bool, error) {
		p, err := audit.PeekCheckpoint(bytes.Clone(signed))
		if err == nil && c.keys != nil && slices.Contains(c.keys.Names(), p.Origin) { // one of an earlier key nobody can check
			_, err = audit.OpenCheckpoint(signed, *c.keys)
		}
		if err != nil || p.Size != size {
			c.v.add(VerifyFinding{What: "checkpoint", Leaf: &size, Action: actionAudit, Explanation: fmt.Sprintf("The stored checkpoint over %d audit leaves is not one, or is not signed by %s.", size, p.Origin)})
			return true, nil
		}
		c.stored = append(c.stored, p)
		c.ended = len(c.stored) < ahead
		return c.ended, nil
	})
	if err != nil {
		c.v.add(VerifyFinding{What: "unreadable", Action: actionRestore, Explanation: "The stored checkpoints cannot be read to the end: " + err.Error() + "."})
	}
	return len(c.stored) > 0
}

func (c *trailCheck) compare(p *audit.Checkpoint, chain [32]byte, which string) {
	if p.Size != c.tree.Size() {
		return // of size 0
	}
	if p.Root == c.tree.Root() && p.Chain == chain {
		c.proved = p.Size
		c.compared++
		return
	}
	leaf := c.proved
	c.v.add(VerifyFinding{What: "checkpoint", Leaf: &leaf, Action: actionAudit,
		Explanation: fmt.Sprintf("What %s signed at %s over %d audit leaves is not what is here: leaves from %d on were replaced after that.", which, p.Time.UTC().Format("2006-01-02 15:04:05Z"), p.Size, leaf)})
}

// end reports the checkpoints that are beyond the last leaf.
func (c *trailCheck) end() {
	size := c.tree.Size()
	for c.next() && len(c.stored) > 0 {
		c.expected = append(c.expected, c.stored...)
		c.stored = nil
		if !c.ended {
			break // one is enough to know
		}
	}
	for _, p := range c.expected {
		if p.Size > size {
			c.v.add(VerifyFinding{What: "cut", Leaf: &size, Action: actionAudit,
				Explanation: fmt.Sprintf("The audit trail ends after %d leaves, and a checkpoint was signed at %s over %d: the end of the log was cut off.", size, p.Time.UTC().Format("2006-01-02 15:04:05Z"), p.Size)})
			return
		}
	}
}

// ownKeys are the keys of a data directory. A copy may be without them.
func ownKeys(files vfs.FS, dir string) (audit.Keys, error) {
	secret, err := readKeyFile(files, dir, auditKeyFile)
	if err != nil {
		return audit.Keys{}, err
	}
	signer, err := audit.NewSigner(secret)
	if err != nil {
		return audit.Keys{}, err
	}
	return audit.ParseKeys(signer.Public())
}
