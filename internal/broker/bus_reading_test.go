// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
	"signalbox/ticket"
)

// given is how many events a reader is given now.
func given(t *testing.T, reader *dispatch.Reader) int {
	t.Helper()
	w, err := reader.Poll(limit())
	if err != nil {
		t.Fatal(err)
	}
	return len(w.Deliveries)
}

// TestUnreadVersionIsNotStreamed: readers without a subscription, and streams of one,
// step over what their agent does not read as hand-outs do; others are given it, and so
// is the agent where it looks back.
func TestUnreadVersionIsNotStreamed(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	ctx, net := context.Background(), identity.Named("net")
	patterns := mustPatterns(t, "bus.main.plan.network")
	d := pullOf("bus.main.plan.network")
	d.Config.Kind = event.KindStream
	sub, err := s.CreateSubscription(ctx, net, d)
	if err != nil {
		t.Fatal(err)
	}
	var readers []*dispatch.Reader
	open := func(req broker.ReadRequest) {
		req.Patterns = patterns
		reader, err := s.Read(req)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, reader)
	}
	open(broker.ReadRequest{As: net}) // from the tail
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", strings.Replace(busBeat, ">=1.0.0", ">=1.1.0", 1))
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.mustSay("orch", ticket.TypePlanRequest, "network", busPlan)
	s.mustSay("orch", ticket.TypePlanRequest, "network", strings.Replace(busPlan, "s1", "s2", 1), func(d *ticket.Draft) { d.SchemaVersion = "1.1.0" })
	open(broker.ReadRequest{As: net})
	open(broker.ReadRequest{As: net, Expired: true}) // which looks back
	open(broker.ReadRequest{As: identity.Named("audit")})
	attached, reader, _, err := s.Attach(ctx, net, sub.Document.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	readers = append(readers, reader)
	for i, want := range []int{1, 1, 2, 2, 1} {
		if got := given(t, readers[i]); got != want {
			t.Errorf("reader %d is given %d, want %d", i, got, want)
		}
		readers[i].Close()
	}
}

// TestUnreadExecuteIsNotDelivered by a cursor that goes past it.
func TestUnreadExecuteIsNotDelivered(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	ctx, net := context.Background(), identity.Named("net")
	id := s.stream("net", "bus.main.execute.network")
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", strings.Replace(busBeat, ">=1.0.0", ">=1.1.0", 1))
	s.execute()
	if _, err := s.Acknowledge(ctx, net, id, s.Head()); err != nil {
		t.Fatal(err)
	}
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", busBeat)
	s.pass(20 * time.Second)
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", busBeat)
	s.pass(20 * time.Second)
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", busBeat)
	s.pass(20 * time.Second)
	s.wantSaid("platform-ops", "[deliver_by_missed critical]")
}

// stream makes a subscription of an agent that is a stream.
func (s *staff) stream(agent string, topics ...string) string {
	s.t.Helper()
	d := pullOf(topics...)
	d.Config.Kind = event.KindStream
	sub, err := s.CreateSubscription(context.Background(), identity.Named(agent), d)
	if err != nil {
		s.t.Fatal(err)
	}
	return sub.Document.ID
}

// TestUndeliveredExecuteOfAStreamIsADeadLetter: it is on the topic of the subscription's
// dead letters, the page says where, and it can be discarded. To redrive is to hand out
// again, which no stream does.
func TestUndeliveredExecuteOfAStreamIsADeadLetter(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	ctx, net := context.Background(), identity.Named("net")
	id := s.stream("net", "bus.main.execute.network")
	s.execute()
	s.pass(time.Minute)
	s.wantSaid("platform-ops", "[deliver_by_missed critical]")
	letters, _, err := s.Letters(net, id, broker.LetterFilter{}, 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Cause != "undelivered" || !strings.Contains(string(letters[0].Event), `"data":`+s.stored("bus.main.execute.network")) {
		t.Fatalf("%+v, %v", letters, err)
	}
	if page := s.stored("bus.main.escalation.platform-ops"); !strings.Contains(page, fmt.Sprintf(`"$dlq.%s@%d"`, id, letters[0].Position.Position)) {
		t.Errorf("the page does not say where the dead letter is: %s", page)
	}
	reader, err := s.Read(broker.ReadRequest{As: net, Patterns: mustPatterns(t, "$dlq."+id)})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if n := given(t, reader); n != 1 {
		t.Errorf("its owner is given %d dead letters", n)
	}
	s.restart()
	_, err = s.Redrive(ctx, net, id, broker.LetterFilter{}, 0, 10)
	wantCode(t, "redrive", err, event.CodeSubscriptionConflict)
	if move, err := s.Discard(ctx, net, id, broker.LetterFilter{}, 0, 10, "done by hand"); err != nil || move.Moved != 1 {
		t.Errorf("discarded: %+v, %v", move, err)
	}
}

// TestTopicsOfASubscriptionStandInItOnce, however it came to the broker.
func TestTopicsOfASubscriptionStandInItOnce(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	d := pullOf("log", "other", "log")
	d.Types = []string{"t", "t"}
	sub, err := s.CreateSubscription(context.Background(), anonymous(), d)
	if err != nil || fmt.Sprint(sub.Document.Config.Topics, sub.Document.Types) != "[log other] [t]" {
		t.Errorf("made: %q %q, %v", sub.Document.Config.Topics, sub.Document.Types, err)
	}
	d.Config.Topics = []string{"b", "a", "b"}
	sub, err = s.UpdateSubscription(context.Background(), anonymous(), sub.Document.ID, d)
	if err != nil || fmt.Sprint(sub.Document.Config.Topics) != "[b a]" {
		t.Errorf("changed: %q, %v", sub.Document.Config.Topics, err)
	}
}
