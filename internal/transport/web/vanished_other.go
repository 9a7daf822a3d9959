// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package web

import (
	"net"
	"time"
)

// endUnacknowledged does nothing where the kernel's patience cannot be set: a
// vanished reader is noticed when the kernel gives up, or at the end of the
// stream's life.
func endUnacknowledged(net.Conn, time.Duration) {}
