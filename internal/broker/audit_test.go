// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
)

func keysOf(t *testing.T, b *broker.Broker) audit.Keys {
	t.Helper()
	keys, err := audit.ParseKeys(b.AuditKey())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func checkpointOf(t *testing.T, b *broker.Broker) audit.Checkpoint {
	t.Helper()
	c, err := b.Checkpoint(context.Background(), true)
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := audit.OpenCheckpoint(c.Note, keysOf(t, b)); err != nil || opened.Size != c.Size || c.Size != b.AuditSize() {
		t.Fatalf("the checkpoint over %d entries of %d is read as %+v, %v", c.Size, b.AuditSize(), opened, err)
	}
	return c
}

// exported is the trail as an export has it, without checkpoints but the given ones.
func exported(t *testing.T, b *broker.Broker, checkpoints ...audit.Checkpoint) []byte {
	t.Helper()
	start, chain, err := b.AuditStart(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := audit.AppendStart(nil, start)
	if err != nil {
		t.Fatal(err)
	}
	err = b.AuditLines(context.Background(), 0, b.AuditSize(), b.Bodies(anonymous()), func(l *audit.Line) (bool, error) {
		chain = audit.NextChain(chain, l.Leaf)
		l.Chain = chain
		out = audit.AppendLine(out, l)
		for _, c := range checkpoints {
			if c.Size == l.Index+1 {
				if out, err = audit.AppendCheckpoint(out, c.Note); err != nil {
					return false, err
				}
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func verifyTrail(t *testing.T, b *broker.Broker, kept ...audit.Checkpoint) audit.Report {
	t.Helper()
	r, err := audit.Verify(context.Background(), bytes.NewReader(exported(t, b, checkpointOf(t, b))), audit.VerifyOptions{Keys: keysOf(t, b), Checkpoints: kept})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		t.Errorf("the trail has a finding: %+v", f)
	}
	return r
}

// TestTreeIsBuiltInPieces: whatever the tree was asked for meanwhile, and however often
// the broker was started again, its root is that of all leaves, and every event is proved.
func TestTreeIsBuiltInPieces(t *testing.T) {
	r := newRig(t, vfs.NewMem(), nil)
	defer func() { r.close() }()
	var kept []audit.Checkpoint
	for piece := range 5 {
		for batch := range 3 {
			var events []*event.Event
			for i := range 97 {
				events = append(events, r.event("/a", fmt.Sprintf("%d-%d-%d", piece, batch, i), "k", `1`, nil))
			}
			r.mustPublish("log", events...)
		}
		kept = append(kept, checkpointOf(t, r.b))
		if piece%2 == 1 {
			r.reopen()
		}
	}
	report := verifyTrail(t, r.b, kept...)
	if report.Size != r.b.AuditSize() || len(report.Compared) < 5 || report.Bodies != report.Size || report.Size < 1455 {
		t.Errorf("the report is %+v", report)
	}
	keys := keysOf(t, r.b)
	for _, position := range []uint64{1, 255, 256, 257, 700, 1455} {
		p, err := r.b.ProvePosition(context.Background(), anonymous(), position)
		if err != nil {
			t.Fatal(err)
		}
		if l, _, err := p.Check(keys); err != nil || l.Position != position || l.Body == nil {
			t.Errorf("the proof of position %d is of %d, %v", position, l.Position, err)
		}
	}
	for _, c := range kept {
		p, err := r.b.ProveConsistency(context.Background(), c.Size, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Check(c, keys); err != nil {
			t.Errorf("the proof from %d entries on: %v", c.Size, err)
		}
	}
}

// TestTreeGoesOnAfterACrash: a crash takes back what was not synced of the tree, and
// nothing of the trail; neither is taken for tampering.
func TestTreeGoesOnAfterACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	r := newRig(t, fs, nil)
	r.fill("log", "a", 300)
	first := checkpointOf(t, r.b)
	r.fill("log", "b", 300) // of which the tree knows nothing yet
	key := r.b.AuditKey()
	crashed := newRig(t, fs.CrashClone(vfs.CrashCloneCfg{}), nil)
	r.close()
	if crashed.b.AuditKey() != key {
		t.Error("the key is another one after the crash")
	}
	if report := verifyTrail(t, crashed.b, first); report.Size != 601 || report.Bodies != 601 {
		t.Errorf("after the crash the report is %+v", report)
	}
	crashed.fill("log", "c", 3)
	verifyTrail(t, crashed.b, first)
	crashed.close()
	crashed.mustVerify()
}

// TestEveryDecisionHasAnEntry: what was refused, repeated, expired, handed out, settled
// and given up can be told from the trail, and by whom.
func TestEveryDecisionHasAnEntry(t *testing.T) {
	clock := newCrashClock(0)
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { o.Clock = clock })
	defer r.close()
	r.putTopic("state", compact)
	r.mustPublish("state", r.event("/a", "1", "k", `1`, nil))
	r.mustPublish("state", r.event("/a", "1", "k", `1`, nil))
	if _, err := r.publish("state", r.event("/a", "2", "", `1`, nil)); errorCode(err) != event.CodeKeyRequired {
		t.Fatalf("an event without a key gives %v", err)
	}
	if _, err := r.publish("$own", r.event("/a", "3", "k", `1`, nil)); errorCode(err) != event.CodeTopicReserved {
		t.Fatalf("a reserved topic gives %v", err)
	}
	if err := r.b.Tick(); err != nil { // behind the refusal, which nobody waits for
		t.Fatal(err)
	}
	var got []string
	err := r.b.AuditLines(context.Background(), 0, r.b.AuditSize(), r.b.Bodies(anonymous()), func(l *audit.Line) (bool, error) {
		detail := ""
		if l.Kind != audit.KindEvent {
			var d struct{ Op, Code string }
			if err := json.Unmarshal(l.Detail, &d); err != nil {
				return false, err
			}
			detail = d.Op + d.Code
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %d %s", l.Kind, l.Flags, detail)))
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"control 0 configure", "control 0 put_topic", "event 1", "event 3", "refusal 0 key_required", "refusal 0 topic_reserved"}
	if !slices.Equal(got, want) {
		t.Errorf("the entries are %q, want %q", got, want)
	}
}

// onDisk is a broker on the machine's files, whose checkpoints go to a file outside.
func onDisk(t *testing.T, dir, outside string, restored bool) (*broker.Broker, error) {
	t.Helper()
	return broker.Open(broker.Options{Dir: dir, AuditFile: outside, Restored: restored})
}

func fillOnDisk(t *testing.T, b *broker.Broker, prefix string, n int) {
	t.Helper()
	r := &rig{t: t, b: b}
	r.fill("log", prefix, n)
}

// TestCutLogIsNotBlessedByAStart: yesterday's copy of the directory, another directory,
// and one whose log was removed are all sound by themselves. The file outside tells, and
// so does a verification with it.
func TestCutLogIsNotBlessedByAStart(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "data"), filepath.Join(base, "checkpoints.txt")
	b, err := onDisk(t, dir, outside, false)
	if err != nil {
		t.Fatal(err)
	}
	fillOnDisk(t, b, "a", 20)
	keys := keysOf(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	copyDir(t, dir, filepath.Join(base, "yesterday"))
	if b, err = onDisk(t, dir, outside, false); err != nil {
		t.Fatalf("an intact log does not start: %v", err)
	}
	fillOnDisk(t, b, "b", 5)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(outside)
	if err != nil {
		t.Fatal(err)
	}
	var kept []audit.Checkpoint
	for _, n := range audit.SplitNotes(text) {
		c, err := audit.OpenCheckpoint(n, keys)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
	}
	if len(kept) < 2 || kept[len(kept)-1].Size != 26 {
		t.Fatalf("%d checkpoints are outside", len(kept))
	}
	for name, want := range map[string]string{"data": "", "yesterday": "cut"} {
		report, err := broker.VerifyAgainst(context.Background(), filepath.Join(base, name), nil, kept, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && report.Total != 0 || want != "" && (report.Total != 1 || report.Findings[0].What != want || *report.Findings[0].Leaf != 21) {
			t.Errorf("verifying %s gives %+v", name, report.Findings)
		}
	}
	other := filepath.Join(base, "other")
	if b, err = onDisk(t, other, "", false); err != nil {
		t.Fatal(err)
	}
	fillOnDisk(t, b, "o", 40)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"yesterday", "other", "nothing"} {
		at := filepath.Join(base, name)
		if b, err := onDisk(t, at, outside, false); errorCode(err) != event.CodeStoreDamaged {
			t.Errorf("%s is served: %v", name, err)
			_ = b.Close()
		}
	}
	if b, err = onDisk(t, filepath.Join(base, "yesterday"), outside, true); err != nil {
		t.Fatalf("a restore on purpose does not start: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOldCheckpointAddedAgainBlessesNothing: whoever can add to the file outside, and
// cut the log, does not get it served by adding the checkpoint of its new end again. And
// one that an interrupted write has left there is passed over.
func TestOldCheckpointAddedAgainBlessesNothing(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "data"), filepath.Join(base, "checkpoints.txt")
	start := func(dir string, restored bool) error {
		t.Helper()
		b, err := onDisk(t, dir, outside, restored)
		if err == nil {
			fillOnDisk(t, b, fmt.Sprint(b.AuditSize()), 5)
			err = b.Close()
		}
		return err
	}
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(outside, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(dir, false); err != nil {
		t.Fatal(err)
	}
	copyDir(t, dir, filepath.Join(base, "yesterday"))
	first, err := os.ReadFile(outside)
	if err != nil {
		t.Fatal(err)
	}
	if err := start(dir, false); err != nil {
		t.Fatal(err)
	}
	add("signalbox/torn\n99\nAbC") // a write that a crash has interrupted
	for range 2 {
		if err := start(dir, false); err != nil {
			t.Fatalf("behind a torn checkpoint: %v", err)
		}
	}
	add(string(first))
	if err := start(filepath.Join(base, "yesterday"), false); errorCode(err) != event.CodeStoreDamaged {
		t.Errorf("a log that was cut is served beside an old checkpoint: %v", err)
	}
	if err := start(dir, false); err != nil {
		t.Errorf("the whole log is not served beside an old checkpoint: %v", err)
	}
	if err := start(filepath.Join(base, "yesterday"), true); err != nil {
		t.Fatal(err)
	}
	if err := start(filepath.Join(base, "yesterday"), false); err != nil {
		t.Errorf("after a restore on purpose the next start fails: %v", err)
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestFailingEndpointIsTriedAgain: a checkpoint that an endpoint does not take is sent
// again, and what is published meanwhile is acknowledged.
func TestFailingEndpointIsTriedAgain(t *testing.T) {
	var calls atomic.Int64
	taken := make(chan string, 16)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		taken <- string(body)
	}))
	defer endpoint.Close()
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { o.AuditURL = endpoint.URL })
	defer r.close()
	r.fill("log", "a", 3)
	c := checkpointOf(t, r.b)
	r.fill("log", "b", 3)
	select {
	case text := <-taken:
		if text != string(c.Note) {
			t.Errorf("the endpoint has taken %q, want %q", text, c.Note)
		}
	case <-time.After(patience):
		t.Fatal("the endpoint has taken nothing")
	}
	text, err := r.b.Metrics().AppendText(nil)
	if err != nil || !strings.Contains(string(text), `signalbox_audit_outside_failures_total{place="url"} 1`) {
		t.Errorf("the failure is not counted, %v", err)
	}
}

// BenchmarkTrail is what an entry costs in apply: its leaf, its stored form, the chain.
func BenchmarkTrail(b *testing.B) {
	e := audit.Entry{Kind: audit.KindEvent, LogMillis: 1_764_422_645_000, Position: 1, HLC: event.NewHLC(1_764_422_645_000, 1), Flags: 1, Topic: "fleet.tasks"}
	var chain [32]byte
	var stored []byte
	for b.Loop() {
		e.Index++
		leaf := e.Leaf()
		chain = audit.NextChain(chain, leaf)
		stored = audit.AppendEntry(stored[:0], &e)
	}
	b.ReportMetric(float64(len(stored)+32), "B/entry")
}

// BenchmarkTree is what an entry costs beside apply, when a checkpoint is signed.
func BenchmarkTree(b *testing.B) {
	var tree audit.Range
	for b.Loop() {
		tree.Add(audit.LeafHash([32]byte{1}))
	}
}

// BenchmarkAuditShare is what entry, leaf, chain and tree cost of a publish, where that is
// cheapest: in batches, whose commits share the sync. Both are processor time.
func BenchmarkAuditShare(b *testing.B) {
	to, err := broker.Open(broker.Options{Dir: b.TempDir(), AuditInterval: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer to.Close()
	before := cpuTime(b)
	publish(b, to, 16, 100)
	published := cpuTime(b) - before
	b.StopTimer()
	e := audit.Entry{Kind: audit.KindEvent, LogMillis: 1_764_422_645_000, Position: 1, HLC: event.NewHLC(1_764_422_645_000, 1), Flags: 1, Topic: "bench"}
	var chain [32]byte
	var stored []byte
	var tree audit.Range
	before = cpuTime(b)
	for range b.N {
		e.Index++
		leaf := e.Leaf()
		chain = audit.NextChain(chain, leaf)
		stored = audit.AppendEntry(stored[:0], &e)
		tree.Add(audit.LeafHash(leaf))
	}
	audited := cpuTime(b) - before
	b.ReportMetric(100*float64(audited)/float64(published), "%audit")
	b.ReportMetric(float64(audited)/float64(b.N), "audit-ns/op")
}
