// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/doctor"
	"signalbox/internal/identity"
	"signalbox/internal/store"
)

// fill makes a data directory whose rows are in tables and in a log.
func fill(t *testing.T, dir string) {
	t.Helper()
	for round := range 2 {
		b, err := broker.Open(broker.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			ev, err := event.Draft{ID: fmt.Sprint(round, "-", i), Source: "/t", Type: "t", Data: []byte(`"` + strings.Repeat("x", 100) + `"`)}.Event()
			if err == nil {
				_, err = b.Publish(context.Background(), identity.Anonymous(), broker.PublishRequest{Topic: "a", Events: []*event.Event{ev}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if round == 1 { // as after a kill: what is in the log stays there
			if err := os.CopyFS(dir+".killed", os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func examine(t *testing.T, dir string) doctor.Report {
	t.Helper()
	report, err := doctor.Examine(context.Background(), doctor.Options{Dir: dir, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Check == "" || f.What == "" || f.Severity != doctor.OK && f.Severity != doctor.Note && (f.Meaning == "" || f.Action == "") {
			t.Errorf("a finding that does not say what it means or what to do: %+v", f)
		}
	}
	return report
}

func find(r doctor.Report, check string) (all []doctor.Finding) {
	for _, f := range r.Findings {
		if f.Check == check {
			all = append(all, f)
		}
	}
	return all
}

// TestSoundDirectoryIsFoundSound: nothing is critical, and what is there is told.
func TestSoundDirectoryIsFoundSound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	fill(t, dir)
	r := examine(t, dir)
	if r.Damaged || len(find(r, "damage")) > 0 {
		t.Errorf("damage is found: %+v", find(r, "damage"))
	}
	for _, check := range []string{"data", "log", "size", "copy"} {
		if f := find(r, check); len(f) != 1 || f[0].Severity != doctor.OK {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if f := find(r, "log"); !strings.Contains(f[0].What, "@400.") {
		t.Errorf("the log ends at %+v", f)
	}
}

// TestDamageIsFoundInEveryKindOfFile damages copies of a directory in the ways that disks and people do.
func TestDamageIsFoundInEveryKindOfFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	fill(t, dir)
	for _, c := range []struct {
		name, from, file string
		damage           func(t *testing.T, name string)
	}{
		{"a bit of a table", dir, "*.sst", flipAt(1, 3)},
		{"a table is cut", dir, "*.sst", cutAt(1, 2)},
		{"a table is empty", dir, "*.sst", cutAt(0, 1)},
		{"a table is missing", dir, "*.sst", remove},
		{"a bit of the manifest", dir, "MANIFEST-*", flipAt(1, 3)},
		{"the manifest is empty", dir, "MANIFEST-*", cutAt(0, 1)},
		{"the manifest is missing", dir, "MANIFEST-*", remove},
		{"the marker is missing", dir, "marker.manifest.*", remove},
		{"a bit of the log", dir + ".killed", "*.log", flipAt(1, 3)},
		{"a page of the log is zeros", dir + ".killed", "*.log", zeroAt(1, 3)},
		{"the options are another database's", dir, "OPTIONS-*", func(t *testing.T, name string) {
			write(t, name, []byte("[Version]\n  pebble_version=0.1\n[Options]\n  comparer=other\n"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(copied, os.DirFS(c.from)); err != nil {
				t.Fatal(err)
			}
			names, err := filepath.Glob(filepath.Join(copied, c.file))
			if err != nil || len(names) == 0 {
				t.Fatalf("there is no %s: %v", c.file, err)
			}
			slices.SortFunc(names, func(a, b string) int { return int(length(t, b) - length(t, a)) })
			c.damage(t, names[0])
			r := examine(t, copied)
			found := find(r, "damage")
			if !r.Damaged || len(found) == 0 || r.Worst() != doctor.Critical {
				t.Fatalf("nothing is found: %+v", r.Findings)
			}
			base := filepath.Base(names[0])
			named, _, _ := strings.Cut(base, ".000") // a marker is named without its number
			if !slices.ContainsFunc(found, func(f doctor.Finding) bool { return strings.Contains(f.What+f.Meaning, named) }) && !strings.HasPrefix(base, "OPTIONS") {
				t.Errorf("%s is not named: %+v", base, found)
			}
			for _, f := range found { // whoever follows the advice must not be told two things
				if strings.Contains(f.Action, "No damage of a file explains this") {
					t.Errorf("%+v contradicts %+v", f, found[0])
				}
			}
		})
	}
}

func length(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func change(t *testing.T, name string, how func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, how(b))
}

func flipAt(part, of int) func(*testing.T, string) {
	return func(t *testing.T, name string) {
		change(t, name, func(b []byte) []byte { b[len(b)*part/of] ^= 1; return b })
	}
}

func cutAt(part, of int) func(*testing.T, string) {
	return func(t *testing.T, name string) {
		change(t, name, func(b []byte) []byte { return b[:len(b)*part/of] })
	}
}

func zeroAt(part, of int) func(*testing.T, string) {
	return func(t *testing.T, name string) {
		change(t, name, func(b []byte) []byte {
			at := len(b) * part / of &^ 4095
			clear(b[at:min(at+4096, len(b))])
			return b
		})
	}
}

func remove(t *testing.T, name string) {
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryInUseIsNotRead: only one process may have it open, and doctor says which.
func TestDirectoryInUseIsNotRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b, err := broker.Open(broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	r := examine(t, dir)
	if f := find(r, "lock"); len(f) != 1 || f[0].Severity != doctor.Note || r.Damaged {
		t.Errorf("%+v", r.Findings)
	}
}

// TestCopiedDirectoryIsTold: a copy that is older than its original must be started with --restored.
func TestCopiedDirectoryIsTold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	fill(t, dir)
	if _, known := store.Copied(dir); !known {
		t.Skip("this system does not tell a copy")
	}
	moved, copied := dir+".moved", dir+".copied"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if f := find(examine(t, moved), "copy"); len(f) != 1 || f[0].Severity != doctor.OK {
		t.Errorf("renamed: %+v", f)
	}
	if err := os.CopyFS(copied, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	if f := find(examine(t, copied), "copy"); len(f) != 1 || f[0].Severity != doctor.Warning || !strings.Contains(f[0].Action, "--restored") {
		t.Errorf("copied: %+v", f)
	}
	b, err := broker.Open(broker.Options{Dir: copied, Restored: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if f := find(examine(t, copied), "copy"); len(f) != 1 || f[0].Severity != doctor.OK {
		t.Errorf("started once: %+v", f)
	}
}

// TestWhatIsNotThereIsNoDamage: a new broker begins with nothing.
func TestWhatIsNotThereIsNoDamage(t *testing.T) {
	empty := t.TempDir()
	for _, dir := range []string{empty, filepath.Join(empty, "nowhere")} {
		r := examine(t, dir)
		if f := find(r, "data"); len(f) != 1 || f[0].Severity != doctor.Note || r.Damaged {
			t.Errorf("%s: %+v", dir, f)
		}
	}
	if names, _ := os.ReadDir(empty); len(names) > 0 {
		t.Errorf("doctor has left %v", names)
	}
	r, err := doctor.Examine(context.Background(), doctor.Options{Dir: empty, MinFree: 1 << 60, Listen: "127.0.0.1:0"})
	if err != nil || len(find(r, "space")) != 1 && len(find(r, "machine")) != 1 || r.Worst() != doctor.Critical && len(find(r, "machine")) == 0 {
		t.Errorf("a full disk: %+v, %v", r.Findings, err)
	}
}
