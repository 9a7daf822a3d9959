// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
)

// fillAll makes a directory that has rows of every kind.
func fillAll(r *rig) {
	r.t.Helper()
	r.putTopic("state", compact)
	r.putTopic("gone", compact)
	r.fill("log", "a", 30)
	r.fill("gone", "g", 5)
	for i := range 60 {
		extensions := map[string]any{}
		data := `{"n":1}`
		switch i % 5 {
		case 0:
			extensions["expiry"] = 1000
		case 1:
			data = ""
		case 2:
			extensions["hlc"] = "1." + fmt.Sprint(i) // late: superseded where the key is known
		}
		_, err := r.publish("state", r.event("/all", fmt.Sprintf("s%d", i), fmt.Sprintf("k%d", i%17), data, extensions))
		if err != nil {
			r.t.Fatal(err)
		}
	}
	_, err := r.b.Publish(context.Background(), anonymous(), broker.PublishRequest{
		Topic: "log", IdempotencyKey: "once", Events: []*event.Event{r.event("/all", "i", "", `1`, nil)},
	})
	if err == nil {
		err = r.b.DeleteTopic(context.Background(), anonymous(), "gone")
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.publish("state", r.event("/all", "no key", "", `1`, nil)); errorCode(err) != event.CodeKeyRequired {
		r.t.Fatal(err)
	}
}

func TestVerifyFindsNothingInAGoodDirectory(t *testing.T) {
	mem := vfs.NewCrashableMem()
	r := newRig(t, mem, nil)
	fillAll(r)
	crashed := &rig{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{})} // everything is still in the log
	r.close()
	for name, r := range map[string]*rig{"closed": r, "crashed": crashed} {
		report := r.mustVerify()
		if report.Cursor != report.Head.String() || report.Head.Position != 96 || len(report.Chain) != 64 {
			t.Errorf("%s: head %s, cursor %s, chain %s", name, report.Head, report.Cursor, report.Chain)
		}
		counts := map[string]uint64{}
		for _, c := range report.Counts {
			counts[c.What] = c.N
		}
		// Two topics created, one by use, one deleted, 96 events, one refused.
		if counts["audit leaves"] != 101 || counts["topics"] != 3 || counts["keys"] != 17 || counts["events"] != 31+17 || counts["idempotency records"] != 1 {
			t.Errorf("%s: counted %v", name, report.Counts)
		}
	}
}

func TestVerifyOfAnOpenDirectoryIsRefused(t *testing.T) {
	r := newRig(t, vfs.NewMem(), nil)
	_, err := broker.Verify(context.Background(), rigDir, r.fs, nil)
	if errorCode(err) != event.CodeStoreLocked {
		t.Errorf("verifying under a running broker: %v", err)
	}
	r.close()
	if _, err := broker.Verify(context.Background(), "elsewhere", r.fs, nil); errorCode(err) != event.CodeStoreFormat {
		t.Errorf("verifying a directory that does not exist: %v", err)
	}
	if err := r.fs.MkdirAll("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Verify(context.Background(), "empty", r.fs, nil); errorCode(err) != event.CodeStoreFormat {
		t.Errorf("verifying an empty directory: %v", err)
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	r := newRig(t, vfs.NewMem(), nil)
	r.fill("log", "a", 10)
	r.close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := broker.Verify(ctx, rigDir, r.fs, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("verifying with a context that has ended: %v", err)
	}
	steps := map[string]bool{}
	if _, err := broker.Verify(context.Background(), rigDir, r.fs, func(p broker.VerifyProgress) { steps[p.Step] = true }); err != nil || !steps["files"] {
		t.Errorf("progress %v, %v", steps, err)
	}
}

// logs returns a directory whose newest log holds n single events that were
// acknowledged and one more record, and where that record begins. In a new
// directory the first log is in an older format than all that follow.
func logWithTail(t *testing.T, reopened bool, n int) (r *rig, name string, log []byte, tail int) {
	mem := vfs.NewCrashableMem()
	r = newRig(t, mem, nil)
	r.putTopic("state", compact)
	if reopened {
		r.fill("state", "before", 20)
		r.reopen()
	}
	r.fill("state", "acknowledged", n)
	synced := &rig{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{})}
	names := synced.files(".log")
	name = names[len(names)-1]
	tail = len(synced.readFile(name))
	r.fill("state", "last", 1)
	whole := &rig{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{})}
	log = whole.readFile(name)
	r.close()
	if tail == 0 || len(log) <= tail || !bytes.Equal(log[:tail], synced.readFile(name)) {
		t.Fatalf("the log has %d bytes, and %d before the last event", len(log), tail)
	}
	return whole, name, log, tail
}

// with returns a copy of the directory in which a file is another.
func (r *rig) with(name string, b []byte) *rig {
	r.t.Helper()
	c := &rig{t: r.t, fs: r.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})}
	c.writeFile(name, b)
	return c
}

func eachLogFormat(t *testing.T, run func(t *testing.T, reopened bool)) {
	for name, reopened := range map[string]bool{"first log": false, "later log": true} {
		t.Run(name, func(t *testing.T) { run(t, reopened) })
	}
}

// A record that was being written when the power failed is trimmed, wherever it
// was cut and whatever stands in its place, and nothing acknowledged is lost.
func TestTornTailOfTheLogIsTrimmed(t *testing.T) {
	eachLogFormat(t, func(t *testing.T, reopened bool) {
		whole, name, log, tail := logWithTail(t, reopened, 40)
		rng := rand.New(rand.NewPCG(1, 2))
		var tails [][]byte
		for cut := tail; cut < len(log); cut += 41 {
			tails = append(tails, log[tail:cut])
		}
		for range 8 {
			junk := make([]byte, rng.IntN(3*(len(log)-tail)))
			for i := range junk {
				junk[i] = byte(rng.Uint32())
			}
			flipped := slices.Clone(log[tail:])
			flipped[rng.IntN(len(flipped))] ^= 1 << rng.IntN(8)
			tails = append(tails, junk, make([]byte, len(junk)), flipped)
		}
		for i, end := range tails {
			c := whole.with(name, slices.Concat(log[:tail], end))
			c.mustVerify()
			if err := c.open(); err != nil {
				t.Fatalf("tail %d of %d bytes: %v", i, len(end), err)
			}
			seen := map[string]bool{}
			for _, d := range c.read("state", "") {
				seen[d.ID()] = true
			}
			for n := range 40 {
				if id := fmt.Sprintf("acknowledged-%d", n); !seen[id] {
					t.Fatalf("tail %d of %d bytes: %s was acknowledged and is lost", i, len(end), id)
				}
			}
			c.close()
		}
	})
}

// Damage before records that were written later is no torn tail: those records
// were acknowledged, and to trim them would lose them without a word. Pebble
// itself detects such damage only where a later block says that the place was
// synced, which is never in the last 32 KiB.
func TestDamageInTheMiddleOfTheLogIsNotTrimmed(t *testing.T) {
	eachLogFormat(t, func(t *testing.T, reopened bool) {
		whole, name, log, tail := logWithTail(t, reopened, 120)
		rng := rand.New(rand.NewPCG(3, 4))
		// The last two records may have been unsynced for all that the log tells.
		last := tail - (len(log) - tail) - 100
		for i := range 60 {
			damaged := slices.Clone(log)
			at := rng.IntN(last)
			switch i % 3 {
			case 0:
				damaged[at] ^= 1 << rng.IntN(8)
			case 1: // a page of the disk that reads as zeros
				at &^= 4095
				clear(damaged[at:min(at+4096, last)])
			case 2: // a length that points anywhere
				copy(damaged[at:], []byte{0xff, 0xff, 0x7f, 0x01})
			}
			c := whole.with(name, damaged)
			err := c.open()
			if errorCode(err) != event.CodeStoreDamaged || !strings.Contains(err.Error(), "signalbox verify") || !strings.Contains(err.Error(), name) {
				t.Fatalf("damage %d at %d of %d: opening says %v", i, at, len(log), err)
			}
			if !bytes.Equal(c.readFile(name), damaged) {
				t.Fatalf("damage at %d: the refused opening has changed the log", at)
			}
			report := c.verify()
			if report.Total == 0 || report.Findings[0].File != name || !strings.Contains(report.Findings[0].Action, "truncate") {
				t.Fatalf("damage at %d of %d: verify says %+v", at, len(log), report.Findings)
			}
			if report.Total > 1 { // what is before the damage is sound
				t.Fatalf("damage at %d: verify also says %+v", at, report.Findings[1:])
			}
		}
	})
}

// A log that was cut short before its last sync, at the border of a record or
// inside one, looks like a torn tail: nothing in the directory says how far the
// log once went. The broker opens at an earlier point, which is sound in
// itself, and the events after it are lost without notice. Only something
// outside can tell: a reader's cursor that is beyond the head (cursor_foreign),
// or a copy of the audit chain's head, which must be among the leaves.
func TestLogCutInItsSyncedPartCannotBeNoticedFromInside(t *testing.T) {
	whole, name, log, tail := logWithTail(t, true, 40)
	intact := whole.mustVerify()
	c := whole.with(name, log[:tail/2])
	report := c.mustVerify()
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	if report.Head.Position >= intact.Head.Position || report.Chain == intact.Chain {
		t.Fatalf("head %s, before it was cut %s", report.Head, intact.Head)
	}
	_, err := c.b.Read(broker.ReadRequest{Patterns: must(event.ParsePatterns("state")), Start: cursorStart(intact.Head)})
	if errorCode(err) != event.CodeCursorForeign {
		t.Errorf("a reader that was at %s comes back to %s: %v", intact.Head, report.Head, err)
	}
	c.close()
}

// A log that is gone altogether is such a cut, too.
func TestLogThatIsMissingCannotBeNoticedFromInside(t *testing.T) {
	whole, name, _, _ := logWithTail(t, true, 40)
	if err := whole.fs.Remove(whole.fs.PathJoin(rigDir, name)); err != nil {
		t.Fatal(err)
	}
	if report := whole.mustVerify(); report.Head.Position != 20 {
		t.Errorf("the head is %s", report.Head)
	}
}

// The last record of a manifest that is damaged looks like one that was being
// written. As a rule nothing is lost, for the logs that it declared obsolete
// are kept to be used again, and are read once more.
func TestManifestDamagedAtItsEndLosesNothingWithoutNotice(t *testing.T) {
	whole, _ := withTables(t)
	intact := whole.mustVerify()
	names := whole.files("MANIFEST-")
	name := names[len(names)-1]
	b := whole.readFile(name)
	for cut := 1; cut < 60; cut += 3 {
		c := whole.with(name, b[:len(b)-cut])
		if report := c.verify(); report.Total == 0 && report.Chain != intact.Chain {
			t.Errorf("%d bytes of the manifest are missing: the head is %s, it was %s, and verify finds nothing", cut, report.Head, intact.Head)
		}
	}
}

// withTables returns a closed directory whose rows are in tables, and what a
// reader gets from it.
func withTables(t *testing.T) (*rig, []rigDelivery) {
	mem := vfs.NewCrashableMem()
	r := newRig(t, mem, nil)
	fillAll(r)
	r.reopen()
	r.fill("log", "more", 300)
	got := r.read("log,state", "")
	r.close()
	return &rig{t: t, fs: mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})}, got
}

// fatalIsNoted lets a broker give up without an end to the test.
func (r *rig) fatalIsNoted() *fatalCalls {
	calls := newFatalCalls()
	r.change = func(o *broker.Options) { o.Fatal, o.CleanEvery = calls.fatal, time.Hour }
	return calls
}

// Damage in a table is found and named, and a read either gives what was
// written or fails with a code.
func TestDamagedTableIsNamedAndNeverReadAsData(t *testing.T) {
	whole, want := withTables(t)
	tables := whole.files(".sst")
	if len(tables) == 0 {
		t.Fatal("there are no tables")
	}
	rng := rand.New(rand.NewPCG(5, 6))
	const flips = 12
	named, harmless, refused, gaveUp := 0, 0, 0, 0
	for i := range flips {
		name := tables[i%len(tables)]
		b := whole.readFile(name)
		at := rng.IntN(len(b))
		b[at] ^= 1 << rng.IntN(8)
		c := whole.with(name, b)
		report := c.verify()
		switch {
		case report.Total == 0:
			harmless++
		case slices.ContainsFunc(report.Findings, func(f broker.VerifyFinding) bool { return f.File == name }):
			named++
		default:
			t.Errorf("byte %d of %s: verify does not name the file: %+v", at, name, report.Findings)
		}
		calls := c.fatalIsNoted()
		if err := c.open(); err != nil {
			if errorCode(err) != event.CodeStoreDamaged {
				t.Errorf("byte %d of %s: opening says %v", at, name, err)
			}
			refused++
			continue
		}
		got, err := c.tryRead("log,state")
		if err != nil {
			if errorCode(err) != event.CodeStoreDamaged {
				t.Errorf("byte %d of %s: reading says %v", at, name, err)
			}
			refused++
		}
		for n := range got {
			if n >= len(want) || got[n] != want[n].json {
				t.Fatalf("byte %d of %s: event %d is read as %s", at, name, n, got[n])
			}
		}
		if err == nil && len(got) != len(want) {
			t.Errorf("byte %d of %s: %d events are read in place of %d, without an error", at, name, len(got), len(want))
		}
		closed := make(chan error, 1)
		go func() { closed <- c.b.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Errorf("byte %d of %s: closing: %v", at, name, err)
			}
		case message := <-calls.called: // what apply itself needs is not readable
			gaveUp++
			if !strings.Contains(message, "damaged") {
				t.Errorf("byte %d of %s: the broker gave up: %s", at, name, message)
			}
		}
	}
	t.Logf("%d flipped bytes: %d named, %d without effect, %d times a read or the opening was refused, %d times the broker gave up", flips, named, harmless, refused, gaveUp)
	if harmless > 2 || refused+gaveUp < 3 {
		t.Errorf("%d of %d flipped bytes had no effect, %d reads were refused", harmless, flips, refused)
	}
}

// tryRead reads everything, up to an error.
func (r *rig) tryRead(topics string) (got []string, err error) {
	reader, err := r.b.Read(broker.ReadRequest{Patterns: must(event.ParsePatterns(topics))})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for {
		window, err := reader.Poll(limit())
		if err != nil {
			return got, err
		}
		for i := range window.Deliveries {
			got = append(got, string(window.Deliveries[i].JSON()))
		}
		if window.CaughtUp {
			return got, nil
		}
	}
}

func TestMissingAndDamagedFilesAreNamed(t *testing.T) {
	whole, _ := withTables(t)
	remove := func(c *rig, name string) {
		if err := c.fs.Remove(c.fs.PathJoin(rigDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	last := func(part string) string { names := whole.files(part); return names[len(names)-1] }
	manifest, table := last("MANIFEST-"), whole.files(".sst")[0]
	for _, c := range []struct {
		name   string
		file   string // that the report names
		damage func(c *rig)
	}{
		{"manifest missing", manifest, func(c *rig) { remove(c, manifest) }},
		{"manifest empty", manifest, func(c *rig) { c.writeFile(manifest, nil) }},
		{"first record of the manifest", manifest, func(c *rig) {
			b := c.readFile(manifest)
			b[20] ^= 1
			c.writeFile(manifest, b)
		}},
		{"middle of the manifest", manifest, func(c *rig) {
			b := c.readFile(manifest)
			b[len(b)/2] ^= 1
			c.writeFile(manifest, b)
		}},
		{"marker missing", "marker.manifest", func(c *rig) { remove(c, last("marker.manifest")) }},
		{"table missing", table, func(c *rig) { remove(c, table) }},
		{"table cut", table, func(c *rig) { b := c.readFile(table); c.writeFile(table, b[:len(b)-1]) }},
		{"table empty", table, func(c *rig) { c.writeFile(table, nil) }},
		{"options", "", func(c *rig) {
			c.writeFile(last("OPTIONS-"), []byte("[Version]\n  pebble_version=0.1\n[Options]\n  comparer=other\n"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &rig{t: t, fs: whole.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})}
			c.damage(d)
			tables := d.files(".sst")
			report := d.verify()
			if !slices.ContainsFunc(report.Findings, func(f broker.VerifyFinding) bool { return f.File == c.file && f.Action != "" }) {
				t.Errorf("verify does not name %s: %+v", c.file, report.Findings)
			}
			if err := d.open(); errorCode(err) != event.CodeStoreDamaged {
				t.Errorf("opening says %v", err)
			}
			if !slices.Equal(d.files(".sst"), tables) {
				t.Errorf("the refused opening has removed tables: %v of %v are left", d.files(".sst"), tables)
			}
		})
	}
}
