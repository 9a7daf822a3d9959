// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
)

const rigDir = "data"

// crashClock runs faster than the machine's, so that windows, retention and
// timers end within a test.
type crashClock struct {
	start time.Time
	speed int64
}

func newCrashClock(speed int64) *crashClock { return &crashClock{start: time.Now(), speed: speed} }

func (c *crashClock) Wall() time.Time {
	return time.UnixMilli(1_800_000_000_000).Add(c.Mono())
}

func (c *crashClock) Mono() time.Duration {
	return time.Hour + time.Duration(c.speed*time.Since(c.start).Nanoseconds())
}

// fatalCalls records what Options.Fatal was told. It never returns, as in
// production, where it ends the process: the goroutine and the locks it holds
// stay as they are.
type fatalCalls struct {
	called chan string
}

func newFatalCalls() *fatalCalls { return &fatalCalls{called: make(chan string, 64)} }

func (f *fatalCalls) fatal(message string) {
	select {
	case f.called <- message:
	default:
	}
	select {}
}

// rig is a broker on a file system, and what the tests of reliability do to it.
type rig struct {
	t      *testing.T
	fs     vfs.FS
	change func(*broker.Options)
	b      *broker.Broker
}

// newRig opens a broker; change, if not nil, adjusts its options.
func newRig(t *testing.T, fs vfs.FS, change func(*broker.Options)) *rig {
	t.Helper()
	r := &rig{t: t, fs: fs, change: change}
	if err := r.open(); err != nil {
		t.Fatalf("opening: %v", err)
	}
	return r
}

func (r *rig) open() (err error) {
	o := broker.Options{Dir: rigDir, FS: r.fs, Fatal: func(message string) {
		r.t.Errorf("the broker gave up: %s", message)
		select {} // its caller must not go on
	}}
	if r.change != nil {
		r.change(&o)
	}
	r.b, err = broker.Open(o)
	return err
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.b.Close(); err != nil {
		r.t.Fatalf("closing: %v", err)
	}
}

func (r *rig) reopen() {
	r.t.Helper()
	r.close()
	if err := r.open(); err != nil {
		r.t.Fatalf("reopening: %v", err)
	}
}

// event builds an event; data "" is none.
func (r *rig) event(source, id, key, data string, extensions map[string]any) *event.Event {
	r.t.Helper()
	d := event.Draft{ID: id, Source: source, Type: "test.event", Subject: key, Extensions: extensions}
	if data != "" {
		d.DataContentType, d.Data = "application/json", []byte(data)
	}
	ev, err := d.Event()
	if err != nil {
		r.t.Fatalf("event %s %s: %v", source, id, err)
	}
	return ev
}

// publish publishes events to one topic, more than one as a batch.
func (r *rig) publish(topic string, events ...*event.Event) ([]event.Receipt, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result, err := r.b.Publish(ctx, identity.Anonymous(), broker.PublishRequest{Topic: topic, Events: events, Batch: len(events) > 1})
	return result.Receipts, err
}

func (r *rig) mustPublish(topic string, events ...*event.Event) []event.Receipt {
	r.t.Helper()
	receipts, err := r.publish(topic, events...)
	if err != nil {
		r.t.Fatalf("publishing to %s: %v", topic, err)
	}
	return receipts
}

// fill publishes n events with ids and keys of their own.
func (r *rig) fill(topic, prefix string, n int) (receipts []event.Receipt) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%d", prefix, i)
		receipts = append(receipts, r.mustPublish(topic, r.event("/fill", id, id, `{"n":1}`, nil))...)
	}
	return receipts
}

func (r *rig) putTopic(name string, change func(*event.Policy)) {
	r.t.Helper()
	policy := event.DefaultPolicy()
	change(&policy)
	if _, _, err := r.b.PutTopic(context.Background(), identity.Anonymous(), name, policy); err != nil {
		r.t.Fatalf("creating %s: %v", name, err)
	}
}

func compact(p *event.Policy) { p.CleanupPolicy = event.CleanupCompact }

// read returns everything that a reader of topics from the oldest on gets.
func (r *rig) read(topics, view string) []rigDelivery {
	r.t.Helper()
	patterns, err := event.ParsePatterns(topics)
	if err != nil {
		r.t.Fatal(err)
	}
	reader, err := r.b.Read(broker.ReadRequest{Patterns: patterns, View: view})
	if err != nil {
		r.t.Fatalf("reading %s: %v", topics, err)
	}
	defer reader.Close()
	var out []rigDelivery
	for {
		window, err := reader.Poll(dispatch.Limit{Events: 1000, Bytes: 1 << 20})
		if err != nil {
			r.t.Fatalf("polling %s: %v", topics, err)
		}
		for i := range window.Deliveries {
			d := &window.Deliveries[i]
			ev, err := event.DecodeDelivered(d.JSON())
			if err != nil {
				r.t.Fatalf("position %d: %v: %s", d.Position, err, d.JSON())
			}
			out = append(out, rigDelivery{ev, string(d.JSON())})
		}
		if window.CaughtUp {
			return out
		}
	}
}

// rigDelivery is an event as a reader got it.
type rigDelivery struct {
	*event.Event
	json string
}

// verify runs a verification of the directory, which must be closed.
func (r *rig) verify() broker.VerifyReport {
	r.t.Helper()
	report, err := broker.Verify(context.Background(), rigDir, r.fs, nil)
	if err != nil {
		r.t.Fatalf("verify: %v", err)
	}
	return report
}

// mustVerify fails the test unless a verification finds nothing.
func (r *rig) mustVerify() broker.VerifyReport {
	r.t.Helper()
	report := r.verify()
	for _, f := range report.Findings {
		r.t.Errorf("verify found %s: file %q topic %q position %d key %q: %s", f.What, f.File, f.Topic, f.Position, f.Key, f.Explanation)
	}
	if report.Total > 0 {
		r.t.Fatalf("verify found %d faults", report.Total)
	}
	return report
}

// files lists the files of the directory that begin or end so, in order.
func (r *rig) files(part string) []string {
	r.t.Helper()
	names, err := r.fs.List(rigDir)
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasSuffix(name, part) && !strings.HasPrefix(name, part)
	})
}

// readFile returns the bytes of a file of the directory.
func (r *rig) readFile(name string) []byte {
	r.t.Helper()
	f, err := r.fs.Open(r.fs.PathJoin(rigDir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// writeFile replaces a file of the directory.
func (r *rig) writeFile(name string, b []byte) {
	r.t.Helper()
	f, err := r.fs.Create(r.fs.PathJoin(rigDir, name), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(slices.Clone(b)) // with the race detector Pebble spoils what it was given
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// errorCode is the code of an error, "" for none.
func errorCode(err error) event.Code {
	if err == nil {
		return ""
	}
	return event.AsError(err).Code
}

func anonymous() identity.Principal { return identity.Anonymous() }

func limit() dispatch.Limit { return dispatch.Limit{Events: 1000, Bytes: 1 << 20} }

func cursorStart(c event.Cursor) dispatch.Start { return dispatch.Start{Cursor: &c} }
