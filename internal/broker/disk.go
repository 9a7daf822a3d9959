// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/metrics"
)

const (
	// diskPoll is how often the free space is looked at.
	diskPoll = 250 * time.Millisecond
	// diskAmplification is how many bytes an event takes for each of its own,
	// generously: in the log, in a table, and once more while that is compacted.
	// When so much may have been written as there was room above min_free, the
	// free space is looked at at once.
	diskAmplification = 4
)

// diskWatch refuses publishes before the volume is full: a full disk cannot be
// survived, for then nothing can be written that would free space.
type diskWatch struct {
	fs      vfs.FS
	dir     string
	minFree uint64
	logger  *slog.Logger
	free    atomic.Uint64
	written atomic.Uint64 // bytes of events since free was looked at
	full    atomic.Bool
}

func newDiskWatch(fs vfs.FS, dir string, minFree uint64, logger *slog.Logger) *diskWatch {
	if fs == nil {
		fs = vfs.Default
	}
	w := &diskWatch{fs: fs, dir: dir, minFree: minFree, logger: logger}
	w.look()
	return w
}

func (w *diskWatch) loop(stop <-chan struct{}) {
	if w.minFree == 0 {
		return
	}
	poll := time.NewTicker(diskPoll)
	defer poll.Stop()
	for {
		select {
		case <-stop:
			return
		case <-poll.C:
			w.look()
		}
	}
}

func (w *diskWatch) look() {
	if w.minFree == 0 {
		return
	}
	usage, err := w.fs.GetDiskUsage(w.dir)
	if err != nil {
		return // the file system cannot tell, as one in memory
	}
	w.free.Store(usage.AvailBytes)
	w.written.Store(0)
	full := usage.AvailBytes < w.minFree
	if w.full.Swap(full) == full {
		return
	}
	if full {
		w.logger.Error("publishes are refused: the disk is nearly full", "free_bytes", usage.AvailBytes, "min_free_bytes", w.minFree,
			"todo", "free space, shorten a topic's retention, or delete topics")
	} else {
		w.logger.Info("publishes are accepted again: the disk has room", "free_bytes", usage.AvailBytes)
	}
}

// sample tells what is free now, whether or not it is watched.
func (w *diskWatch) sample(s metrics.Sample) {
	if usage, err := w.fs.GetDiskUsage(w.dir); err == nil {
		s.Set("signalbox_disk_free_bytes", float64(usage.AvailBytes))
	}
	refusing := 0.0
	if w.full.Load() {
		refusing = 1
	}
	s.Set("signalbox_disk_min_free_bytes", float64(w.minFree))
	s.Set("signalbox_disk_refusing", refusing)
}

// take is check for events that are about to be written.
func (w *diskWatch) take(entries []eventlog.Entry) error {
	if w.minFree == 0 || w.full.Load() {
		return w.check()
	}
	bytes := uint64(0)
	for i := range entries {
		bytes += uint64(len(entries[i].Members))
	}
	if w.written.Add(bytes)*diskAmplification >= w.free.Load()-w.minFree {
		w.look()
	}
	return w.check()
}

func (w *diskWatch) check() error {
	if !w.full.Load() {
		return nil
	}
	return event.Errorf(event.CodeDiskFull, "The broker's disk has %d bytes free and keeps %d in reserve. Free space, shorten a topic's retention, or delete topics.", w.free.Load(), w.minFree).
		Fact("free_bytes", w.free.Load()).Fact("min_free_bytes", w.minFree)
}
