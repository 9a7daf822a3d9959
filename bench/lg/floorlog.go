// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"
)

// waiter is one value that waits for its group's sync.
type waiter struct {
	value []byte
	done  chan error
}

// committer makes a group durable; it returns after the sync.
type committer func([]waiter) error

// coalesce runs one committer for all waiters: whoever waits when a sync ends
// is in the next group, with no artificial delay.
func coalesce(most int, commit committer) chan<- waiter {
	queue := make(chan waiter, 4096)
	go func() {
		group := make([]waiter, 0, most)
		for w := range queue {
			group = append(group[:0], w)
		more:
			for len(group) < most {
				select {
				case w := <-queue:
					group = append(group, w)
				default:
					break more
				}
			}
			err := commit(group)
			for _, w := range group {
				w.done <- err
			}
		}
	}()
	return queue
}

func openLog(kind, dir string) (committer, error) {
	if dir == "" {
		return nil, fmt.Errorf("-log needs -dir")
	}
	d := filepath.Join(dir, kind)
	if err := os.RemoveAll(d); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d, 0o755); err != nil {
		return nil, err
	}
	switch kind {
	case "raw":
		return openRaw(filepath.Join(d, "log"))
	case "pebble-co":
		return openPebble(d)
	}
	return nil, fmt.Errorf("-log %q is not one of raw, pebble-co", kind)
}

// openRaw is the lower bound of any log: a file that is filled with zeros in
// advance, so that a sync has no metadata to write, and one write and one
// fdatasync per group. At the end of the area it begins again.
func openRaw(path string) (committer, error) {
	const area = 192 << 20
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for range area / len(zeros) {
		if _, err := f.Write(zeros); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	offset := int64(0)
	var b []byte
	return func(group []waiter) error {
		b = b[:0]
		for _, w := range group {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(w.value)))
			b = binary.LittleEndian.AppendUint32(b, 0)
			b = append(b, w.value...)
		}
		if offset+int64(len(b)) > area {
			offset = 0
		}
		if _, err := f.WriteAt(b, offset); err != nil {
			return err
		}
		offset += int64(len(b))
		return unix.Fdatasync(int(f.Fd()))
	}, nil
}

// openPebble sets one key per value and syncs once per group: what the storage
// engine costs when nothing but the event itself is stored.
func openPebble(dir string) (committer, error) {
	db, err := pebble.Open(dir, &pebble.Options{MemTableSize: 64 << 20, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	var seq uint64
	return func(group []waiter) error {
		b := db.NewBatch()
		var k [8]byte
		for _, w := range group {
			seq++
			binary.BigEndian.PutUint64(k[:], seq)
			if err := b.Set(k[:], w.value, nil); err != nil {
				return err
			}
		}
		if err := b.Commit(pebble.Sync); err != nil {
			return err
		}
		return b.Close()
	}, nil
}

// quiet drops Pebble's notes but not its death.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}
