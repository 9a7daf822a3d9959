// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/event"
)

// socket is a WebSocket connection (RFC 6455). One goroutine reads, another is
// the stream, which alone writes; so nothing that the reader of a socket says
// has to wait for what is being written to it, and a pong is never late by a
// lock.
type socket struct {
	*tcpWire
	s        *Server
	head     []byte // the answer to the handshake
	messages messageReader
	notify   chan struct{} // has a value when the stream has something to attend to

	mu      sync.Mutex
	pong    []byte // payload of the ping to answer; of several the last (section 5.5.3); guarded by mu
	hasPong bool   // guarded by mu

	pinged atomic.Int64 // when a ping was sent, in Unix nanoseconds; see pingNone
	ended  error        // why reading ended; set before left is closed

	stop sync.Once
	done chan struct{} // closed by stop when the stream has ended
}

// What socket.pinged says beside a time.
const (
	pingNone = 0 // nothing is waited for
	pingDue  = 1 // the stream is to send one
)

// silenceMax is in heartbeats: how long a ping may go unanswered.
const silenceMax = 2

// upgrade makes a socket of a request. The stream answers the handshake.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, protocol, accept string) *socket {
	t := s.takeOver(w, r)
	if t == nil {
		return nil
	}
	t.chunked, t.owes = false, true
	if c, ok := t.conn.(interface{ SetWriteBuffer(int) error }); ok {
		_ = c.SetWriteBuffer(socketSendBuffer)
	}
	k := &socket{tcpWire: t, s: s, notify: make(chan struct{}, 1), done: make(chan struct{})}
	k.head = []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + accept + "\r\nSec-WebSocket-Protocol: " + protocol + "\r\n\r\n")
	var in io.Reader = watched{k}
	if len(t.early) > 0 {
		in = io.MultiReader(bytes.NewReader(t.early), in)
	}
	k.messages = messageReader{r: bufio.NewReaderSize(in, socketReadBytes), take: s.held.take, control: k.control}
	return k
}

// socketSendBuffer is smaller than that of an event stream, so that there is
// room for a farewell (see cut).
const socketSendBuffer = 96 << 10

// socketReadBytes is what an idle socket holds for reading. Most messages fit;
// longer ones are read past it.
const socketReadBytes = 1 << 10

// watched reads from the connection and notices when nothing comes: after one
// heartbeat it has a ping sent, and when that is not answered it gives up.
type watched struct{ k *socket }

func (w watched) Read(p []byte) (int, error) {
	k, beat := w.k, w.k.s.opt.Heartbeat
	for {
		now := time.Now()
		if began := k.messages.began; !began.IsZero() && now.Sub(began) > k.s.opt.ReadTimeout {
			return 0, &closeError{code: closePolicy, reason: "a message took too long to arrive"}
		}
		_ = k.conn.SetReadDeadline(now.Add(beat)) // fails on a closed connection, and so does Read
		n, err := k.conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			if k.pinged.Load() != pingNone {
				k.pinged.Store(pingNone)
			}
			return n, err
		}
		switch sent := k.pinged.Load(); sent {
		case pingNone:
			k.pinged.Store(pingDue)
			k.nudge()
		case pingDue: // the stream has much to write; it has a deadline of its own
		default:
			if time.Since(time.Unix(0, sent)) >= silenceMax*beat {
				k.s.log.Info("socket cut, nothing came from its reader", "silence", time.Since(time.Unix(0, sent)))
				return 0, &closeError{code: closePolicy, reason: "nothing came, not even an answer to a ping"}
			}
		}
	}
}

// nudge makes the stream attend to the socket.
func (k *socket) nudge() {
	select {
	case k.notify <- struct{}{}:
	default:
	}
}

// control notes a ping or a pong.
func (k *socket) control(op opcode, payload []byte) {
	if op == opPong {
		return // that anything came is all that a pong says
	}
	k.mu.Lock()
	k.pong, k.hasPong = append(k.pong[:0], payload...), true
	k.mu.Unlock()
	k.nudge()
}

// listen reads messages until the other side or the stream ends the socket. It
// hands each of them on, with what it holds of the budget. What is said after
// the stream has ended is passed over: only the close frame is waited for.
func (k *socket) listen(handle func(message []byte, held int)) {
	defer close(k.left)
	defer func() { // a defect here must not end the process
		if v := recover(); v != nil {
			k.s.log.Error("socket panicked", "panic", v, "stack", string(debug.Stack()))
			k.ended = &closeError{code: closeInternal, reason: string(event.CodeInternal)}
		}
	}()
	for {
		message, held, err := k.messages.next()
		if err != nil {
			k.s.held.give(held)
			k.ended = err
			return
		}
		select {
		case <-k.done:
			k.s.held.give(held)
		default:
			handle(message, held)
		}
	}
}

// attend sends the ping and the pong that are due.
func (k *socket) attend() error {
	if k.pinged.CompareAndSwap(pingDue, time.Now().UnixNano()) {
		if err := k.frame(opPing); err != nil {
			return err
		}
	}
	k.mu.Lock()
	payload, due := bytes.Clone(k.pong), k.hasPong
	k.hasPong = false
	k.mu.Unlock()
	if due {
		return k.frame(opPong, payload)
	}
	return nil
}

// frame buffers a frame, whose payload is given in parts.
func (k *socket) frame(op opcode, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var head [frameHeadMax]byte
	err := k.Write(appendFrameHead(head[:0], op, size))
	for _, p := range parts {
		if err != nil {
			k.owe(p)
		} else {
			err = k.Write(p)
		}
	}
	return err
}

const (
	// closeTime is how long the other side has for its part of the closing
	// handshake. What it sends meanwhile is read and dropped: to close with
	// bytes unread would destroy the close frame on its way.
	closeTime = 2 * time.Second
	// closeBytesMax bounds what is dropped.
	closeBytesMax = 64 << 20
)

// end closes the socket. When it returns, nothing of it uses the broker.
func (k *socket) end(err error) {
	k.stop.Do(func() { close(k.done) })
	if errors.Is(err, errLeft) {
		<-k.left
		err = k.ended
	}
	if e := (*closeError)(nil); errors.As(err, &e) {
		k.finish(e)
	}
	_ = k.conn.Close()
	<-k.left
}

// finish sends the close frame and waits for the other side's, unless that
// came first.
func (k *socket) finish(e *closeError) {
	var payload [controlBytesMax]byte
	if k.frame(opClose, appendClose(payload[:0], e.code, e.reason)) != nil || k.Flush() != nil || e.peer {
		return
	}
	select {
	case <-k.left:
		if k.ended != error(e) { //nolint:errorlint // It is asked whether it is this very value.
			return // it answered, or is gone
		}
		_ = k.conn.SetReadDeadline(time.Now().Add(closeTime))
		_, _ = io.Copy(io.Discard, io.LimitReader(k.conn, closeBytesMax))
	case <-time.After(closeTime):
	}
}

// cut says farewell to a reader that takes nothing. What it has not taken fills
// the kernel's buffer, so that gets larger by what is left of the last message
// and the close frame: whoever reads on finds both.
func (k *socket) cut(reason string) {
	if k.kernel == nil || k.oweMore {
		return
	}
	c, ok := k.conn.(interface{ SetWriteBuffer(int) error })
	if !ok || c.SetWriteBuffer(sendBuffer) != nil {
		return
	}
	payload := appendClose(nil, closeLater, reason)
	_, _ = k.kernel.offer(append(appendFrameHead(k.owed, opClose, len(payload)), payload...))
}
