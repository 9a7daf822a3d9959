// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package client

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"signalbox/event"
)

// lockFile keeps a second process, and a second opening in this one, away from a journal. The lock ends with the
// process, however that ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("client: open the lock of the journal: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, event.Errorf(event.CodeStoreLocked, "Another agent has %s open: two would undo each other's work.", path)
		}
		return nil, fmt.Errorf("client: lock the journal: %w", err)
	}
	return f, nil
}
