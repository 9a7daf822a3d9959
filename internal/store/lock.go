// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"
	"syscall"
)

// isLocked reports whether opening failed because another process, or this
// one, holds the directory's lock. Pebble has no sentinel for its own check.
func isLocked(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) ||
		strings.Contains(err.Error(), "lock held by current process")
}
