// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
)

// parallel runs do n times at once and waits.
func parallel(n int, do func(i int)) {
	var running sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		running.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	running.Wait()
}

// TestIdempotencyKeyInParallel: of fifty requests with one key, one is done, and
// all get its answer.
func TestIdempotencyKeyInParallel(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	var done atomic.Int64
	receipts := make([]event.Receipt, 50)
	parallel(50, func(i int) {
		ev := x.draft("same", "", nil)
		result, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{ev}, IdempotencyKey: "key"})
		if err != nil {
			t.Error(err)
			return
		}
		receipts[i] = result.Receipts[0]
		if !result.Replayed {
			done.Add(1)
		}
	})
	for i, r := range receipts {
		if !reflect.DeepEqual(r, receipts[0]) || r.Outcome != event.OutcomeAccepted {
			t.Errorf("caller %d got %+v, caller 0 %+v", i, r, receipts[0])
		}
	}
	if got := x.readIDs("a", oldest()); len(got) != 1 || done.Load() != 1 {
		t.Errorf("%d requests were done, and the events are %v", done.Load(), got)
	}
}

// TestIdempotencyKeyForTwoBodies: one body wins, whoever came with the other is
// told, and gets nothing of the first answer.
func TestIdempotencyKeyForTwoBodies(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	var answers [2]atomic.Int64
	parallel(50, func(i int) {
		ev := x.draft(fmt.Sprint("body-", i%2), "", nil)
		result, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{ev}, IdempotencyKey: "key"})
		switch e := event.AsError(err); {
		case err == nil && result.Receipts[0].ID == ev.ID():
			answers[i%2].Add(1)
		case e == nil || e.Code != event.CodeIdempotencyKeyReused || len(e.Facts) > 0:
			t.Errorf("body %d got %+v, %v", i%2, result, err)
		}
	})
	if a, b := answers[0].Load(), answers[1].Load(); a+b != 25 || a*b != 0 {
		t.Errorf("%d and %d requests with either body were answered", a, b)
	}
	if got := x.readIDs("a", oldest()); len(got) != 1 {
		t.Errorf("the events are %v", got)
	}
	// Another topic has keys of its own.
	ev := x.draft("other", "", nil)
	if result, err := x.send(broker.PublishRequest{Topic: "b", Events: []*event.Event{ev}, IdempotencyKey: "key"}); err != nil || result.Replayed {
		t.Errorf("the key in another topic: %+v, %v", result, err)
	}
}

// TestOneOfManyCreates: of many that ask for the key to have no value, one
// passes; of many that replace one value, one does.
func TestOneOfManyCreates(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("a", compact)
	race := func(round string, condition func(*broker.PublishRequest)) uint64 {
		var won atomic.Uint64
		parallel(20, func(i int) {
			req := broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft(fmt.Sprint(round, i), "k", nil)}}
			condition(&req)
			result, err := x.send(req)
			switch e := event.AsError(err); {
			case err == nil:
				if !won.CompareAndSwap(0, result.Receipts[0].Position) {
					t.Errorf("%s: two passed", round)
				}
			case e.Code != event.CodeConflict || e.Facts["etag"] == nil || e.Facts["outcome"] != "conflict":
				t.Errorf("%s: %+v", round, e)
			}
		})
		return won.Load()
	}
	first := race("create", func(req *broker.PublishRequest) { req.IfNoneMatch = true })
	second := race("replace", func(req *broker.PublishRequest) { req.IfMatch = &broker.Match{Positions: []uint64{first}} })
	if d, err := x.StateKey("a", "k"); err != nil || d.Position != second || second == 0 {
		t.Errorf("the state is that of %d, %v; the winner was %d", d.Position, err, second)
	}
}

// blocked is a broker whose apply loop stands still, with the first event that is
// published from now on, until the test lets it go.
func blocked(t *testing.T) (x *box, reached <-chan struct{}, release func()) {
	t.Helper()
	gate, came := make(chan struct{}), make(chan struct{}, 1)
	var shut atomic.Bool
	x = newBox(t, broker.Options{Tap: func(p *eventlog.Proposal) {
		if shut.Load() && p.Kind == eventlog.KindEvents {
			select {
			case came <- struct{}{}:
			default:
			}
			<-gate
		}
	}})
	shut.Store(true)
	return x, came, func() {
		shut.Store(false)
		close(gate)
	}
}

// TestOverloaded: when the queue is full a caller waits for as long as its
// context lets it, and is then told to come again; nothing of it is stored.
func TestOverloaded(t *testing.T) {
	x, _, release := blocked(t)
	defer x.close()
	const most = 8192 + 1024 // the queue, and the group that apply holds
	batch := func(i int) broker.PublishRequest {
		return broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft(fmt.Sprint(i), "", nil)}, NoAck: true}
	}
	queued := 0
	for ; queued <= most; queued++ {
		req, err := batch(queued), error(nil)
		for end := time.Now().Add(patience); ; {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			_, err = x.Publish(ctx, identity.Anonymous(), req)
			cancel()
			if err == nil || queued >= 8192 || time.Now().After(end) {
				break
			} // a machine that is busy lets the time pass where there is room
		}
		if err != nil {
			wantCode(t, "a publish into the full queue", err, event.CodeOverloaded)
			if e := event.AsError(err); !e.Code.Class().Retryable {
				t.Error("the caller is not told to try again")
			}
			break
		}
	}
	if queued < 8192 || queued > most {
		t.Errorf("the queue took %d proposals", queued)
	}
	release()
	x.mustSend("a", x.draft("last", "", nil))
	got := x.readIDs("a", oldest())
	if len(got) != queued+1 || got[queued] != "last" || got[queued-1] != fmt.Sprint(queued-1) {
		t.Errorf("of %d queued events %d are there", queued, len(got))
	}
}

// TestCallerGivesUp: a caller that stops waiting is told that the outcome is
// unknown. The event may be there, and a repetition has no effect.
func TestCallerGivesUp(t *testing.T) {
	x, reached, release := blocked(t)
	defer x.close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-reached; cancel() }()
	req := broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft("1", "", nil)}}
	_, err := x.Publish(ctx, identity.Anonymous(), req)
	wantCode(t, "a caller that gave up", err, event.CodeOverloaded)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is not in %v", err)
	}
	release()
	result, err := x.send(req)
	if err != nil || result.Receipts[0].Outcome != event.OutcomeDuplicate || result.Receipts[0].Position != 1 {
		t.Errorf("the repetition got %+v, %v", result, err)
	}
}

// TestCloseAnswersEverybody: while callers publish from everywhere the broker
// closes. Each is answered: with a receipt, and then the event is there, or that
// the broker is shutting down, and then it is not.
func TestCloseAnswersEverybody(t *testing.T) {
	x := newBox(t, broker.Options{})
	const callers = 32
	answered := make([]map[string]bool, callers)
	var began sync.WaitGroup
	began.Add(callers)
	go func() {
		began.Wait()
		x.close()
	}()
	parallel(callers, func(caller int) {
		answered[caller] = map[string]bool{}
		for i := 0; ; i++ {
			id := fmt.Sprint(caller, ".", i)
			result, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft(id, "", nil)}})
			if i == 0 {
				began.Done()
			}
			if err != nil {
				wantCode(t, "a publish while closing", err, event.CodeShuttingDown)
				answered[caller][id] = false
				return
			}
			answered[caller][id] = result.Receipts[0].Outcome == event.OutcomeAccepted
		}
	})
	x.close() // again: it waits for the first
	wantCode(t, "after closing", x.DeleteTopic(context.Background(), identity.Anonymous(), "a"), event.CodeShuttingDown)
	wantCode(t, "after closing", x.Ready(context.Background()), event.CodeShuttingDown)
	select {
	case <-x.Draining():
	default:
		t.Error("readers are not told that the broker is closing")
	}
	x.open()
	defer x.close()
	there := map[string]bool{}
	for _, id := range x.readIDs("a", oldest()) {
		there[id] = true
	}
	for _, byID := range answered {
		for id, accepted := range byID {
			if accepted != there[id] {
				t.Errorf("event %s: accepted %t, there %t", id, accepted, there[id])
			}
			delete(there, id)
		}
	}
	if len(there) > 0 {
		t.Errorf("nobody was told of %v", there)
	}
}

// TestRefusedEarly has what needs no order to be refused.
func TestRefusedEarly(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	one := []*event.Event{x.draft("1", "k", nil)}
	two := []*event.Event{x.draft("1", "k", nil), x.draft("2", "k", map[string]any{"expiry": 5, "expirytime": "2030-01-01T00:00:00Z"})}
	for _, c := range []struct {
		name string
		req  broker.PublishRequest
		code event.Code
	}{
		{"no topic", broker.PublishRequest{Events: one}, event.CodeTopicInvalid},
		{"a pattern", broker.PublishRequest{Topic: "a.*", Events: one}, event.CodeTopicInvalid},
		{"the broker's own", broker.PublishRequest{Topic: "$audit", Events: one}, event.CodeTopicReserved},
		{"too many", broker.PublishRequest{Topic: "a", Events: make([]*event.Event, event.MaxBatch+1), Batch: true}, event.CodeBatchTooLarge},
		{"a condition on a batch", broker.PublishRequest{Topic: "a", Events: two, Batch: true, IfNoneMatch: true}, event.CodePreconditionInvalid},
		{"a match on a batch", broker.PublishRequest{Topic: "a", Events: two, Batch: true, IfMatch: &broker.Match{Any: true}}, event.CodePreconditionInvalid},
		{"contradictory conditions", broker.PublishRequest{Topic: "a", Events: one, IfMatch: &broker.Match{Any: true}, IfNoneMatch: true}, event.CodePreconditionInvalid},
		{"two expiries", broker.PublishRequest{Topic: "a", Events: two[1:]}, event.CodeExpiryInvalid},
		{"two expiries, in a batch", broker.PublishRequest{Topic: "a", Events: two, Batch: true}, event.CodeBatchAborted},
	} {
		_, err := x.send(c.req)
		wantCode(t, c.name, err, c.code)
		if c.code == event.CodeBatchAborted {
			if e := event.AsError(err); e.Facts["index"] != 1 || e.Facts["cause"] != string(event.CodeExpiryInvalid) {
				t.Errorf("%s: the facts are %v", c.name, e.Facts)
			}
		}
	}
	if result, err := x.send(broker.PublishRequest{Topic: "a", Batch: true}); err != nil || result.Receipts == nil || len(result.Receipts) != 0 {
		t.Errorf("an empty batch: %+v, %v", result, err)
	}
	if topics := x.Topics(); len(topics) != 0 || x.Head().Position != 0 {
		t.Errorf("refusals left %v, head %s", topics, x.Head())
	}
	x.Drain()
	_, err := x.send(broker.PublishRequest{Topic: "a", Events: one})
	wantCode(t, "while draining", err, event.CodeShuttingDown)
}

// TestWithoutAcknowledgement: the answer comes at once and says nothing, and the
// event is there a moment later.
func TestWithoutAcknowledgement(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	reader := x.follow("a", oldest())
	defer reader.Close()
	changed := reader.Changed()
	result, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft("1", "", nil)}, NoAck: true})
	if err != nil || result.Receipts != nil {
		t.Fatalf("%+v, %v", result, err)
	}
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("the event does not come")
	}
	if got := x.ids(reader); len(got) != 1 {
		t.Errorf("the events are %v", got)
	}
}

// TestRefusalsAreLogged: what was refused before it had a place in the log gets
// an entry in it, up to a number a second for each principal; of the excess
// there is one, with how many they were.
func TestRefusalsAreLogged(t *testing.T) {
	var mu sync.Mutex
	var logged []eventlog.Proposal
	x := newBox(t, broker.Options{Tap: func(p *eventlog.Proposal) {
		if p.Kind == eventlog.KindRefusal {
			mu.Lock()
			defer mu.Unlock()
			logged = append(logged, *p)
		}
	}})
	defer x.close()
	for range 250 {
		_, err := x.send(broker.PublishRequest{Topic: "$audit"})
		wantCode(t, "a reserved topic", err, event.CodeTopicReserved)
	}
	_, err := x.send(broker.PublishRequest{Topic: "no topic\n"})
	wantCode(t, "no topic", err, event.CodeTopicInvalid)
	x.clock.pass(time.Second)
	x.Refused(identity.Anonymous(), "a", event.Errorf(event.CodeJSONInvalid, "a transport's own refusal"))
	x.mustSend("a", x.draft("1", "", nil))
	mu.Lock()
	defer mu.Unlock()
	if len(logged) != 102 {
		t.Fatalf("251 refusals in one second and one in the next have %d entries", len(logged))
	}
	for i := range 100 {
		if p := &logged[i]; p.RefusedCode != string(event.CodeTopicReserved) || p.RefusedCount != 1 || p.Topic != "$audit" {
			t.Errorf("entry %d is %+v", i, p)
		}
	}
	if p := &logged[100]; p.RefusedCount != 151 || p.Topic != "" {
		t.Errorf("the excess is %+v", p)
	}
	if p := &logged[101]; p.RefusedCount != 1 || p.Topic != "a" || p.RefusedCode != string(event.CodeJSONInvalid) {
		t.Errorf("the refusal of the next second is %+v", p)
	}
}

// TestPublishersRetry: publishers that repeat whatever was not acknowledged,
// while the broker is restarted under them, end up with each event once.
func TestPublishersRetry(t *testing.T) {
	x := newBox(t, broker.Options{})
	var mu sync.RWMutex // held for writing while the broker is restarted
	stop := make(chan struct{})
	var restarting sync.WaitGroup
	restarting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
			}
			x.Drain() // what is on its way is refused or answered
			func() {
				mu.Lock()
				defer mu.Unlock()
				x.restart()
			}()
		}
	})
	const publishers, each = 10, 60
	parallel(publishers, func(p int) {
		for i := range each {
			ev := x.draft(fmt.Sprint(p, ".", i), "", nil)
			for try := 0; ; try++ {
				mu.RLock()
				result, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{ev}})
				mu.RUnlock()
				if err == nil && (i%10 > 0 || try > 0) { // of every tenth the answer is lost
					if o := result.Receipts[0].Outcome; o != event.OutcomeAccepted && o != event.OutcomeDuplicate {
						t.Errorf("event %s: %s", ev.ID(), o)
					}
					break
				}
				if err != nil {
					wantCode(t, "a publish while restarting", err, event.CodeShuttingDown)
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
	close(stop)
	restarting.Wait()
	defer x.close()
	next := map[string]int{}
	for _, id := range x.readIDs("a", oldest()) {
		var p, i int
		if _, err := fmt.Sscanf(id, "%d.%d", &p, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[fmt.Sprint(p)] {
			t.Errorf("publisher %d: event %d came where %d was due", p, i, next[fmt.Sprint(p)])
		}
		next[fmt.Sprint(p)] = i + 1
	}
	for p := range publishers {
		if next[fmt.Sprint(p)] != each {
			t.Errorf("publisher %d: %d of %d events are there", p, next[fmt.Sprint(p)], each)
		}
	}
}

// TestReady proves the write path, at most once a second.
func TestReady(t *testing.T) {
	var probes atomic.Int64
	x := newBox(t, broker.Options{Tap: func(p *eventlog.Proposal) {
		if p.Kind == eventlog.KindProbe {
			probes.Add(1)
		}
	}})
	defer x.close()
	for range 5 {
		if err := x.Ready(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	x.clock.pass(time.Second)
	if err := x.Ready(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := probes.Load(); n != 2 {
		t.Errorf("%d probes in two seconds", n)
	}
	if x.Head().Position != 0 {
		t.Errorf("a probe took the position %s", x.Head())
	}
	x.Drain()
	wantCode(t, "while draining", x.Ready(context.Background()), event.CodeShuttingDown)
}
