// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// isLocked reports whether opening failed because another process, or this
// one, holds the directory's lock. POSIX lets the system answer either errno; an
// EACCES about a path says something else, that this user may not open it. Pebble
// has no sentinel for its own check.
func isLocked(err error) bool {
	var path *fs.PathError
	return !errors.As(err, &path) && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES)) ||
		strings.Contains(err.Error(), "lock held by current process")
}
