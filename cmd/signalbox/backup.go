// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/backup"
	"signalbox/internal/broker"
	"signalbox/internal/store"
)

type backupFlags struct {
	data     string
	output   string
	noVerify bool
}

func (a *app) backupCommand() *cobra.Command {
	f := &backupFlags{}
	cmd := &cobra.Command{
		Use:   "backup [DIR]",
		Short: "Make a consistent copy of a log",
		Long: "Copy a running broker's log, as it is at one moment, into a new directory or, with --output, into a tar archive.\n" +
			"Publishing and reading go on. With --data, copy the directory of a broker that is stopped instead.\n\n" +
			"A backup has a manifest with the cursor, the head of the audit chain and the checksum of every file. It is written\n" +
			"last: a copy without it is incomplete, and is refused. A directory is read back and checked in full when it is\n" +
			"written, and keeps its name with \".partial\" behind it until then. Nothing is overwritten.",
		Example: "  signalbox backup ./backup-1\n" +
			"  signalbox backup --output backup-1.tar\n" +
			"  signalbox backup --output - | gzip > backup-1.tar.gz",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.backup(cmd.Context(), f, args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "back up this `directory`, which no broker uses, in place of asking a broker")
	fl.StringVarP(&f.output, "output", "o", "", "write a tar archive to this `file`; - is the standard output")
	fl.BoolVar(&f.noVerify, "no-verify", false, "do not read a directory back in full; its checksums are compared in any case")
	return cmd
}

// backupReport is what backup and restore print.
type backupReport struct {
	Path     string `json:"path"`
	Cursor   string `json:"cursor"`
	Chain    string `json:"chain"`
	Bytes    int64  `json:"bytes"`
	Files    int    `json:"files"`
	Verified bool   `json:"verified"` // every row, not only the checksums
	Head     string `json:"head,omitempty"`
}

func (a *app) backup(ctx context.Context, f *backupFlags, args []string) error {
	if (len(args) == 1) == (f.output != "") {
		return usagef("name either a directory or, with --output, a file")
	}
	text, err := a.text()
	if err != nil {
		return err
	}
	if f.output == "-" && isTerminal(a.out) {
		return usagef("a terminal is no place for an archive: pipe it, or name a file")
	}
	path := f.output
	if len(args) == 1 {
		path = args[0]
	}
	if err := mustNotExist(path); path != "-" && err != nil {
		return err
	}
	s, err := a.backupSource(ctx, f.data)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	if path != "-" {
		if err := checkRoom(filepath.Dir(path), s.bytes); err != nil {
			return err
		}
	}
	report, err := a.writeBackup(ctx, f, s, path)
	if err != nil {
		return err
	}
	if f.output == "-" {
		fmt.Fprintf(a.err, "signalbox: backed up the log at %s: %s, %s\n", report.Cursor, many(report.Files, "file", "files"), sizeText(report.Bytes))
		return nil
	}
	if !text {
		return writeJSON(a.out, report)
	}
	_, err = fmt.Fprintf(a.out, "Backed up the log at %s to %s: %s, %s, audit chain %s.\n", report.Cursor, path, many(report.Files, "file", "files"), sizeText(report.Bytes), report.Chain)
	return err
}

// backupSource is where the entries of a backup come from.
type backupSource struct {
	entries backup.Entries
	bytes   int64
	close   func() error
}

func (a *app) backupSource(ctx context.Context, data string) (s backupSource, err error) {
	if data == "" {
		c, err := a.client()
		if err != nil {
			return s, err
		}
		b, err := c.Backup(ctx)
		if err != nil {
			return s, err
		}
		return backupSource{backup.ReadTar(ctx, b), b.Bytes, b.Close}, nil
	}
	if err := existingDir(data); err != nil {
		return s, err
	}
	opened, err := store.Open(store.Options{Dir: data, ReadOnly: true})
	if err != nil {
		return s, err
	}
	m, err := backup.Describe(opened)
	if err == nil {
		m, err = backup.Plan(nil, data, m)
	}
	if err != nil {
		return s, errors.Join(err, opened.Close())
	}
	return backupSource{backup.Pack(ctx, nil, data, m), m.Bytes, opened.Close}, nil // the lock is held until the end
}

// writeBackup writes to the path with ".partial" behind it, and renames that when it is complete.
func (a *app) writeBackup(ctx context.Context, f *backupFlags, s backupSource, path string) (r backupReport, err error) {
	m := a.meter()
	defer m.clear()
	progress := m.copying("copying", s.bytes)
	partial := path + ".partial"
	var manifest backup.Manifest
	switch {
	case path == "-":
		manifest, err = backup.WriteTar(a.out, s.entries, progress)
	case f.output != "":
		manifest, err = writeTarFile(partial, s.entries, progress)
	default:
		manifest, err = a.writeBackupDir(ctx, f, s.entries, partial, m, progress)
	}
	if err == nil && path != "-" {
		err = renameDurably(partial, path)
	}
	return backupReport{Path: path, Cursor: manifest.Cursor, Chain: manifest.Chain, Bytes: manifest.Bytes, Files: len(manifest.Files),
		Verified: f.output == "" && !f.noVerify}, err
}

func writeTarFile(path string, entries backup.Entries, progress backup.Progress) (m backup.Manifest, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return m, leftover(path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	m, err = backup.WriteTar(file, entries, progress)
	if err == nil {
		err = file.Sync()
	}
	return m, errors.Join(err, file.Close())
}

func (a *app) writeBackupDir(ctx context.Context, f *backupFlags, entries backup.Entries, dir string, m *meter, progress backup.Progress) (backup.Manifest, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return backup.Manifest{}, leftover(dir, err)
	}
	manifest, err := backup.WriteDir(backup.Target{Dir: dir, KeepManifest: true}, entries, progress)
	if err == nil && !f.noVerify {
		if err = verifyCopy(ctx, dir, manifest, m); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return manifest, err
}

// verifyCopy checks that the log in a copy is sound and ends where its manifest says.
func verifyCopy(ctx context.Context, dir string, m backup.Manifest, meter *meter) error {
	report, err := broker.Verify(ctx, dir, nil, meter.checking())
	if err != nil {
		return err
	}
	if report.Total > 0 {
		return event.Errorf(event.CodeBackupInvalid, "The copy has damage in %s, the first: %s. Run signalbox verify on the data directory that it was made of.", many(report.Total, "place", "places"), report.Findings[0].Explanation)
	}
	if report.Cursor != m.Cursor || report.Chain != m.Chain {
		return event.Errorf(event.CodeBackupInvalid, "The copy ends at %s with the chain %s, and its manifest says %s and %s. Use another backup.", report.Cursor, report.Chain, m.Cursor, m.Chain)
	}
	return os.Remove(filepath.Join(dir, "LOCK")) // which looking at it has made
}

// leftover explains a partial copy that is in the way.
func leftover(path string, err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is left of an attempt that was interrupted, or another one is under way; remove it if not", path)
	}
	return err
}

func mustNotExist(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already and is not overwritten; choose another name", path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// checkRoom fails before the volume is full, not when it is. A hundredth is for the file system's own use.
func checkRoom(dir string, bytes int64) error {
	free, err := backup.Free(dir)
	if err != nil {
		return fmt.Errorf("nothing can be written in %s: %w", dir, err)
	}
	if need := uint64(bytes + bytes/100); free < need {
		return event.Errorf(event.CodeDiskFull, "The copy needs %s and %s has %s free. Free space there, or choose another place.", sizeText(int64(need)), dir, sizeText(int64(free)))
	}
	return nil
}

// renameDurably gives a copy its name once it is complete.
func renameDurably(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
