// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
)

// fault fails operations of the file system once it is on.
type fault struct {
	on    atomic.Bool
	hits  atomic.Int64
	match func(op errorfs.Op) bool
	err   syscall.Errno
	once  bool
}

func (f *fault) MaybeError(op errorfs.Op) error {
	if !f.on.Load() || !f.match(op) {
		return nil
	}
	if n := f.hits.Add(1); f.once && n > 1 {
		return nil
	}
	return &os.PathError{Op: "fault", Path: op.Path, Err: f.err}
}

func (f *fault) String() string { return "fault" }

func faultAt(part string, kinds ...errorfs.OpKind) func(op errorfs.Op) bool {
	return func(op errorfs.Op) bool { return slices.Contains(kinds, op.Kind) && strings.Contains(op.Path, part) }
}

// faulty is a broker with a fault to come, publishers that note what they were
// answered, and a reader that notes what it got.
type faulty struct {
	*rig
	mem   *vfs.MemFS
	fault *fault
	fatal *fatalCalls

	mu       sync.Mutex
	acked    map[string]event.Receipt // by id; guarded by mu
	seen     map[string]uint64        // position by id; guarded by mu
	ackedAt  map[string]time.Time     // guarded by mu
	sent     []*event.Event           // guarded by mu
	cancel   context.CancelFunc
	finished sync.WaitGroup
}

func newFaulty(t *testing.T, f *fault) *faulty {
	x := &faulty{
		mem: vfs.NewCrashableMem(), fault: f, fatal: newFatalCalls(),
		acked: map[string]event.Receipt{}, seen: map[string]uint64{}, ackedAt: map[string]time.Time{},
	}
	x.rig = newRig(t, errorfs.Wrap(x.mem, f), func(o *broker.Options) { o.Fatal = x.fatal.fatal })
	x.putTopic("state", compact)
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	for i := range 4 {
		x.finished.Go(func() { x.publishAll(ctx, fmt.Sprintf("p%d", i)) })
	}
	go x.follow(ctx) // it may wait for ever behind a commit that does not end
	return x
}

func (x *faulty) publishAll(ctx context.Context, source string) {
	for n := 0; ctx.Err() == nil; n++ {
		topic, id := [...]string{"log", "state"}[n%2], fmt.Sprintf("%s-%d", source, n)
		ev := x.event("/"+source, id, fmt.Sprintf("key-%s-%d", source, n), `{"pad":"`+strings.Repeat("x", 200)+`"}`, nil)
		x.mu.Lock()
		x.sent = append(x.sent, ev)
		x.mu.Unlock()
		result, err := x.b.Publish(ctx, anonymous(), broker.PublishRequest{Topic: topic, Events: []*event.Event{ev}})
		if err != nil {
			return
		}
		x.mu.Lock()
		x.acked[id], x.ackedAt[id] = result.Receipts[0], time.Now()
		x.mu.Unlock()
	}
}

func (x *faulty) follow(ctx context.Context) {
	reader, err := x.b.Read(broker.ReadRequest{Patterns: must(event.ParsePatterns("log,state"))})
	for ctx.Err() == nil {
		var changed <-chan struct{}
		var window dispatch.Window
		if err == nil {
			changed = reader.Changed()
			window, err = reader.Poll(dispatch.Limit{Events: 1000, Bytes: 1 << 20})
		}
		if err != nil && ctx.Err() == nil {
			panic(err)
		} else if err != nil {
			return // the broker is closed
		}
		x.mu.Lock()
		for i := range window.Deliveries {
			ev := must(event.DecodeDelivered(window.Deliveries[i].JSON()))
			x.seen[ev.ID()] = ev.Position()
		}
		x.mu.Unlock()
		if window.CaughtUp {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// count returns how many events were acknowledged so far.
func (x *faulty) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.acked)
}

// await waits until so many more events are acknowledged.
func (x *faulty) await(more int) {
	x.t.Helper()
	for want, end := x.count()+more, time.Now().Add(patience); x.count() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("%d of %d events are acknowledged", x.count(), want)
		}
	}
}

// check opens what a power cut would leave now, with and without the unsynced
// part, sends everything again, and looks for each event once.
func (x *faulty) check() {
	x.t.Helper()
	x.cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, percent := range []int{0, 100} {
		fs := x.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 2))})
		r := &rig{t: x.t, fs: fs}
		head := r.mustVerify().Head
		if err := r.open(); err != nil {
			x.t.Fatalf("opening what is left (%d%% of what was unsynced): %v", percent, err)
		}
		for id, position := range x.seen {
			if position > head.Position {
				x.t.Errorf("a reader saw %s at position %d, and the log ends at %s", id, position, head)
			}
		}
		for _, ev := range x.sent {
			topic := "log"
			if strings.HasSuffix(ev.Subject(), "1") || strings.HasSuffix(ev.Subject(), "3") || strings.HasSuffix(ev.Subject(), "5") ||
				strings.HasSuffix(ev.Subject(), "7") || strings.HasSuffix(ev.Subject(), "9") {
				topic = "state"
			}
			receipt := r.mustPublish(topic, ev)[0]
			if acked, ok := x.acked[ev.ID()]; ok && (receipt.Outcome != event.OutcomeDuplicate || receipt.Position != acked.Position || receipt.HLC != acked.HLC) {
				x.t.Errorf("%s was acknowledged at %d, %s; now it is %s at %d, %s", ev.ID(), acked.Position, acked.HLC, receipt.Outcome, receipt.Position, receipt.HLC)
			}
		}
		times, positions := map[string]int{}, map[uint64]bool{}
		for _, d := range r.read("log,state", "") {
			times[d.ID()]++
			if positions[d.Position()] {
				x.t.Errorf("position %d is there twice", d.Position())
			}
			positions[d.Position()] = true
		}
		for _, ev := range x.sent {
			if times[ev.ID()] != 1 {
				x.t.Errorf("%s is there %d times", ev.ID(), times[ev.ID()])
			}
		}
		r.close()
		r.mustVerify()
	}
}

// TestFailedSyncEndsTheBroker: once a write or sync of the log or the manifest
// has failed nobody is answered and nothing new is shown; a second sync is
// never trusted. After a restart every event is there once.
func TestFailedSyncEndsTheBroker(t *testing.T) {
	for name, match := range map[string]func(op errorfs.Op) bool{
		"sync of the log":                    faultAt(".log", errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo),
		"write of the log":                   faultAt(".log", errorfs.OpFileWrite),
		"sync of the manifest":               faultAt("MANIFEST", errorfs.OpFileSync),
		"write of the manifest":              faultAt("MANIFEST", errorfs.OpFileWrite),
		"sync of the directory, by manifest": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == rigDir },
	} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
			t.Run(name+"/"+errno.Error(), func(t *testing.T) {
				x := newFaulty(t, &fault{match: match, err: errno, once: true})
				x.await(50)
				x.fault.on.Store(true)
				if strings.Contains(name, "manifest") {
					go func() { _ = x.b.Store().Flush(context.Background()) }() // it does not return
				}
				var message string
				select {
				case message = <-x.fatal.called:
				case <-time.After(patience):
					t.Fatal("the broker goes on")
				}
				if !strings.Contains(message, errno.Error()) {
					t.Errorf("the message is %q", message)
				}
				if strings.Contains(name, "of the log") {
					// Answers given before are on their way; if it goes on, there is no end of them.
					waitFor(t, "without another acknowledgement", func() bool {
						count := x.count()
						time.Sleep(50 * time.Millisecond)
						return x.count() == count
					})
				}
				x.check()
			})
		}
	}
}

// TestFailedTableIsWrittenAgain: a table that cannot be written costs nothing,
// for its rows are still in the log.
func TestFailedTableIsWrittenAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		errno syscall.Errno
		kinds []errorfs.OpKind
	}{
		{"creation", syscall.ENOSPC, []errorfs.OpKind{errorfs.OpCreate}},
		{"write", syscall.ENOSPC, []errorfs.OpKind{errorfs.OpFileWrite}},
		{"sync", syscall.EIO, []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newFaulty(t, &fault{match: faultAt(".sst", c.kinds...), err: c.errno, once: true})
			x.await(50)
			x.fault.on.Store(true)
			if err := x.b.Store().Flush(context.Background()); err != nil {
				t.Errorf("the flush says %v", err)
			}
			if x.fault.hits.Load() == 0 {
				t.Error("no table was written")
			}
			x.await(50)
			select {
			case message := <-x.fatal.called:
				t.Errorf("the broker gave up: %s", message)
			default:
			}
			x.cancel()
			x.finished.Wait()
			x.close()
			x.check()
		})
	}
}

// TestFailedSyncOnCloseLosesNothing: the shutdown reports the failure and
// leaves the log in place.
func TestFailedSyncOnCloseLosesNothing(t *testing.T) {
	for _, part := range []string{".sst", ".log"} {
		x := newFaulty(t, &fault{match: faultAt(part, errorfs.OpFileSync, errorfs.OpFileSyncData), err: syscall.EIO})
		x.await(50)
		x.cancel()
		x.finished.Wait()
		x.fault.on.Store(true)
		closed := make(chan error, 1)
		go func() { closed <- x.b.Close() }()
		select {
		case err := <-closed:
			if err == nil {
				t.Errorf("%s: closing says nothing", part)
			}
		case <-x.fatal.called:
		case <-time.After(300 * time.Millisecond): // a table is tried again until the shutdown's own limit
		}
		x.check()
		x.fault.on.Store(false)
	}
}

// TestFailingTableIsTriedWithPauses: a disk that takes no table must not make
// the broker burn a processor and fill the operator's diagnostics. Publishing goes
// on meanwhile, and the table is written once the disk takes it. That the next try
// waits for the pause is tested in store.
func TestFailingTableIsTriedWithPauses(t *testing.T) {
	const tries = 3
	reached, n := make(chan struct{}), atomic.Int64{}
	table := faultAt(".sst", errorfs.OpFileSync, errorfs.OpFileSyncData)
	x := newFaulty(t, &fault{err: syscall.ENOSPC, match: func(op errorfs.Op) bool {
		if !table(op) {
			return false
		}
		if n.Add(1) == tries {
			close(reached)
		}
		return true
	}})
	x.await(50)
	began := time.Now()
	x.fault.on.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	flushed := make(chan error, 1)
	go func() { flushed <- x.b.Store().Flush(ctx) }()
	select {
	case <-reached:
	case err := <-flushed:
		t.Fatalf("the flush ended after %d tries: %v", n.Load(), err)
	}
	// A busy machine makes pauses longer and never shorter.
	if took := time.Since(began); took < (tries-1)*broker.TableRetry {
		t.Errorf("a table was tried %d times in %v", tries, took)
	}
	x.await(10)
	x.fault.on.Store(false)
	if err := <-flushed; err != nil {
		t.Errorf("the flush says %v", err)
	}
	x.cancel()
	x.finished.Wait()
	x.close()
	x.check()
}
