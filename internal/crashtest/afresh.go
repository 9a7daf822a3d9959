// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Afresh applies recorded proposals in groups of its own, over a store of its
// own. It is the judge of what another store must hold.
type Afresh struct {
	// Note, if set, is told of each group that was applied.
	Note func(group []*eventlog.Proposal, out *projector.Output)

	rng       *rand.Rand
	store     *store.Store
	projector *projector.Projector
	done      int // proposals applied
}

// afreshCache is little, for there may be many.
const afreshCache = 8 << 20

// NewAfresh returns one that has applied nothing. Rng draws its groups.
func NewAfresh(rng *rand.Rand) (*Afresh, error) {
	s, err := store.Open(store.Options{Dir: "afresh", FS: vfs.NewMem(), CacheBytes: afreshCache})
	if err != nil {
		return nil, err
	}
	p, err := projector.Open(s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Afresh{rng: rng, store: s, projector: p}, nil
}

// Store holds the state.
func (a *Afresh) Store() *store.Store { return a.store }

// Projector is what has applied the proposals.
func (a *Afresh) Projector() *projector.Projector { return a.projector }

// Close ends it.
func (a *Afresh) Close() error { return a.store.Close() }

// Apply applies those of the encoded proposals that are behind what was applied
// before.
func (a *Afresh) Apply(encoded [][]byte) error {
	for a.done < len(encoded) {
		size := min(1+a.rng.IntN(1+a.rng.IntN(64)), len(encoded)-a.done)
		group := make([]*eventlog.Proposal, size)
		for i := range group {
			var err error
			if group[i], err = eventlog.DecodeProposal(encoded[a.done+i]); err != nil {
				return fmt.Errorf("proposal %d: %w", a.done+i, err)
			}
		}
		a.done += size
		for len(group) > 0 {
			out, err := a.projector.Apply(group)
			if err != nil {
				return fmt.Errorf("applying afresh: %w", err)
			}
			if err := a.store.Commit(out.Batch, func() {}); err != nil {
				return err
			}
			if a.Note != nil {
				a.Note(group[:out.Taken], &out)
			}
			out.Batch.Close()
			group = group[out.Taken:]
		}
	}
	return nil
}
