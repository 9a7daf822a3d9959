// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"signalbox/event"
)

// open opens the database unless its files are damaged. The damage that Pebble
// would not notice is looked for first, for a writing Open trims what it takes
// for a torn tail.
func open(o Options, options *pebble.Options) (*Store, error) {
	lock, damages, err := openDirectory(o)
	if err != nil {
		return nil, openError(o.Dir, err)
	}
	if o.found != nil {
		*o.found = damages
	} else if len(damages) > 0 {
		return nil, errors.Join(damagesError(o.Dir, damages), lock.Close())
	}
	if lock == nil && o.ReadOnly {
		return nil, noData(o.Dir)
	}
	options.Lock = lock
	if !o.ReadOnly {
		err = removeCheckpoint(o.FS, o.Dir) // of a process that was killed
	}
	var db *pebble.DB
	if err == nil {
		db, err = openPebble(o.Dir, options)
	}
	if err != nil {
		err = openError(o.Dir, err)
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		return nil, err
	}
	s := &Store{db: db, lock: lock, fs: o.FS, dir: o.Dir}
	if o.ReadOnly { // nothing is applied, and an Inspector reports what it cannot load
		return s, nil
	}
	if s.seen, err = loadSeenFilter(db); err != nil {
		return nil, errors.Join(fmt.Errorf("store: opening %s: %w", o.Dir, err), s.Close())
	}
	return s, nil
}

// openPebble turns a panic into an error: Pebble's replay of a log panics where
// it meets what it holds to be impossible, which damage can bring about.
func openPebble(dir string, options *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("pebble: panic while opening: %v", r)
		}
	}()
	return pebble.Open(dir, options)
}

// openError gives the code. Whatever the operating system did not refuse, and
// Pebble could not make sense of, is damage.
func openError(dir string, err error) error {
	var refused syscall.Errno
	var path *fs.PathError
	switch {
	case isLocked(err):
		return event.Errorf(event.CodeStoreLocked, "The data directory %s is in use by another process: %w. Stop that process, or choose another directory with --data.", dir, err)
	case errors.Is(err, pebble.ErrDBDoesNotExist):
		return noData(dir)
	case strings.Contains(err.Error(), "unknown format major version"): // Pebble has no sentinel for it
		return event.Errorf(event.CodeStoreFormat, "The data directory %s was written by a newer version: %w. Start that version.", dir, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("store: opening %s: %w; run the command as the user that the directory belongs to, correct its owner or mode, or choose another directory with --data", dir, err)
	case errors.As(err, &path) && path.Op == "mkdir":
		return fmt.Errorf("store: the data directory cannot be made: %w; choose another directory with --data", err)
	case errors.As(err, &refused) && !errors.Is(err, fs.ErrNotExist) && !pebble.IsCorruptionError(err):
		return fmt.Errorf("store: opening %s: %w", dir, err)
	}
	return damagedError(dir, err)
}

func noData(dir string) error {
	return event.Errorf(event.CodeStoreFormat, "There is no Signalbox data in %s.", dir)
}

// corrupted passes on what Pebble found while reading. It must not end the
// process, as Pebble's default does: whoever read gets an error, and others may
// read what is intact.
func (o Options) corrupted(info pebble.DataCorruptionInfo) {
	if o.Logger != nil {
		o.Logger.Error("a stored file is damaged; restore a copy of the data directory", "file", info.Path, "detail", info.Details)
	}
	if o.Damaged != nil {
		o.Damaged(info.Path, info.Details.Error())
	}
}
