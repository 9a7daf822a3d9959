// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// wire is a connection that carries an event stream. begin sends the head.
// room says how much will be written before the next Flush. Write buffers,
// Flush sends and gives the buffers back, so that an idle stream holds none.
// gone is closed when the other side has left. end ends the stream; its reader
// can tell an end in good order from a broken connection.
type wire interface {
	begin() error
	room(n int)
	Write(p []byte) error
	Flush() error
	gone() <-chan struct{}
	end(goodOrder bool)
}

// Buffers of a stream: a small one for what is live, a large one for a reader
// that catches up, since system calls are most of its cost.
const (
	liveBytes    = 4 << 10
	catchUpBytes = 64 << 10
)

// Each chunk (RFC 9112, section 7.1) is built in place: a length of fixed
// width before it, the line end behind.
const (
	chunkHead = len("00000000\r\n")
	chunkTail = len("\r\n")
)

var (
	liveBuffers    = sync.Pool{New: func() any { b := make([]byte, chunkHead, liveBytes); return &b }}
	catchUpBuffers = sync.Pool{New: func() any { b := make([]byte, chunkHead, catchUpBytes); return &b }}
)

// tcpWire is an HTTP/1 connection taken over from net/http. That frees the
// request and 10 KiB of buffers and stack, two thirds of what an idle stream
// costs in net/http, and saves it a copy and the locks of a response.
type tcpWire struct {
	conn    net.Conn
	chunked bool // HTTP/1.1; an HTTP/1.0 stream ends with its connection
	left    chan struct{}
	buffer  *[]byte // nil while idle
	stall   time.Duration
	blocks  func() // called before a write that may block
	early   []byte // what the other side sent before the connection was taken over

	// What was not written when a write failed, if owes says to keep it, and
	// whether it was too much to keep.
	owes    bool
	owed    []byte
	oweMore bool

	kernel *kernel // nil if the connection cannot offer it anything (TLS)
}

// sendBuffer bounds what the kernel takes for a reader that stalls, which by
// itself lets it grow to megabytes: the reader would be noticed late.
const sendBuffer = 256 << 10

// takeOver takes the connection of an HTTP/1 request from net/http; nil if it
// has none to give (HTTP/2).
func (s *Server) takeOver(w http.ResponseWriter, r *http.Request) *tcpWire {
	if r.ProtoMajor != 1 {
		return nil
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	_ = conn.SetDeadline(time.Time{})
	if c, ok := conn.(interface{ SetWriteBuffer(int) error }); ok {
		_ = c.SetWriteBuffer(sendBuffer)
	}
	endUnacknowledged(conn, silenceMax*s.opt.Heartbeat)
	t := &tcpWire{conn: conn, chunked: r.ProtoAtLeast(1, 1), left: make(chan struct{}), stall: s.opt.StallTimeout}
	if n := buffered.Reader.Buffered(); n > 0 {
		early, _ := buffered.Reader.Peek(n)
		t.early = bytes.Clone(early)
	}
	if c, ok := conn.(syscall.Conn); ok {
		t.kernel = newKernel(c)
	}
	return t
}

// begin sends the status line and the headers, and begins to watch for the
// other side's leaving.
func (t *tcpWire) begin() error {
	h := make(http.Header, 4)
	setStreamHeader(h)
	b := make([]byte, 0, 512)
	b = append(b, "HTTP/1.1 200 OK\r\nConnection: close\r\nDate: "...)
	b = append(b, time.Now().UTC().Format(http.TimeFormat)...)
	b = append(b, '\r', '\n')
	if t.chunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	for name, values := range h {
		for _, value := range values {
			b = append(append(append(append(b, name...), ": "...), value...), '\r', '\n')
		}
	}
	go t.watch()
	return t.send(append(b, '\r', '\n'))
}

// inputBytesMax stops a reader that sends without end; a request that was
// pipelined behind the stream will not be answered anyway.
const inputBytesMax = 64 << 10

func (t *tcpWire) watch() {
	defer close(t.left)
	var b [64]byte
	for total := 0; total < inputBytesMax; {
		n, err := t.conn.Read(b[:])
		if err != nil {
			return
		}
		total += n
	}
}

func (t *tcpWire) gone() <-chan struct{} { return t.left }

func (t *tcpWire) room(n int) {
	if t.buffer == nil {
		if n <= liveBytes-chunkHead-chunkTail {
			t.buffer = liveBuffers.Get().(*[]byte)
		} else {
			t.buffer = catchUpBuffers.Get().(*[]byte)
		}
	}
}

func (t *tcpWire) Write(p []byte) error {
	t.room(len(p))
	for {
		b := *t.buffer
		n := min(len(p), cap(b)-chunkTail-len(b))
		*t.buffer = append(b, p[:n]...)
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		if err := t.flushBuffer(); err != nil {
			t.owe(p)
			return err
		}
	}
}

// oweBytesMax stops a reader that stalled from holding a large event.
const oweBytesMax = catchUpBytes

// owe keeps what could not be written.
func (t *tcpWire) owe(b []byte) {
	if t.oweMore = t.oweMore || !t.owes || len(t.owed)+len(b) > oweBytesMax; !t.oweMore {
		t.owed = append(t.owed, b...)
	}
}

func (t *tcpWire) Flush() error {
	if t.buffer == nil {
		return nil
	}
	err := t.flushBuffer()
	if cap(*t.buffer) == liveBytes {
		liveBuffers.Put(t.buffer)
	} else {
		catchUpBuffers.Put(t.buffer)
	}
	t.buffer = nil
	return err
}

// flushBuffer sends the buffer as one chunk and empties it.
func (t *tcpWire) flushBuffer() error {
	b := *t.buffer
	n := len(b) - chunkHead
	*t.buffer = b[:chunkHead]
	if n == 0 {
		return nil
	}
	if !t.chunked {
		return t.send(b[chunkHead:])
	}
	const digits = "0123456789abcdef"
	for i := chunkHead - 3; i >= 0; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
	b[chunkHead-2], b[chunkHead-1] = '\r', '\n'
	return t.send(append(b, '\r', '\n'))
}

// send writes b, at once if the kernel takes it. Otherwise it waits, with a
// deadline that a reader which takes anything pushes back, and one that takes
// nothing does not.
func (t *tcpWire) send(b []byte) error {
	if t.kernel != nil {
		rest, err := t.kernel.offer(b)
		if err != nil || len(rest) == 0 {
			return err
		}
		b = rest
	}
	t.blocks()
	defer func() { _ = t.conn.SetWriteDeadline(time.Time{}) }() // an old one would fail the next write
	for len(b) > 0 {
		if err := t.conn.SetWriteDeadline(time.Now().Add(t.stall)); err != nil {
			return err
		}
		piece := b
		if t.kernel == nil { // TLS, which a deadline in the middle of a record ends for good
			piece = b[:min(recordBytes, len(b))]
		}
		n, err := t.conn.Write(piece)
		if b = b[n:]; err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			t.owe(b)
			return err
		}
	}
	return nil
}

// recordBytes is what a record of TLS has at most (RFC 8446, section 5.1).
const recordBytes = 16 << 10

// lingerTime is how long a stream that has ended waits for the other side to
// close: closing first would destroy what is still on its way to it.
const lingerTime = 500 * time.Millisecond

func (t *tcpWire) end(goodOrder bool) {
	if goodOrder && t.Flush() == nil && (!t.chunked || t.send([]byte("0\r\n\r\n")) == nil) {
		if c, ok := t.conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
			_ = t.conn.SetReadDeadline(time.Now().Add(lingerTime))
			<-t.left
		}
	}
	_ = t.conn.Close()
}

// responseWire is a stream within net/http, for connections that cannot be
// taken over.
type responseWire struct {
	w      http.ResponseWriter
	done   <-chan struct{}
	blocks func()
}

func withinResponse(ctx context.Context, w http.ResponseWriter, blocks func()) *responseWire {
	lift(w)
	return &responseWire{w: w, done: ctx.Done(), blocks: blocks}
}

func (p *responseWire) begin() error {
	setStreamHeader(p.w.Header())
	return nil
}

func (p *responseWire) room(int) {}

func (p *responseWire) Write(b []byte) error {
	p.blocks()
	_, err := p.w.Write(b)
	return err
}

func (p *responseWire) Flush() error { return flush(p.w) }

func (p *responseWire) gone() <-chan struct{} { return p.done }

func (p *responseWire) end(goodOrder bool) {
	if !goodOrder {
		panic(http.ErrAbortHandler) // the only way to end a response without its last chunk
	}
	_ = p.Flush()
}
