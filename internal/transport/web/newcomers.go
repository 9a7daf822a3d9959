// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// newcomerGrace is what a shutdown gives a connection to begin its first request.
const newcomerGrace = time.Second

// newcomers are the connections of net/http that have not begun a request. A
// browser opens some in advance and may never use them; net/http has a shutdown
// wait for those until it stops waiting for what they say first, which is 5 s,
// and 10 s where HTTP/2 was agreed on.
type newcomers struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
}

// note follows a connection's state. See [http.Server.ConnState].
func (n *newcomers) note(conn net.Conn, state http.ConnState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if state != http.StateNew {
		delete(n.conns, conn)
		return
	}
	if n.conns == nil {
		n.conns = map[net.Conn]struct{}{}
	}
	n.conns[conn] = struct{}{}
}

// close ends those there are. None of them has asked for anything whole, so whoever was
// about to may do so elsewhere.
func (n *newcomers) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		go func() { _ = conn.Close() }() // over TLS it says goodbye first, and may block
	}
}
