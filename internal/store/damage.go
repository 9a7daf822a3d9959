// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"signalbox/event"
)

// Damage is damage of one file of the data directory.
type Damage struct {
	File   string
	Offset int64 // in File; -1: unknown, or all of it
	Detail string
}

func (d Damage) String() string {
	if d.Offset < 0 {
		return d.File + ": " + d.Detail
	}
	return fmt.Sprintf("%s, at byte %d: %s", d.File, d.Offset, d.Detail)
}

// unsyncedRecordsMax is how many records of the write-ahead log can be unsynced
// at once: the commit of apply and one of the cleaner or the auditor, each of which
// waits for its sync before the next is written. See [Store.Commit] and
// [Store.Reclaim].
const unsyncedRecordsMax = 2

// openDirectory locks an existing data directory and looks for damage that
// Pebble does not report. The lock is nil if there is no directory yet.
func openDirectory(o Options) (lock *pebble.Lock, damages []Damage, err error) {
	if _, err := o.FS.Stat(o.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	lock, err = pebble.LockDirectory(o.Dir, o.FS)
	if err != nil {
		return nil, nil, err
	}
	damages, err = checkFiles(o.FS, o.Dir)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return lock, damages, nil
}

// checkFiles finds what Pebble would take for something else: a manifest or a
// log with damage in the middle for one that ends there (it reads a manifest up
// to the first bad record, and of a log it detects damage only where a later
// block says that the place was synced), and a directory without its marker
// for an empty one, whose files it would delete.
//
// A torn tail is no damage. What an interrupted write leaves is at most the
// records that were not synced yet, so intact records further on prove that the
// broken place was synced once, and was damaged afterwards.
func checkFiles(fsys vfs.FS, dir string) ([]Damage, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var damages []Damage
	add := func(d *Damage, err error) error {
		if d != nil {
			damages = append(damages, *d)
		}
		return err
	}
	manifest, err := atomicfs.ReadMarker(fsys, dir, "manifest")
	if err != nil {
		damages = append(damages, Damage{File: "marker.manifest", Offset: -1, Detail: err.Error()})
		return damages, nil
	}
	if manifest == "" {
		if i := slices.IndexFunc(names, holdsData); i >= 0 {
			damages = append(damages, Damage{File: "marker.manifest", Offset: -1,
				Detail: "the file that names the manifest is missing, and there is " + names[i]})
		}
		return damages, nil
	}
	if !slices.Contains(names, manifest) {
		damages = append(damages, Damage{File: manifest, Offset: -1, Detail: "the file is missing"})
		return damages, nil
	}
	if err := add(checkManifest(fsys, dir, manifest)); err != nil {
		return nil, err
	}
	if name, number, ok := lastLog(names); ok {
		if err := add(checkLog(fsys, dir, name, number)); err != nil {
			return nil, err
		}
	}
	return damages, nil
}

// holdsData reports whether a file is only written once the marker of the
// manifest is in place.
func holdsData(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") ||
		strings.HasSuffix(name, ".log") || strings.HasPrefix(name, "OPTIONS-")
}

// lastLog returns the newest log. The older ones were closed in order, and
// Pebble is strict with them.
func lastLog(names []string) (name string, number wal.NumWAL, ok bool) {
	for _, n := range names {
		if found, _, isLog := wal.ParseLogFilename(n); isLog && (!ok || cmp.Compare(found, number) >= 0) {
			name, number, ok = n, found, true
		}
	}
	return name, number, ok
}

// checkManifest relies on each record of a manifest being synced before the
// next is written.
func checkManifest(fsys vfs.FS, dir, name string) (*Damage, error) {
	t, err := readChunks(fsys, dir, name, chunkReader{})
	if err != nil {
		return nil, err
	}
	if t.records == 0 {
		return &Damage{File: name, Offset: 0, Detail: "it has no intact record"}, nil
	}
	if t.starts > 0 {
		return &Damage{File: name, Offset: t.broken, Detail: fmt.Sprintf("the record here is damaged, and %d intact ones follow it", t.starts)}, nil
	}
	return nil, nil
}

func checkLog(fsys vfs.FS, dir, name string, number wal.NumWAL) (*Damage, error) {
	t, err := readChunks(fsys, dir, name, chunkReader{log: true, number: uint32(number)})
	if err != nil {
		return nil, err
	}
	switch {
	case t.synced:
		return &Damage{File: name, Offset: t.broken, Detail: "the record here is damaged, and a later one says that it had been synced"}, nil
	case t.starts >= unsyncedRecordsMax:
		return &Damage{File: name, Offset: t.broken, Detail: fmt.Sprintf("the record here is damaged, and %d intact ones follow it", t.starts)}, nil
	}
	return nil, nil
}

func readChunks(fsys vfs.FS, dir, name string, r chunkReader) (t tail, err error) {
	r.crcs = crc32.MakeTable(crc32.Castagnoli)
	f, err := fsys.Open(fsys.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.read(f)
}

// damagedError is what opening a directory with such damage fails with.
func damagedError(dir string, cause error) *event.Error {
	return event.Errorf(event.CodeStoreDamaged, "The data directory %s is damaged: %w. Run `signalbox verify --data %s` for the whole extent, and restore a copy of the directory.", dir, cause, dir)
}

func damagesError(dir string, damages []Damage) error {
	texts := make([]string, len(damages))
	for i, d := range damages {
		texts[i] = d.String()
	}
	return damagedError(dir, fmt.Errorf("%w: %s", ErrDamaged, strings.Join(texts, "; ")))
}
