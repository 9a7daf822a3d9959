// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/store"
)

// keyFile returns what is in a key file of the data directory, and draws it first if
// there is none.
func (b *Broker) keyFile(name string, draw func() ([]byte, error)) (string, error) {
	files := b.options.FS
	if files == nil {
		files = vfs.Default
	}
	secret, err := readKeyFile(files, b.options.Dir, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	text, err := draw()
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), store.WriteKeyFile(files, files.PathJoin(b.options.Dir, name), text)
}

func readKeyFile(files vfs.FS, dir, name string) (string, error) {
	f, err := files.Open(files.PathJoin(dir, name))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	return strings.TrimSpace(string(text)), errors.Join(err, f.Close())
}
