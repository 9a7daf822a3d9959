// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/projector"
)

// TestOneAlarmForEachWebhook: a webhook with an event that is to be tried again
// tomorrow, and others that are tried each moment, takes the place of one.
func TestOneAlarmForEachWebhook(t *testing.T) {
	d := broker.NewDue()
	const tomorrow = 24 * 3600 * 1000
	for now := int64(1); now <= 1000; now++ {
		d.AddLater(7, tomorrow)
		d.AddLater(7, now)
		d.AddLater(7, now+10) // comes too late to matter
		if n, ok := d.Next(now); !ok || n != 7 {
			t.Fatalf("at %d: %d, %t", now, n, ok)
		}
	}
	if _, later := d.Figures(); later != 0 {
		t.Errorf("%d alarms are left of a webhook that has come", later)
	}
	for number := uint32(10); number > 0; number-- {
		d.AddLater(number, tomorrow-int64(number))
		d.AddLater(number, int64(number))
	}
	if queued, later := d.Figures(); queued != 0 || later != 10 {
		t.Errorf("%d queued and %d later, of ten webhooks", queued, later)
	}
	for number := uint32(1); number <= 10; number++ {
		if n, ok := d.Next(5); n != number && number <= 5 || ok != (number <= 5) {
			t.Errorf("number %d is %d, %t", number, n, ok)
		}
	}
}

// TestACrowdOfWebhooksTakesTurns: of very many that were found by one term each comes
// once, every second time, and who is found otherwise does not wait for them.
func TestACrowdOfWebhooksTakesTurns(t *testing.T) {
	d := broker.NewDue()
	var crowd []uint32
	for n := range uint32(1000) {
		crowd = append(crowd, n)
	}
	for range 3 {
		d.AddFound(crowd...)
	}
	for n := uint32(2000); n < 2010; n++ {
		d.AddFound(n)
	}
	d.Add(999) // comes forward
	if queued, _ := d.Figures(); queued != 1010 {
		t.Errorf("%d are queued", queued)
	}
	var order []uint32
	for {
		n, ok := d.Next(0)
		if !ok {
			break
		}
		order = append(order, n)
	}
	if len(order) != 1010 {
		t.Errorf("%d come", len(order))
	}
	for _, n := range []uint32{2000, 2009, 999, 0, 10} {
		if at := slices.Index(order, n); at < 0 || at > 25 {
			t.Errorf("%d comes as the %dth", n, at)
		}
	}
	slices.Sort(order)
	if len(slices.Compact(order)) != 1010 {
		t.Error("some come twice")
	}
	d.AddFound(crowd...)
	if n, ok := d.Next(0); !ok || n != 0 {
		t.Errorf("then %d comes, %t", n, ok)
	}
}

// TestDueIsBounded: of more webhooks, alarms and events than fit the broker knows
// that it has missed some.
func TestDueIsBounded(t *testing.T) {
	const most = 65_536
	event := func(bytes int) []projector.Applied {
		return []projector.Applied{{Topic: "a", Members: make([]byte, bytes)}}
	}
	for name, c := range map[string]struct {
		fill, over func(d broker.Due)
	}{
		"queued": {func(d broker.Due) {
			for n := range uint32(most) {
				d.Add(n)
				d.Add(n) // takes no place
			}
		}, func(d broker.Due) { d.Add(most) }},
		"later": {func(d broker.Due) {
			for n := range uint32(2 * most) {
				d.AddLater(n, int64(n))
			}
			d.AddLater(1, 0) // takes no place
		}, func(d broker.Due) { d.AddLater(2*most, 1) }},
		"offered": {func(d broker.Due) { d.Offer(make([]projector.Applied, most)) }, func(d broker.Due) { d.Offer(event(1)) }},
		"bytes":   {func(d broker.Due) { d.Offer(event(32 << 20)) }, func(d broker.Due) { d.Offer(event(1)) }},
	} {
		d := broker.NewDue()
		d.Note([]byte("a"))
		c.fill(d)
		if d.Missed() {
			t.Errorf("%s: what fits is missed", name)
		}
		c.over(d)
		if !d.Missed() {
			t.Errorf("%s: what does not fit is not noticed", name)
		}
		d.Taken()
		d.Offer(event(1))
		if n := d.Taken(); n != 1 {
			t.Errorf("%s: after they were matched, %d events wait", name, n)
		}
	}
}

// TestASweepBeginsWithWhatWasLost: with the first event that did not fit, or with all if it
// was webhooks that did not.
func TestASweepBeginsWithWhatWasLost(t *testing.T) {
	d := broker.NewDue()
	d.Note([]byte("a"))
	lost := func(position uint64) {
		d.Offer([]projector.Applied{{Topic: "a", Position: position, Members: make([]byte, 33<<20)}})
	}
	lost(8)
	lost(9)
	if got := d.MissedBehind(); got != 7 || d.Missed() {
		t.Errorf("behind %d is looked", got)
	}
	lost(10)
	for n := range uint32(65_537) {
		d.Add(n)
	}
	if got := d.MissedBehind(); got != 0 {
		t.Errorf("behind %d is looked for lost webhooks", got)
	}
}

// hook makes a webhook for a topic, from its oldest event on.
func (x *box) hook(topic string) string {
	x.t.Helper()
	return x.subscribe(topic, func(d *event.Subscription) {
		d.Protocol, d.Sink, d.Config.Kind, d.Config.MaxAttempts = event.ProtocolHTTP, "https://sink.example/", event.KindWebhook, 10
	})
}

// woken are the webhooks that are to be looked at now: so many, and then until none is
// for a while.
func (x *box) woken(least int) (numbers []uint32) {
	for end := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		number, err := x.NextWebhook(ctx)
		cancel()
		if err == nil {
			numbers = append(numbers, number)
			continue
		}
		slices.Sort(numbers)
		if numbers = slices.Compact(numbers); len(numbers) >= least || time.Now().After(end) {
			return numbers
		}
	}
}

// TestEventsFindTheirWebhooks, those that are found by a term of their own and those
// of a crowd, and no others.
func TestEventsFindTheirWebhooks(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	for i := range 80 {
		x.hook([]string{"busy", "busy", "busy", "busy", "quiet"}[i%5])
	}
	x.hook("other")
	x.woken(81)
	x.mustSend("busy", x.draft("", "", nil), x.draft("", "", nil))
	if got := x.woken(64); len(got) != 64 {
		t.Errorf("%d are found of 64", len(got))
	}
	x.hook("busy")
	x.woken(1)
	x.mustSend("busy", x.draft("", "", nil))
	x.mustSend("other", x.draft("", "", nil))
	if got := x.woken(66); len(got) != 66 || !slices.Contains(got, 81) || !slices.Contains(got, 82) {
		t.Errorf("%v are found", got)
	}
}

// TestWebhookIsSentAgainSoonAfterACrash: however long a subscriber lets an attempt
// take, one that a crash has ended is made again in minutes.
func TestWebhookIsSentAgainSoonAfterACrash(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	id := x.subscribe("a", func(d *event.Subscription) {
		d.Protocol, d.Sink, d.Config.Kind, d.Config.Visibility = event.ProtocolHTTP, "https://sink.example/", event.KindWebhook, event.MaxVisibility
	})
	x.mustSend("a", x.draft("", "", nil))
	for attempt := 1; attempt <= 2; attempt++ {
		handed, _, err := x.HandOutWebhook(t.Context(), id, 1)
		if err != nil || len(handed) != 1 || handed[0].Attempt != attempt {
			t.Fatal(handed, err)
		}
		x.restart()
		x.pass(2*time.Minute + time.Second)
	}
}

// TestSweepFindsWhatWasMissed: after something did not fit, and after a start, each
// webhook that has something to deliver is found, and none that has not.
func TestSweepFindsWhatWasMissed(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	var ids []string
	for i := range 5 {
		ids = append(ids, x.hook(fmt.Sprint("t", i)))
		x.mustSend(fmt.Sprint("t", i), x.draft("", "", nil))
	}
	if _, err := x.PauseSubscription(t.Context(), anonymous(), ids[1], true); err != nil {
		t.Fatal(err)
	}
	if err := x.DisableWebhook(t.Context(), ids[2], "https://sink.example/", "a test"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{ids[3], ids[4]} { // one is out, one is dealt with
		handed, _, err := x.HandOutWebhook(t.Context(), id, 10)
		if err != nil || len(handed) != 1 {
			t.Fatal(handed, err)
		}
		if id == ids[4] {
			if err := x.SettleWebhook(t.Context(), id, "https://sink.example/", []broker.WebhookVerdict{{Token: handed[0].Token, Delivered: true}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.woken(5)
	for _, how := range []string{"missed", "started"} {
		if how == "missed" {
			x.MissWebhooks()
		} else {
			x.restart()
		}
		var found []uint32
		waitFor(t, "the sweep", func() bool {
			found = append(found, x.woken(0)...)
			return slices.Contains(found, 1) && slices.Contains(found, 4)
		})
		if slices.ContainsFunc(found, func(number uint32) bool { return number != 1 && number != 4 }) {
			t.Errorf("%s: found %v", how, found)
		}
	}
}

// TestASweepAsksThoseWhomEventsConcern: of many webhooks behind the head those whose terms
// hold for something that they have not come to, and no others.
func TestASweepAsksThoseWhomEventsConcern(t *testing.T) {
	x := newBox(t, broker.Options{CheckSink: func(string) error { return nil }})
	defer func() { x.close() }()
	var ids []string
	for i := range 30 { // the numbers of webhooks begin with 1
		ids = append(ids, x.subscribe("t.>", func(d *event.Subscription) {
			d.Protocol, d.Sink, d.Config.Kind = event.ProtocolHTTP, "https://sink.example/", event.KindWebhook
			d.Filters = fmt.Appendf(nil, `[{"exact":{"source":"/%d"}}]`, i+1)
		}))
	}
	send := func(topic string, from ...int) {
		var events []*event.Event
		for _, n := range from {
			events = append(events, x.draft("", "key", map[string]any{"source": fmt.Sprint("/", n)}))
		}
		x.mustSend(topic, events...)
	}
	asked := func(when string, want ...uint32) {
		t.Helper()
		var found []uint32
		waitFor(t, "the sweep", func() bool {
			found = append(found, x.woken(0)...)
			return !slices.ContainsFunc(want, func(n uint32) bool { return !slices.Contains(found, n) })
		})
		found = append(found, x.woken(0)...)
		if slices.Sort(found); !slices.Equal(slices.Compact(found), want) {
			t.Errorf("%s %v are asked, want %v", when, found, want)
		}
	}
	x.put("t.state", func(p *event.Policy) { p.CleanupPolicy = event.CleanupCompact })
	send("t.a", 2, 3, 99)
	send("t.state", 4)
	send("t.b", 2)
	for range 2 { // it gets both of its events
		handed, _, err := x.HandOutWebhook(t.Context(), ids[1], 1)
		if err != nil || len(handed) != 1 {
			t.Fatal(handed, err)
		}
		if err := x.SettleWebhook(t.Context(), ids[1], "https://sink.example/", []broker.WebhookVerdict{{Token: handed[0].Token, Delivered: true}}); err != nil {
			t.Fatal(err)
		}
	}
	x.woken(30)
	x.restart()
	asked("after a start", 3, 4)
	send("t.a", 10)
	asked("after an event", 10)

	// Those that are very far behind are asked, whatever there is for them.
	send("t.a", slices.Repeat([]int{99}, 600)...)
	for i, id := range ids {
		if i != 5 && i != 6 {
			if _, err := x.SeekSubscription(t.Context(), anonymous(), id, "now"); err != nil {
				t.Fatal(err)
			}
		}
	}
	send("t.a", 99, 12)
	x.woken(28) // those that were moved
	x.SweepWebhooks(0, 500)
	asked("far behind", 6, 7, 12)
}
