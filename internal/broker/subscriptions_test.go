// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
)

// subscribe creates a pull subscription to a topic from the oldest on.
func (x *box) subscribe(topics string, change func(*event.Subscription)) string {
	x.t.Helper()
	d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	d.Config.Kind, d.Config.Topics, d.Config.Start = event.KindPull, []string{topics}, "earliest"
	if change != nil {
		change(&d)
	}
	info, err := x.CreateSubscription(context.Background(), anonymous(), d)
	if err != nil {
		x.t.Fatal(err)
	}
	return info.Document.ID
}

func (x *box) fetch(id string) []broker.HandedOut {
	x.t.Helper()
	handed, err := x.Fetch(context.Background(), anonymous(), id, broker.FetchRequest{Max: 100})
	if err != nil {
		x.t.Fatal(err)
	}
	return handed
}

func handedIDs(handed []broker.HandedOut) string {
	var ids []string
	for _, h := range handed {
		id, _ := event.LookupJSON(h.Event, "id")
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func (x *box) ack(id string, handed ...broker.HandedOut) {
	x.t.Helper()
	v := broker.Verdict{}
	for _, h := range handed {
		v.Tokens = append(v.Tokens, h.Token)
	}
	done, err := x.Ack(context.Background(), anonymous(), id, v)
	if err != nil {
		x.t.Fatal(err)
	}
	for i := range done {
		if !done[i] {
			x.t.Fatalf("the acknowledgement of %s did not count", v.Tokens[i])
		}
	}
}

func (x *box) letters(id string) []broker.Letter {
	x.t.Helper()
	letters, _, err := x.Letters(anonymous(), id, broker.LetterFilter{}, 0, broker.LetterMax)
	if err != nil {
		x.t.Fatal(err)
	}
	return letters
}

func (x *box) sameIDs(what, got, want string) {
	x.t.Helper()
	if got != want {
		x.t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// TestRetentionWaitsForSubscriptions: what a subscription has not read is kept
// beyond the topic's retention, until it has.
func TestRetentionWaitsForSubscriptions(t *testing.T) {
	x := newBox(t, broker.Options{HoldMax: 24 * time.Hour})
	defer func() { x.close() }()
	x.put("a", keep(time.Hour, event.CleanupDelete))
	id := x.subscribe("a", nil)
	x.mustSend("a", x.draft("1", "k", nil))
	x.mustSend("a", x.draft("2", "k", nil))
	x.pass(2 * time.Hour)
	first := x.fetch(id)
	x.sameIDs("what was held", handedIDs(first), "1") // 2 is parked behind it
	x.ack(id, first...)
	x.pass(2 * time.Hour)
	second := x.fetch(id)
	x.sameIDs("what was parked", handedIDs(second), "2")
	x.ack(id, second...)
	x.pass(2 * time.Hour)
	if info, err := x.Topic("a"); err != nil || info.Events != 0 {
		t.Errorf("nobody waits, and the topic has %+v, %v", info, err)
	}
}

// TestGapIsToldWithItsRange: past the operator's cap a subscription loses events,
// and is told which.
func TestGapIsToldWithItsRange(t *testing.T) {
	x := newBox(t, broker.Options{HoldMax: time.Hour})
	defer func() { x.close() }()
	x.put("a", keep(time.Hour, event.CleanupDelete))
	id := x.subscribe("a", nil)
	stream := x.subscribe("a", func(d *event.Subscription) { d.Config.Kind = event.KindStream })
	x.mustSend("a", x.draft("1", "", nil))
	x.mustSend("a", x.draft("2", "", nil))
	x.pass(3 * time.Hour)
	x.mustSend("a", x.draft("3", "", nil))
	handed := x.fetch(id)
	if len(handed) == 0 {
		handed = x.fetch(id)
	}
	gaps := 0
	for _, h := range handed {
		if typ, _ := event.LookupJSON(h.Event, "type"); typ == "signalbox.subscription.gap" {
			gaps++
			from, _ := event.LookupJSON(h.Event, "data.from")
			to, _ := event.LookupJSON(h.Event, "data.to")
			if !strings.HasPrefix(from, "@0.") || !strings.HasPrefix(to, "@2.") {
				t.Errorf("the gap is from %s to %s", from, to)
			}
		}
	}
	if gaps != 1 {
		t.Fatalf("%d gaps in %s", gaps, handedIDs(handed))
	}
	x.ack(id, handed...)
	if rest := x.fetch(id); handedIDs(handed)+handedIDs(rest) == "" || !strings.Contains(handedIDs(handed)+" "+handedIDs(rest), "3") {
		t.Errorf("what followed the gap is %q", handedIDs(rest))
	}

	for range 2 { // told again until something behind it is acknowledged
		a, reader, gap, err := x.Attach(context.Background(), anonymous(), stream, nil)
		if err != nil {
			t.Fatal(err)
		}
		if gap == nil || gap.From.Position != 0 || gap.To.Position != 2 {
			t.Errorf("the stream's gap is %+v", gap)
		}
		window, err := reader.Poll(limit())
		if err != nil || len(window.Deliveries) != 1 {
			t.Errorf("%d events behind the gap, %v", len(window.Deliveries), err)
		}
		reader.Close()
		a.Close()
	}
	if _, err := x.Acknowledge(context.Background(), anonymous(), stream, x.Head()); err != nil {
		t.Fatal(err)
	}
	a, reader, gap, err := x.Attach(context.Background(), anonymous(), stream, nil)
	if err != nil || gap != nil {
		t.Errorf("after an acknowledgement the gap is %+v, %v", gap, err)
	}
	reader.Close()
	a.Close()
}

// TestUnusedSubscriptionEnds with a notice, and one that is used does not.
func TestUnusedSubscriptionEnds(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	expiring := func(d *event.Subscription) { d.Config.ExpiresAfter = event.Duration(time.Hour) }
	unused, used := x.subscribe("a", expiring), x.subscribe("a", expiring)
	for range 4 {
		x.pass(30 * time.Minute)
		x.fetch(used)
	}
	ended := func() bool {
		_, err := x.Subscription(unused)
		return errorCode(err) == event.CodeSubscriptionUnknown
	}
	waitFor(t, "ended", ended)
	if _, err := x.Subscription(used); err != nil {
		t.Errorf("the one that is used: %v", err)
	}
	x.restart()
	if !ended() {
		t.Error("it is there again after a restart")
	}
	if got := x.readIDs("$subscriptions", oldest()); len(got) != 1 {
		t.Errorf("the notices are %v", got)
	}
}

// TestWorkerThatFindsNothingUsesItsSubscription: also where that was not worth an entry
// of the log.
func TestWorkerThatFindsNothingUsesItsSubscription(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.ExpiresAfter = event.Duration(time.Hour) })
	x.pass(14 * time.Minute)
	x.sameIDs("of nothing", handedIDs(x.fetch(id)), "")
	x.pass(59 * time.Minute)
	x.settle()
	if _, err := x.Subscription(id); err != nil {
		t.Errorf("59 minutes after its last use: %v", err)
	}
	waitFor(t, "ended", func() bool {
		x.pass(time.Minute)
		_, err := x.Subscription(id)
		return errorCode(err) == event.CodeSubscriptionUnknown
	})
}

// TestConnectedStreamUsesItsSubscription: on a quiet topic, where there is nothing to
// acknowledge, for days, over a jump of the clock, and until it is gone for long.
func TestConnectedStreamUsesItsSubscription(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) {
		d.Config.Kind, d.Config.ExpiresAfter = event.KindStream, event.Duration(time.Hour)
	})
	x.pass(40 * time.Minute)
	a, reader, _, err := x.Attach(context.Background(), anonymous(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, quiet := range []time.Duration{50 * time.Minute, 20 * time.Minute, 20 * time.Minute, 50 * time.Minute, 48 * time.Hour} {
		x.pass(quiet)
		waitFor(t, "noted", func() bool {
			info, err := x.Subscription(id)
			if err != nil {
				t.Fatalf("after %s it has ended: %v", quiet, err)
			}
			return x.clock.Wall().Sub(info.Status.Used) < 15*time.Minute
		})
	}
	reader.Close()
	a.Close()
	x.pass(59 * time.Minute)
	if _, err := x.Subscription(id); err != nil {
		t.Errorf("59 minutes after its client has left: %v", err)
	}
	waitFor(t, "ended", func() bool {
		x.pass(time.Minute)
		_, err := x.Subscription(id)
		return errorCode(err) == event.CodeSubscriptionUnknown
	})
}

// TestTakingOutWhatIsGoneIsNoUse: the broker does so by itself.
func TestTakingOutWhatIsGoneIsNoUse(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	x.put("a", func(p *event.Policy) { p.CleanupPolicy = event.CleanupCompact })
	id := x.subscribe("a", func(d *event.Subscription) {
		d.Config.ExpiresAfter, d.Config.Visibility, d.Config.MaxAttempts = event.Duration(time.Hour), event.Duration(30*time.Minute), 1
	})
	x.mustSend("a", x.draft("1", "k", nil))
	x.fetch(id)
	x.mustSend("a", x.draft("2", "k", nil))
	x.pass(40 * time.Minute)
	waitFor(t, "gone", func() bool {
		info, err := x.Subscription(id)
		return err == nil && info.Status.Gone == 1
	})
	x.pass(40 * time.Minute)
	waitFor(t, "ended", func() bool {
		_, err := x.Subscription(id)
		return errorCode(err) == event.CodeSubscriptionUnknown
	})
}

// TestStartEndsWhatNobodyUsed: also a start that has something to configure, which is
// what finds the subscription then.
func TestStartEndsWhatNobodyUsed(t *testing.T) {
	x := newBox(t, broker.Options{Restored: true})
	defer func() { x.close() }()
	unused := x.subscribe("a", func(d *event.Subscription) { d.Config.ExpiresAfter = event.Duration(time.Hour) })
	x.close()
	x.clock.pass(2 * time.Hour)
	x.open()
	waitFor(t, "ended", func() bool {
		_, err := x.Subscription(unused)
		return errorCode(err) == event.CodeSubscriptionUnknown
	})
}

// TestStrictIsOneEventAtATime: also of dead letters that come again, and while a new
// event is out.
func TestStrictIsOneEventAtATime(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.Order = event.OrderStrict })
	x.mustSend("a", x.draft("1", "x", nil), x.draft("2", "y", nil), x.draft("3", "z", nil))
	for _, want := range []string{"1", "2"} {
		handed := x.fetch(id)
		x.sameIDs("the first time", handedIDs(handed), want)
		if _, err := x.Reject(context.Background(), anonymous(), id, broker.Verdict{Tokens: []string{handed[0].Token}}); err != nil {
			t.Fatal(err)
		}
	}
	out := x.fetch(id)
	x.sameIDs("the first time", handedIDs(out), "3")
	if moved, err := x.Redrive(context.Background(), anonymous(), id, broker.LetterFilter{}, 0, 10); err != nil || moved.Moved != 2 {
		t.Fatalf("redriven: %+v, %v", moved, err)
	}
	x.sameIDs("while 3 is out", handedIDs(x.fetch(id)), "")
	x.ack(id, out...)
	for _, want := range []string{"1", "2"} {
		out = x.fetch(id)
		x.sameIDs("again", handedIDs(out), want)
		x.sameIDs("while one is out", handedIDs(x.fetch(id)), "")
		x.ack(id, out...)
	}
}

// TestEventThatKillsItsConsumerIsQuarantined: the consumer of X falls silent each
// time and others are taken meanwhile. Attempts are counted when they are handed
// out, over a restart too.
func TestEventThatKillsItsConsumerIsQuarantined(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxAttempts = 3 })
	x.mustSend("a", x.draft("X", "x", nil))
	for attempt := 1; attempt <= 3; attempt++ {
		x.mustSend("a", x.draft(fmt.Sprint("Y", attempt), "y", nil))
		for _, h := range x.fetch(id) {
			if got := handedIDs([]broker.HandedOut{h}); got != "X" {
				x.ack(id, h) // Y is delivered meanwhile
			} else if h.Attempt != attempt {
				t.Fatalf("attempt %d of X is counted as %d", attempt, h.Attempt)
			}
		}
		if attempt == 2 {
			x.restart()
		}
		x.pass(31 * time.Second)
	}
	waitFor(t, "a dead letter", func() bool { return len(x.letters(id)) == 1 })
	if l := x.letters(id)[0]; l.Cause != "quarantined" || l.Attempts != 3 {
		t.Errorf("the dead letter is %+v", l)
	}
	x.sameIDs("a fourth delivery", handedIDs(x.fetch(id)), "")
	if got := x.readIDs("$quarantine", oldest()); len(got) != 1 {
		t.Errorf("$quarantine lists %v", got)
	}
}

// A consumer that is down altogether quarantines nothing: its events are dead
// letters for their attempts.
func TestSilentConsumerQuarantinesNothing(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxAttempts, d.Config.QuarantineAfter = 3, 2 })
	x.mustSend("a", x.draft("1", "", nil), x.draft("2", "", nil))
	for range 3 {
		x.sameIDs("handed out", handedIDs(x.fetch(id)), "1 2")
		x.pass(31 * time.Second)
	}
	waitFor(t, "dead letters", func() bool { return len(x.letters(id)) == 2 })
	for _, l := range x.letters(id) {
		if l.Cause != "attempts" {
			t.Errorf("the cause is %s", l.Cause)
		}
	}
}

// TestRedrivingManyTimesAccumulatesNothing: what fails again replaces its dead
// letter, and is quarantined after the number of returns that is set.
func TestRedrivingManyTimesAccumulatesNothing(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxRedrives = 3 })
	x.mustSend("a", x.draft("X", "x", nil))
	ctx, size := context.Background(), 0
	for i := range 50 {
		handed := x.fetch(id)
		x.sameIDs("handed out", handedIDs(handed), "X")
		if done, err := x.Reject(ctx, anonymous(), id, broker.Verdict{Tokens: []string{handed[0].Token}, Reason: "again"}); err != nil || !done[0] {
			t.Fatal(done, err)
		}
		letters := x.letters(id)
		if len(letters) != 1 || letters[0].Redrives != i || len(x.readIDs("$dlq."+id, oldest())) > i+1 {
			t.Fatalf("after %d redrives the dead letters are %+v", i, letters)
		}
		if size == 0 {
			size = len(letters[0].Event)
		}
		if len(letters[0].Event) != size {
			t.Fatalf("the event grew from %d to %d bytes", size, len(letters[0].Event))
		}
		if want := map[bool]string{true: "quarantined", false: "rejected"}[i >= 3]; letters[0].Cause != want {
			t.Fatalf("after %d redrives the cause is %s", i, letters[0].Cause)
		}
		at := broker.LetterFilter{Positions: []uint64{letters[0].Position.Position}}
		if moved, err := x.Redrive(ctx, anonymous(), id, at, 0, 10); err != nil || moved.Moved != 1 {
			t.Fatal(moved, err)
		}
	}
	if moved, err := x.Redrive(ctx, anonymous(), id, broker.LetterFilter{}, 0, 10); err != nil || moved.Moved != 0 {
		t.Errorf("a redrive of all moved a quarantined one: %+v, %v", moved, err)
	}
}

// TestDeadLettersOfDeadLettersDoNotGrow: two subscriptions on each other's dead
// letters that always fail end after one pass.
func TestDeadLettersOfDeadLettersDoNotGrow(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	first := x.subscribe("a", func(d *event.Subscription) { d.Config.Topics = []string{"a", "$dlq.>"} })
	second := x.subscribe("$dlq.>", nil)
	x.mustSend("a", x.draft("1", "k", nil))
	for range 10 {
		for _, id := range []string{first, second} {
			for _, h := range x.fetch(id) {
				if _, err := x.Reject(context.Background(), anonymous(), id, broker.Verdict{Tokens: []string{h.Token}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if got := x.readIDs("$dlq.>", oldest()); len(got) != 1 {
		t.Errorf("the dead letters are %v", got)
	}
}

// TestEventStaysWhileItsDeadLetterCannotBeStored: on a full disk the event is
// kept, others go on, and acknowledging and redriving work.
func TestEventStaysWhileItsDeadLetterCannotBeStored(t *testing.T) {
	mem := vfs.NewMem()
	room := func(bytes uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30, UsedBytes: 1<<30 - bytes})
	}
	room(1 << 30)
	x := &box{t: t, fs: mem, clock: newStepClock()}
	x.options = broker.Options{Dir: "data", FS: mem, Clock: x.clock, MinFree: 100 << 20, CleanEvery: time.Hour}
	x.open()
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxAttempts = 1 })
	x.mustSend("a", x.draft("poison", "p", nil), x.draft("behind", "p", nil), x.draft("other", "o", nil))
	handed := x.fetch(id)
	x.sameIDs("handed out", handedIDs(handed), "poison other")
	room(99 << 20)
	waitFor(t, "full", func() bool { return errorCode(x.Ready(context.Background())) == event.CodeDiskFull })
	nack := func() {
		t.Helper()
		if done, err := x.Nack(context.Background(), anonymous(), id, broker.Verdict{Tokens: []string{handed[0].Token}}); err != nil || !done[0] {
			t.Fatal(done, err)
		}
	}
	nack()
	x.sameIDs("the poison, which is spent, and what waits behind it", handedIDs(x.fetch(id)), "")
	x.ack(id, handed[1])
	if len(x.letters(id)) != 0 {
		t.Error("there is a dead letter")
	}
	if info, err := x.Subscription(id); err != nil || info.Status.Outstanding != 1 || info.Status.Parked != 1 {
		t.Errorf("the subscription is %+v, %v", info.Status, err)
	}
	room(1 << 30)
	waitFor(t, "room", func() bool { return x.Ready(context.Background()) == nil })
	x.sameIDs("what waited", handedIDs(x.fetch(id)), "behind")
	if len(x.letters(id)) != 1 {
		t.Error("there is no dead letter")
	}
}

// TestWorkersShareASubscription: many workers at one time get each event once,
// and those of a key in order.
func TestWorkersShareASubscription(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", nil)
	const keys, each = 7, 30
	for i := range each {
		var batch []*event.Event
		for k := range keys {
			batch = append(batch, x.draft(fmt.Sprintf("%d-%d", k, i), fmt.Sprint("k", k), nil))
		}
		x.mustSend("a", batch...)
	}
	var mu sync.Mutex
	seen, last := map[string]bool{}, map[string]int{}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				handed, err := x.Fetch(context.Background(), anonymous(), id, broker.FetchRequest{Max: 5})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				done := len(seen) == keys*each
				for _, h := range handed {
					event := handedIDs([]broker.HandedOut{h})
					var k string
					var i int
					_, _ = fmt.Sscanf(strings.Replace(event, "-", " ", 1), "%s %d", &k, &i)
					if seen[event] || i != last[k] {
						t.Errorf("%s came after %d of its key, seen %v", event, last[k], seen[event])
					}
					seen[event], last[k] = true, i+1
				}
				mu.Unlock()
				if done {
					return
				}
				for _, h := range handed {
					if _, err := x.Ack(context.Background(), anonymous(), id, broker.Verdict{Tokens: []string{h.Token}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	workers.Wait()
}

// TestFullySubscribedWaits: with as many parked as may be, a worker that waits is
// woken by what is settled, and by nothing else: it does not go round in circles.
func TestFullySubscribedWaits(t *testing.T) {
	var taken atomic.Int64
	x := newBox(t, broker.Options{Tap: func(p *eventlog.Proposal) {
		if p.Kind == eventlog.KindSubscription {
			taken.Add(1)
		}
	}})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxParked = 2 })
	x.mustSend("a", x.draft("1", "k", nil), x.draft("2", "k", nil), x.draft("3", "k", nil), x.draft("4", "k", nil), x.draft("5", "other", nil))
	first := x.fetch(id)
	x.sameIDs("the first", handedIDs(first), "1")
	if got, err := x.Fetch(context.Background(), anonymous(), id, broker.FetchRequest{Max: 10, Wait: 300 * time.Millisecond}); err != nil || len(got) != 0 {
		t.Fatalf("%s, %v", handedIDs(got), err)
	}
	if info, err := x.Subscription(id); err != nil || info.Status.Parked != 2 || info.Status.Cursor.Position != 3 {
		t.Errorf("the subscription is %+v, %v", info.Status, err)
	}
	x.ack(id, first...)
	var all []string
	for range 5 {
		handed := x.fetch(id)
		all = append(all, handedIDs(handed))
		if len(handed) > 0 {
			x.ack(id, handed...)
		}
	}
	if got := strings.Join(strings.Fields(strings.Join(all, " ")), " "); got != "2 3 5 4" && got != "2 5 3 4" && got != "2 3 4 5" {
		t.Errorf("the rest came as %s", got)
	}
	if n := taken.Load(); n > 30 {
		t.Errorf("there were %d proposals", n)
	}
}

// TestSupersededEventsAreNotHandedOut: of a compacted topic a worker gets what is
// current when it asks, however much of a key was parked.
func TestSupersededEventsAreNotHandedOut(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	x.put("s", func(p *event.Policy) { p.CleanupPolicy = event.CleanupCompact })
	id := x.subscribe("s", nil)
	x.mustSend("s", x.draft("0", "k", nil))
	first := x.fetch(id)
	for i := range 30 { // one by one, so that each is parked
		x.mustSend("s", x.draft(fmt.Sprint(i+1), "k", nil))
		x.sameIDs("meanwhile", handedIDs(x.fetch(id)), "")
	}
	x.ack(id, first...)
	last := x.fetch(id)
	x.sameIDs("what is current", handedIDs(last), "30")
	x.ack(id, last...)
	if info, err := x.Subscription(id); err != nil || info.Status.Gone != 29 || info.Status.Outstanding+info.Status.Parked != 0 {
		t.Errorf("the subscription is %+v, %v", info.Status, err)
	}
}

// TestIdleSubscriptionsCostDisk: start-up reads none of them, and one that is
// used is found among all.
// TestSupersededEventsAreHandedOutAgainFromHistory: who reads the history is owed
// what was superseded while it was out, as long as the topic keeps it.
func TestSupersededEventsAreHandedOutAgainFromHistory(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", func(p *event.Policy) {
		p.CleanupPolicy, p.MinCompactionLag = event.CleanupCompact, event.Duration(time.Hour)
	})
	history := x.subscribe("a", func(d *event.Subscription) { d.Config.View = "history"; d.Config.MaxAttempts = 3 })
	current := x.subscribe("a", nil)
	x.mustSend("a", x.draft("1", "k", nil))
	for _, id := range []string{history, current} {
		x.sameIDs("the first", handedIDs(x.fetch(id)), "1")
	}
	x.mustSend("a", x.draft("2", "k", nil))
	x.pass(time.Minute) // nobody answers
	x.sameIDs("the current view", handedIDs(x.fetch(current)), "2")
	again := x.fetch(history)
	x.sameIDs("the history", handedIDs(again), "1")
	if _, err := x.Reject(context.Background(), anonymous(), history, broker.Verdict{Tokens: []string{again[0].Token}}); err != nil {
		t.Fatal(err)
	}
	if letters := x.letters(history); len(letters) != 1 || letters[0].At.Position != 1 {
		t.Errorf("the dead letters are %+v", letters)
	}
	x.sameIDs("the history goes on", handedIDs(x.fetch(history)), "2")
}

// TestRejectedEventIsSettledThoughItHasExpired: there is no dead letter to be made
// of it, and it does not hold up the next of its key.
func TestRejectedEventIsSettledThoughItHasExpired(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	id := x.subscribe("a", nil)
	x.mustSend("a", x.draft("1", "k", map[string]any{"expiry": 5}))
	x.mustSend("a", x.draft("2", "k", nil))
	handed := x.fetch(id)
	x.sameIDs("the first", handedIDs(handed), "1")
	x.pass(10 * time.Second)
	done, err := x.Reject(context.Background(), anonymous(), id, broker.Verdict{Tokens: []string{handed[0].Token}})
	if err != nil || !done[0] {
		t.Errorf("the rejection: %v, %v", done, err)
	}
	if letters := x.letters(id); len(letters) != 0 {
		t.Errorf("the dead letters are %+v", letters)
	}
	x.sameIDs("the next of the key", handedIDs(x.fetch(id)), "2")
}

// TestOneGapForTheRemovalsOfSeveralTopics: what is told is how far removals have
// come, in whichever topic, so that one notice is enough.
func TestOneGapForTheRemovalsOfSeveralTopics(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	id := x.subscribe(">", nil)
	for i := range 8 {
		topic := fmt.Sprintf("t%d", i)
		x.mustSend(topic, x.draft(topic, "", nil))
		if err := x.DeleteTopic(context.Background(), anonymous(), topic); err != nil {
			t.Fatal(err)
		}
	}
	x.mustSend("kept", x.draft("kept", "", nil))
	x.fetch(id)
	info, err := x.Subscription(id)
	if err != nil || info.Status.Gaps != 1 {
		t.Errorf("%d gaps (%v), want one", info.Status.Gaps, err)
	}
}

// TestDeadLettersComeInOrder of their events, however many are spent at once.
func TestDeadLettersComeInOrder(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	id := x.subscribe("a", func(d *event.Subscription) { d.Config.MaxAttempts = 1 })
	const events = 20
	for i := range events {
		x.mustSend("a", x.draft(fmt.Sprint(i), "", nil))
	}
	x.fetch(id)
	x.pass(time.Minute)
	x.fetch(id) // buries what is spent, if the keeper has not been here yet
	last := uint64(0)
	for _, l := range x.letters(id) {
		if l.At.Position <= last {
			t.Errorf("the dead letter of %d is behind that of %d", l.At.Position, last)
		}
		last = l.At.Position
	}
	if last != events {
		t.Errorf("the last dead letter is that of %d, want %d", last, events)
	}
}

func TestIdleSubscriptionsCostDisk(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	const idle = 3000
	var creating sync.WaitGroup
	for range 30 {
		creating.Go(func() {
			for range idle / 30 {
				d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
				d.Config.Kind = event.KindPull
				if _, err := x.CreateSubscription(context.Background(), anonymous(), d); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	id := x.subscribe("a", nil)
	x.restart()
	x.mustSend("a", x.draft("1", "", nil))
	x.sameIDs("what the one gets", handedIDs(x.fetch(id)), "1")
	count := 0
	for after := ""; ; {
		page, more, err := x.Subscriptions(after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		count += len(page)
		if !more {
			break
		}
		after = page[len(page)-1].Document.ID
	}
	if count != idle+1 {
		t.Errorf("there are %d subscriptions", count)
	}
}

// TestWorkersAreWokenWhoeverHasTheReader: workers of a subscription wait on one
// reader. One who replaces it and leaves takes nobody's wake-up along.
func TestWorkersAreWokenWhoeverHasTheReader(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) { d.Source, d.Config.Start = "/wanted", "now" })
	got := make(chan string, 1)
	send := func(id, source string) { x.mustSend("a", x.draft(id, "k", map[string]any{"source": source})) }
	send("1", "/other")
	var worker sync.WaitGroup
	worker.Go(func() {
		handed, err := x.Fetch(context.Background(), anonymous(), id, broker.FetchRequest{Max: 1, Wait: 10 * time.Minute})
		if err != nil {
			t.Error(err)
		}
		got <- handedIDs(handed)
	})
	for _, open := x.Laggards(1); open == 0; _, open = x.Laggards(1) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // it sees that nothing passes, and waits
	for n := range 3 {
		send(fmt.Sprint("2.", n), "/other")
		ctx, leave := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, _ = x.Fetch(ctx, anonymous(), id, broker.FetchRequest{Max: 1, Wait: 10 * time.Minute})
		leave()
	}
	send("3", "/wanted")
	select {
	case ids := <-got:
		x.sameIDs("handed out", ids, "3")
	case <-time.After(30 * time.Second): // after a minute every worker looks
		t.Error("the worker sleeps through its event")
	}
	worker.Wait()
	info, err := x.Subscription(id)
	if err != nil || info.Status.Dropped != 4 {
		t.Errorf("%d events were dropped: %v", info.Status.Dropped, err)
	}
}

// TestNothingIsHandedToWhoHasLeft: a worker whose request has ended before it is
// his turn changes nothing.
func TestNothingIsHandedToWhoHasLeft(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	id := x.subscribe("a", nil)
	x.mustSend("a", x.draft("1", "k", nil))
	gone, leave := context.WithCancel(context.Background())
	leave()
	for range 30 {
		if handed, err := x.Fetch(gone, anonymous(), id, broker.FetchRequest{Max: 1}); err == nil {
			t.Fatalf("%q was handed to nobody", handedIDs(handed))
		}
	}
	x.sameIDs("handed out", handedIDs(x.fetch(id)), "1")
}
