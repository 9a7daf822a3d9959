// SPDX-License-Identifier: Apache-2.0

package store

import "golang.org/x/sys/unix"

func inodeOf(name string) (uint64, bool) {
	var s unix.Stat_t
	err := unix.Stat(name, &s)
	return s.Ino, err == nil
}
