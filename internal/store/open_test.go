// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func TestLockedDirectoryIsRefused(t *testing.T) {
	for name, where := range map[string]Options{
		"disk":   {Dir: t.TempDir()},
		"memory": {Dir: "data", FS: vfs.NewMem()},
	} {
		first, err := Open(where)
		if err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{false, true} {
			where.ReadOnly = readOnly
			_, err := Open(where)
			if event.AsError(err).Code != event.CodeStoreLocked || !strings.Contains(err.Error(), "--data") {
				t.Errorf("%s, read-only %v: opening a second time says %v", name, readOnly, err)
			}
			if _, _, err := Inspect(where); event.AsError(err).Code != event.CodeStoreLocked {
				t.Errorf("%s: inspecting says %v", name, err)
			}
		}
		closeStore(t, first)
		where.ReadOnly = false
		second, err := Open(where)
		if err != nil {
			t.Fatalf("%s: opening after it was closed: %v", name, err)
		}
		closeStore(t, second)
	}
}

func TestReadOnlyOpensOnlyWhatIsThere(t *testing.T) {
	fs := vfs.NewMem()
	for _, dir := range []string{"nowhere", "empty"} {
		if dir == "empty" {
			if err := fs.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(Options{Dir: dir, FS: fs, ReadOnly: true}); event.AsError(err).Code != event.CodeStoreFormat {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	closeStore(t, openMem(t, fs))
	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "marker.format-version.") {
			if err := fs.Rename("data/"+name, "data/marker.format-version.000099.999"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Open(Options{Dir: "data", FS: fs}); event.AsError(err).Code != event.CodeStoreFormat {
		t.Errorf("opening says %v", err)
	}
}

// TestRefusalOfTheSystemIsNoDamage: a broker that may not open its files has
// nothing to restore.
func TestRefusalOfTheSystemIsNoDamage(t *testing.T) {
	mem := vfs.NewMem()
	closeStore(t, openMem(t, mem))
	for _, part := range []string{"MANIFEST", "OPTIONS", ".log", "LOCK"} {
		for _, refusal := range []error{syscall.EPERM, syscall.EACCES, syscall.EROFS} {
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpLock) && strings.Contains(op.Path, part) {
					return &os.PathError{Op: "open", Path: op.Path, Err: refusal}
				}
				return nil
			}))
			_, err := Open(Options{Dir: "data", FS: fs})
			if event.AsError(err).Code != event.CodeInternal || !errors.Is(err, refusal) {
				t.Errorf("%s: opening says %v", part, err)
			}
		}
	}
}

// TestDirectoryThatCannotBeMadeIsNoDamage: nor is it in use.
func TestDirectoryThatCannotBeMadeIsNoDamage(t *testing.T) {
	for _, refusal := range []error{syscall.EACCES, syscall.ENOENT, syscall.ENOTDIR, syscall.EROFS} {
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpMkdirAll {
				return &os.PathError{Op: "mkdir", Path: op.Path, Err: refusal}
			}
			return nil
		}))
		if _, err := Open(Options{Dir: "data", FS: fs}); event.AsError(err).Code != event.CodeInternal || !errors.Is(err, refusal) || !strings.Contains(err.Error(), "--data") {
			t.Errorf("opening says %v", err)
		}
	}
}

// TestRemainsOfASpaceAreNotOverwritten: rows without the space's own are what
// is left of one, not a new store.
func TestRemainsOfASpaceAreNotOverwritten(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer closeStore(t, s)
	if _, _, ok, err := s.LoadSpace(); ok || err != nil {
		t.Fatalf("a new store has a space: %v, %v", ok, err)
	}
	writeSamples(t, s)
	if err := s.db.Delete(appendNameKey(nil, prefixMeta, metaSpace), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.LoadSpace(); !errors.Is(err, ErrDamaged) {
		t.Errorf("loading says %v", err)
	}
}

func TestUnknownRowsAreSeen(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer closeStore(t, s)
	writeSamples(t, s)
	for _, key := range []string{"O", "Q1", "Mother", "\xff"} {
		if err := s.db.Set([]byte(key), nil, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	in, err := s.NewInspector()
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	err = in.Unknown(func(key []byte) error { seen = append(seen, string(key)); return nil })
	if err := errors.Join(err, in.Close()); err != nil || strings.Join(seen, " ") != "Mother O Q1 \xff" {
		t.Errorf("unknown are %q, %v", seen, err)
	}
}

// manifestOf writes records as Pebble writes a manifest.
func manifestOf(t *testing.T, sizes ...int) []byte {
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for i, n := range sizes {
		if _, err := w.WriteRecord(bytes.Repeat([]byte{byte(i + 1)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// logOf writes records as Pebble writes a log: number 9, or number 4.
func logOf(t *testing.T, older, syncOffsets bool, sizes ...int) []byte {
	f := &syncedBuffer{}
	config := record.LogWriterConfig{WriteWALSyncOffsets: func() bool { return syncOffsets }}
	w := record.NewLogWriter(f, 9, config)
	if older {
		w = record.NewLogWriter(f, 4, config)
	}
	for i, n := range sizes {
		if _, err := w.WriteRecord(bytes.Repeat([]byte{byte(i + 1)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Bytes()
}

type syncedBuffer struct{ bytes.Buffer }

func (*syncedBuffer) Sync() error  { return nil }
func (*syncedBuffer) Close() error { return nil }

// TestChunksAreReadAsPebbleWritesThem: all sizes around the borders of blocks,
// where a header does not fit and the rest is padding.
func TestChunksAreReadAsPebbleWritesThem(t *testing.T) {
	for last := chunkBlock - 60; last < chunkBlock+5; last++ {
		sizes := []int{0, 100, last, 3 * chunkBlock, 1, last, 7}
		for name, c := range map[string]struct {
			r chunkReader
			b []byte
		}{
			"manifest":  {chunkReader{}, manifestOf(t, sizes...)},
			"log":       {chunkReader{log: true, number: 9}, logOf(t, false, false, sizes...)},
			"later log": {chunkReader{log: true, number: 9}, logOf(t, false, true, sizes...)},
		} {
			c.r.crcs = castagnoli()
			got, err := c.r.read(bytes.NewReader(c.b))
			if err != nil || got.broken != -1 || got.records != len(sizes) || got.starts != 0 {
				t.Fatalf("%s of %v: %+v, %v", name, sizes, got, err)
			}
		}
	}
}

// TestChunksAfterABreakAreCounted: Pebble's reader stops at the first bad chunk.
func TestChunksAfterABreakAreCounted(t *testing.T) {
	sizes := []int{10, 20, 40_000, 30, 40, 50_000, 60}
	starts := []int{0, 17, 44, 40_058, 40_095, 40_142, 90_156}
	b := manifestOf(t, sizes...)
	r := chunkReader{crcs: castagnoli()}
	for i, at := range starts {
		damaged := bytes.Clone(b)
		damaged[at+7] ^= 1
		got, err := r.read(bytes.NewReader(damaged))
		if err != nil || got.records != i || got.starts != len(sizes)-i-1 || got.broken != int64(at) {
			t.Errorf("damage of record %d: %+v, %v", i, got, err)
		}
	}
}

// TestOlderChunksOfALogThatIsUsedAgainAreNotCounted: a file that held an older
// log keeps its chunks behind the new ones.
func TestOlderChunksOfALogThatIsUsedAgainAreNotCounted(t *testing.T) {
	for _, synced := range []bool{false, true} {
		older, newer := logOf(t, true, synced, 500, 500, 500, 500), logOf(t, false, synced, 300, 300)
		newer = newer[:len(newer)-chunkHeaderLog] // a power cut leaves no end mark
		copy(older, newer)
		r := chunkReader{log: true, number: 9, crcs: castagnoli()}
		got, err := r.read(bytes.NewReader(older))
		if err != nil || got.records != 2 || got.broken != int64(len(newer)) || got.starts != 0 || got.synced {
			t.Errorf("synced offsets %v: %+v, %v", synced, got, err)
		}
	}
}

func TestReadingChunksPassesErrorsOn(t *testing.T) {
	r := chunkReader{crcs: castagnoli()}
	broken := errors.New("broken disk")
	_, err := r.read(io.MultiReader(bytes.NewReader(make([]byte, 100)), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestMarkersAreMovedInOrder: before a marker is made or removed, what it
// depends on is durable.
func TestMarkersAreMovedInOrder(t *testing.T) {
	var log []string
	mem := vfs.NewMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		name := mem.PathBase(op.Path)
		switch {
		case op.Kind == errorfs.OpCreate && strings.HasPrefix(name, "MANIFEST"):
			log = append(log, "manifest")
		case op.Kind == errorfs.OpCreate && strings.HasPrefix(name, "marker.manifest"):
			log = append(log, "marker")
		case op.Kind == errorfs.OpRemove && strings.HasPrefix(name, "marker.manifest"):
			log = append(log, "removal")
		case op.Kind == errorfs.OpFileSync && name == "data":
			log = append(log, "sync")
		}
		return nil
	}))
	for range 2 {
		closeStore(t, openMem(t, fs))
	}
	text := strings.Join(log, " ")
	if strings.Contains(text, "manifest marker") || strings.Contains(text, "marker removal") || strings.Count(text, "marker") != 2 || strings.Count(text, "removal") != 1 {
		t.Errorf("the directory was changed in the order %s", text)
	}
}

// TestFatalMessageReachesTheOwner: Pebble ends the process on a failed sync; it
// does so through Options.Fatal, with a message that says what failed.
func TestFatalMessageReachesTheOwner(t *testing.T) {
	var got string
	l := &pebbleLogger{fatal: func(message string) { got = message }}
	func() {
		defer func() { _ = recover() }() // it must not return, and so panics if Fatal does
		l.Fatalf("sync of %s failed", "000004.log")
	}()
	if got != fmt.Sprintf("sync of %s failed", "000004.log") {
		t.Errorf("the message is %q", got)
	}
}
