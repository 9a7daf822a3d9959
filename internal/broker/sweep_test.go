// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

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

// damage makes the row of an event unreadable.
func (x *box) damage(topic string, position uint64) {
	x.t.Helper()
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32([]byte{'E'}, x.TopicNumber(topic)), position)
	x.close()
	db, err := pebble.Open("data", &pebble.Options{FS: x.fs, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		x.t.Fatal(err)
	}
	if err := errors.Join(db.Set(key, []byte{0xff}, pebble.Sync), db.Close()); err != nil {
		x.t.Fatal(err)
	}
	x.open()
}

type silent struct{}

func (silent) Infof(string, ...any)         {}
func (silent) Errorf(string, ...any)        {}
func (silent) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

// TestASweepReadsWhatThoseBehindSelect: that somebody is behind on a quiet topic is no
// reason to read a busy one, or more of it than its own webhooks have to come. And if it cannot
// be read, they are asked, and the others come forward all the same.
func TestASweepReadsWhatThoseBehindSelect(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	hook := func(topic, start string) string {
		return x.subscribe(topic, func(d *event.Subscription) {
			d.Protocol, d.Sink, d.Config.Kind, d.Config.Start = event.ProtocolHTTP, "https://sink.example/", event.KindWebhook, start
			d.Filters = []byte(`[{"exact":{"source":"/nobody"}}]`)
		})
	}
	busy := func(n int) {
		for ; n > 0; n -= 1000 {
			events := make([]*event.Event, 1000)
			for i := range events {
				events[i] = x.draft("", "", map[string]any{"source": "/else"})
			}
			x.mustSend("busy", events...)
		}
	}
	ids := []string{hook("quiet", "earliest"), hook("quiet.>", "earliest")}
	busy(1000)
	ids = append(ids, hook("busy", "now"))
	busy(11_000)
	x.damage("busy", 500)
	x.pass(time.Minute)
	x.woken(0)
	sweep := func(asked ...uint32) {
		t.Helper()
		head := x.Head().Position
		x.SweepWebhooks(0, 1_000_000)
		if got := x.woken(len(asked)); !slices.Equal(got, asked) {
			t.Errorf("%v are asked, want %v", got, asked)
		}
		for i, id := range ids {
			if at := x.infoOf(id).Status.Cursor.Position; (at == head) == slices.Contains(asked, uint32(i+1)) {
				t.Errorf("webhook %d is at %d of %d", i+1, at, head)
			}
		}
	}
	sweep()
	ids = append(ids, hook("busy", "earliest"))
	busy(11_000)
	x.woken(1)
	x.pass(time.Minute)
	sweep(3, 4)
}
