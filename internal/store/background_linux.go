// SPDX-License-Identifier: Apache-2.0

package store

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// backgroundNice is how far a thread that flushes stands back.
const backgroundNice = 10

// standBack lowers the priority of the calling goroutine for good: callers who
// wait for a commit go before what only has to be done some time. Pebble runs
// each flush on a goroutine of its own; as that ends while it is locked to its
// thread, the thread ends too and is not used again.
func standBack() {
	runtime.LockOSThread()
	// Refused, it changes nothing but the latency of others.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), backgroundNice)
}
