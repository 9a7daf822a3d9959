// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
)

// deliveryLedger is what the outside of a broker knows of a subscription: what
// was answered before the power failed.
type deliveryLedger struct {
	mu        sync.Mutex
	crashed   bool
	published map[string]bool // acknowledged to their publisher
	settled   map[string]bool // acknowledged by a worker, and the answer came
	unknown   map[string]bool // the worker acknowledged, and no answer came
	attempts  map[string]int  // the highest that a worker saw
	faults    []string
}

// note runs do unless the power has failed meanwhile.
func (l *deliveryLedger) note(do func()) (alive bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.crashed {
		do()
	}
	return !l.crashed
}

func (l *deliveryLedger) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// saw judges a hand-out. It is called by note.
func (l *deliveryLedger) saw(h *broker.HandedOut) {
	id, _ := event.LookupJSON(h.Event, "id")
	if l.settled[id] {
		l.fault("event %s is handed out after its acknowledgement was durable", id)
	}
	if h.Attempt <= l.attempts[id] {
		l.fault("event %s is handed out as attempt %d after attempt %d", id, h.Attempt, l.attempts[id])
	}
	l.attempts[id] = h.Attempt
}

// consumed is a broker as its consumers see it, or a process with one.
type consumed interface {
	CreateSubscription(ctx context.Context, p identity.Principal, d event.Subscription) (broker.SubscriptionInfo, error)
	Fetch(ctx context.Context, p identity.Principal, id string, req broker.FetchRequest) ([]broker.HandedOut, error)
	Ack(ctx context.Context, p identity.Principal, id string, v broker.Verdict) ([]bool, error)
	Nack(ctx context.Context, p identity.Principal, id string, v broker.Verdict) ([]bool, error)
}

func newDeliveryLedger() *deliveryLedger {
	return &deliveryLedger{published: map[string]bool{}, settled: map[string]bool{}, unknown: map[string]bool{}, attempts: map[string]int{}}
}

// work fetches and settles until the broker is gone.
func (l *deliveryLedger) work(ctx context.Context, b consumed, id string, visibility time.Duration, rng *rand.Rand) {
	for ctx.Err() == nil {
		handed, err := b.Fetch(ctx, anonymous(), id, broker.FetchRequest{Max: 1 + rng.IntN(5), Visibility: visibility})
		if err != nil || !l.note(func() {
			for i := range handed {
				l.saw(&handed[i])
			}
		}) {
			return
		}
		for _, h := range handed {
			v := broker.Verdict{Tokens: []string{h.Token}}
			if rng.IntN(4) == 0 {
				_, _ = b.Nack(ctx, anonymous(), id, v)
				continue
			}
			if rng.IntN(10) == 0 {
				continue // the worker dies on it
			}
			event, _ := event.LookupJSON(h.Event, "id")
			l.note(func() { l.unknown[event] = true })
			done, err := b.Ack(ctx, anonymous(), id, v)
			l.note(func() {
				if err == nil && done[0] {
					l.settled[event] = true
				} else if err == nil {
					delete(l.unknown, event)
				}
			})
		}
	}
}

func (l *deliveryLedger) publish(ctx context.Context, r *rig, to target, round, publisher int) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%d-%d-%d", round, publisher, i)
		_, err := to.Publish(ctx, anonymous(), broker.PublishRequest{Topic: "a", Events: []*event.Event{r.event("/p", id, fmt.Sprint("k", i%5), "1", nil)}})
		if !l.note(func() {
			if err == nil {
				l.published[id] = true
			}
		}) || err != nil {
			return
		}
	}
}

// TestCrashOfSubscriptions lets the power fail at random instants while workers
// fetch and settle. No event is lost, none is handed out again after its
// acknowledgement was durable, attempts are counted on, and verification finds
// every row of the subscription sound.
func TestCrashOfSubscriptions(t *testing.T) {
	seed := drawCrashSeed(t)
	rng := rand.New(rand.NewPCG(seed, 5))
	fs := vfs.NewCrashableMem()
	clock := newCrashClock(20)
	l := newDeliveryLedger()
	change := func(o *broker.Options) { o.Clock = clock }
	r := newRig(t, fs, change)
	id := createPull(t, r.b)
	rounds := min(*crashRounds, crashHistory)
	for round := range rounds {
		fs = l.powerLoss(r, fs, id, round, rng)
		r = newRig(t, fs, change)
	}
	l.drain(t, r, id)
	r.close()
	r.mustVerify()
	for _, fault := range l.faults {
		t.Error(fault)
	}
	t.Logf("%d power losses, %d events, %d acknowledged, seed %d", rounds, len(l.published), len(l.settled), seed)
}

func createPull(t *testing.T, b consumed) string {
	t.Helper()
	d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	d.Config.Kind, d.Config.Topics, d.Config.MaxAttempts = event.KindPull, []string{"a"}, 4
	info, err := b.CreateSubscription(context.Background(), anonymous(), d)
	if err != nil {
		t.Fatal(err)
	}
	return info.Document.ID
}

// powerLoss works on a broker until the power fails, and returns what the disk
// has then.
func (l *deliveryLedger) powerLoss(r *rig, fs *vfs.MemFS, id string, round int, rng *rand.Rand) (after *vfs.MemFS) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for n := range 2 {
		running.Go(func() { l.publish(ctx, r, r.b, round, n) })
		own := rand.New(rand.NewPCG(rng.Uint64(), 1))
		running.Go(func() { l.work(ctx, r.b, id, time.Second, own) })
	}
	time.Sleep(time.Duration(20+rng.IntN(150)) * time.Millisecond) // when the power fails, not what is waited for
	l.mu.Lock()
	after = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))})
	l.crashed = true
	l.mu.Unlock()
	stop()
	running.Wait()
	r.close()
	l.mu.Lock()
	l.crashed = false
	l.mu.Unlock()
	return after
}

// drain takes what is left, and finds every event that was published where it
// has to be: acknowledged, or a dead letter.
func (l *deliveryLedger) drain(t *testing.T, r *rig, id string) {
	t.Helper()
	ctx := context.Background()
	for end := time.Now().Add(60 * time.Second); ; {
		handed, err := r.b.Fetch(ctx, anonymous(), id, broker.FetchRequest{Max: 100, Wait: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for i := range handed {
			l.saw(&handed[i])
			event, _ := event.LookupJSON(handed[i].Event, "id")
			if done, err := r.b.Ack(ctx, anonymous(), id, broker.Verdict{Tokens: []string{handed[i].Token}}); err != nil || !done[0] {
				continue // its deadline has passed: it comes again
			}
			l.settled[event] = true
		}
		info, err := r.b.Subscription(id)
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Status; s.Outstanding == 0 && s.Parked == 0 && s.LagEvents == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the subscription does not come to an end: %+v", info.Status)
		}
	}
	dead := map[string]bool{}
	for after := uint64(0); ; {
		letters, next, err := r.b.Letters(anonymous(), id, broker.LetterFilter{}, after, broker.LetterMax)
		if err != nil {
			t.Fatal(err)
		}
		for i := range letters {
			event, _ := event.LookupJSON(letters[i].Event, "id")
			dead[event] = true
			if l.settled[event] && letters[i].Cause == "rejected" {
				t.Errorf("event %s is acknowledged and a dead letter", event)
			}
		}
		if after = next; next == 0 {
			break
		}
	}
	for event := range l.published {
		// An acknowledgement without an answer may have taken effect.
		if !l.settled[event] && !l.unknown[event] && !dead[event] {
			t.Errorf("event %s was published and is lost", event)
		}
	}
}

// TestKillOfSubscriptions kills the process of a broker at random instants, also
// while it starts, while events are published and two subscriptions are worked on.
// What the process has said holds: no event is lost, none is handed out again after
// its acknowledgement was durable, attempts are counted on.
func TestKillOfSubscriptions(t *testing.T) {
	seed := drawCrashSeed(t)
	rng := rand.New(rand.NewPCG(seed, 6))
	t.Chdir(t.TempDir())
	h := newCrashHistory(t, seed, vfs.Default)
	defer h.close()
	ledgers := []*deliveryLedger{newDeliveryLedger(), newDeliveryLedger()}
	ids := make([]string, len(ledgers))
	kills := max(3, *crashRounds/4)
	for round := range kills {
		killAtWork(t, h, ledgers, ids, round, rng)
	}
	if len(ledgers[0].published) == 0 || len(ledgers[0].settled)+len(ledgers[1].settled) == 0 {
		t.Fatalf("nothing was at risk: %d events published, %d and %d acknowledged", len(ledgers[0].published), len(ledgers[0].settled), len(ledgers[1].settled))
	}
	r := newRig(t, vfs.Default, func(o *broker.Options) { o.Clock = h.clock })
	acked := 0
	for i, l := range ledgers {
		if ids[i] == "" {
			ids[i] = createPull(t, r.b) // it was killed too early, each time
		}
		l.drain(t, r, ids[i])
		for _, fault := range l.faults {
			t.Error(fault)
		}
		acked += len(l.settled)
	}
	r.close()
	r.mustVerify()
	t.Logf("%d kills, %d events, %d acknowledged by two subscriptions, seed %d", kills, len(ledgers[0].published), acked, seed)
}

// killAtWork works with a process until it is killed. Each subscription has one
// worker, so that what it sees is in the order in which it was handed out.
func killAtWork(t *testing.T, h *history, ledgers []*deliveryLedger, ids []string, round int, rng *rand.Rand) {
	t.Helper()
	h.writeTap()
	child, err := startCrashChild(h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	delay := time.Duration(100+rng.IntN(900)) * time.Millisecond
	go func() {
		if round%3 != 2 { // in the others it may be killed while it starts
			awaitProgress(child.gone, ledgers)
		}
		time.Sleep(delay) // when it is killed, not what is waited for
		_ = child.cmd.Process.Kill()
	}()
	r := &rig{t: t}
	var running sync.WaitGroup
	for i, l := range ledgers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 1))
		running.Go(func() {
			if ids[i] == "" { // what it does not answer to is a subscription that nobody uses
				d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
				d.Config.Kind, d.Config.Topics, d.Config.MaxAttempts, d.Config.Start = event.KindPull, []string{"a"}, 4, "earliest"
				info, err := child.CreateSubscription(ctx, anonymous(), d)
				if err != nil {
					return
				}
				ids[i] = info.Document.ID
			}
			l.work(ctx, child, ids[i], 20*time.Second, own)
		})
	}
	running.Go(func() { ledgers[0].publishForAll(ctx, r, child, ledgers[1:], round) })
	<-child.gone
	stop()
	running.Wait()
}

// awaitProgress waits until something was acknowledged to a publisher, and something
// by a worker, since it was called.
func awaitProgress(gone <-chan struct{}, ledgers []*deliveryLedger) {
	count := func() (published, settled int) {
		for _, l := range ledgers {
			l.note(func() { published, settled = published+len(l.published), settled+len(l.settled) })
		}
		return published, settled
	}
	publishedBefore, settledBefore := count()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if published, settled := count(); published > publishedBefore && settled > settledBefore {
			return
		}
		select {
		case <-gone:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// publishForAll publishes, and has other ledgers know of it, too.
func (l *deliveryLedger) publishForAll(ctx context.Context, r *rig, to target, others []*deliveryLedger, round int) {
	l.publish(ctx, r, to, round, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range others {
		for id := range l.published {
			other.note(func() { other.published[id] = true })
		}
	}
}
