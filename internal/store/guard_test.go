// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/internal/store"
)

// TestTableIsTriedAgainWhenRetryReturns: a table that cannot be written is tried
// once, and then not before Retry has returned.
func TestTableIsTriedAgainWhenRetryReturns(t *testing.T) {
	var failing atomic.Bool
	var tried atomic.Int64
	failing.Store(true)
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpCreate || !strings.HasSuffix(op.Path, ".sst") || !failing.Load() {
			return nil
		}
		tried.Add(1)
		return syscall.ENOSPC
	}))
	waiting, again := make(chan error), make(chan struct{})
	s, err := store.Open(store.Options{Dir: "data", FS: fs, CacheBytes: 1 << 20, Retry: func(err error) {
		waiting <- err
		<-again
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	b.SetSpace(&store.Space{Position: 1})
	if err := s.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	flushed := make(chan error, 1)
	go func() { flushed <- s.Flush(ctx) }()
	for n := int64(1); n <= 5; n++ {
		select {
		case err := <-waiting:
			if got := tried.Load(); got != n || err != syscall.ENOSPC {
				t.Errorf("the %d. wait is after %d tries and for %v", n, got, err)
			}
		case err := <-flushed:
			t.Fatalf("the flush ended after %d tries: %v", tried.Load(), err)
		}
		if n == 5 {
			failing.Store(false)
		}
		again <- struct{}{}
	}
	if err := <-flushed; err != nil {
		t.Errorf("the flush says %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
