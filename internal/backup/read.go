// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/store"
)

// orDisk stands for the machine's file system where none is given.
func orDisk(fsys vfs.FS) vfs.FS {
	if fsys == nil {
		return vfs.Default
	}
	return fsys
}

// Free is how many bytes are free on the volume of a directory.
func Free(dir string) (uint64, error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, err
}

// Plan lists the files of a checkpoint, or of a data directory that nobody
// writes to, in a manifest that has no sums yet.
func Plan(fsys vfs.FS, dir string, m Manifest) (Manifest, error) {
	fsys = orDisk(fsys)
	names, err := store.DataFiles(fsys, dir)
	if err != nil {
		return m, fmt.Errorf("backup: listing %s: %w", dir, err)
	}
	m.Files, m.Bytes = nil, 0
	for _, name := range names {
		info, err := fsys.Stat(fsys.PathJoin(dir, name))
		if err != nil {
			return m, fmt.Errorf("backup: %w", err)
		}
		m.Files = append(m.Files, File{Name: name, Bytes: info.Size()})
		m.Bytes += info.Size()
	}
	return m, nil
}

// Pack makes a backup of the files that Plan has listed. The blocks of each
// table are checked before it is copied, so that damage is not handed on as a
// good backup.
func Pack(ctx context.Context, fsys vfs.FS, dir string, m Manifest) Entries {
	return func(yield func(Entry, error) bool) {
		fsys := orDisk(fsys)
		for i := range m.Files {
			f := &m.Files[i]
			sum, more, err := packFile(ctx, fsys, dir, *f, yield)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !more {
				return
			}
			f.SHA256 = sum
		}
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			yield(Entry{}, err)
			return
		}
		yield(manifestEntry(text), nil)
	}
}

func manifestEntry(text []byte) Entry {
	return Entry{Name: ManifestName, Bytes: int64(len(text)), Content: bytes.NewReader(text)}
}

// packFile passes one file on and returns its sum.
func packFile(ctx context.Context, fsys vfs.FS, dir string, f File, yield func(Entry, error) bool) (sum string, more bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, context.Cause(ctx)
	}
	if strings.HasSuffix(f.Name, ".sst") {
		damage, err := store.CheckTable(ctx, fsys, dir, f.Name)
		if err == nil && damage != nil {
			err = store.Damagedf("%s", damage)
		}
		if err != nil {
			return "", false, err
		}
	}
	file, err := fsys.Open(fsys.PathJoin(dir, f.Name), vfs.SequentialReadsOption)
	if err != nil {
		return "", false, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	limited := &io.LimitedReader{R: cancellable{ctx, file}, N: f.Bytes}
	if !yield(Entry{Name: f.Name, Bytes: f.Bytes, Content: io.TeeReader(limited, hash)}, nil) {
		return "", false, nil
	}
	if limited.N > 0 {
		return "", false, fmt.Errorf("backup: %s has become shorter", f.Name)
	}
	return hex.EncodeToString(hash.Sum(nil)), true, nil
}

// cancellable is a reader that ends with its context.
type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// ReadTar reads a backup from a tar archive.
func ReadTar(ctx context.Context, r io.Reader) Entries {
	return func(yield func(Entry, error) bool) {
		r := cancellable{ctx, r}
		archive := tar.NewReader(r)
		for {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				// The archive has ended; whether its sender ended in good order is
				// still to be seen, and must not find the pipe closed.
				if _, err := io.Copy(io.Discard, r); err != nil {
					yield(Entry{}, readError(ctx, err))
				}
				return
			}
			if err == nil && h.Typeflag != tar.TypeReg {
				err = invalid("The archive holds %.100q, which is no regular file. Use another backup.", h.Name)
			}
			if err != nil {
				yield(Entry{}, readError(ctx, err))
				return
			}
			if !yield(Entry{Name: h.Name, Bytes: h.Size, Content: archive}, nil) {
				return
			}
		}
	}
}

// readError tells an archive that was cut from everything else.
func readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("The backup is incomplete: it was cut while it was made or copied. Use another backup.")
	case errors.Is(err, tar.ErrHeader):
		return invalid("The backup is damaged or no tar archive: %w. Use another backup.", err)
	}
	return err
}

// ReadDir reads a backup from a directory.
func ReadDir(ctx context.Context, fsys vfs.FS, dir string) Entries {
	return func(yield func(Entry, error) bool) {
		fsys := orDisk(fsys)
		text, m, err := readManifest(fsys, dir)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for _, f := range m.Files {
			more, err := readFile(ctx, fsys, dir, f, yield)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !more {
				return
			}
		}
		yield(manifestEntry(text), nil)
	}
}

// ReadManifest reads the manifest of a backup that is a directory.
func ReadManifest(dir string) (Manifest, error) {
	_, m, err := readManifest(vfs.Default, dir)
	return m, err
}

func readManifest(fsys vfs.FS, dir string) (text []byte, m Manifest, err error) {
	file, err := fsys.Open(fsys.PathJoin(dir, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, m, invalid("There is no complete backup in %s, for it has no %s: it was cut while it was made, or it is something else. Use another backup.", dir, ManifestName)
	}
	if err != nil {
		return nil, m, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text, err = io.ReadAll(io.LimitReader(file, manifestBytesMax))
	if err != nil {
		return nil, m, fmt.Errorf("backup: reading %s: %w", ManifestName, err)
	}
	m, err = parseManifest(text)
	return text, m, err
}

func readFile(ctx context.Context, fsys vfs.FS, dir string, f File, yield func(Entry, error) bool) (more bool, err error) {
	if err := checkName(f.Name); err != nil {
		return false, err
	}
	file, err := fsys.Open(fsys.PathJoin(dir, f.Name), vfs.SequentialReadsOption)
	if errors.Is(err, fs.ErrNotExist) {
		return false, invalid("The backup is incomplete: %s is missing in %s. Use another backup.", f.Name, dir)
	}
	if err != nil {
		return false, fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("backup: %w", err)
	}
	return yield(Entry{Name: f.Name, Bytes: info.Size(), Content: cancellable{ctx, file}}, nil), nil
}
