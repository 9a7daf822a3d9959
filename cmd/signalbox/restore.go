// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/backup"
	"signalbox/internal/broker"
)

type restoreFlags struct {
	dryRun   bool
	noVerify bool
}

func (a *app) restoreCommand() *cobra.Command {
	f := &restoreFlags{}
	cmd := &cobra.Command{
		Use:   "restore BACKUP DIR",
		Short: "Make a data directory from a backup",
		Long: "Check a backup (a directory, a tar archive, or - for an archive on the standard input) and make a new data directory\n" +
			"from it. The log gets a new incarnation: positions that were given out after the backup will be given out again, to\n" +
			"other events, so every cursor from before is refused (cursor_foreign), and readers begin again from the state.\n\n" +
			"With --dry-run, only check the backup.",
		Example: "  signalbox backup ./backup-2\n" +
			"  signalbox restore --dry-run ./backup-2 ./restored-data\n" +
			"  signalbox restore ./backup-2 ./restored-data\n" +
			"  signalbox serve --data ./restored-data",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.restore(cmd.Context(), f, args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.dryRun, "dry-run", false, "check the backup and write nothing")
	fl.BoolVar(&f.noVerify, "no-verify", false, "do not read the restored log in full; checksums are compared in any case")
	return cmd
}

func (a *app) restore(ctx context.Context, f *restoreFlags, from, dir string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if f.dryRun { // nothing is written, wherever that would be
		return a.checkBackup(ctx, from, text)
	}
	if err := mustBeFree(dir); err != nil {
		return err
	}
	s, err := a.openBackup(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	// A directory that exists may be a mount point, which cannot be renamed: then the work is done within it.
	partial, volume := dir+".partial", filepath.Dir(dir)
	if _, err := os.Stat(dir); err == nil {
		partial, volume = filepath.Join(dir, "restore.partial"), dir
	}
	if err := checkRoom(volume, s.bytes); err != nil {
		return err
	}
	m := a.meter()
	defer m.clear()
	report, err := a.restoreDir(ctx, f, s, partial, m)
	if err == nil {
		report.Path, err = dir, place(partial, dir)
	}
	if err != nil {
		return err
	}
	return a.reportRestore(report, text, "Restored the log at %s: %s, %s. It goes on as %[4]s; start it with: signalbox serve --data %[5]s\n")
}

// checkBackup reads a backup through, and compares its checksums.
func (a *app) checkBackup(ctx context.Context, from string, text bool) error {
	s, err := a.openBackup(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	m := a.meter()
	defer m.clear()
	manifest, err := backup.Check(s.entries, m.copying("checking", s.bytes))
	if err != nil {
		return err
	}
	return a.reportRestore(backupReport{Path: from, Cursor: manifest.Cursor, Chain: manifest.Chain, Bytes: manifest.Bytes, Files: len(manifest.Files)}, text,
		"The backup of the log at %s is complete: %s, %s.\n")
}

func (a *app) reportRestore(r backupReport, text bool, format string) error {
	if !text {
		return writeJSON(a.out, r)
	}
	args := []any{r.Cursor, many(r.Files, "file", "files"), sizeText(r.Bytes)}
	if r.Head != "" {
		args = append(args, r.Head, r.Path)
	}
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// restoreDir makes a data directory that a broker can open.
func (a *app) restoreDir(ctx context.Context, f *restoreFlags, s backupSource, partial string, m *meter) (r backupReport, err error) {
	if err := os.Mkdir(partial, 0o700); err != nil {
		return r, leftover(partial, err)
	}
	manifest, err := backup.WriteDir(backup.Target{Dir: partial}, s.entries, m.copying("restoring", s.bytes))
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if !f.noVerify {
		if err := verifyCopy(ctx, partial, manifest, m); err != nil {
			return r, err
		}
	}
	// The first start of a restored log draws its new incarnation, and this is it.
	b, err := broker.Open(broker.Options{Dir: partial, Restored: true, KeepSettings: true})
	if err != nil {
		return r, err
	}
	head := b.Head()
	return backupReport{Cursor: manifest.Cursor, Chain: manifest.Chain, Bytes: manifest.Bytes, Files: len(manifest.Files),
		Verified: !f.noVerify, Head: head.String()}, b.Close()
}

// place gives a restored directory its name, or moves what is in it up by one. The markers come last: without them a
// broker refuses the directory as incomplete.
func place(partial, dir string) error {
	if filepath.Dir(partial) != dir {
		return renameDurably(partial, dir)
	}
	names, err := os.ReadDir(partial)
	if err != nil {
		return err
	}
	slices.SortStableFunc(names, func(a, b os.DirEntry) int {
		return strings.Index(a.Name(), "marker.") - strings.Index(b.Name(), "marker.") // -1 or 0
	})
	for _, n := range names {
		if err := renameDurably(filepath.Join(partial, n.Name()), filepath.Join(dir, n.Name())); err != nil {
			return err
		}
	}
	return os.Remove(partial)
}

// openBackup opens a backup in whatever form it is.
func (a *app) openBackup(ctx context.Context, from string) (s backupSource, err error) {
	if from == "-" {
		return backupSource{backup.ReadTar(ctx, a.in), 0, func() error { return nil }}, nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return s, err
	}
	if info.IsDir() {
		m, err := backup.ReadManifest(from)
		return backupSource{backup.ReadDir(ctx, nil, from), m.Bytes, func() error { return nil }}, err
	}
	file, err := os.Open(from)
	if err != nil {
		return s, err
	}
	return backupSource{backup.ReadTar(ctx, file), info.Size(), file.Close}, nil
}

// mustBeFree lets a log be restored only where nothing is.
func mustBeFree(dir string) error {
	names, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("%s is not empty; choose a directory that does not exist yet", dir)
	}
	return nil
}
