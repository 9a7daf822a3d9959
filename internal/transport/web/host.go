// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/netip"
	"strings"
)

// loopbackHost reports whether a Host header names this machine by its
// loopback interface, on any port. A web page that makes its own name resolve
// to 127.0.0.1 (DNS rebinding) is same-origin for the browser and could read
// and publish at will; only the Host header gives it away.
func loopbackHost(host string) bool {
	if rest, ok := strings.CutPrefix(host, "["); ok {
		addr, port, closed := strings.Cut(rest, "]")
		return closed && (port == "" || port[0] == ':') && loopbackAddr(addr)
	}
	name, _, _ := strings.Cut(host, ":")
	return strings.EqualFold(name, "localhost") || loopbackAddr(name)
}

func loopbackAddr(s string) bool {
	if s == "" || s[0] != '1' && s[0] != ':' && s[0] != '0' {
		return false // no loopback address begins otherwise; spares the error that ParseAddr allocates
	}
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}
