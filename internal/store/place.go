// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// placeFile is a file that names its own inode. A copy of it has another one,
// so it tells a copied directory from one that stayed where it was or was
// renamed. A copy of the whole volume goes unnoticed.
const placeFile = "PLACE"

// MarkPlace notes where a data directory is. That it is the original is not
// promised to anybody, so it need not be durable.
func MarkPlace(dir string) error {
	name := filepath.Join(dir, placeFile)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	inode, ok := inodeOf(name)
	if !ok {
		return os.Remove(name)
	}
	return os.WriteFile(name, []byte(strconv.FormatUint(inode, 10)+"\n"), 0o600)
}

// Copied reports whether a data directory was copied since its place was
// noted, if that is known.
func Copied(dir string) (copied, known bool) {
	name := filepath.Join(dir, placeFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return false, false
	}
	noted, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	inode, ok := inodeOf(name)
	if err != nil || !ok {
		return false, false
	}
	return noted != inode, true
}
