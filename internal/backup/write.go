// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Progress is told of every piece of a file that has passed.
type Progress func(bytes int)

// Write implements io.Writer.
func (p Progress) Write(b []byte) (int, error) {
	if p != nil {
		p(len(b))
	}
	return len(b), nil
}

// Check reads a backup to its end and checks it, without keeping anything.
func Check(entries Entries, progress Progress) (Manifest, error) {
	return consume(entries, progress, func(Entry) (io.WriteCloser, error) { return nopCloser{io.Discard}, nil })
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// WriteTar writes a backup as a tar archive, and checks what passes.
func WriteTar(w io.Writer, entries Entries, progress Progress) (Manifest, error) {
	archive := tar.NewWriter(w)
	m, err := consume(entries, progress, func(e Entry) (io.WriteCloser, error) {
		// PAX has no limit on sizes; no owner and no time, which would be the
		// broker's and not the log's.
		return nopCloser{archive}, archive.WriteHeader(&tar.Header{Name: e.Name, Size: e.Bytes, Mode: 0o600, Typeflag: tar.TypeReg, Format: tar.FormatPAX})
	})
	if err != nil {
		return m, err
	}
	return m, archive.Close()
}

// Target says what WriteDir is to make of a backup.
type Target struct {
	FS           vfs.FS // nil: the machine's file system
	Dir          string // must not exist, or be empty
	KeepManifest bool   // as a backup; without it, what is written is a data directory
}

// WriteDir writes the files of a backup into a new directory, checks them, and
// makes them durable. The manifest comes last, so that a directory which has it
// is complete. It removes the directory if it fails.
func WriteDir(t Target, entries Entries, progress Progress) (m Manifest, err error) {
	t.FS = orDisk(t.FS)
	if err := t.FS.MkdirAll(t.Dir, 0o700); err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.FS.RemoveAll(t.Dir))
		}
	}()
	m, err = consume(entries, progress, func(e Entry) (io.WriteCloser, error) {
		if e.Name == ManifestName {
			if err := syncDir(t.FS, t.Dir); err != nil {
				return nil, err
			}
			if !t.KeepManifest {
				return nopCloser{io.Discard}, nil
			}
		}
		f, err := t.FS.Create(t.FS.PathJoin(t.Dir, e.Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		return syncedFile{f}, nil
	})
	if err != nil {
		return m, err
	}
	return m, syncDir(t.FS, t.Dir)
}

// syncedFile is durable when it is closed.
type syncedFile struct{ vfs.File }

func (f syncedFile) Close() error { return errors.Join(f.Sync(), f.File.Close()) }

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// consume passes every entry to the writer that create gives for it, and
// compares the sums with the manifest at the end.
func consume(entries Entries, progress Progress, create func(Entry) (io.WriteCloser, error)) (m Manifest, err error) {
	sums := map[string]File{}
	complete := false
	for e, err := range entries {
		if err != nil {
			return m, err
		}
		if complete {
			return m, invalid("The backup goes on after its manifest, with %.100q. Use another backup.", e.Name)
		}
		if err := checkName(e.Name); err != nil {
			return m, err
		}
		if _, twice := sums[e.Name]; twice || len(sums) > filesMax {
			return m, invalid("The backup holds %.100q twice or too many files. Use another backup.", e.Name)
		}
		var manifest bytes.Buffer
		if e.Name == ManifestName {
			complete = true
			if e.Bytes > manifestBytesMax {
				return m, invalid("The manifest of the backup has %d bytes, which is too much. Use another backup.", e.Bytes)
			}
			e.Content = io.TeeReader(e.Content, &manifest)
		}
		f, err := write(e, progress, create)
		if err != nil {
			return m, err
		}
		if !complete {
			sums[e.Name] = f
			continue
		}
		if m, err = parseManifest(manifest.Bytes()); err != nil {
			return m, err
		}
		if err := compare(m, sums); err != nil {
			return m, err
		}
	}
	if !complete {
		return m, invalid("The backup is incomplete: its manifest, which comes last, is missing. Use another backup.")
	}
	return m, nil
}

func write(e Entry, progress Progress, create func(Entry) (io.WriteCloser, error)) (f File, err error) {
	w, err := create(e)
	if err != nil {
		return f, fmt.Errorf("backup: writing %s: %w", e.Name, err)
	}
	defer func() {
		if closeErr := w.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("backup: writing %s: %w", e.Name, closeErr)
		}
	}()
	hash := sha256.New()
	// The file comes last: a vfs.File may change the bytes that it was given.
	n, err := io.CopyBuffer(io.MultiWriter(hash, progress, w), e.Content, make([]byte, 256<<10))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return f, invalid("The backup is incomplete: it was cut within %s. Use another backup.", e.Name)
	case err != nil:
		return f, fmt.Errorf("backup: copying %s: %w", e.Name, err)
	case n != e.Bytes:
		return f, invalid("The backup is damaged: %s has %d bytes in place of %d. Use another backup.", e.Name, n, e.Bytes)
	}
	return File{Name: e.Name, Bytes: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

func compare(m Manifest, sums map[string]File) error {
	for _, want := range m.Files {
		switch got, ok := sums[want.Name]; {
		case !ok:
			return invalid("The backup is incomplete: %.100q is missing. Use another backup.", want.Name)
		case got != want:
			return invalid("The backup is damaged: %.100q is not what was written (%d bytes with the sum %.16s…, in place of %d with %.16s…). Use another backup.",
				want.Name, got.Bytes, got.SHA256, want.Bytes, want.SHA256)
		}
	}
	if len(sums) != len(m.Files) {
		return invalid("The backup is damaged: it holds %d files, and its manifest lists %d. Use another backup.", len(sums), len(m.Files))
	}
	return nil
}
