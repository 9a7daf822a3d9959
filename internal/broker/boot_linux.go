// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot counts while the machine sleeps. It panics on a system without a
// boot-time clock, which no supported one is.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("broker: the system has no boot-time clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}
