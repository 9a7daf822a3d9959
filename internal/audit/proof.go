// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows that an entry is part of what a checkpoint has signed.
type Proof struct {
	Index      uint64          `json:"index,string"`
	Leaf       string          `json:"leaf"` // in hexadecimal
	Size       uint64          `json:"size,string"`
	Hashes     []Hash          `json:"hashes"`
	Checkpoint string          `json:"checkpoint"`
	Entry      json.RawMessage `json:"entry"` // as in an export
}

// ErrProof is the cause where a proof does not prove what it says.
var ErrProof = errors.New("the proof does not lead there")

// Check checks a proof of inclusion, and that the entry is that of the leaf. It
// returns the entry, and the checkpoint that it is part of.
func (p *Proof) Check(keys Keys) (Line, Checkpoint, error) {
	c, err := OpenCheckpoint([]byte(p.Checkpoint), keys)
	if err != nil {
		return Line{}, Checkpoint{}, err
	}
	b, err := hex.DecodeString(p.Leaf)
	if err != nil || len(b) != 32 || p.Size != c.Size || p.Index >= p.Size {
		return Line{}, c, fmt.Errorf("audit: a leaf, index or size: %w", ErrProof)
	}
	leaf := [32]byte(b)
	if tlog.CheckRecord(p.Hashes, int64(p.Size), c.Root, int64(p.Index), LeafHash(leaf)) != nil {
		return Line{}, c, fmt.Errorf("audit: entry %d: %w", p.Index, ErrProof)
	}
	var scratch []byte
	l, err := ParseLine(bytes.TrimSpace(p.Entry), &scratch)
	switch {
	case err != nil:
		return l, c, fmt.Errorf("audit: entry %d: %w", p.Index, err)
	case l.Index != p.Index || l.Leaf != leaf || l.Known && (l.Entry.Leaf() != leaf || !l.checkBody()):
		return l, c, fmt.Errorf("audit: the members of entry %d: %w", p.Index, ErrProof)
	}
	return l, c, nil
}

// Consistency shows that a later trail begins with an earlier one.
type Consistency struct {
	From       uint64 `json:"from,string"`
	To         uint64 `json:"to,string"`
	Hashes     []Hash `json:"hashes"`
	Checkpoint string `json:"checkpoint"` // over To entries
}

// Check checks that the trail of an earlier checkpoint is the beginning of the
// later one, which it returns.
func (p *Consistency) Check(earlier Checkpoint, keys Keys) (Checkpoint, error) {
	later, err := OpenCheckpoint([]byte(p.Checkpoint), keys)
	if err != nil {
		return later, err
	}
	if earlier.Size != p.From || later.Size != p.To || p.From > p.To {
		return later, fmt.Errorf("audit: a proof from %d to %d for checkpoints of %d and %d: %w", p.From, p.To, earlier.Size, later.Size, ErrProof)
	}
	ok := p.From == p.To && earlier.Root == later.Root
	if p.From < p.To {
		ok = p.From == 0 || tlog.CheckTree(p.Hashes, int64(p.To), later.Root, int64(p.From), earlier.Root) == nil
	}
	if !ok {
		return later, fmt.Errorf("audit: what was signed over %d entries is not the beginning of what was signed over %d: %w", p.From, p.To, ErrProof)
	}
	return later, nil
}
