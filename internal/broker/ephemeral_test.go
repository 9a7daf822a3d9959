// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
)

// Nothing of an ephemeral topic is written: not its events, not what is refused
// there, not who is present. Neither the log nor the data directory grows.
func TestEphemeralTopicsAreNotWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var proposals atomic.Int64
	b, err := broker.Open(broker.Options{Dir: dir, Tap: func(*eventlog.Proposal) { proposals.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	x := &box{t: t, Broker: b}
	x.put("e", func(p *event.Policy) { p.Durability = event.DurabilityEphemeral })
	attendance := b.Announce(broker.Presence{Agent: "/a", Door: "sse"})
	before, bytes := proposals.Load(), sizeOf(t, dir)
	for i := range 5000 {
		x.mustSend("e", x.draft(fmt.Sprint(i), fmt.Sprint("k", i%10), nil))
		if _, err := x.send(broker.PublishRequest{Topic: "e", Events: []*event.Event{x.draft("r", "k", nil)}, IdempotencyKey: "k"}); err == nil {
			t.Fatal("an Idempotency-Key was accepted")
		}
	}
	if err := b.Report("/a", []byte(`{"ledger":"ok"}`), broker.StatusTTL); err != nil {
		t.Fatal(err)
	}
	attendance.Leave()
	if after := proposals.Load(); after != before {
		t.Errorf("%d proposals were made", after-before)
	}
	if after := sizeOf(t, dir); after != bytes {
		t.Errorf("the data directory went from %d to %d bytes", bytes, after)
	}
	if head := b.Head(); head.Position != 0 {
		t.Errorf("the head is %s", head)
	}
}

func sizeOf(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if os.IsNotExist(err) {
			return nil
		}
		bytes += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// A full disk is no reason to refuse what is not written.
func TestEphemeralTopicsNeedNoDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b, err := broker.Open(broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	x := &box{t: t, Broker: b}
	x.put("e", func(p *event.Policy) { p.Durability = event.DurabilityEphemeral })
	x.close()
	if x.Broker, err = broker.Open(broker.Options{Dir: dir, MinFree: 1 << 62}); err != nil {
		t.Fatal(err)
	}
	defer x.close()
	_, err = x.send(broker.PublishRequest{Topic: "d", Events: []*event.Event{x.draft("1", "k", nil)}})
	wantCode(t, "a durable event", err, event.CodeDiskFull)
	x.mustSend("e", x.draft("1", "k", nil))
}

// A schema holds there as anywhere; a tombstone needs none.
func TestEphemeralTopicsKeepToTheirSchema(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("e", func(p *event.Policy) {
		p.Durability, p.Schema = event.DurabilityEphemeral, `{"type":"object","required":["n"]}`
	})
	x.mustSend("e", x.draft("1", "k", nil, []byte(`{"n":1}`)...))
	x.mustSend("e", x.draft("2", "k", map[string]any{"bare": true}))
	_, err := x.send(broker.PublishRequest{Topic: "e", Events: []*event.Event{x.draft("3", "k", nil, []byte(`{"m":1}`)...)}})
	wantCode(t, "other data", err, event.CodeSchemaViolation)
	_, err = x.send(broker.PublishRequest{Topic: "e", Events: []*event.Event{x.draft("4", "", map[string]any{"bare": true})}})
	wantCode(t, "no data and no key", err, event.CodeDataNotJSON)
}

// While the broker shuts down it takes nothing that nobody will read.
func TestEphemeralTopicsDrain(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("e", func(p *event.Policy) { p.Durability = event.DurabilityEphemeral })
	x.Drain()
	_, err := x.send(broker.PublishRequest{Topic: "e", Events: []*event.Event{x.draft("1", "k", nil)}})
	wantCode(t, "an event", err, event.CodeShuttingDown)
	wantCode(t, "a status", x.Report("/a", []byte("{}"), broker.StatusTTL), event.CodeShuttingDown)
}
