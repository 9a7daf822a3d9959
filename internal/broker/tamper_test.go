// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
	"signalbox/internal/store"
)

// tamperedTrail is the trail of a data directory in the hands of whoever can write to it.
type tamperedTrail struct {
	store   *store.Store
	rows    []store.LeafRow
	entries [][]audit.Entry // of each row
}

func openTampered(t *rapid.T, fs vfs.FS) *tamperedTrail {
	s, err := store.Open(store.Options{Dir: rigDir, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	x := &tamperedTrail{store: s}
	err = s.LeafRows(0, true, func(row store.LeafRow) (bool, error) {
		kept := store.LeafRow{First: row.First, Leaves: bytes.Clone(row.Leaves), Entries: bytes.Clone(row.Entries)}
		x.rows = append(x.rows, kept)
		var of []audit.Entry
		for rest := kept.Entries; len(rest) > 0; {
			var e audit.Entry
			var err error
			if e, rest, err = audit.DecodeEntry(rest); err != nil {
				return false, err
			}
			e.Index = row.First + uint64(len(of))
			e.Detail = bytes.Clone(e.Detail)
			of = append(of, e)
		}
		x.entries = append(x.entries, of)
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// commit writes rows from one on, with the chain's head that fits them if it is to.
func (x *tamperedTrail) commit(t *rapid.T, from int, fits bool) {
	b := x.store.NewBatch()
	defer b.Close()
	for i := from; i < len(x.rows); i++ {
		b.SetLeaves(x.rows[i].First, x.rows[i].Leaves)
		b.SetEntries(x.rows[i].First, x.rows[i].Entries)
	}
	space, _, _, err := x.store.LoadSpace()
	if err == nil && fits {
		space.Chain = [32]byte{}
		space.Leaves = 0
		for _, row := range x.rows {
			for leaves := row.Leaves; len(leaves) > 0; leaves = leaves[32:] {
				space.Chain = audit.NextChain(space.Chain, [32]byte(leaves))
				space.Leaves++
			}
		}
		b.SetSpace(&space)
	}
	if err == nil {
		err = x.store.Commit(b, func() {})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// encode makes a row of its entries again.
func (x *tamperedTrail) encode(row int, leaves bool) {
	r := &x.rows[row]
	r.Entries = nil
	if leaves {
		r.Leaves = nil
	}
	for i := range x.entries[row] {
		e := &x.entries[row][i]
		r.Entries = audit.AppendEntry(r.Entries, e)
		if leaves {
			leaf := e.Leaf()
			r.Leaves = append(r.Leaves, leaf[:]...)
		}
	}
}

// tamperDirectory does one thing to a directory, and returns what is to be found and the
// first entry that is concerned.
func tamperDirectory(t *rapid.T, fs vfs.FS, signed []uint64) (what string, index uint64) {
	x := openTampered(t, fs)
	defer func() {
		if err := x.store.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	row := rapid.IntRange(1, len(x.rows)-1).Draw(t, "row")
	at := rapid.IntRange(0, len(x.entries[row])-1).Draw(t, "entry")
	e := &x.entries[row][at]
	index = e.Index
	switch how := rapid.SampledFrom([]string{"leaf", "entry", "detail", "exchanged", "entries removed", "rewritten", "checkpoint signed again", "checkpoint flipped"}).Draw(t, "how"); how {
	case "leaf":
		x.rows[row].Leaves[32*at+rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		x.commit(t, row, rapid.Bool().Draw(t, "fits"))
		return "entry", index
	case "entry":
		e.LogMillis ^= 1 << rapid.IntRange(0, 30).Draw(t, "bit")
		x.encode(row, false)
	case "detail":
		if len(e.Detail) == 0 {
			e.Digest[rapid.IntRange(0, 31).Draw(t, "byte")]++
		} else {
			e.Detail[rapid.IntRange(0, len(e.Detail)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		x.encode(row, false)
	case "exchanged":
		other := (at + 1) % len(x.entries[row])
		if other == at {
			e.Flags ^= 1
		}
		index = min(e.Index, x.entries[row][other].Index)
		x.entries[row][at], x.entries[row][other] = x.entries[row][other], x.entries[row][at]
		x.encode(row, false)
	case "entries removed":
		x.rows[row].Entries = nil
		x.commit(t, row, false)
		return "entry", x.rows[row].First
	case "rewritten": // with hashes that fit: only what was signed contradicts that
		e.Position += 1 << 40
		for i := row; i < len(x.rows); i++ {
			x.encode(i, i == row)
		}
		x.commit(t, row, true)
		return "checkpoint", lastBefore(signed, index)
	default:
		return x.tamperCheckpoint(t, how, signed)
	}
	x.commit(t, row, false)
	return "entry", index
}

// lastBefore is the last size that proves nothing of an entry.
func lastBefore(signed []uint64, index uint64) (last uint64) {
	for _, size := range signed {
		if size <= index {
			last = size
		}
	}
	return last
}

func (x *tamperedTrail) tamperCheckpoint(t *rapid.T, how string, signed []uint64) (what string, index uint64) {
	size := rapid.SampledFrom(signed).Draw(t, "size")
	note, err := x.store.LastCheckpoint(size)
	if err != nil {
		t.Fatal(err)
	}
	if how == "checkpoint flipped" {
		note[rapid.IntRange(0, len(note)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
	} else {
		c, err := audit.PeekCheckpoint(note)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := audit.GenerateKey(c.Origin)
		if err != nil {
			t.Fatal(err)
		}
		other, err := audit.NewSigner(secret)
		if err == nil {
			err = other.Sign(&c)
		}
		if err != nil {
			t.Fatal(err)
		}
		note = c.Note
	}
	b := x.store.NewBatch()
	defer b.Close()
	b.SetCheckpoint(size, note)
	if err := x.store.WriteAudit(b); err != nil {
		t.Fatal(err)
	}
	return "checkpoint", size
}

// TestTamperedDirectoryIsDetectedAndLocated: whatever is done to the trail in a data directory,
// where the storage engine notices nothing, is named with the first entry that is concerned.
func TestTamperedDirectoryIsDetectedAndLocated(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	r := newRig(t, fs, func(o *broker.Options) { o.AuditInterval = -1 })
	var signed []uint64
	for piece := range 6 {
		for batch := range 4 {
			var events []*event.Event
			for i := range 1 + (piece+batch)%3*7 {
				events = append(events, r.event("/a", fmt.Sprintf("%d-%d-%d", piece, batch, i), "k", `1`, nil))
			}
			r.mustPublish("log", events...)
			_, _ = r.publish("$own", r.event("/a", "x", "k", `1`, nil)) // a refusal
			r.fill("log", fmt.Sprintf("%d.%d.", piece, batch), 1)       // behind it
		}
		signed = append(signed, checkpointOf(t, r.b).Size)
	}
	r.close()
	r.mustVerify()
	rapid.Check(t, func(t *rapid.T) {
		copied := fs.CrashClone(vfs.CrashCloneCfg{})
		what, index := tamperDirectory(t, copied, signed)
		report, err := broker.Verify(context.Background(), rigDir, copied, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.What == what && f.Leaf != nil && *f.Leaf == index {
				return
			}
		}
		t.Fatalf("%s at %d is found as %+v", what, index, report.Findings)
	})
}
