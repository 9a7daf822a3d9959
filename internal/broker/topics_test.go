// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
)

func TestTopics(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	ctx := context.Background()
	policy := event.DefaultPolicy()
	policy.CleanupPolicy, policy.KeyFrom = event.CleanupCompact, "order.id"
	for i, created := range []bool{true, false} {
		info, got, err := x.PutTopic(ctx, identity.Anonymous(), "b.orders", policy)
		if err != nil || got != created || info.Name != "b.orders" || !info.Policy.Equal(policy) {
			t.Fatalf("put %d: %+v, %t, %v", i, info, got, err)
		}
	}
	receipts := x.mustSend("a", x.draft("1", "", nil))
	x.mustSend("b.orders", x.draft("1", "", nil, []byte(`{"order":{"id":"o-1"}}`)...), x.draft("2", "k", nil), x.draft("3", "k", map[string]any{"bare": true}))
	x.restart()
	topics := x.Topics()
	if len(topics) != 2 || topics[0].Name != "a" || topics[1].Name != "b.orders" {
		t.Fatalf("the topics are %+v", topics)
	}
	if a := topics[0]; !a.Policy.Equal(event.DefaultPolicy()) || a.Events != 1 || a.Bytes == 0 || a.Head != receipts[0].Cursor || a.Oldest.Position != 0 {
		t.Errorf("a topic made by its first use is %+v", a)
	}
	if b := topics[1]; !b.Policy.Equal(policy) || b.Events != 2 || b.Keys != 1 || b.Tombstones != 1 || b.Head.Position != 4 {
		t.Errorf("the compacted topic is %+v", b)
	}
	if d, err := x.StateKey("b.orders", "o-1"); err != nil || d.Position != 2 {
		t.Errorf("the key from data has position %d, %v", d.Position, err)
	}
	policy.KeyFrom = ""
	_, _, err := x.PutTopic(ctx, identity.Anonymous(), "b.orders", policy)
	wantCode(t, "another key_from", err, event.CodePolicyImmutable)
	if err := x.DeleteTopic(ctx, identity.Anonymous(), "b.orders"); err != nil {
		t.Fatal(err)
	}
	_, err = x.Topic("b.orders")
	wantCode(t, "a deleted topic", err, event.CodeTopicUnknown)
	if topics := x.Topics(); len(topics) != 1 {
		t.Errorf("the topics are %+v", topics)
	}
}

func TestTopicRefusals(t *testing.T) {
	var logged atomic.Int64
	x := newBox(t, broker.Options{Tap: func(p *eventlog.Proposal) {
		if p.Kind == eventlog.KindRefusal {
			logged.Add(1)
		}
	}})
	defer func() { x.close() }()
	put := func(name string, change with) error {
		policy := event.DefaultPolicy()
		change(&policy)
		_, _, err := x.PutTopic(context.Background(), identity.Anonymous(), name, policy)
		return err
	}
	plain := func(*event.Policy) {}
	wantCode(t, "no name", put("", plain), event.CodeTopicInvalid)
	wantCode(t, "a pattern", put("a.>", plain), event.CodeTopicInvalid)
	wantCode(t, "the broker's own", put("$agents", plain), event.CodeTopicReserved)
	wantCode(t, "no policy", put("a", func(p *event.Policy) { *p = event.Policy{} }), event.CodePolicyInvalid)
	wantCode(t, "no such cleanup", put("a", func(p *event.Policy) { p.CleanupPolicy = "shred" }), event.CodePolicyInvalid)
	wantCode(t, "too small", put("a", func(p *event.Policy) { p.MaxEventBytes = 1000 }), event.CodePolicyInvalid)
	wantCode(t, "an unknown topic", x.DeleteTopic(context.Background(), identity.Anonymous(), "a"), event.CodeTopicUnknown)
	wantCode(t, "the broker's own", x.DeleteTopic(context.Background(), identity.Anonymous(), "$agents"), event.CodeTopicReserved)
	if topics := x.Topics(); len(topics) != 0 {
		t.Errorf("refusals left %+v", topics)
	}
	x.restart()                     // which reads every policy again
	if n := logged.Load(); n != 7 { // what only apply can know is refused, and logged, there
		t.Errorf("of 8 refusals 7 have no place in the log: %d have an entry", n)
	}
}

// TestTopicsComeAndGo: a broker opens again whatever was deleted, made again or
// deleted twice, and what is in no topic any more does not stay in the store.
func TestTopicsComeAndGo(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	for round := range 4 {
		for i := range 20 {
			name := fmt.Sprint("topic-", i)
			x.put(name, compact)
			x.mustSend(name, x.draft(fmt.Sprint(round), "k", nil), x.draft(fmt.Sprint(round, "-short"), "l", map[string]any{"expiry": 60}))
			if i%2 == 0 || round == 3 {
				if err := x.DeleteTopic(context.Background(), identity.Anonymous(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		x.restart()
	}
	x.pass(time.Hour)
	in, err := x.Store().NewInspector()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	leftover := func(kind string) func(error) error {
		return func(err error) error {
			t.Errorf("a row of %s is left", kind)
			return err
		}
	}
	events, winners, timers := leftover("events"), leftover("winners"), leftover("timers")
	for _, err := range []error{
		in.Events(func(_ eventAt, err error) error { return events(err) }),
		in.Winners(func(_ winnerAt, err error) error { return winners(err) }),
		in.Timers(func(_ timer, err error) error { return timers(err) }),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}
