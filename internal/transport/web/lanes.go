// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// lanes is a listener that answers plain publishes and ticket messages itself and
// leaves everything else to net/http. See DESIGN.md, "Publishes".
//
// Each accepted connection begins in a lane: a loop that reads a request whole,
// calls the same handlers and writes the answer in one piece. The first request
// that is anything but a short one of them goes to net/http together with its
// connection, for good; the lane has not touched a byte of it.
type lanes struct {
	net.Listener
	server *Server
	handed chan net.Conn // to net/http
	stop   chan struct{} // closed when the listener is
	once   sync.Once

	closing   atomic.Bool // no lane begins another request
	mu        sync.Mutex
	accepting bool               // guarded by mu
	open      map[*lane]struct{} // guarded by mu
	fewer     sync.Cond          // on mu: something ended
}

func newLanes(s *Server, l net.Listener) *lanes {
	ls := &lanes{
		Listener: l, server: s, handed: make(chan net.Conn), stop: make(chan struct{}),
		accepting: true, open: map[*lane]struct{}{},
	}
	ls.fewer.L = &ls.mu
	return ls
}

// accept takes connections until the listener is closed, and says why if nobody
// closed it.
func (ls *lanes) accept(failed chan<- error) {
	defer func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.accepting = false
		ls.fewer.Broadcast()
	}()
	for pause := time.Duration(0); ; {
		conn, err := ls.Listener.Accept()
		switch {
		case err == nil:
			pause = 0
		case ls.closing.Load():
			return
		case temporary(err): // as net/http does: out of file descriptors, for example
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			ls.server.log.Warn("accepting a connection failed and is tried again", "err", err, "after", pause,
				"todo", "if it goes on, raise the limit of open files")
			time.Sleep(pause)
			continue
		default:
			failed <- err
			return
		}
		if ls.server.conns.Add(1) > int64(ls.server.opt.MaxConns) {
			// An EventSource retries a closed connection, while it would give up for
			// good at an answer other than 200.
			ls.server.metrics.HTTP.Dropped.Inc()
			ls.drop(conn)
			continue
		}
		ls.begin(conn)
	}
}

func temporary(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
}

// drop closes a connection that is not net/http's, and counts it out.
func (ls *lanes) drop(conn net.Conn) {
	_ = conn.Close()
	ls.server.conns.Add(-1)
}

// begin opens a lane. Where there is TLS nothing is answered without it, so the
// connection is net/http's at once.
func (ls *lanes) begin(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok { // of a listener that only tests have
		go ls.hand(conn)
		return
	}
	patient := newPatientConn(tcp, ls.server.opt.StallTimeout)
	if ls.server.opt.TLS != nil {
		go ls.hand(patient)
		return
	}
	l := &lane{lanes: ls, conn: patient}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closing.Load() { // and Close may have looked for idle lanes already
		ls.drop(conn)
		return
	}
	ls.open[l] = struct{}{}
	go ls.run(l)
}

// Accept gives net/http a connection that is its.
func (ls *lanes) Accept() (net.Conn, error) {
	select {
	case conn := <-ls.handed:
		return conn, nil
	case <-ls.stop:
		return nil, net.ErrClosed
	}
}

// Close ends accepting, and the lanes that have no request.
func (ls *lanes) Close() error {
	var err error
	ls.once.Do(func() {
		ls.closing.Store(true)
		err = ls.Listener.Close()
		close(ls.stop)
		ls.mu.Lock()
		defer ls.mu.Unlock()
		for l := range ls.open {
			if !l.busy.Load() {
				_ = l.conn.Close()
			}
		}
	})
	return err
}

// wait returns when nothing is accepted any more and no lane is open, or when
// ctx ends, with its error.
func (ls *lanes) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.fewer.Broadcast()
	})()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for ls.accepting || len(ls.open) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		ls.fewer.Wait()
	}
	return nil
}

// abandon closes the connections of all lanes.
func (ls *lanes) abandon() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		_ = l.conn.Close()
	}
}

func (ls *lanes) run(l *lane) {
	end := l.serve()
	ls.mu.Lock()
	delete(ls.open, l)
	ls.fewer.Broadcast()
	ls.mu.Unlock()
	if end == laneHands {
		ls.hand(&handedConn{l.conn, bytes.Clone(l.buf)})
		return
	}
	ls.drop(l.conn)
}

// hand passes a connection to net/http, which counts it out when it ends.
func (ls *lanes) hand(conn net.Conn) {
	select {
	case ls.handed <- conn:
	case <-ls.stop:
		ls.drop(conn)
	}
}

// handedConn gives back first what a lane has read ahead.
type handedConn struct {
	*patientConn
	ahead []byte
}

func (c *handedConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil // a stream keeps the connection for long
		}
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// WriteTo keeps io.Copy from reading past ahead by the method of TCPConn.
func (c *handedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

// lane is one connection on which only publishes have come so far.
type lane struct {
	*lanes
	conn *patientConn
	busy atomic.Bool // it has read some of a request that it has not answered

	buf      []byte // what was read and not yet answered
	answered bool   // there was a request before
	request  laneRequest
	answer   laneAnswer
	deadline time.Time // for reading, as it was set last
	partial  bool      // it is that of a request of which some has come
}

const (
	// laneBytes is the room for a request. An idle connection keeps it.
	laneBytes = 8 << 10
	// idleSlack is how much earlier than asked for an idle connection may end:
	// setting a deadline costs as much as a hundredth of a publish.
	idleSlack = idleTimeout / 16
	// lingerMax is how long a lane that ends reads on, so that the kernel does not
	// throw the answer away together with what nobody has read.
	lingerMax = 500 * time.Millisecond
)

// laneEnd says what becomes of a connection.
type laneEnd uint8

const (
	laneCloses laneEnd = iota
	laneHands          // it goes to net/http, with what is in buf
)

// serve answers publishes until the connection ends or something else comes.
func (l *lane) serve() (end laneEnd) {
	defer func() {
		if r := recover(); r != nil {
			l.server.log.Error("answering a request failed", "panic", r, "stack", string(debug.Stack()), "todo", "report it as a fault of Signalbox")
			end = laneCloses
		}
	}()
	l.buf = make([]byte, 0, laneBytes)
	for {
		switch verdict := l.request.parse(l.buf); {
		case verdict == laneOther || verdict == laneMore && len(l.buf) == cap(l.buf):
			return l.over()
		case verdict == laneMore:
			switch err := l.read(); {
			case err == nil:
			case len(l.buf) > 0 && !errors.Is(err, os.ErrDeadlineExceeded):
				return l.over() // net/http says what is wrong with half a request
			default:
				return laneCloses
			}
			continue
		}
		if !l.respond() {
			return laneCloses
		}
		// Whoever closes the lanes sets closing and then looks for idle ones.
		if l.closing.Load() {
			l.linger()
			return laneCloses
		}
	}
}

func (l *lane) over() laneEnd {
	_ = l.conn.SetReadDeadline(time.Time{})
	return laneHands
}

// read waits for more of a request. One that has begun has a fixed time to
// arrive in, as has the first one of a connection.
func (l *lane) read() error {
	begun := len(l.buf) > 0
	switch {
	case begun && l.partial:
	case begun || !l.answered:
		if err := l.setDeadline(readHeaderTimeout, begun); err != nil {
			return err
		}
	case l.partial || time.Until(l.deadline) < idleTimeout-idleSlack:
		if err := l.setDeadline(idleTimeout, false); err != nil {
			return err
		}
	}
	n, err := l.conn.Read(l.buf[len(l.buf):cap(l.buf)])
	if n == 0 && err != nil {
		return err
	}
	l.busy.Store(true)
	l.buf = l.buf[:len(l.buf)+n]
	if l.answered && !begun { // as net/http does after a POST: some clients end it with a line
		trimmed := bytes.TrimLeft(l.buf, "\r\n")
		l.keep(trimmed)
	}
	return nil
}

func (l *lane) setDeadline(wait time.Duration, partial bool) error {
	l.deadline, l.partial = time.Now().Add(wait), partial
	return l.conn.SetReadDeadline(l.deadline)
}

// keep makes rest, an end of buf, all that is left of it.
func (l *lane) keep(rest []byte) {
	l.buf = l.buf[:copy(l.buf, rest)]
	l.busy.Store(len(l.buf) > 0)
}

// respond answers the request that was parsed, and reports whether the
// connection goes on.
func (l *lane) respond() bool {
	l.answer.begin()
	handler := l.server.publisher
	if l.request.what == laneMessage {
		handler = l.server.messenger
	}
	l.server.serve(&l.answer, l.request.http(l.conn.RemoteAddr()), handler)
	_, err := l.conn.Write(l.answer.finish(l.closing.Load(), l.server.date.now()))
	l.answer.end()
	size := l.request.end()
	l.answered = true
	l.keep(bytes.TrimLeft(l.buf[size:], "\r\n"))
	return err == nil
}

// linger lets the peer read the last answer before the connection is closed.
func (l *lane) linger() {
	if l.conn.CloseWrite() == nil && l.conn.SetReadDeadline(time.Now().Add(lingerMax)) == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(l.conn, uploadBytes))
	}
}
