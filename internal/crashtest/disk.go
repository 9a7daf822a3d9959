// SPDX-License-Identifier: Apache-2.0

// Package crashtest is what tests need to let the power fail under a broker and
// to judge what is left: a file system in memory that forgets what was not
// synced, and the state that the same proposals give when they are applied
// afresh.
//
// It is for tests only. It knows the log, the store and the projector, and
// nothing of a broker, so that the tests of whatever is above them can use it.
package crashtest

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Disk is a file system in memory under a running broker, whose power can fail
// at any operation.
type Disk struct {
	mem *vfs.MemFS
	// gate keeps a clone from being taken within an operation that takes the
	// file system's own lock twice, which would be a deadlock.
	gate sync.RWMutex
}

// NewDisk returns the disk with these contents, which must be crashable.
func NewDisk(mem *vfs.MemFS) *Disk { return &Disk{mem: mem} }

// FS is the file system. It calls at before each operation, which may crash the
// disk.
func (d *Disk) FS(at func(op errorfs.Op)) vfs.FS {
	return errorfs.Wrap(gatedFS{d.mem, &d.gate}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		at(op)
		return nil
	}))
}

// Crash calls with with a function that says what is on the disk at this moment
// if the power fails: all that was synced, and of the rest what the
// configuration says. Whoever still uses the disk does not notice.
func (d *Disk) Crash(with func(clone func(vfs.CrashCloneCfg) *vfs.MemFS)) {
	d.gate.Lock()
	defer d.gate.Unlock()
	with(d.mem.CrashClone)
}

type gatedFS struct {
	*vfs.MemFS
	gate *sync.RWMutex
}

func (fs gatedFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	fs.gate.RLock()
	defer fs.gate.RUnlock()
	return fs.MemFS.ReuseForWrite(from, to, category)
}

func (fs gatedFS) Link(from, to string) error {
	fs.gate.RLock()
	defer fs.gate.RUnlock()
	return fs.MemFS.Link(from, to)
}
