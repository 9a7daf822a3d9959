// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// WriteKeyFile writes a private key into a file that only its owner can read, and
// makes it durable, for what the key signs will be in the log. The file is there
// completely or not at all, whatever fails and whenever the power does, and one
// that is there already stays as it is: fs.ErrExist. Files nil is the disk.
func WriteKeyFile(files vfs.FS, path string, text []byte) error {
	if files == nil {
		files = vfs.Default
	}
	fresh := path + ".new"
	err := writeNew(files, fresh, text)
	if err == nil {
		err = publish(files, fresh, path)
	}
	if err != nil {
		if left := files.Remove(fresh); left != nil && !errors.Is(left, fs.ErrNotExist) {
			err = errors.Join(err, left)
		}
		return fmt.Errorf("store: writing a key to %s: %w", path, err)
	}
	return nil
}

// writeNew writes a file in place of what an interrupted write has left there.
func writeNew(files vfs.FS, path string, text []byte) error {
	if err := files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := createPrivate(files, path)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

type syncedFile interface {
	io.WriteCloser
	Sync() error
}

// createPrivate goes past vfs on a real disk, for vfs lets everybody read.
func createPrivate(files vfs.FS, path string) (syncedFile, error) {
	if files == vfs.Default {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	return files.Create(path, vfs.WriteCategoryUnspecified)
}

// publish gives a file its name, if nothing has that name. A link is refused then;
// a rename would not be, so it is left for file systems that have no links.
func publish(files vfs.FS, fresh, path string) error {
	err := files.Link(fresh, path)
	switch {
	case err == nil:
		err = files.Remove(fresh)
	case errors.Is(err, fs.ErrExist):
		return err
	default:
		if _, stat := files.Stat(path); !errors.Is(stat, fs.ErrNotExist) {
			return errors.Join(fs.ErrExist, stat)
		}
		err = files.Rename(fresh, path)
	}
	if err != nil {
		return err
	}
	dir, err := files.OpenDir(files.PathDir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
