// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/store"
)

// port looks whether a broker could listen.
func (e *examination) port() {
	if e.Listen == "" {
		return
	}
	l, err := net.Listen("tcp", e.Listen)
	switch {
	case err == nil:
		_ = l.Close()
		e.ok("port", "%s is free", e.Listen)
	case errors.Is(err, syscall.EADDRINUSE):
		e.add(Note, "port", e.Listen+" is in use", "A broker runs there, or something else that keeps one from starting.",
			"`signalbox health` tells whether it is a broker. If not, stop it or choose another address with listen.")
	default:
		e.add(Critical, "port", fmt.Sprintf("%s cannot be listened on: %v", e.Listen, err), "A broker cannot start.", "Choose another address with listen.")
	}
}

// data examines the data directory.
func (e *examination) data(ctx context.Context) error {
	names, err := store.DataFiles(nil, e.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		e.add(Note, "data", e.Dir+" does not exist", "A broker will begin a new log there.", "If there should be one, check the name, with `signalbox config show`.")
		return nil
	case err != nil:
		e.add(Critical, "data", fmt.Sprintf("%s cannot be read: %v", e.Dir, err), "A broker cannot start.",
			"Run doctor as the user that the broker runs as; if it cannot read the directory either, correct its owner or its mode.")
		return nil
	case len(names) == 0:
		e.add(Note, "data", e.Dir+" holds no log", "A broker will begin a new one there.", "If there should be one, restore a backup with `signalbox restore`.")
		return nil
	}
	e.leftovers()
	e.place()
	if e.Quick {
		e.add(Note, "data", "the data were not read, because of --quick", "Damage would not be noticed.", "Run doctor without --quick while the broker is stopped, or on a backup.")
		return nil
	}
	report, err := broker.Verify(ctx, e.Dir, nil, e.Progress)
	switch {
	case err == nil:
		e.verified(report)
	case event.AsError(err).Code == event.CodeStoreLocked:
		e.add(Note, "lock", fmt.Sprintf("%s is in use%s", e.Dir, holder(e.Dir)), "The data were not read: only one process at a time may have them open.",
			"Nothing, if it is the broker. To have the data examined, stop it, or make a backup, which is verified.")
	case errors.Is(err, fs.ErrPermission):
		e.add(Critical, "data", fmt.Sprintf("the files in %s cannot be read: %v", e.Dir, err), "A broker under this user cannot start.",
			"Run doctor as the user that the broker runs as; if it cannot read them either, correct their owner or mode. A broker that was once started as another user leaves such files.")
	case event.AsError(err).Code == event.CodeStoreFormat:
		e.add(Critical, "format", event.AsError(err).Message, "This version cannot open the data, and leaves them alone.", "Start the version that wrote them.")
	default:
		return err
	}
	return nil
}

// verified turns what a verification found into findings.
func (e *examination) verified(r broker.VerifyReport) {
	for _, f := range r.Findings {
		where := ""
		if f.File != "" {
			where += ", file " + f.File
		}
		if f.Topic != "" {
			where += ", topic " + f.Topic
		}
		if f.Position != 0 {
			where += fmt.Sprintf(", position %d", f.Position)
		}
		e.add(Critical, "damage", f.What+where, f.Explanation, f.Action)
	}
	e.report.Damaged = r.Total > 0
	if e.report.Damaged {
		if more := r.Total - len(r.Findings); more > 0 {
			e.add(Critical, "damage", fmt.Sprintf("%d more findings are not listed", more), "They are of the same kinds.", "Follow the advice above.")
		}
		return
	}
	counts := make([]string, len(r.Counts))
	for i, c := range r.Counts {
		counts[i] = fmt.Sprintf("%d %s", c.N, c.What)
	}
	e.ok("data", "sound: %s", strings.Join(counts, ", "))
	e.ok("log", "it ends at %s (incarnation %s), the audit chain at %s", r.Cursor, r.Head.Incarnation, r.Chain)
	e.sizes()
}

// sizes tells what takes the room.
func (e *examination) sizes() {
	s, err := store.Open(store.Options{Dir: e.Dir, ReadOnly: true})
	if err != nil {
		return // it was opened a moment ago; a broker that has started since is no finding
	}
	defer func() { _ = s.Close() }()
	parts, err := s.Sizes()
	if err != nil {
		return
	}
	texts := []string{}
	for _, p := range parts {
		if p.Bytes > 0 {
			texts = append(texts, p.What+" "+size(p.Bytes))
		}
	}
	e.ok("size", "in tables: %s", strings.Join(texts, ", "))
}

// leftovers names what interrupted commands have left.
func (e *examination) leftovers() {
	if _, err := os.Stat(filepath.Join(e.Dir, "restore.partial")); err == nil {
		e.add(Warning, "leftover", "there is restore.partial in the data directory", "A restore was interrupted.", "Restore again into a new directory, and remove this one.")
	}
}

// place tells of a directory that was copied.
func (e *examination) place() {
	copied, known := store.Copied(e.Dir)
	switch {
	case !known:
		e.add(Note, "copy", "it is not known whether this directory is a copy", "No broker of this version has opened it on this machine yet.",
			"If it was put back from an old copy, start it once with `signalbox serve --restored`.")
	case copied:
		e.add(Warning, "copy", "this directory was copied since a broker last had it open",
			"If the original went on after that, positions are given out twice, and readers miss events without being told.",
			"If this is the newest copy, as after moving a machine, nothing. Otherwise start it once with `signalbox serve --restored`.")
	default:
		e.ok("copy", "this directory is the original")
	}
}
