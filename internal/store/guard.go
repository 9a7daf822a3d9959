// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFS is the file system as Pebble gets it, with two things put right.
//
// A failed write or sync of the log, of the manifest or of a directory ends the
// process at once and says why. Pebble would end it, too, but in places by a
// panic in the background that says little. A table that could not be written
// costs nothing, for its rows are still in the log; Pebble writes it again at
// once, thousands of times a second, unless Options.Retry makes it wait.
//
// The changes of a directory are kept in order where Pebble 2.1.7 relies on
// luck (cockroachdb/pebble#5825, mended after that release): it makes a
// manifest, then the marker that names it, removes the marker before, and only
// then syncs the directory. A file system may make these durable in any order.
// A power cut could leave a marker without its manifest, or no marker at all,
// and with it a directory that does not open.
//
// Only the data directory itself is guarded: what fails below it, in a
// checkpoint, is the error of whoever wanted it.
type guardFS struct {
	vfs.FS
	dir    string
	fatalf func(format string, args ...any)
	retry  func(err error)
	opened *atomic.Bool // until then a file that cannot be made is Open's error
}

// Create makes a marker once everything before it is durable.
func (fs guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if fs.marker(name) {
		if err := fs.sync(name); err != nil {
			return nil, err
		}
	}
	f, err := fs.FS.Create(name, category)
	return fs.guard(name, f, err)
}

// ReuseForWrite is how a log's file is used again.
func (fs guardFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, category)
	return fs.guard(to, f, err)
}

// OpenDir opens a directory, to be synced.
func (fs guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil || !fs.within(fs.PathJoin(name, "file")) {
		return f, err
	}
	return &guardedFile{File: f, name: name, failed: fs.fatal}, nil
}

// Remove removes a marker once the one that takes its place is durable.
func (fs guardFS) Remove(name string) error {
	if fs.marker(name) {
		if err := fs.sync(name); err != nil {
			return err
		}
	}
	return fs.FS.Remove(name)
}

// Unwrap lets Pebble find the file system beneath.
func (fs guardFS) Unwrap() vfs.FS { return fs.FS }

// within reports whether a file is in the data directory, and not below it.
func (fs guardFS) within(name string) bool {
	return fs.PathDir(name) == fs.PathDir(fs.PathJoin(fs.dir, "file"))
}

func (fs guardFS) marker(name string) bool { return strings.HasPrefix(fs.PathBase(name), "marker.") }

// sync makes the entries of the directory durable that a file is in.
func (fs guardFS) sync(name string) error {
	dir, err := fs.OpenDir(fs.PathDir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// guard wraps the file just opened if it matters that writing it fails.
func (fs guardFS) guard(name string, f vfs.File, err error) (vfs.File, error) {
	base, failed, tells := fs.PathBase(name), fs.fatal, fs.opened.Load()
	switch {
	case !fs.within(name):
		return f, err
	case strings.HasSuffix(base, ".log"), strings.HasPrefix(base, "MANIFEST-"):
	case strings.HasSuffix(base, ".sst"):
		failed, tells = fs.again, true // a start tries it again, too
	default:
		return f, err
	}
	if err != nil {
		if tells {
			failed("creating", name, err)
		}
		return nil, err
	}
	return &guardedFile{File: f, name: name, failed: failed}, nil
}

func (fs guardFS) fatal(what, name string, err error) {
	fs.fatalf("%s %s failed, so it is not known what the disk holds: %v", what, name, err)
}

func (fs guardFS) again(_, _ string, err error) {
	if fs.retry != nil {
		fs.retry(err)
	}
}

// guardedFile tells of each write and sync that has failed.
type guardedFile struct {
	vfs.File
	name   string
	failed func(what, name string, err error)
}

func (f *guardedFile) check(what string, err error) error {
	if err != nil {
		f.failed(what, f.name, err)
	}
	return err
}

func (f *guardedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.check("writing", err)
}

func (f *guardedFile) Sync() error     { return f.check("syncing", f.File.Sync()) }
func (f *guardedFile) SyncData() error { return f.check("syncing", f.File.SyncData()) }

func (f *guardedFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.check("syncing", err)
}
