// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/crashtest"
	"signalbox/internal/dispatch"
	"signalbox/internal/store"
)

// The harness runs a few rounds by default; for more:
//
//	go test ./internal/broker -run Crash -crash.rounds=300 -crash.seed=7
var (
	crashRounds = flag.Int("crash.rounds", 14, "how often the crash tests end a broker")
	crashSeed   = flag.Uint64("crash.seed", 0, "the seed of the crash tests; 0 draws one")
)

// crashHistory is how many crashes one data directory goes through.
const crashHistory = 8

// crashPoint is when the power fails.
type crashPoint struct {
	name  string
	after time.Duration                       // at the latest
	op    func(op errorfs.Op) bool            // at this operation of the file system
	hook  string                              // when the load reports this
	act   func(b *broker.Broker, stop func()) // or when this says so
}

// crashPoints draws one.
func drawCrashPoint(rng *rand.Rand) crashPoint {
	p := crashPoint{after: time.Duration(5+rng.IntN(60)) * time.Millisecond}
	skip := rng.IntN(6)
	matching := func(match func(op errorfs.Op) bool) func(op errorfs.Op) bool {
		var mu sync.Mutex
		return func(op errorfs.Op) bool {
			if !match(op) {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			skip--
			return skip < 0
		}
	}
	isFile := func(kind errorfs.OpKind, part string) func(op errorfs.Op) bool {
		return matching(func(op errorfs.Op) bool { return op.Kind == kind && strings.Contains(op.Path, part) })
	}
	switch p.name = "time"; rng.IntN(12) {
	case 0:
		skip = rng.IntN(3000)
		p.name, p.op = "any write", matching(func(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite })
	case 1:
		p.name, p.op = "sync of a log", isFile(errorfs.OpFileSyncData, ".log")
	case 2:
		p.name, p.op = "new table", isFile(errorfs.OpCreate, ".sst")
	case 3:
		p.name, p.op = "sync of the manifest", isFile(errorfs.OpFileSync, "MANIFEST")
	case 4:
		p.name, p.op = "after a flush", isFile(errorfs.OpRemove, "")
	case 5:
		p.name, p.op = "new log", isFile(errorfs.OpCreate, ".log")
	case 6:
		p.name, p.hook = "first write of a topic", "topic"
	case 7:
		p.name, p.hook = "deletion of a topic", "deletion"
	case 8:
		p.name, p.op = "log used again", isFile(errorfs.OpReuseForWrite, "")
	case 9:
		p.name, p.act = "retention", func(b *broker.Broker, stop func()) {
			if t, err := b.Topic("log.short"); err == nil && t.Oldest.Position > 0 && skip <= 0 {
				stop()
			}
			skip--
		}
	}
	return p
}

// TestCrashPowerLoss lets the power fail at random instants of a broker that is
// published to and read: a file system in memory keeps what was synced and an
// arbitrary part of the rest.
func TestCrashPowerLoss(t *testing.T) {
	seed := drawCrashSeed(t)
	events, unanswered, taken, points := 0, 0, 0, map[string]int{}
	for done := 0; done < *crashRounds && !t.Failed(); done += crashHistory {
		h := newCrashHistory(t, seed+uint64(done), vfs.NewCrashableMem())
		for round := 0; round < min(crashHistory, *crashRounds-done) && !t.Failed(); round++ {
			points[h.powerLoss(round)]++
		}
		h.close()
		events, unanswered, taken = events+h.ledger.acked, unanswered+h.unanswered, taken+h.taken
	}
	t.Logf("%d power losses, %d acknowledged events, %d requests left unanswered of which %d had taken effect, seed %d, at %v",
		*crashRounds, events, unanswered, taken, seed, points)
}

// drawCrashSeed returns the seed, which a failure prints.
func drawCrashSeed(t *testing.T) uint64 {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64() >> 32
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again with: go test ./internal/broker -run %s -crash.rounds=%d -crash.seed=%d", t.Name(), *crashRounds, seed)
		}
	})
	return seed
}

// history is one data directory through several crashes.
type history struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	fs      vfs.FS
	clock   *crashClock
	ledger  *ledger
	ref     *reference
	dedup   time.Duration
	unknown []*attempt // of the last round, to be retried

	unanswered, taken int // requests that a crash left unanswered; those that had taken effect
}

func newCrashHistory(t *testing.T, seed uint64, fs vfs.FS) *history {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &history{
		t: t, seed: seed, rng: rng, fs: fs, clock: newCrashClock(100), ledger: newLedger(),
		dedup: 24 * time.Hour,
	}
	if rng.IntN(3) == 0 {
		h.dedup = 20 * time.Second // generations change within a history
	}
	h.ref = newReference(t, rng, h.dedup)
	return h
}

func (h *history) close() {
	fresh := newReference(h.t, h.rng, h.dedup)
	fresh.apply(h.ledger.proposals)
	fresh.checkState(h.ref.afresh.Store())
	fresh.close()
	h.ref.close()
}

// powerLoss opens the directory, publishes until the crash, and checks what a
// second opening finds. It returns the name of the crash point.
func (h *history) powerLoss(number int) string {
	point := drawCrashPoint(h.rng)
	crashed := make(chan struct{})
	disk, unsynced := crashtest.NewDisk(h.fs.(*vfs.MemFS)), h.rng.IntN(101)
	if h.rng.IntN(3) == 0 {
		unsynced = 0
	}
	cloneRNG := rand.New(rand.NewPCG(h.seed, 77+uint64(number)))
	stop := func() {
		disk.Crash(func(clone func(vfs.CrashCloneCfg) *vfs.MemFS) {
			if h.ledger.crash(func() { h.fs = clone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: cloneRNG}) }) {
				close(crashed)
			}
		})
	}
	fs := disk.FS(func(op errorfs.Op) {
		if point.op != nil && point.op(op) {
			stop()
		}
	})
	r := newRig(h.t, fs, func(o *broker.Options) {
		o.Clock, o.DedupWindow, o.CleanEvery, o.Tap = h.clock, h.dedup, 15*time.Millisecond, h.ledger.tap()
	})
	l := &load{to: r.b, ledger: h.ledger, clock: h.clock, seed: h.seed, round: number, retry: h.unknown, hook: func(what string) {
		if what == point.hook {
			stop()
		}
	}}
	h.publishUntil(r, l, &point, crashed, stop)
	r.close()
	h.recover(number, point.name)
	return point.name
}

func (h *history) publishUntil(r *rig, l *load, point *crashPoint, crashed chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.t.Helper()
	// A crash point may be met while the broker opens.
	if err := l.create(ctx); err != nil && !h.ledger.over() {
		h.t.Fatal(err)
	}
	l.publish(ctx)
	for _, c := range [][2]string{{">", ""}, {"state.*", dispatch.ViewCurrent}, {"log.*,state.*,new.>", dispatch.ViewHistory}, {"state.fleet", ""}} {
		l.group.Go(func() { l.follow(ctx, r.b, c[0], c[1]) })
	}
	l.group.Go(func() { l.look(ctx, r.b) })
	if pause := time.Duration(h.rng.IntN(30)) * time.Millisecond; pause > 0 { // a memtable would not fill up in the time
		l.group.Go(func() {
			for !h.ledger.over() && r.b.Store().Flush(ctx) == nil {
				time.Sleep(pause)
			}
		})
	}
	latest := time.After(point.after)
	for over := false; !over; {
		select {
		case <-crashed:
			over = true
		case <-latest:
			stop()
			over = true
		case <-time.After(time.Millisecond):
			if point.act != nil {
				point.act(r.b, stop)
			}
		}
	}
	cancel()
	l.group.Wait()
}

// recover checks what the crash has left.
func (h *history) recover(number int, point string) {
	t := h.t
	defer func() {
		if t.Failed() {
			t.Logf("this was round %d of the history with seed %d, crash point %q", number, h.seed, point)
		}
	}()
	s, err := store.Open(store.Options{Dir: rigDir, FS: h.fs, ReadOnly: true, CacheBytes: 8 << 20})
	if errorCode(err) == event.CodeStoreFormat { // it never came into being
		if h.ledger.acked > 0 || len(h.ledger.seen) > 0 {
			t.Errorf("round %d: there is no store, and %d events were acknowledged", number, h.ledger.acked)
		}
		h.nextRound(nil)
		return
	}
	if err != nil {
		t.Fatalf("round %d (%s): %v", number, point, err)
	}
	defer func() {
		if s != nil && s.Close() != nil {
			t.Error("closing the recovered store failed")
		}
	}()
	space, _, _, err := s.LoadSpace()
	if err != nil {
		t.Fatal(err)
	}
	proposals := append(h.ledger.proposals, h.ledger.tapped...)
	if uint64(len(proposals)) < space.Sequence {
		t.Fatalf("round %d: %d proposals were recorded and %d recovered", number, len(proposals), space.Sequence)
	}
	h.ref.apply(proposals[:space.Sequence])
	h.ref.checkLedger(h.ledger)
	h.ref.checkState(s)
	err = s.Close()
	s = nil
	if err != nil {
		t.Error(err)
	}
	if report := (&rig{t: t, fs: h.fs}).verify(); report.Total > 0 {
		t.Errorf("verify found %d faults: %+v", report.Total, report.Findings[:min(5, len(report.Findings))])
	}
	h.nextRound(proposals[:space.Sequence])
}

func (h *history) nextRound(proposals [][]byte) {
	l := h.ledger
	h.unknown = l.unresolved()
	h.unanswered += len(h.unknown)
	h.taken += h.ref.recovered(h.unknown)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proposals, l.attempts, l.crashed = proposals, nil, false
	l.lastByPubl = map[int]uint64{}
}
