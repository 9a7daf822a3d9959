// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endUnacknowledged has the kernel end a connection on which nothing was
// acknowledged for so long after it was sent (TCP_USER_TIMEOUT, RFC 5482). To an
// event stream the other side says nothing, so a machine that has vanished is
// known only by that: a heartbeat fits into the kernel's buffer, and by itself the
// kernel sends it again for a quarter of an hour. A reader that has taken nothing
// for so long, while something waits for it, ends alike; one that is idle does not.
func endUnacknowledged(conn net.Conn, after time.Duration) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// Refused, it leaves the kernel's own patience.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}
