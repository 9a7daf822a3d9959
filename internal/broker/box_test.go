// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
	"signalbox/internal/store"
)

// start is where the clock of tests begins.
func startTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// stepClock is a clock that moves only when it is told to.
type stepClock struct {
	mu   sync.Mutex
	wall time.Time     // guarded by mu
	mono time.Duration // guarded by mu
}

func newStepClock() *stepClock { return &stepClock{wall: startTime(), mono: time.Hour} }

func (c *stepClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *stepClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

// pass lets time pass.
func (c *stepClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(d), c.mono+d
}

// step sets the wall clock forward or back, as people and NTP do.
func (c *stepClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// box is a broker on a disk in memory, whose clock is the test's.
type box struct {
	t       fataler
	fs      *vfs.MemFS
	clock   *stepClock
	options broker.Options
	*broker.Broker
}

func newBox(t fataler, options broker.Options) *box {
	t.Helper()
	x := &box{t: t, fs: vfs.NewMem(), clock: newStepClock(), options: options}
	x.options.Dir, x.options.FS, x.options.Clock = "data", x.fs, x.clock
	if x.options.CleanEvery == 0 {
		x.options.CleanEvery = time.Hour // of real time: never, a test cleans when it wants to
	}
	x.open()
	return x
}

func (x *box) open() {
	x.t.Helper()
	var err error
	if x.Broker, err = broker.Open(x.options); err != nil {
		x.t.Fatal(err)
	}
}

func (x *box) close() {
	x.t.Helper()
	if err := x.Close(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *box) restart() {
	x.t.Helper()
	x.close()
	x.open()
}

// pass lets time pass, and everything happen that is due by then.
func (x *box) pass(d time.Duration) {
	x.t.Helper()
	x.clock.pass(d)
	x.settle()
}

func (x *box) settle() {
	x.t.Helper()
	if err := x.Tick(); err != nil {
		x.t.Fatal(err)
	}
	if err := x.Clean(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *box) send(req broker.PublishRequest) (broker.PublishResult, error) {
	return x.Publish(context.Background(), identity.Anonymous(), req)
}

// mustSend publishes events, as a batch if there are several.
func (x *box) mustSend(topic string, events ...*event.Event) []event.Receipt {
	x.t.Helper()
	result, err := x.send(broker.PublishRequest{Topic: topic, Events: events, Batch: len(events) > 1})
	if err != nil {
		x.t.Fatal(err)
	}
	return result.Receipts
}

// with changes the default policy.
type with func(*event.Policy)

func (x *box) put(topic string, change with) {
	x.t.Helper()
	policy := event.DefaultPolicy()
	change(&policy)
	if _, _, err := x.PutTopic(context.Background(), identity.Anonymous(), topic, policy); err != nil {
		x.t.Fatal(err)
	}
}

// draft makes an event; its data is its id unless data says otherwise.
func (x *box) draft(id, key string, attributes map[string]any, data ...byte) *event.Event {
	x.t.Helper()
	d := event.Draft{ID: id, Source: "/agents/beta", Type: "task.state", Extensions: map[string]any{}, Data: data}
	if data == nil {
		d.Data = []byte(`"` + id + `"`)
	}
	if key != "" {
		d.Extensions["partitionkey"] = key
	}
	for name, value := range attributes {
		switch name {
		case "source":
			d.Source = value.(string)
		case "bare":
			d.Data = nil
		default:
			d.Extensions[name] = value
		}
	}
	ev, err := d.Event()
	if err != nil {
		x.t.Fatal(err)
	}
	return ev
}

// stamp is an HLC that much after the start.
func stampAt(d time.Duration, counter uint16) event.HLC {
	return event.NewHLC(startTime().Add(d).UnixMilli(), counter)
}

func mustPatterns(t fataler, list string) []event.Pattern {
	t.Helper()
	parsed, err := event.ParsePatterns(list)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func (x *box) follow(list string, start dispatch.Start) *dispatch.Reader {
	x.t.Helper()
	reader, err := x.Read(broker.ReadRequest{Patterns: mustPatterns(x.t, list), Start: start})
	if err != nil {
		x.t.Fatal(err)
	}
	return reader
}

// ids polls to the head and returns the ids of what was delivered.
func (x *box) ids(reader *dispatch.Reader) (ids []string) {
	x.t.Helper()
	for {
		w, err := reader.Poll(dispatch.Limit{Events: 1000, Bytes: 1 << 20})
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range w.Deliveries {
			ids = append(ids, deliveredEvent(x.t, &w.Deliveries[i]).ID())
		}
		if w.CaughtUp {
			return ids
		}
	}
}

func (x *box) readIDs(list string, start dispatch.Start) []string {
	x.t.Helper()
	reader := x.follow(list, start)
	defer reader.Close()
	return x.ids(reader)
}

func deliveredEvent(t fataler, d *dispatch.Delivery) *event.Event {
	t.Helper()
	ev, err := event.DecodeDelivered(d.JSON())
	if err != nil {
		t.Fatalf("%s: %v", d.JSON(), err)
	}
	if ev.Position() != d.Position {
		t.Fatalf("the event at %d says that it is at %d", d.Position, ev.Position())
	}
	return ev
}

func wantCode(t *testing.T, what string, err error, code event.Code) {
	t.Helper()
	if e := event.AsError(err); e == nil || e.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func oldest() dispatch.Start { return dispatch.Start{} }

// What the store's inspector walks over.
type (
	eventAt  = store.EventAt
	winnerAt = store.WinnerAt
	timer    = store.Timer
)
