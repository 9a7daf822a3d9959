// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// KeyRange is a part of the keyspace: Start is in it, End is not.
type KeyRange struct{ Start, End []byte }

// compactTables is how many tables one step rewrites. Larger steps would hold up
// the compactions that writers wait for.
const compactTables = 16

// CompactRanges divides the whole keyspace into steps of bounded size.
func (s *Store) CompactRanges() ([]KeyRange, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, readError(err)
	}
	var borders [][]byte
	for _, level := range levels {
		for _, t := range level {
			borders = append(borders, t.Smallest.UserKey)
		}
	}
	slices.SortFunc(borders, bytes.Compare)
	ranges := []KeyRange{{Start: []byte{0}}}
	for i := compactTables; i < len(borders); i += compactTables {
		if last := &ranges[len(ranges)-1]; !bytes.Equal(last.Start, borders[i]) {
			last.End = borders[i]
			ranges = append(ranges, KeyRange{Start: borders[i]})
		}
	}
	ranges[len(ranges)-1].End = []byte{0xff}
	return ranges, nil
}

// Compact rewrites a part of the keyspace without what was deleted or replaced.
func (s *Store) Compact(ctx context.Context, r KeyRange) error {
	if err := s.db.Compact(ctx, r.Start, r.End, false); err != nil {
		return fmt.Errorf("store: compacting: %w", err)
	}
	return nil
}

// Replaced is the number of bytes in files that were replaced and are still to
// be deleted, also when whoever reads them has done.
func (s *Store) Replaced() uint64 {
	m := s.db.Metrics()
	return m.Table.ObsoleteSize + m.Table.ZombieSize + m.BlobFiles.ObsoleteSize + m.BlobFiles.ZombieSize
}
