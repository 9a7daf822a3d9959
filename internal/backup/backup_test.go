// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/backup"
)

// source makes a directory of files and a backup of it.
func source(t testing.TB) (vfs.FS, []byte) {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"000004.log": 3000, "MANIFEST-000001": 700, "marker.manifest.000001.MANIFEST-000001": 0, "LOCK": 0, "other": 5} {
		f, err := fs.Create("data/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write(bytes.Repeat([]byte(name), size/len(name)))
		_ = f.Close()
	}
	m, err := backup.Plan(fs, "data", backup.Manifest{Format: backup.Format, Incarnation: "abcdefgh", Cursor: "@1.abcdefgh"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := backup.WriteTar(&out, backup.Pack(context.Background(), fs, "data", m), nil); err != nil {
		t.Fatal(err)
	}
	return fs, out.Bytes()
}

func readTar(b []byte) backup.Entries {
	return backup.ReadTar(context.Background(), bytes.NewReader(b))
}

func wantInvalid(t *testing.T, what string, err error) {
	t.Helper()
	if e := event.AsError(err); e == nil || e.Code != event.CodeBackupInvalid {
		t.Errorf("%s: %v", what, err)
	}
}

// TestBackupTravelsInBothForms: archive to directory to archive gives the same files.
func TestBackupTravelsInBothForms(t *testing.T) {
	fs, archive := source(t)
	if _, err := backup.WriteDir(backup.Target{FS: fs, Dir: "b", KeepManifest: true}, readTar(archive), nil); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	bytesSeen := 0
	m, err := backup.WriteTar(&again, backup.ReadDir(context.Background(), fs, "b"), func(n int) { bytesSeen += n })
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), archive) {
		t.Error("the archive of the directory differs from the one that it was made from")
	}
	if len(m.Files) != 3 || int64(bytesSeen) <= m.Bytes {
		t.Errorf("%d files; progress told of %d bytes, the files have %d", len(m.Files), bytesSeen, m.Bytes)
	}
	if _, err := backup.WriteDir(backup.Target{FS: fs, Dir: "d"}, readTar(archive), nil); err != nil {
		t.Fatal(err)
	}
	if names, _ := fs.List("d"); slices.Contains(names, backup.ManifestName) || len(names) != 3 {
		t.Errorf("the data directory holds %v", names)
	}
}

// TestDamagedBackupIsRefusedAndLeavesNothing flips each byte of what the archive carries.
func TestDamagedBackupIsRefusedAndLeavesNothing(t *testing.T) {
	fs, archive := source(t)
	for at := 0; at < len(archive)-1024; at += 7 {
		b := slices.Clone(archive)
		b[at] ^= 0x20
		_, err := backup.WriteDir(backup.Target{FS: fs, Dir: "x"}, readTar(b), nil)
		if err == nil { // in the archive's own padding or the dates of its headers: then everything is intact
			got, _ := fs.List("x")
			if len(got) != 3 {
				t.Fatalf("byte %d of %d: %v is taken", at, len(archive), got)
			}
			if err := fs.RemoveAll("x"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		wantInvalid(t, fmt.Sprint("byte ", at), err)
		if _, err := fs.Stat("x"); err == nil {
			t.Fatalf("byte %d: the directory is still there", at)
		}
	}
}

// entry is a file of an archive that a test forges.
type entry struct {
	name, content string
	kind          byte
}

func forge(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.content)), Typeflag: e.kind, Linkname: map[bool]string{true: "/etc/passwd"}[e.kind == tar.TypeSymlink]}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestForgedBackupWritesNowhereElse: a backup names files of a log and nothing else.
func TestForgedBackupWritesNowhereElse(t *testing.T) {
	const manifest = backup.ManifestName
	for what, entries := range map[string][]entry{
		"a path":                {{name: "../000004.log"}},
		"an absolute path":      {{name: "/000004.log"}},
		"a folder":              {{name: "sub/000004.log"}},
		"a hidden file":         {{name: ".profile"}},
		"the lock":              {{name: "LOCK"}},
		"a link":                {{name: "000004.log", kind: tar.TypeSymlink}},
		"a directory":           {{name: "000004.log/", kind: tar.TypeDir}},
		"a name twice":          {{name: "000004.log"}, {name: "000004.log"}},
		"no manifest":           {{name: "000004.log"}},
		"no files":              {{name: manifest, content: `{"format":1,"incarnation":"abcdefgh","files":[]}`}},
		"another format":        {{name: manifest, content: `{"format":2,"incarnation":"abcdefgh","files":[{"name":"a"}]}`}},
		"no JSON":               {{name: manifest, content: `{`}},
		"a file not listed":     {{name: "000004.log"}, {name: "000005.log"}, {name: manifest, content: `{"format":1,"incarnation":"a","files":[{"name":"000004.log","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`}},
		"a file listed only":    {{name: manifest, content: `{"format":1,"incarnation":"a","files":[{"name":"000004.log"}]}`}},
		"more after the end":    {{name: "000004.log"}, {name: manifest, content: `{"format":1,"incarnation":"a","files":[{"name":"000004.log","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`}, {name: "000005.log"}},
		"an archive of nothing": {},
	} {
		fs := vfs.NewMem()
		_, err := backup.WriteDir(backup.Target{FS: fs, Dir: "x"}, readTar(forge(t, entries...)), nil)
		wantInvalid(t, what, err)
		if names, _ := fs.List(""); len(names) > 0 {
			t.Errorf("%s leaves %v", what, names)
		}
	}
}

// TestCopyingEndsWithItsContext: whoever interrupts a copy need not wait for its end.
func TestCopyingEndsWithItsContext(t *testing.T) {
	fs, archive := source(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := backup.Check(backup.ReadTar(ctx, bytes.NewReader(archive)), nil); err == nil {
		t.Error("an archive is read to its end")
	}
	if _, err := backup.WriteDir(backup.Target{FS: fs, Dir: "b", KeepManifest: true}, readTar(archive), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Check(backup.ReadDir(ctx, fs, "b"), nil); err == nil {
		t.Error("a directory is read to its end")
	}
}

func FuzzReadTar(f *testing.F) {
	_, archive := source(f)
	f.Add(archive)
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		if _, err := backup.WriteDir(backup.Target{FS: fs, Dir: "x"}, readTar(b), nil); err != nil {
			if names, _ := fs.List(""); len(names) > 0 {
				t.Errorf("a refused backup leaves %v", names)
			}
		}
	})
}
