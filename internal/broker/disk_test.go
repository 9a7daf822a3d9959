// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
)

// diskPoll is longer than the broker takes to notice what a disk has free.
const diskPoll = 300 * time.Millisecond

// patience is how long a test waits for what must come. It decides nothing but when a
// test that fails gives up.
const patience = 90 * time.Second

// waitFor waits for something to become true.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s: not %s", patience, what)
		}
	}
}

// TestNearlyFullDisk: below min_free publishes are refused with 507, and
// everything that reads or frees space works; with room again they are taken,
// and a restart in between is no obstacle.
func TestNearlyFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	room := func(bytes uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30, UsedBytes: 1<<30 - bytes})
	}
	room(1 << 30)
	clock := newStepClock()
	r := newRig(t, mem, func(o *broker.Options) { o.MinFree, o.Clock = 100<<20, clock })
	r.putTopic("state", compact)
	r.fill("state", "s", 5)
	r.fill("log", "l", 5)
	ctx := context.Background()

	full := func() bool {
		_, err := r.publish("log", r.event("/f", "one more", "", "1", nil))
		return errorCode(err) == event.CodeDiskFull
	}
	room(99 << 20)
	waitFor(t, "refused", full)
	_, err := r.publish("log", r.event("/f", "one more", "", "1", nil))
	refused := event.AsError(err)
	if class := refused.Code.Class(); class.HTTP != http.StatusInsufficientStorage || !class.Retryable || refused.Facts["free_bytes"] != uint64(99<<20) {
		t.Errorf("the refusal is %+v, facts %v", class, refused.Facts)
	}
	if err := r.b.Ready(ctx); errorCode(err) != event.CodeDiskFull {
		t.Errorf("ready: %v", err)
	}
	works := func() {
		t.Helper()
		if got := r.read("log,state", ""); len(got) == 0 {
			t.Error("nothing can be read")
		}
		if _, err := r.b.StateKey("state", "s-1"); err != nil {
			t.Errorf("the state of a key: %v", err)
		}
		if _, err := r.b.Digest(ctx, "state"); err != nil {
			t.Errorf("the digest: %v", err)
		}
		r.putTopic("state", compact)
	}
	works()
	r.putTopic("log", func(p *event.Policy) { d := event.Duration(time.Second); p.Retention = &d })
	clock.pass(time.Minute)
	if err := r.b.Clean(); err != nil {
		t.Error(err)
	}
	if info, err := r.b.Topic("log"); err != nil || info.Events != 0 {
		t.Errorf("a shorter retention leaves %d events, %v", info.Events, err)
	}
	if err := r.b.DeleteTopic(ctx, anonymous(), "log"); err != nil {
		t.Errorf("deleting a topic: %v", err)
	}
	r.reopen() // it starts, and still refuses
	if !full() {
		t.Error("after a restart on the full disk, a publish is taken")
	}
	works()
	room(101 << 20)
	waitFor(t, "taken again", func() bool { return !full() })
	r.close()
	r.mustVerify()
}

// TestFullDiskTakesNoRefusals: while publishes are refused for want of space,
// bad requests must not use up what is kept for freeing it.
func TestFullDiskTakesNoRefusals(t *testing.T) {
	mem := vfs.NewMem()
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 99 << 20, TotalBytes: 1 << 30, UsedBytes: 1<<30 - 99<<20})
	var refusals atomic.Int64
	r := newRig(t, mem, func(o *broker.Options) {
		o.MinFree = 100 << 20
		o.Tap = func(p *eventlog.Proposal) {
			if p.Kind == eventlog.KindRefusal {
				refusals.Add(1)
			}
		}
	})
	for range 10 {
		r.b.Refused(anonymous(), "a", event.Errorf(event.CodeJSONInvalid, "not JSON"))
	}
	r.putTopic("state", compact) // whatever was proposed before it is applied
	if n := refusals.Load(); n != 0 {
		t.Errorf("%d refusals were written to a full disk", n)
	}
	r.close()
}

// startLog waits for a line of the log.
type startLog struct{ lines chan string }

func (l startLog) Write(b []byte) (int, error) {
	select {
	case l.lines <- string(b):
	default:
	}
	return len(b), nil
}

// TestStartWithoutRoomWaits: it says so, can be left at any time, and what was
// acknowledged is there once there is room.
func TestStartWithoutRoomWaits(t *testing.T) {
	mem := vfs.NewCrashableMem()
	r := newRig(t, mem, nil)
	r.fill("a", "e", 3)
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	r.close()
	var room atomic.Bool
	log := startLog{make(chan string, 1000)}
	o := broker.Options{Dir: rigDir, Logger: slog.New(slog.NewTextHandler(log, nil)),
		FS: errorfs.Wrap(crashed, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") && !room.Load() {
				return &os.PathError{Op: "open", Path: op.Path, Err: syscall.ENOSPC}
			}
			return nil
		}))}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for line := range log.lines {
			if strings.Contains(line, "the start waits until a table can be written") {
				return
			}
		}
	}()
	if _, err := broker.OpenUntil(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("a start on a full disk says %v", err)
	}
	room.Store(true)
	waitFor(t, "open", func() (open bool) { // the start that was left ends first
		var err error
		r.b, err = broker.OpenUntil(context.Background(), o)
		return err == nil
	})
	if got := r.read("a", ""); len(got) != 3 {
		t.Errorf("there is %v", got)
	}
	r.close()
}

// smallVolume mounts a volume of its own for the test.
func smallVolume(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small volume takes root")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=560m,mode=0700"); err != nil {
		t.Skipf("a small volume cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		// What the kernel has still to let go of after the last close it does in
		// its own time.
		err := syscall.Unmount(dir, 0)
		for began := time.Now(); errors.Is(err, syscall.EBUSY) && time.Since(began) < 10*time.Second; err = syscall.Unmount(dir, 0) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			open, _ := filepath.Glob("/proc/self/fd/*")
			for i, name := range open {
				open[i], _ = os.Readlink(name)
			}
			t.Errorf("unmounting: %v; open are %q", err, open)
		}
	})
	return dir
}

// TestFullVolume fills a small volume for real, deletes a topic, and goes on.
func TestFullVolume(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	if raceDetector {
		t.Skip("under the race detector flushing is too slow for so small a volume; the same test runs without it")
	}
	dir := smallVolume(t)
	t.Chdir(dir)
	r := newRig(t, vfs.Default, func(o *broker.Options) { o.MinFree, o.CleanEvery = 128<<20, 50*time.Millisecond })
	bulk := func(n int) *event.Event { // it does not compress
		raw := make([]byte, 110<<10)
		_, _ = rand.Read(raw)
		return r.event("/bulk", fmt.Sprint(n), "", `"`+hex.EncodeToString(raw)+`"`, nil)
	}
	published := 0
	fillUp := func() {
		t.Helper()
		for n := 0; ; n++ {
			_, err := r.publish("bulk", bulk(published))
			if errorCode(err) == event.CodeDiskFull {
				return
			}
			if err != nil || n > 5000 {
				t.Fatalf("publishing number %d: %v", n, err)
			}
			published++
		}
	}
	fillUp()
	refused := 0
	for i := range 200 { // the callers go on trying; a log that was written out may make room
		switch _, err := r.publish("bulk", bulk(1_000_000+i)); {
		case err == nil:
			published++
		case errorCode(err) == event.CodeDiskFull:
			refused++
		default:
			t.Fatalf("while it is full a publish says %v", err)
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused on a full volume")
	}
	if got := len(r.read("bulk", "")); got != published {
		t.Fatalf("%d events are there, and %d were acknowledged", got, published)
	}
	r.reopen()
	if got := len(r.read("bulk", "")); got != published {
		t.Fatalf("after a restart %d events are there, and %d were acknowledged", got, published)
	}
	for before := -1; before != published; { // the restart gives back what logs had reserved
		time.Sleep(2 * diskPoll)
		before = published
		fillUp()
	}
	if err := r.b.DeleteTopic(context.Background(), anonymous(), "bulk"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	waitFor(t, "taken again after a topic was deleted", func() bool {
		_, err := r.publish("small", r.event("/s", "1", "", "1", nil))
		return err == nil
	})
	t.Logf("%d events of 220 KB filled the volume; %s after the deletion there was room", published, time.Since(began).Round(time.Millisecond))
	r.close()
	if report := r.mustVerify(); !strings.HasPrefix(report.Cursor, "@") {
		t.Error(report.Cursor)
	}
}
