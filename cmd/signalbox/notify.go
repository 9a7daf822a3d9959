// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"net"
	"os"
)

// notify tells the service manager how far the process is, by the protocol of sd_notify(3): a datagram to the socket that
// the environment names. Without one there is nobody to tell.
func notify(state string, logger *slog.Logger) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		logger.Warn("the service manager cannot be told", "state", state, "err", err)
	}
}
