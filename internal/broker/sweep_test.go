// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

func (x *box) infoOf(id string) broker.SubscriptionInfo {
	x.t.Helper()
	info, err := x.Subscription(id)
	if err != nil {
		x.t.Fatal(err)
	}
	return info
}

// TestASweepBringsForwardWhomNothingConcerns: the place of a webhook that no event
// concerns follows the head, and its status counts them, without its being asked.
// Who is concerned is asked, and so is who has to be told of a gap; a paused one stays.
func TestASweepBringsForwardWhomNothingConcerns(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	var ids []string
	hook := func(topic, subject string) {
		ids = append(ids, x.subscribe(topic, func(d *event.Subscription) {
			d.Protocol, d.Sink, d.Config.Kind = event.ProtocolHTTP, "https://sink.example/", event.KindWebhook
			d.Filters = fmt.Appendf(nil, `[{"exact":{"partitionkey":%q}},{"exact":{"source":%q}}]`, subject, "/"+subject)
		}))
	}
	const idle, quiet, concerned, paused, gap, changed = 1, 2, 3, 4, 5, 6 // their numbers
	hook("busy.>", "nobody")
	hook("quiet", "nobody")
	hook("busy.a", "somebody")
	hook("busy.a", "paused")
	hook("gone", "nobody")
	hook("busy.b", "changed")
	send := func(topic string, n int, subject string) {
		events := make([]*event.Event, n)
		for i := range events {
			events[i] = x.draft("", subject, map[string]any{"source": "/" + subject})
		}
		x.mustSend(topic, events...)
	}
	status := func(number int) broker.SubscriptionStatus {
		return x.infoOf(ids[number-1]).Status
	}
	send("gone", 1, "else")
	if _, err := x.PauseSubscription(t.Context(), anonymous(), ids[paused-1], true); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		send("busy.a", 1000, "else")
	}
	send("busy.b", 50, "else")
	send("busy.a", 1, "somebody")
	if err := x.DeleteTopic(t.Context(), anonymous(), "gone"); err != nil {
		t.Fatal(err)
	}
	x.woken(6)
	x.pass(time.Minute)
	if _, err := x.UpdateSubscription(t.Context(), anonymous(), ids[changed-1], x.infoOf(ids[changed-1]).Document); err != nil {
		t.Fatal(err)
	}
	x.woken(1)
	head := x.Head().Position
	x.SweepWebhooks(0, 1_000_000)
	if got := x.woken(2); !slices.Equal(got, []uint32{concerned, gap}) {
		t.Errorf("%v are asked", got)
	}
	for number, want := range map[int]broker.SubscriptionStatus{
		idle: {Cursor: event.Cursor{Position: head}, Dropped: 10_051}, quiet: {Cursor: event.Cursor{Position: head}}, concerned: {}, paused: {}, gap: {}, changed: {},
	} {
		if got := status(number); got.Cursor.Position != want.Cursor.Position || got.Dropped != want.Dropped {
			t.Errorf("webhook %d is at %s and has dropped %d, want %s and %d", number, got.Cursor, got.Dropped, want.Cursor, want.Dropped)
		}
	}
	// What comes then finds it where it is now.
	send("busy.b", 1, "nobody")
	if got := x.woken(3); !slices.Contains(got, idle) {
		t.Errorf("an event finds %v", got)
	}
	handed, _, err := x.HandOutWebhook(t.Context(), ids[idle-1], 10)
	if err != nil || len(handed) != 1 {
		t.Errorf("%d events are handed out: %v", len(handed), err)
	}
	if got := status(idle); got.Dropped != 10_051 || got.Matched != 1 {
		t.Errorf("it counts %d dropped and %d matched", got.Dropped, got.Matched)
	}
}
