// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"io"
	"time"

	"signalbox/event"
	"signalbox/internal/backup"
	"signalbox/internal/store"
)

// Backup is the log as it was at one cursor, held in a checkpoint beside the
// data, so that writers go on. It must be closed.
type Backup struct {
	b        *Broker
	dir      string
	manifest backup.Manifest // without sums
}

// Backup makes a checkpoint and opens it, which proves that it can be. There is
// one at a time, for each keeps what compactions replace on disk.
func (b *Broker) Backup() (_ *Backup, err error) {
	if err := b.mayBackUp(); err != nil {
		return nil, err
	}
	if !b.upkeep.TryLock() {
		return nil, errUpkeep()
	}
	k := &Backup{b: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	if k.dir, err = b.store.Checkpoint(); err != nil {
		return nil, err
	}
	s, err := store.Open(store.Options{Dir: k.dir, FS: b.options.FS, CacheBytes: backupCacheBytes, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	m, err := backup.Describe(s)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	k.manifest, err = backup.Plan(b.disk.fs, k.dir, m)
	if err == nil {
		b.logger.Info("backup begins", "cursor", m.Cursor, "bytes", k.manifest.Bytes)
	}
	return k, err
}

// backupCacheBytes is enough to look at a checkpoint once.
const backupCacheBytes = 8 << 20

func errUpkeep() error {
	return event.Errorf(event.CodeOverloaded, "A backup or a compaction is under way: retry when it is done.")
}

// mayBackUp refuses a backup, and ends one that is under way, when the room
// that it keeps on disk is needed, or the broker ends.
func (b *Broker) mayBackUp() error {
	if err := b.open(); err != nil {
		return err
	}
	return b.disk.check()
}

// Cursor is that of the last event in the backup.
func (k *Backup) Cursor() string { return k.manifest.Cursor }

// Bytes is the length of all its files.
func (k *Backup) Bytes() int64 { return k.manifest.Bytes }

// WriteTar writes the backup as a tar archive. What was written is a backup
// only if it returns no error.
func (k *Backup) WriteTar(ctx context.Context, w io.Writer) error {
	began := time.Now()
	_, err := backup.WriteTar(watchedWriter{w, k.b.mayBackUp}, backup.Pack(ctx, k.b.disk.fs, k.dir, k.manifest), nil)
	if err == nil {
		k.b.logger.Info("backup is done", "cursor", k.manifest.Cursor, "bytes", k.manifest.Bytes, "took", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// watchedWriter stops when check fails.
type watchedWriter struct {
	io.Writer
	check func() error
}

func (w watchedWriter) Write(b []byte) (int, error) {
	if err := w.check(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}

// Close removes the checkpoint.
func (k *Backup) Close() error {
	defer k.b.upkeep.Unlock()
	return k.b.store.RemoveCheckpoint()
}
