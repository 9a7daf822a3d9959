// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// vanish makes the machine at this end of a connection disappear: what comes for
// it is dropped before TCP sees it, so nothing is acknowledged, refused or ended.
func vanish(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(drop)), Filter: &drop[0]})
	})
	if err != nil || failed != nil {
		t.Skipf("a socket cannot be made deaf here: %v, %v", err, failed)
	}
}

// Event streams whose other end has vanished are gone after a heartbeat and
// two more, events or not, and hold nothing; who is there sees nothing of it.
func TestHalfOpenStreamsAreNoticed(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 300 * time.Millisecond })
	alive := d.follow("/v1/topics/a/events?cursor=now")
	var vanished []net.Conn
	for i := range 50 {
		c, _, _ := d.raw("GET /v1/topics/"+[]string{"a", "quiet"}[i%2]+"/events?cursor=now HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
		vanished = append(vanished, c)
	}
	eq(t, "open streams", d.server.OpenStreams(), 51)
	for _, c := range vanished {
		vanish(t, c)
	}
	for i := range 20 {
		d.structured("a", ev(strconv.Itoa(i), "")).want(t, 200)
	}
	eventually(t, "all but one gone", func() bool { return d.server.OpenStreams() == 1 })
	d.structured("a", ev("last", "")).want(t, 200)
	for m := range alive.messages {
		if strings.Contains(m.data, `"id":"last"`) {
			return
		}
	}
	t.Error("the reader that is there did not get the last event")
}
