// SPDX-License-Identifier: Apache-2.0

// Package backup makes copies of a log and puts them back. A backup is the
// files of a data directory as they were at one cursor, and as the last of
// them a manifest ([ManifestName]) with the length and the SHA-256 of each. It
// comes as a tar archive or as a directory. Without its manifest it is
// incomplete, whatever ended it, and is refused.
//
// A backup is a sequence of entries. [Pack] makes one from a checkpoint or
// from a data directory that nobody writes to, [ReadTar] and [ReadDir] read
// one, and [WriteTar], [WriteDir] and [Check] consume one. Each consumer
// checks what passes through it.
//
// It imports store, which knows what the files are, and event.
package backup

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"runtime/debug"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/store"
)

// ManifestName is the name of the manifest within a backup.
const ManifestName = "signalbox-backup.json"

// Format is the only form of a backup so far.
const Format = 1

const (
	// filesMax and manifestBytesMax bound what a forged backup makes a reader
	// hold in memory. A file holds megabytes, so this is more than a terabyte.
	filesMax         = 1_000_000
	manifestBytesMax = 256 << 20
	nameBytesMax     = 100
)

// Manifest says what a backup holds.
type Manifest struct {
	Format      int    `json:"format"`
	Version     string `json:"version"`     // of the program that made it
	Created     string `json:"created"`     // RFC 3339
	Incarnation string `json:"incarnation"` // of the log that it was taken of
	Cursor      string `json:"cursor"`      // of the last event in it
	Position    uint64 `json:"position,string"`
	Chain       string `json:"chain"` // the audit chain's head in hexadecimal
	Leaves      uint64 `json:"leaves,string"`
	LogMillis   int64  `json:"log_ms"`
	Bytes       int64  `json:"bytes"` // of all files
	Files       []File `json:"files"`
}

// File is one file of a backup.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Entry is a file of a backup as it passes through. Content is read before the
// next entry is asked for.
type Entry struct {
	Name    string
	Bytes   int64
	Content io.Reader
}

// Entries is a backup on its way: its files and, as the last, its manifest. An
// error ends it.
type Entries = iter.Seq2[Entry, error]

// Describe begins the manifest of the log that a store holds.
func Describe(s *store.Store) (Manifest, error) {
	space, settings, ok, err := s.LoadSpace()
	if err != nil {
		return Manifest{}, err
	}
	if !ok {
		return Manifest{}, event.Errorf(event.CodeStoreFormat, "The data directory holds no log yet: there is nothing to back up.")
	}
	return Manifest{
		Format: Format, Version: version(), Created: time.Now().UTC().Format(time.RFC3339),
		Incarnation: settings.IncarnationName, Cursor: event.Cursor{Position: space.Position, Incarnation: settings.IncarnationName}.String(),
		Position: space.Position, Chain: fmt.Sprintf("%x", space.Chain), Leaves: space.Leaves, LogMillis: space.LogMillis,
	}, nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// invalid is the refusal of a backup.
func invalid(format string, args ...any) error {
	return event.Errorf(event.CodeBackupInvalid, format, args...)
}

func parseManifest(text []byte) (m Manifest, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, invalid("The manifest of the backup is damaged: %w. Use another backup.", err)
	}
	if m.Format != Format {
		return m, invalid("The backup has the format %d, and this version knows %d. Use the version that made it: %.40q.", m.Format, Format, m.Version)
	}
	if m.Incarnation == "" || len(m.Files) == 0 || len(m.Files) > filesMax {
		return m, invalid("The manifest of the backup is damaged: it has %d files. Use another backup.", len(m.Files))
	}
	return m, nil
}

// checkName keeps a backup from writing anywhere but into its directory.
func checkName(name string) error {
	if name == "" || len(name) > nameBytesMax || name[0] == '.' || name == "LOCK" ||
		strings.ContainsFunc(name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
		}) {
		return invalid("The backup holds a file %.100q, which is none of a log's. Use another backup.", name)
	}
	return nil
}
