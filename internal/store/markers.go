// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerFS keeps the changes of a directory in order where Pebble 2.1.7 relies
// on luck (cockroachdb/pebble#5825, mended after that release): it makes a
// manifest, then the marker that names it, removes the marker before, and only
// then syncs the directory. A file system may make these durable in any order.
// A power cut could leave a marker without its manifest, or no marker at all,
// and with it a directory that does not open.
type markerFS struct{ vfs.FS }

const markerPrefix = "marker."

// Create makes a marker once everything before it is durable.
func (fs markerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if fs.marker(name) {
		if err := fs.sync(name); err != nil {
			return nil, err
		}
	}
	return fs.FS.Create(name, category)
}

// Remove removes a marker once the one that takes its place is durable.
func (fs markerFS) Remove(name string) error {
	if fs.marker(name) {
		if err := fs.sync(name); err != nil {
			return err
		}
	}
	return fs.FS.Remove(name)
}

// Unwrap lets Pebble find the file system beneath.
func (fs markerFS) Unwrap() vfs.FS { return fs.FS }

func (fs markerFS) marker(name string) bool {
	return strings.HasPrefix(fs.PathBase(name), markerPrefix)
}

// sync makes the entries of the directory durable that a file is in.
func (fs markerFS) sync(name string) error {
	dir, err := fs.OpenDir(fs.PathDir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
