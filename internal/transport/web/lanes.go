// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// lanes is a listener that answers plain publishes itself and leaves everything
// else to net/http. See DESIGN.md, "Publishes".
//
// Each accepted connection begins in a lane: a loop that reads a request whole,
// calls the same handlers and writes the answer in one piece. The first request
// that is anything but a short publish goes to net/http together with its
// connection, for good; the lane has not touched a byte of it.
type lanes struct {
	net.Listener
	server *Server
	handed chan net.Conn // to net/http
	stop   chan struct{} // closed when the listener is

	closing atomic.Bool // no lane begins another request
	mu      sync.Mutex
	open    map[*lane]struct{} // guarded by mu
	ended   sync.Cond          // on mu: open has become smaller
	once    sync.Once
}

func newLanes(s *Server, l net.Listener) *lanes {
	ls := &lanes{Listener: l, server: s, handed: make(chan net.Conn), stop: make(chan struct{}), open: map[*lane]struct{}{}}
	ls.ended.L = &ls.mu
	return ls
}

// accept takes connections until the listener is closed, and then says why.
func (ls *lanes) accept(failed chan<- error) {
	for pause := time.Duration(0); ; {
		conn, err := ls.Listener.Accept()
		switch {
		case err == nil:
			pause = 0
		case ls.closing.Load():
			return
		case temporary(err): // as net/http does: out of file descriptors, for example
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			ls.server.log.Warn("accepting a connection failed and is tried again", "err", err, "after", pause)
			time.Sleep(pause)
			continue
		default:
			failed <- err
			return
		}
		if ls.server.conns.Add(1) > int64(ls.server.opt.MaxConns) {
			// An EventSource retries a closed connection, while it would give up for
			// good at an answer other than 200.
			ls.server.conns.Add(-1)
			ls.server.metrics.HTTP.Dropped.Inc()
			_ = conn.Close()
			continue
		}
		// Where there is TLS, nothing is answered without it.
		if tcp, ok := conn.(*net.TCPConn); ok && ls.server.opt.TLS == nil {
			go ls.run(tcp)
		} else {
			go ls.hand(conn)
		}
	}
}

func temporary(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
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

// wait returns when no lane is open, or when ctx ends, with its error.
func (ls *lanes) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.ended.Broadcast()
	})()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for len(ls.open) > 0 && ctx.Err() == nil {
		ls.ended.Wait()
	}
	if len(ls.open) > 0 {
		return ctx.Err()
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

func (ls *lanes) run(conn *net.TCPConn) {
	l := &lane{server: ls.server, closing: &ls.closing, conn: conn}
	ls.mu.Lock()
	ls.open[l] = struct{}{}
	ls.mu.Unlock()
	rest, over := l.serve()
	ls.mu.Lock()
	delete(ls.open, l)
	ls.ended.Broadcast()
	ls.mu.Unlock()
	if over {
		ls.hand(&handedConn{conn, rest})
		return
	}
	_ = conn.Close()
	ls.server.conns.Add(-1)
}

// hand passes a connection to net/http, which counts it out when it ends.
func (ls *lanes) hand(conn net.Conn) {
	select {
	case ls.handed <- conn:
	case <-ls.stop:
		_ = conn.Close()
		ls.server.conns.Add(-1)
	}
}

// handedConn gives back first what a lane has read ahead.
type handedConn struct {
	*net.TCPConn
	ahead []byte
}

func (c *handedConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// lane is one connection on which only publishes have come so far.
type lane struct {
	server  *Server
	closing *atomic.Bool
	conn    *net.TCPConn
	busy    atomic.Bool // it has read some of a request that it has not answered

	buf      []byte // what was read and not yet answered
	request  laneRequest
	answer   laneAnswer
	deadline time.Time // for reading, as it was set last
}

const (
	// laneBytes is the room for a request. An idle connection keeps it.
	laneBytes = 8 << 10
	// deadlineSlack is how much earlier than asked for a read may time out;
	// setting a deadline costs as much as a hundredth of a publish.
	deadlineSlack = idleTimeout / 16
)

// serve answers publishes until the connection ends, or until something else
// comes; then over is true, and rest is what net/http has yet to read.
func (l *lane) serve() (rest []byte, over bool) {
	defer func() {
		if r := recover(); r != nil {
			l.server.log.Error("answering a request failed", "panic", r, "stack", string(debug.Stack()))
			rest, over = nil, false
		}
	}()
	l.buf = make([]byte, 0, laneBytes)
	for {
		size, verdict := l.request.parse(l.buf)
		switch {
		case verdict == laneOther || verdict == laneMore && len(l.buf) == cap(l.buf):
			_ = l.conn.SetReadDeadline(time.Time{})
			return l.buf, true
		case verdict == laneMore:
			if !l.read() { // of a request that has begun, net/http says what is wrong
				return l.buf, len(l.buf) > 0
			}
			continue
		}
		if !l.respond() {
			return nil, false
		}
		l.buf = l.buf[:copy(l.buf, l.buf[size:])]
		l.busy.Store(len(l.buf) > 0)
		// Whoever closes the lanes sets closing and then looks for idle ones.
		if l.closing.Load() {
			return nil, false
		}
	}
}

// read waits for more of a request, and reports whether something came.
func (l *lane) read() bool {
	wait := idleTimeout
	if len(l.buf) > 0 {
		wait = readHeaderTimeout
	}
	if left := time.Until(l.deadline); left > wait || left < wait-min(deadlineSlack, wait/2) {
		l.deadline = time.Now().Add(wait)
		if l.conn.SetReadDeadline(l.deadline) != nil {
			return false
		}
	}
	n, err := l.conn.Read(l.buf[len(l.buf):cap(l.buf)])
	l.busy.Store(true)
	l.buf = l.buf[:len(l.buf)+n]
	return err == nil || n > 0
}

// respond answers the request that was parsed.
func (l *lane) respond() bool {
	r := l.request.http(l.conn.RemoteAddr())
	l.answer.reset()
	if err := checkRequest(r); err != nil {
		l.server.problem(&l.answer, r, err)
	} else {
		l.server.publisher(&l.answer, r)
	}
	_, err := l.conn.Write(l.answer.finish(l.closing.Load(), l.server.date.now()))
	return err == nil
}
