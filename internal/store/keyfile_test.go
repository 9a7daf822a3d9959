// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/internal/store"
)

func contents(t *testing.T, files vfs.FS, path string) string {
	t.Helper()
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestKeyFileIsCompleteOrAbsent lets every operation fail in its turn, and the power
// after each: what is there is the whole key or nothing, and once it was written it
// stays, the name in its directory too.
func TestKeyFileIsCompleteOrAbsent(t *testing.T) {
	for n := int32(0); ; n++ {
		if n == 100 {
			t.Fatal("it never succeeds")
		}
		disk := vfs.NewCrashableMem()
		if err := disk.MkdirAll("data", 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := disk.OpenDir("/")
		if err == nil {
			err = errors.Join(root.Sync(), root.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		failing := errorfs.Wrap(disk, errorfs.ErrInjected.If(errorfs.OnIndex(n)))
		err = store.WriteKeyFile(failing, "data/a.key", []byte("secret"))
		for _, files := range []vfs.FS{disk, disk.CrashClone(vfs.CrashCloneCfg{})} {
			got := contents(t, files, "data/a.key")
			if got != "secret" && (got != "none" || err == nil) {
				t.Errorf("after failure %d (%v): %q", n, err, got)
			}
		}
		if err == nil {
			if got := contents(t, disk, "data/a.key.new"); got != "none" {
				t.Errorf("left over: %q", got)
			}
			return
		}
		// Another start goes on, whatever is left.
		if again := store.WriteKeyFile(disk, "data/a.key", []byte("secret")); again != nil && !errors.Is(again, fs.ErrExist) {
			t.Errorf("after failure %d: %v", n, again)
		}
	}
}

func TestKeyFileIsPrivateAndNotWrittenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	if err := store.WriteKeyFile(nil, path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := store.WriteKeyFile(nil, path, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if got := contents(t, vfs.Default, path); got != "first" {
		t.Errorf("%q", got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}
