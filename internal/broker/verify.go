// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// VerifyProgress says how far a verification is.
type VerifyProgress struct {
	Step  string // "files", then the kinds of rows
	Done  uint64 // files, or rows of this kind
	Total uint64 // 0: unknown
}

// VerifyReport is what a verification found.
type VerifyReport struct {
	Dir       string          `json:"dir"`
	Head      event.Cursor    `json:"-"`
	Cursor    string          `json:"cursor"` // Head as text
	Chain     string          `json:"chain"`  // the audit chain's head in hexadecimal
	LogMillis int64           `json:"log_ms"`
	Counts    []VerifyCount   `json:"counts"`
	Total     int             `json:"total"` // findings, also those that are not listed
	Findings  []VerifyFinding `json:"findings"`
}

// VerifyCount is how many of something were checked.
type VerifyCount struct {
	What string `json:"what"`
	N    uint64 `json:"n"`
}

// VerifyFinding is one thing that is wrong, where, and what to do about it.
type VerifyFinding struct {
	What        string  `json:"what"`
	File        string  `json:"file,omitempty"`
	Topic       string  `json:"topic,omitempty"`
	Position    uint64  `json:"position,omitempty,string"`
	Key         string  `json:"key,omitempty"`
	Leaf        *uint64 `json:"leaf,omitempty,string"`
	Explanation string  `json:"explanation"`
	Action      string  `json:"action"`
}

// verifyFindingsMax bounds the list: one lost table can break a rule for every
// row that referred to it.
const verifyFindingsMax = 100

// Verify checks a data directory that no broker has open, without changing it:
// the checksums of its files, that every row decodes, and that the rows agree
// with each other, with the counts and with the audit chain. Damage is in the
// report; the error is for what kept it from looking: code store_locked or
// store_format, or the operating system's refusal.
func Verify(ctx context.Context, dir string, fs vfs.FS, progress func(VerifyProgress)) (VerifyReport, error) {
	return VerifyAgainst(ctx, dir, fs, nil, progress)
}

// VerifyAgainst is Verify, and compares the audit trail with checkpoints that were kept
// elsewhere and whose signatures were checked.
func VerifyAgainst(ctx context.Context, dir string, fs vfs.FS, kept []audit.Checkpoint, progress func(VerifyProgress)) (report VerifyReport, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	if progress == nil {
		progress = func(VerifyProgress) {}
	}
	v := verification{report: &report, progress: progress, fs: fs, dir: dir, files: map[string]bool{}, kept: kept}
	report.Dir, report.Findings = dir, []VerifyFinding{}
	// Damage can break what Pebble takes for granted; it is damage then, too.
	defer func() {
		if r := recover(); r != nil {
			v.add(VerifyFinding{What: "panic", Explanation: fmt.Sprintf("Reading the database panicked: %v.", r), Action: actionRestore})
		}
	}()
	s, damages, err := store.Inspect(store.Options{Dir: dir, FS: fs, Damaged: v.met})
	if err != nil {
		return report, err
	}
	for _, d := range damages {
		v.file(d, false)
	}
	if s == nil {
		tables, err := store.ListTables(fs, dir)
		if err != nil {
			return report, err
		}
		return report, v.tables(ctx, tables, true)
	}
	if err := v.rows(ctx, s); err != nil {
		_ = s.Close() // what ended the verification comes first
		return report, err
	}
	return report, s.Close()
}

// verification collects a report.
type verification struct {
	progress func(VerifyProgress)
	fs       vfs.FS
	dir      string
	kept     []audit.Checkpoint

	mu     sync.Mutex
	report *VerifyReport   // guarded by mu until the store is closed
	files  map[string]bool // that have a finding; guarded by mu
}

func (v *verification) add(f VerifyFinding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addLocked(f)
}

// addLocked is called with mu held.
func (v *verification) addLocked(f VerifyFinding) {
	v.report.Total++
	if len(v.report.Findings) < verifyFindingsMax {
		v.report.Findings = append(v.report.Findings, f)
	}
}

// file reports a damaged file once.
func (v *verification) file(d store.Damage, leftover bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d.File != "" && v.files[d.File] {
		return
	}
	v.files[d.File] = true
	f := VerifyFinding{What: "file", File: d.File, Explanation: d.Detail + ".", Action: actionRestore}
	if d.Offset >= 0 {
		f.Explanation = fmt.Sprintf("At byte %d: %s.", d.Offset, d.Detail)
		if filepath.Ext(d.File) == ".log" {
			f.Action = fmt.Sprintf("Restore a copy of the directory. Without one, everything that was acknowledged after this place is lost: cut the file with `truncate --size=%d %s`, start the broker with `signalbox serve --restored`, and have every reader begin again from the state.", d.Offset, filepath.Join(v.dir, d.File))
		}
	}
	if leftover {
		f.Explanation += " The database does not open, so the file may also be what an interrupted write has left."
	}
	v.addLocked(f)
}

// met is called when a read meets damage in a file.
func (v *verification) met(path, detail string) {
	v.file(store.Damage{File: filepath.Base(path), Offset: -1, Detail: detail}, false)
}

func (v *verification) tables(ctx context.Context, names []string, leftover bool) error {
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		v.progress(VerifyProgress{Step: "files", Done: uint64(i), Total: uint64(len(names))})
		damage, err := store.CheckTable(ctx, v.fs, v.dir, name)
		if err != nil {
			return err
		}
		if damage != nil {
			v.file(*damage, leftover)
		}
	}
	v.progress(VerifyProgress{Step: "files", Done: uint64(len(names)), Total: uint64(len(names))})
	v.report.Counts = append(v.report.Counts, VerifyCount{"tables", uint64(len(names))})
	return nil
}

func (v *verification) rows(ctx context.Context, s *store.Store) error {
	tables, err := s.Tables()
	if err != nil {
		return err
	}
	if err := v.tables(ctx, tables, false); err != nil {
		return err
	}
	trail := newTrailCheck(v, s, v.kept)
	tally, err := projector.Verify(ctx, s, projector.Watch{
		Found: v.row, Leaf: trail.leaf,
		Progress: func(step string, rows uint64) { v.progress(VerifyProgress{Step: step, Done: rows}) },
	})
	trail.end()
	r := v.report
	r.Head = event.Cursor{Position: tally.Position, Incarnation: tally.Settings.IncarnationName}
	r.Cursor, r.Chain, r.LogMillis = r.Head.String(), fmt.Sprintf("%x", tally.Chain), tally.LogMillis
	r.Counts = append(r.Counts,
		VerifyCount{"topics", tally.Topics}, VerifyCount{"events", tally.Events}, VerifyCount{"superseded events", tally.History}, VerifyCount{"keys", tally.Winners},
		VerifyCount{"audit leaves", tally.Leaves}, VerifyCount{"audit entries", tally.Entries}, VerifyCount{"checkpoints", trail.compared}, VerifyCount{"timers", tally.Timers},
		VerifyCount{"deduplication records", tally.Seen}, VerifyCount{"idempotency records", tally.Answered},
		VerifyCount{"minutes", tally.Minutes}, VerifyCount{"subscriptions", tally.Subscriptions}, VerifyCount{"events to reclaim", tally.Reclaim}, VerifyCount{"topics to reclaim", tally.Garbage},
	)
	return err
}

// row reports what is wrong with the rows.
func (v *verification) row(f projector.Finding) {
	out := VerifyFinding{What: f.What, Topic: f.Topic, Position: f.Position, Key: f.Key, Explanation: f.Explanation, Action: actionRestore}
	if f.HasLeaf {
		out.Leaf = &f.Leaf
	}
	switch f.What {
	case "unreadable", "event_missing", "undecodable":
	case "leaf", "entry", "chain", "leaf_gap", "leaf_count":
		out.Action = actionAudit
	default:
		if !v.damaged() { // which may explain it, and must be put right first
			out.Action = actionReport
		}
	}
	v.add(out)
}

// damaged reports whether a file has a finding.
func (v *verification) damaged() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.files) > 0
}

// What to do about a finding.
const (
	actionRestore = "Restore a copy of the directory, and start it once with `signalbox serve --restored`."
	actionAudit   = "Something has changed the stored data since it was written. Restore a copy of the directory, start it once with `signalbox serve --restored`, and find out who can write to it."
	actionReport  = "No damage of a file explains this. Keep a copy of the directory, and report it as a fault of Signalbox together with this output."
)
