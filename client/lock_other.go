// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package client

import (
	"fmt"
	"os"
)

// lockFile opens the file only: where there is no flock, it is the operator who must not start an agent twice.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("client: open the lock of the journal: %w", err)
	}
	return f, nil
}
