// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func listedKey(n int) (key [16]byte) {
	binary.BigEndian.PutUint64(key[8:], uint64(n))
	return key
}

// TestKeyListsAreWhatWasCommitted: whatever is remembered of lists, forgotten since
// or taken back before its commit, both ways of asking say what is stored.
func TestKeyListsAreWhatWasCommitted(t *testing.T) {
	const keys = 2*keyListsKept + keyListsKept/2
	fs := vfs.NewMem()
	s := openMem(t, fs)
	defer func() { closeStore(t, s) }()
	stored := map[keyListID]KeyList{}
	draw := rand.New(rand.NewPCG(1, 2))
	write := func(b *Batch, keep bool) {
		for range 1 + draw.IntN(2000) {
			id := keyListID{1 + draw.Uint32N(2), 1, listedKey(draw.IntN(keys))}
			list := KeyList{}
			if draw.IntN(3) > 0 {
				list = KeyList{1 + draw.Uint64N(1000), 1 + draw.Uint64N(1000)}
				b.SetKeyList(id.number, id.epoch, id.key, list)
			} else {
				b.DeleteKeyList(id.number, id.epoch, id.key)
			}
			if keep {
				stored[id] = list
			}
		}
	}
	check := func(id keyListID) {
		t.Helper()
		lookup := s.NewLookup()
		got, ok, err := lookup.KeyList(id.number, id.epoch, id.key)
		if err != nil || got != stored[id] || ok != (got != KeyList{}) {
			t.Fatalf("%+v is %+v, %t, %v, and was stored as %+v", id, got, ok, err, stored[id])
		}
		if err := lookup.Close(); err != nil {
			t.Fatal(err)
		}
		has, err := s.HasKeyList(id.number, id.epoch, id.key)
		if err != nil || has != ok {
			t.Fatalf("%+v is there: %t, %v, and was stored as %+v", id, has, err, stored[id])
		}
	}
	for round := range 60 {
		batch := s.NewBatch()
		write(batch, true)
		mark := batch.Mark()
		write(batch, false)
		batch.Cut(mark)
		if err := s.Commit(batch, func() {}); err != nil {
			t.Fatal(err)
		}
		batch.Close()
		for range 200 {
			check(keyListID{1 + draw.Uint32N(3), 1 + draw.Uint32N(2), listedKey(draw.IntN(keys))})
		}
		if round == 40 {
			closeStore(t, s)
			s = openMem(t, fs)
		}
	}
	for id := range stored {
		check(id)
	}
	if len(s.lists.now) > keyListsKept || len(s.lists.before) > keyListsKept || s.lists.before == nil {
		t.Errorf("%d and %d lists are remembered, of %d that were stored", len(s.lists.now), len(s.lists.before), len(stored))
	}
}

// BenchmarkAbsentKeyList is how long it takes to find that nothing of a key is pending,
// after so many events of it were.
func BenchmarkAbsentKeyList(b *testing.B) {
	s := openMem(b, vfs.NewMem())
	defer closeStore(b, s)
	key := listedKey(1)
	for range 20 {
		batch := s.NewBatch()
		for range 100 {
			batch.SetKeyList(1, 1, key, KeyList{1, 1})
			batch.DeleteKeyList(1, 1, key)
		}
		if err := s.Commit(batch, func() {}); err != nil {
			b.Fatal(err)
		}
		batch.Close()
	}
	for name, remembered := range map[string]map[keyListID]KeyList{"remembered": s.lists.now, "read": nil} {
		b.Run(name, func(b *testing.B) {
			s.lists.now = remembered
			for b.Loop() {
				if has, err := s.HasKeyList(1, 1, key); has || err != nil {
					b.Fatal(has, err)
				}
			}
		})
	}
}
