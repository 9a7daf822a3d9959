// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hasty has answers given up soon that nobody takes, and small buffers in the kernel,
// which a few answers fill.
func hasty(o *doorOptions) {
	o.web.StallTimeout = 200 * time.Millisecond
	o.listen = func(fd int) error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<10) }
}

// dialDeaf connects a client whose kernel takes little for it.
func (d *door) dialDeaf() net.Conn {
	d.t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) }), err)
	}}
	c, err := dialer.DialContext(context.Background(), "tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestWhoeverReadsNoAnswersIsCutOff: requests without end, of whose answers none is
// read, hold a connection no longer than a stalled reader does, however small the
// answers are.
func TestWhoeverReadsNoAnswersIsCutOff(t *testing.T) {
	plain, secure := openDoor(t, hasty), openOver(t, "HTTP/1.1 over TLS", hasty)
	request := func(line string) string { return line + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }
	for name, c := range map[string]struct {
		d       *door
		request string
	}{
		"a receipt in a lane": {plain, rawPublish("1")},
		"a refusal in a lane": {plain, strings.Replace(rawPublish("1"), "ce-id: 1", "ce-none: 1", 1)},
		"a receipt":           {plain, rawPublish("1", "Te: trailers")},
		"a refusal":           {plain, request("GET /v1/nothing")},
		"a short answer":      {plain, request("GET /healthz")},
		"no content":          {plain, request("OPTIONS /healthz")},
		"a long answer":       {plain, request("GET /openapi.yaml")},
		"a refusal over TLS":  {secure, request("GET /v1/nothing")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := c.d.dialDeaf()
			if c.d == secure {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // It is this test's own.
			}
			many := strings.Repeat(c.request, 20)
			for until := time.Now().Add(patience); ; {
				_ = conn.SetWriteDeadline(until)
				if _, err := io.WriteString(conn, many); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal("the broker waits for whoever reads nothing")
				} else if err != nil {
					return // it was closed
				}
			}
		})
	}
}

// TestWhoeverTakesNoAnswerOfHTTP2LosesIt: a client that gives no credit for an answer
// loses that and not its connection.
func TestWhoeverTakesNoAnswerOfHTTP2LosesIt(t *testing.T) {
	d := openDoor(t, hasty)
	w := d.wire2()
	w.send(frame2(0x4, 0, 0, []byte{0, 4, 0, 0, 0, 0})) // no credit for new streams
	for i, path := range []string{"/v1/nothing", "/healthz", "/openapi.yaml"} {
		w.send(frame2(0x1, 0x5, uint32(2*i+1), get(path)))
		if _, ok := w.until(0x3); !ok {
			t.Fatalf("%s: the connection ended, and not the answer", path)
		}
	}
	eventually(t, "every request gone", func() bool { return d.server.SharedRequests() == 0 })
}
