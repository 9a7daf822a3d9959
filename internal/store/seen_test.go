// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/eventlog"
)

func testIdentity(n uint64) (id eventlog.IdentityHash) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, n))
	copy(id.ID[:], sum[:])
	copy(id.Source[:], sum[16:])
	return id
}

// TestSeenFilterNeverDeniesWhatItHolds fills several layers, asks for
// everything again, and counts the false alarms, of which there must be few or
// the filter spares nothing.
func TestSeenFilterNeverDeniesWhatItHolds(t *testing.T) {
	const n = 600_000
	filter := &bloomFilter{bytesMax: seenFilterBytes}
	for i := range uint64(n) {
		id := testIdentity(i)
		filter.add(identityHash(7, &id))
	}
	alarms := 0
	for i := range uint64(n) {
		id := testIdentity(i)
		if !filter.mayHave(identityHash(7, &id)) {
			t.Fatalf("identity %d of %d is denied, with %d layers", i, n, len(filter.layers))
		}
		if id := testIdentity(n + i); filter.mayHave(identityHash(7, &id)) {
			alarms++
		}
	}
	if len(filter.layers) < 3 {
		t.Errorf("%d layers: the test does not reach the growth", len(filter.layers))
	}
	if alarms > n/20 {
		t.Errorf("%d of %d strangers may be known", alarms, n)
	}
}

// TestSeenFilterKnowsNothingWhenFull checks that the bound on memory costs
// look-ups and not truth.
func TestSeenFilterKnowsNothingWhenFull(t *testing.T) {
	filter := &bloomFilter{bytesMax: bloomFirstBlocks * bloomBlockBytes}
	for i := range uint64(bloomFirstBlocks*bloomBlockKeys) + 1 {
		id := testIdentity(i)
		filter.add(identityHash(1, &id))
	}
	stranger := testIdentity(1 << 40)
	if !filter.full || !filter.mayHave(identityHash(1, &stranger)) {
		t.Error("a full filter denies a stranger, so it could deny what it did not take in")
	}
	if filter.bytes > filter.bytesMax {
		t.Errorf("%d bytes, %d are allowed", filter.bytes, filter.bytesMax)
	}
}

// TestSeenRowsOfBeforeTheStartAreFound writes rows, opens the store again, and
// looks them up before, and after, they have been read into the filter.
func TestSeenRowsOfBeforeTheStartAreFound(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store {
		s, err := Open(Options{Dir: "data", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	batch := s.NewBatch()
	for i := range uint64(100) {
		batch.SetSeen(uint32(i%2), 1, testIdentity(i), &SeenRow{Position: i + 1})
	}
	if err := s.Commit(batch, func() {}); err != nil {
		t.Fatal(err)
	}
	batch.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	check := func(when string) {
		lookup := s.NewLookup()
		defer lookup.Close()
		for i := range uint64(100) {
			row, ok, err := lookup.Seen(uint32(i%2), 1, testIdentity(i))
			if err != nil || !ok || row.Position != i+1 {
				t.Errorf("%s: identity %d: %+v, %t, %v", when, i, row, ok, err)
			}
			if _, ok, err := lookup.Seen(uint32(i%2), 2, testIdentity(i)); err != nil || ok {
				t.Errorf("%s: identity %d is known in another topic, %v", when, i, err)
			}
		}
	}
	check("before the rows were read")
	view := s.View(func() {})
	defer view.Close()
	if err := s.LoadSeen(view, make(chan struct{})); err != nil {
		t.Fatal(err)
	}
	check("after")
}
