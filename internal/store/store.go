// SPDX-License-Identifier: Apache-2.0

// Package store keeps a space's state in one Pebble database: its keyspace
// (keys.go), the layout of its rows, reading what is committed, and reading
// what is durable.
//
// Two kinds of readers differ. Apply, the only writer, reads whatever it has
// committed. Everybody else reads through a [View], which shows durable
// commits only: a batch is visible in Pebble before its sync has ended, and
// what a power cut could still take back must never be shown to anyone.
//
// It imports event only; what rows mean is decided in projector.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/metrics"
)

// ErrDamaged marks stored bytes that cannot be what was written.
var ErrDamaged = errors.New("store: damaged data")

const (
	// A reader steps over what supersession removed, and in the memtable that
	// residue stays until the flush: a larger one makes catching up slower, a
	// smaller one publishing.
	memtableBytes = 32 << 20
	// What waits to be written out takes its room on disk twice, so it must fit
	// into the reserve that is kept free.
	memtablesMax = 4
	// Compacting the newest level later costs readers a few more Bloom filters,
	// and saves a tenth of the cost of publishing.
	level0Files = 8
	// Bloom filters answer most look-ups of new ids and keys without a read.
	bloomBitsPerKey = 10
	// A block is read, checked, decompressed and put into the cache as a whole. At
	// Pebble's 4 KiB six events are in one, and a reader of history spends half of
	// its time on blocks; this halves what an event costs it. Blocks twice as large
	// make catching up dearer, which reads little of each. Indexes are searched
	// more than they are read.
	blockBytes      = 16 << 10
	indexBlockBytes = 4 << 10
)

// Options say where a store is and how it reports.
type Options struct {
	Dir        string
	FS         vfs.FS // nil: the machine's file system
	Logger     *slog.Logger
	CacheBytes int64 // block cache; 0: 128 MiB
	ReadOnly   bool
	// Fatal is called when a write or sync has failed and the state on disk is
	// no longer known. It must not return.
	Fatal func(message string)
	// Retry, if set, is called when a table could not be written, which changes
	// nothing but is tried again when Retry returns.
	Retry func(err error)
	// Metrics, if set, counts stalls of writing.
	Metrics *metrics.Metrics
	// Damaged, if set, is told of a file in which a read has met damage.
	Damaged func(file, detail string)

	found *[]Damage // set by Inspect: damage is noted here and does not end Open
}

// Store is an open data directory. All methods are safe for concurrent use,
// except that one goroutine at a time may make look-ups, set deduplication
// records, drop their generations and commit.
type Store struct {
	db    *pebble.DB
	lock  *pebble.Lock // nil: Pebble took the lock itself, for it made the directory
	fs    vfs.FS
	dir   string
	seen  *seenFilter
	lists keyLists
	// batches are empty ones to be used again.
	batches sync.Pool
	// visible is held for writing from before a commit enters the memtable
	// until it is durable and announced; see View.
	visible sync.RWMutex
	beside  sync.Mutex // held by what is written beside Commit
}

// Open opens or creates the data directory and takes its lock. It fails with
// code store_locked, store_damaged or store_format.
func Open(o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	logger := &pebbleLogger{slog: o.Logger, fatal: o.Fatal}
	var opened atomic.Bool
	options := &pebble.Options{
		FS:                          guardFS{o.FS, o.Dir, logger.Fatalf, o.Retry, &opened},
		Logger:                      logger,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memtableBytes,
		L0CompactionThreshold:       level0Files,
		MemTableStopWritesThreshold: memtablesMax,
		CacheSize:                   o.CacheBytes,
		ReadOnly:                    o.ReadOnly,
		ErrorIfNotExists:            o.ReadOnly,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			DataCorruption: o.corrupted,
			FlushBegin: func(f pebble.FlushInfo) {
				// With more, flushing has fallen behind, and publishing would soon wait for it. The count of memtables
				// says nothing: the first ones of a store are small. What a start has replayed it waits for.
				if opened.Load() && f.InputBytes <= memtableBytes {
					standBack()
				}
			},
		},
	}
	if o.Metrics != nil {
		options.EventListener.WriteStallBegin = func(pebble.WriteStallBeginInfo) { o.Metrics.Store.StallBegan() }
		options.EventListener.WriteStallEnd = o.Metrics.Store.StallEnded
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
		options.Levels[i].Compression = compression(i)
		options.Levels[i].BlockSize, options.Levels[i].IndexBlockSize = blockBytes, indexBlockBytes
	}
	s, err := open(o, options)
	opened.Store(err == nil)
	return s, err
}

// compressedFrom is the level from which on blocks are compressed. Whatever is
// above it will soon be rewritten; compressing that too took a twelfth of the
// cost of publishing, and the space is in the levels below.
const compressedFrom = 5

func compression(level int) func() *sstable.CompressionProfile {
	return func() *sstable.CompressionProfile {
		if level < compressedFrom {
			return sstable.NoCompression
		}
		return sstable.FastestCompression
	}
}

// Close waits for background work and releases the lock.
func (s *Store) Close() error {
	err := s.db.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("store: closing: %w", err)
	}
	return nil
}

// Commit makes a batch durable, and then calls announce while no view can be
// taken, so that the durable state and what is said about it change at once.
func (s *Store) Commit(b *Batch, announce func()) error {
	s.visible.Lock()
	defer s.visible.Unlock()
	if err := b.commit(s.db, pebble.Sync); err != nil {
		return fmt.Errorf("store: committing: %w", err)
	}
	announce()
	return nil
}

// Reclaim frees the space of rows that apply has declared gone. After a crash
// they would still be declared gone, and be found again; it is synced so that
// the number of unsynced records is known, see unsyncedRecordsMax. It may run
// beside Commit, so it must set no deduplication record.
func (s *Store) Reclaim(b *Batch) error {
	s.beside.Lock()
	defer s.beside.Unlock()
	if err := b.commit(s.db, pebble.Sync); err != nil {
		return fmt.Errorf("store: reclaiming: %w", err)
	}
	return nil
}

// WriteAhead writes rows that follow from committed ones before the commit by which they
// begin to count. After a crash in between they are written again, to the same.
func (s *Store) WriteAhead(b *Batch) error { return s.Reclaim(b) }

// View is a snapshot of durable commits. It must be closed soon: it holds back
// the reclaiming of whatever is deleted while it is open.
type View struct {
	snapshot *pebble.Snapshot
}

// View takes a snapshot. During is called while no commit can become visible,
// so that what it reads of the announced state belongs to the snapshot.
func (s *Store) View(during func()) *View {
	s.visible.RLock()
	defer s.visible.RUnlock()
	during()
	return &View{snapshot: s.db.NewSnapshot()}
}

// Close releases the snapshot.
func (v *View) Close() {
	// A snapshot's Close fails only when it is called twice.
	_ = v.snapshot.Close()
}

// DiskUsage is the number of bytes that the database occupies.
func (s *Store) DiskUsage() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Flush writes the memtable out, so that a reopened store has no log to replay.
// It gives up when ctx ends, for a table that cannot be written is tried again
// for ever.
func (s *Store) Flush(ctx context.Context) error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("store: flushing: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: flushing: %w", ctx.Err())
	}
}

// pebbleLogger passes Pebble's own messages on: its failures are the
// operator's concern, its chatter is not.
type pebbleLogger struct {
	slog  *slog.Logger
	fatal func(string)
}

func (l *pebbleLogger) Infof(format string, args ...any) {}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	if l.slog != nil {
		l.slog.Error("the store reports a fault", "detail", firstLine(format, args),
			"todo", "look at the disk's health and free space; if it comes again, stop the broker and run signalbox verify")
	}
}

// Fatalf must not return, or Pebble would go on with a state that it knows to
// be wrong; it panics if nobody else ends the process.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	message := firstLine(format, args)
	if l.fatal != nil {
		l.fatal(message)
	}
	panic("store: " + message)
}

// firstLine leaves out the stack traces that Pebble's errors print.
func firstLine(format string, args []any) string {
	line, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	return line
}
