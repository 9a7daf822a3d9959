// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/crashtest"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/transport/web"
	"signalbox/ticket"
)

const (
	dataDir = "data"
	// cleanEvery is how often the cleaner comes by; odd, so that it does so at no
	// moment at which something else happens.
	cleanEvery = 10*time.Second + 3_700_001*time.Nanosecond
	// patience is how long an answer may take, in simulated time.
	patience = time.Minute
)

// world is a broker, everybody who has to do with it, and what must be true.
type world struct {
	seed   uint64
	number int        // of the step
	rng    *rand.Rand // of the step
	clock  *clock
	model  *model
	dedup  time.Duration

	mem    *vfs.MemFS
	disk   *crashtest.Disk
	broker *broker.Broker

	mu        sync.Mutex
	tapped    [][]byte   // the log: every proposal, in order; guarded by mu
	power     *powerCut  // that is to come; guarded by mu
	after     *vfs.MemFS // what the power cut has left; guarded by mu
	fatal     string     // why the broker gave up; guarded by mu
	answers   []expected // to the proposals of this step
	began     uint64     // where the head was when the broker started
	lastStart int64      // log time then
	lastLog   int64      // what log time and the monotonic clock were; see checkClock
	lastMono  time.Duration

	sent    []request // answered, to be repeated at times
	readers []*reader
	door    *web.Server
	// followers are clients of the door.
	followers []*follower
	pulls     []*pull
	streams   []*stream
	live      *live
	crew      crew
	spare     *spare // a backup

	trace  []string // of the steps
	counts map[string]int
}

// powerCut is when the power fails: before a sync of the log, or while the broker
// starts before anything that it writes.
type powerCut struct {
	left     int // syncs, or writes, until then
	unsynced int // percent of what was not synced that the disk has all the same
	starting bool
}

// counts reports whether an operation is one of those until the power fails.
func (p *powerCut) counts(op errorfs.Op) bool {
	if p.starting {
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite
	}
	return (op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSync) && strings.HasSuffix(op.Path, ".log")
}

// failure is what a run ends with that has found something.
type failure struct {
	step    int
	kind    string
	message string
}

func (f *failure) Error() string { return fmt.Sprintf("step %d: %s", f.step, f.message) }

// fail ends the run.
func (w *world) fail(format string, args ...any) {
	panic(&failure{w.number, format, fmt.Sprintf(format, args...)})
}

// note writes a line of the trace.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%4d  ", w.number)+fmt.Sprintf(format, args...))
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, mem: vfs.NewCrashableMem(), model: newModel(), live: newLive(), crew: newCrew(), counts: map[string]int{}}
	w.begin(-1)
	w.clock = newClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.rng.Int64N(int64(time.Hour)))))
	w.dedup = [...]time.Duration{24 * time.Hour, time.Hour, 2 * time.Minute}[w.rng.IntN(3)]
	w.open(false)
	for _, name := range append(topicNames(), "live.0", "live.1") {
		w.putTopic(name, w.drawPolicy(name))
	}
	return w
}

// begin begins a step: what it draws depends on the seed and its number alone.
func (w *world) begin(number int) {
	w.number = number
	w.rng = rand.New(rand.NewPCG(w.seed, uint64(number)))
}

const (
	startsMax = 3  // that the power interrupts, one after the other
	startOps  = 90 // about as many times does a start write something
)

// open starts the broker on the disk as it is. At times the power fails before it has
// started, and it starts anew from what that has left, perhaps no better.
func (w *world) open(restored bool) {
	for starts := 0; ; starts++ {
		before := w.model.clone()
		if starts < startsMax && w.rng.IntN(3) == 0 {
			w.mu.Lock()
			w.power = &powerCut{left: w.rng.IntN(startOps), unsynced: pick(w.rng, 0, 100), starting: true}
			w.mu.Unlock()
		}
		w.start(restored)
		w.mu.Lock()
		w.power = nil
		w.mu.Unlock()
		if !w.lost() {
			return
		}
		w.counts["crashes during a start"]++
		w.fall(before)
	}
}

// start starts the broker.
func (w *world) start(restored bool) {
	w.disk = crashtest.NewDisk(w.mem)
	wall := w.clock.Wall()
	b, err := broker.Open(broker.Options{
		Dir: dataDir, FS: w.disk.FS(w.at), Clock: w.clock, DedupWindow: w.dedup, CleanEvery: cleanEvery,
		Restored: restored, Fatal: w.dies, Tap: w.tap, Found: found, CheckSink: func(string) error { return nil },
	})
	if err != nil {
		w.fail("the broker does not start: %v", err)
	}
	w.broker = b
	w.newDoor()
	w.settle()
	if log := b.LogMillis(); log < w.model.millis || log < wall.UnixMilli() {
		w.fail("log time begins at %d, the log is at %d and the wall clock at %d", log, w.model.millis, wall.UnixMilli())
	}
	w.lastLog, w.lastMono = b.LogMillis(), w.clock.Mono()
	w.began, w.lastStart = w.model.position, w.model.millis
	w.live = newLive()
}

// close ends the broker in good order.
func (w *world) close() {
	w.leave()
	if err := w.broker.Close(); err != nil {
		w.fail("closing: %v", err)
	}
	w.settle()
}

// leave disconnects everybody.
func (w *world) leave() {
	w.leaveDoor()
	for _, r := range w.readers {
		r.close()
	}
	w.live.close()
}

// tap is told every proposal before it is applied.
func (w *world) tap(p *eventlog.Proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after == nil {
		w.tapped = append(w.tapped, p.AppendBinary(nil))
	}
}

// dies is what the broker calls when it cannot go on.
func (w *world) dies(message string) {
	w.mu.Lock()
	w.fatal = message
	w.mu.Unlock()
	select {}
}

// at is told every operation of the file system before it is made.
func (w *world) at(op errorfs.Op) {
	w.mu.Lock()
	power := w.power
	due := power != nil && w.after == nil && power.counts(op)
	if due {
		power.left--
		due = power.left < 0
	}
	w.mu.Unlock()
	if due {
		w.cut(power.unsynced)
	}
}

// cut notes what the disk has if the power fails now.
func (w *world) cut(unsynced int) {
	w.disk.Crash(func(clone func(vfs.CrashCloneCfg) *vfs.MemFS) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.after = clone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(w.seed, uint64(w.number)))})
	})
}

// settle waits until nobody does anything any more, and tells the model what was
// proposed meanwhile.
func (w *world) settle() {
	synctest.Wait()
	w.mu.Lock()
	fatal, fresh := w.fatal, w.tapped[w.model.sequence:]
	w.mu.Unlock()
	if fatal != "" {
		w.fail("the broker gave up: %s", fatal)
	}
	known := w.broker != nil && !w.lost() && slices.ContainsFunc(fresh, posts)
	if known {
		w.model.posts = w.posted()
		w.model.pass()
	}
	for _, body := range fresh {
		w.answers = append(w.answers, w.model.apply(decodeProposal(body)))
	}
	if known {
		w.passRemoved(fresh)
		w.watch()
	}
}

// passRemoved goes past what the broker has posted in this step and removed again.
func (w *world) passRemoved(fresh [][]byte) {
	head, most := w.broker.Head().Position, w.model.position
	for _, body := range fresh {
		if posts(body) {
			most++
		}
	}
	if head < w.model.position || head > most {
		w.fail("the head is %d, and must be from %d to %d", head, w.model.position, most)
	}
	w.model.position = head
}

func decodeProposal(body []byte) *eventlog.Proposal {
	p, err := eventlog.DecodeProposal(body)
	if err != nil {
		panic(err)
	}
	return p
}

// posts reports whether a proposal may add events to the log that the model does not
// judge: the broker's own, about subscriptions, and messages about tickets.
func posts(body []byte) bool {
	p := decodeProposal(body)
	return p.Message != nil || p.Kind == eventlog.KindSubscription && len(p.Entries) > 0
}

// posted returns what of that has come into the log since the model was told.
func (w *world) posted() (list []post) {
	r, err := w.broker.Read(broker.ReadRequest{As: identity.Named("watch"), Patterns: patterns("$subscriptions,$quarantine,$dlq.>,bus.>")})
	if err != nil {
		w.fail("reading the broker's own topics: %v", err)
	}
	defer r.Close()
	for {
		window, err := r.Poll(pollAll)
		if err != nil {
			w.fail("reading the broker's own topics: %v", err)
		}
		for i := range window.Deliveries {
			if d := &window.Deliveries[i]; d.Position > w.model.position {
				e := w.decode(d)
				list = append(list, post{d.Position, e.HLC()})
				if strings.HasPrefix(e.Type(), ticket.EventType) {
					w.heard(e, d.Position)
				}
			}
		}
		if window.CaughtUp {
			return list
		}
	}
}

// answer returns what must be the answers to the proposals of a kind in this step,
// without messages about tickets.
func (w *world) answer(kind eventlog.Kind) (list []expected) {
	for _, x := range w.answers {
		if x.proposal.Kind == kind && x.proposal.Message == nil {
			list = append(list, x)
		}
	}
	return list
}

// waiting is a context for a call that must be answered within patience.
func (w *world) waiting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// checkClock checks that log time goes as fast as a clock that nobody can set.
func (w *world) checkClock() {
	log, mono := w.broker.LogMillis(), w.clock.Mono()
	passed := (mono - w.lastMono).Milliseconds()
	if went := log - w.lastLog; went < passed-passed/100-2 || went > passed+passed/100+2 {
		w.fail("log time went on by %d ms within %d ms", went, passed)
	}
	w.lastLog, w.lastMono = log, mono
}

func (w *world) decode(d *dispatch.Delivery) *event.Event {
	e, err := event.DecodeDelivered(d.JSON())
	if err != nil {
		w.fail("what is delivered at %d does not decode: %v: %s", d.Position, err, d.JSON())
	}
	return e
}

func patterns(list string) []event.Pattern {
	parsed, err := event.ParsePatterns(list)
	if err != nil {
		panic(err)
	}
	return parsed
}

func anonymous() identity.Principal { return identity.Anonymous() }

// code is that of an error, "" for none.
func code(err error) event.Code {
	if err == nil {
		return ""
	}
	return event.AsError(err).Code
}

// pick draws one of a list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// upTo draws a duration.
func upTo(rng *rand.Rand, most time.Duration) time.Duration {
	return 1 + time.Duration(rng.Int64N(int64(most)))
}
