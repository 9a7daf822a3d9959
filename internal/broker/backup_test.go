// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
	"signalbox/internal/backup"
	"signalbox/internal/broker"
)

// tarBackup takes a backup into memory.
func (r *rig) tarBackup() []byte {
	r.t.Helper()
	k, err := r.b.Backup()
	if err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	err = k.WriteTar(context.Background(), &out)
	if err := errors.Join(err, k.Close()); err != nil {
		r.t.Fatal(err)
	}
	return out.Bytes()
}

func readTar(b []byte) backup.Entries {
	return backup.ReadTar(context.Background(), bytes.NewReader(b))
}

// restore puts a backup back in a directory of its own.
func restore(t *testing.T, b []byte) (*rig, backup.Manifest) {
	t.Helper()
	r := &rig{t: t, fs: vfs.NewMem()}
	m, err := backup.WriteDir(backup.Target{FS: r.fs, Dir: rigDir}, readTar(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// TestBackupUnderLoadIsTheLogUpToItsCursor: publishers go on while backups are taken. What is restored is everything up
// to the cursor of the manifest and nothing else, and holds whatever was acknowledged before the backup began.
func TestBackupUnderLoadIsTheLogUpToItsCursor(t *testing.T) {
	r := newRig(t, vfs.NewMem(), nil)
	r.putTopic("state", compact)
	var (
		mu    sync.Mutex
		sent  = map[uint64]string{} // id by position; guarded by mu
		acked uint64                // highest position; guarded by mu
	)
	ctx, cancel := context.WithCancel(context.Background())
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				topic, id := []string{"log", "state"}[i%2], fmt.Sprintf("p%d-%d", p, i)
				receipts, err := r.publish(topic, r.event("/load", id, fmt.Sprintf("k%d", i%50), `{"n":1}`, nil))
				if err != nil {
					t.Errorf("publishing during a backup: %v", err)
					return
				}
				mu.Lock()
				sent[receipts[0].Position] = topic + " " + id
				acked = max(acked, receipts[0].Position)
				mu.Unlock()
			}
		})
	}
	var backups []taken
	for range 4 {
		mu.Lock()
		before := acked
		mu.Unlock()
		backups = append(backups, taken{before, r.tarBackup()})
		r.fill("log", fmt.Sprint("between", len(backups)), 100)
	}
	cancel()
	publishers.Wait()
	whole := r.read("log,state", "history")
	head := r.b.Head()
	r.close()
	r.mustVerify()
	for _, b := range backups {
		b.check(t, sent, whole, head)
	}
}

// taken is a backup, and the highest position that was acknowledged before it began.
type taken struct {
	before uint64
	tar    []byte
}

// check restores a backup of a log in which sent has the ids by position, whole is all that was to be read at the end,
// and head was the end.
func (b taken) check(t *testing.T, sent map[uint64]string, whole []rigDelivery, head event.Cursor) {
	t.Helper()
	c, m := restore(t, b.tar)
	if m.Position < b.before || m.Position >= head.Position {
		t.Errorf("the backup ends at %d; %d was acknowledged before it, the log went on to %d", m.Position, b.before, head.Position)
	}
	if report := c.mustVerify(); report.Cursor != m.Cursor || report.Chain != m.Chain {
		t.Errorf("the restored log is at %s with the chain %s, the manifest says %s and %s", report.Cursor, report.Chain, m.Cursor, m.Chain)
	}
	c.change = func(o *broker.Options) { o.Restored, o.KeepSettings = true, true }
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	got := map[uint64]string{}
	for _, d := range c.read("log,state", "history") {
		got[d.Position()] = d.ID()
	}
	winners := map[string]string{}
	for _, d := range whole {
		if strings.HasPrefix(sent[d.Position()], "log ") && (got[d.Position()] == d.ID()) != (d.Position() <= m.Position) {
			t.Fatalf("%s at %d is restored as %q by a backup at %d", d.ID(), d.Position(), got[d.Position()], m.Position)
		}
	}
	for position := uint64(1); position <= m.Position; position++ {
		if id, ok := strings.CutPrefix(sent[position], "state "); ok {
			winners["k"+lastNumber(id)] = id
		}
	}
	for key, id := range winners {
		if s, err := c.b.StateKey("state", key); err != nil || s.Position == 0 || sent[s.Position] != "state "+id {
			t.Fatalf("the state of %s is at %d (%v), want %s", key, s.Position, err, id)
		}
	}
	_, err := c.b.Read(broker.ReadRequest{Patterns: must(event.ParsePatterns("log")), Start: cursorStart(head)})
	if errorCode(err) != event.CodeCursorForeign {
		t.Errorf("a cursor of the log before the restore gives %v", err)
	}
	c.close()
}

// lastNumber is the number of an event, modulo the keys.
func lastNumber(id string) string {
	_, n, _ := strings.Cut(id, "-")
	var i int
	_, _ = fmt.Sscan(n, &i)
	return fmt.Sprint(i % 50)
}

// TestKillDuringBackupHarmsNothing: the directory of a process that was killed in the middle of a backup opens as after
// any kill, keeps no checkpoint, and what was written of the backup is refused.
func TestKillDuringBackupHarmsNothing(t *testing.T) {
	mem := vfs.NewCrashableMem()
	r := newRig(t, mem, nil)
	r.fill("log", "a", 50)
	r.reopen() // so that there is a table
	r.fill("log", "b", 50)
	whole := r.tarBackup()
	if _, err := backup.Check(readTar(whole), nil); err != nil {
		t.Fatal(err)
	}
	k, err := r.b.Backup()
	if err != nil {
		t.Fatal(err)
	}
	var half bytes.Buffer
	stopped := errors.New("stopped")
	err = k.WriteTar(context.Background(), &stopAfter{&half, len(whole) / 2, stopped})
	if !errors.Is(err, stopped) {
		t.Fatalf("a writer that fails: %v", err)
	}
	crashed := &rig{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{})}
	if _, err := crashed.fs.Stat(crashed.fs.PathJoin(rigDir, "checkpoint")); err != nil {
		t.Fatalf("the crash left no checkpoint, so this proves nothing: %v", err)
	}
	crashed.mustVerify()
	if err := crashed.open(); err != nil {
		t.Fatal(err)
	}
	if got := crashed.read("log", ""); len(got) != 100 {
		t.Errorf("%d events of 100 are there", len(got))
	}
	if _, err := crashed.fs.Stat(crashed.fs.PathJoin(rigDir, "checkpoint")); err == nil {
		t.Error("the checkpoint of the process before is still there")
	}
	crashed.close()
	for cut := 0; cut < len(whole)-1536; cut += 512 + cut/16 { // the last bytes are padding and the archive's own end
		_, err := backup.Check(readTar(whole[:cut]), nil)
		if errorCode(err) != event.CodeBackupInvalid {
			t.Fatalf("a backup of which %d of %d bytes are there: %v", cut, len(whole), err)
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	r.close()
}

// stopAfter fails after some bytes.
type stopAfter struct {
	w    io.Writer
	left int
	err  error
}

func (s *stopAfter) Write(b []byte) (int, error) {
	if s.left -= len(b); s.left < 0 {
		return 0, s.err
	}
	return s.w.Write(b)
}

// TestOneBackupAtATime: each holds room on disk, and a compaction would make it hold more.
func TestOneBackupAtATime(t *testing.T) {
	r := newRig(t, vfs.NewMem(), nil)
	r.fill("log", "a", 3)
	k, err := r.b.Backup()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.b.Backup(); errorCode(err) != event.CodeOverloaded {
		t.Errorf("a second backup: %v", err)
	}
	if _, _, err := r.b.Compact(context.Background(), func(broker.CompactProgress) {}); errorCode(err) != event.CodeOverloaded {
		t.Errorf("a compaction during a backup: %v", err)
	}
	// The broker that ends does not wait for a slow reader of a backup.
	r.b.Drain()
	if err := k.WriteTar(context.Background(), io.Discard); errorCode(err) != event.CodeShuttingDown {
		t.Errorf("a backup while the broker ends: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	r.close()
}

// TestBackupGivesWayToAFullDisk: it would keep room that is needed.
func TestBackupGivesWayToAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	room := func(bytes uint64) { disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
	room(1 << 30)
	r := newRig(t, disk, func(o *broker.Options) { o.MinFree = 1 << 20 })
	r.fill("log", "a", 3)
	k, err := r.b.Backup()
	if err != nil {
		t.Fatal(err)
	}
	room(1 << 10)
	waitFor(t, "full", func() bool { return errorCode(r.b.Ready(context.Background())) == event.CodeDiskFull })
	if err := k.WriteTar(context.Background(), io.Discard); errorCode(err) != event.CodeDiskFull {
		t.Errorf("a backup on a disk that became full: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.b.Backup(); errorCode(err) != event.CodeDiskFull {
		t.Errorf("a backup on a full disk: %v", err)
	}
	r.close()
}

// TestFailedCheckpointIsNoFailureOfTheBroker: what cannot be written into the checkpoint is the backup's concern.
func TestFailedCheckpointIsNoFailureOfTheBroker(t *testing.T) {
	for _, kind := range [][]errorfs.OpKind{
		{errorfs.OpCreate}, {errorfs.OpFileWrite}, {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
	} {
		f := &fault{match: faultAt("checkpoint", kind...), err: syscall.ENOSPC}
		calls := newFatalCalls()
		r := newRig(t, errorfs.Wrap(vfs.NewMem(), f), func(o *broker.Options) { o.Fatal = calls.fatal })
		r.fill("log", "a", 20)
		r.reopen()
		f.on.Store(true)
		if k, err := r.b.Backup(); err == nil {
			if f.hits.Load() > 0 {
				t.Errorf("%v: the backup did not fail", kind)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
		f.on.Store(false)
		r.fill("log", "b", 1)
		if _, err := backup.Check(readTar(r.tarBackup()), nil); err != nil {
			t.Errorf("%v: a backup after one that failed: %v", kind, err)
		}
		select {
		case message := <-calls.called:
			t.Errorf("%v: the broker gave up: %s", kind, message)
		default:
		}
		if f.hits.Load() == 0 {
			t.Errorf("%v never failed, so this proves nothing", kind)
		}
		r.close()
	}
}
