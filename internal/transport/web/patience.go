// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// No write waits for ever for a client that does not read: whatever is written
// without a deadline of its own is given up when the client has not taken a piece of
// it within the stall timeout. That is a property of connections (patientConn), for
// whatever net/http, a lane or TLS writes; and of answers where several share one
// (sharedAnswer), since there a client can hold one of them up and take the others.

// pieceBytes is what a reader of an answer that shares its connection must take within
// the stall timeout. On a connection of its own anything will do.
const pieceBytes = 64 << 10

// patientConn is a connection on which no write waits for ever. It offers bytes to
// the kernel first and sets a deadline for what is left, which is nothing unless the
// client has stopped to read: so it costs the others nothing.
type patientConn struct {
	*net.TCPConn
	stall time.Duration

	mu     sync.Mutex // of writes
	kernel *kernel    // guarded by mu
	due    dueTime
}

func newPatientConn(conn *net.TCPConn, stall time.Duration) *patientConn {
	return &patientConn{TCPConn: conn, stall: stall, kernel: newKernel(conn)}
}

// kernel is offered what is written before anything waits.
type kernel struct {
	raw   syscall.RawConn
	try   func(fd uintptr) bool // write; made once, for it would be allocated with each offer
	tried []byte                // what try writes, and then what is left of it
}

func newKernel(conn syscall.Conn) *kernel {
	k := &kernel{}
	k.raw, _ = conn.SyscallConn() // fails for no connection that there is
	k.try = k.write
	return k
}

// write writes as much as is taken at once. What it cannot say is said by the write
// that waits for the rest.
func (k *kernel) write(fd uintptr) bool {
	if n, err := syscall.Write(int(fd), k.tried); err == nil {
		k.tried = k.tried[n:]
	}
	return true
}

// offer returns what of b is not taken at once.
func (k *kernel) offer(b []byte) (rest []byte, err error) {
	k.tried = b
	err = k.raw.Write(k.try)
	rest, k.tried = k.tried, nil
	return rest, err
}

// Write writes all of b, unless the client stalls.
func (c *patientConn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest, err := c.kernel.offer(b)
	n = len(b) - len(rest)
	if err != nil || len(rest) == 0 {
		return n, err
	}
	for {
		m, err := inTime(&c.due, c.TCPConn, c.TCPConn.Write, rest, c.stall)
		n += m
		if m == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.due.isOwn() {
			return n, err
		}
		rest = rest[m:] // a slow client has taken a part, so it has not stalled
	}
}

// ReadFrom keeps io.Copy from writing past Write by the method of TCPConn.
func (c *patientConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// SetWriteDeadline has writes end by a time instead.
func (c *patientConn) SetWriteDeadline(t time.Time) error { return c.due.set(c.TCPConn, t) }

// SetDeadline is for reads and writes.
func (c *patientConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// sharedAnswer is the answer to a request that shares its connection with others
// (HTTP/2).
type sharedAnswer struct {
	http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	due   dueTime
}

func newSharedAnswer(w http.ResponseWriter, stall time.Duration) *sharedAnswer {
	return &sharedAnswer{ResponseWriter: w, rc: http.NewResponseController(w), stall: stall}
}

// Write writes all of b, unless the client stalls.
func (a *sharedAnswer) Write(b []byte) (int, error) {
	return inTime(&a.due, a.rc, a.ResponseWriter.Write, b, a.stall)
}

// FlushError sends what net/http has buffered, which is less than a piece.
func (a *sharedAnswer) FlushError() error {
	_, err := inTime(&a.due, a.rc, func([]byte) (int, error) { return 0, a.rc.Flush() }, nil, a.stall)
	return err
}

// SetWriteDeadline has the answer end by a time instead.
func (a *sharedAnswer) SetWriteDeadline(t time.Time) error { return a.due.set(a.rc, t) }

// Unwrap is for [http.ResponseController].
func (a *sharedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// end is called when the handler has: net/http sends then what it has buffered, and
// the deadline ends with the answer.
func (a *sharedAnswer) end() { _ = a.due.limit(a.rc, a.stall) }

// dueTime knows whether writes have a deadline of their own, and gives them one if
// they have none.
type dueTime struct {
	mu  sync.Mutex
	own bool // guarded by mu
}

type deadliner interface{ SetWriteDeadline(t time.Time) error }

// set sets a deadline of their own; the zero time takes it off.
func (d *dueTime) set(of deadliner, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = !t.IsZero()
	return of.SetWriteDeadline(t)
}

func (d *dueTime) isOwn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.own
}

// limit gives the next write so much time, and lift takes that off: it would end a
// later one, and in HTTP/2 an answer to which nothing is written.
func (d *dueTime) limit(of deadliner, stall time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own {
		return nil
	}
	return of.SetWriteDeadline(time.Now().Add(stall))
}

func (d *dueTime) lift(of deadliner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.own {
		_ = of.SetWriteDeadline(time.Time{})
	}
}

// inTime writes b in pieces that have so much time each.
func inTime(d *dueTime, of deadliner, write func([]byte) (int, error), b []byte, stall time.Duration) (n int, err error) {
	defer d.lift(of)
	for {
		if err := d.limit(of, stall); err != nil {
			return n, err
		}
		m, err := write(b[n:min(n+pieceBytes, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}
