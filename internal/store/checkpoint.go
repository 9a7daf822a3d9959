// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkpointDir is the directory of a checkpoint, within the data directory:
// hard links need the same file system. Nobody else makes such a name there.
const checkpointDir = "checkpoint"

// Checkpoint makes a directory that holds the store as it is at some moment
// during the call, and returns its path. Tables are linked, not copied, and
// commits go on meanwhile. As long as it exists, what compactions replace
// keeps its room on disk. There is one at a time.
func (s *Store) Checkpoint() (dir string, err error) {
	dir = s.fs.PathJoin(s.dir, checkpointDir)
	if err := s.RemoveCheckpoint(); err != nil {
		return "", err
	}
	if err := s.db.Checkpoint(dir); err != nil {
		return "", fmt.Errorf("store: making a checkpoint: %w", err)
	}
	return dir, nil
}

// RemoveCheckpoint removes the checkpoint, if there is one.
func (s *Store) RemoveCheckpoint() error {
	if err := removeCheckpoint(s.fs, s.dir); err != nil {
		return fmt.Errorf("store: removing a checkpoint: %w", err)
	}
	return nil
}

func removeCheckpoint(fs vfs.FS, dir string) error {
	return fs.RemoveAll(fs.PathJoin(dir, checkpointDir))
}

// DataFiles returns the names of the files that make up a data directory or a
// checkpoint: everything of Pebble's but the lock.
func DataFiles(fs vfs.FS, dir string) ([]string, error) {
	if fs == nil {
		fs = vfs.Default
	}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		return !holdsData(name) && !strings.HasPrefix(name, "MANIFEST-") && !strings.HasPrefix(name, "marker.")
	}), nil
}
