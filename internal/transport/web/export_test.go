// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
)

// The seam between this package and its tests, which use only what is exported.

// Route is one method of one path, with the query parameters it takes.
type Route struct {
	Method, Path string
	Params       []string
}

// Routes returns the whole surface.
func Routes() []Route {
	var out []Route
	for _, rt := range table() {
		out = append(out, Route{Method: rt.method, Path: rt.path, Params: rt.params})
	}
	return out
}

// HeldBytes is what requests hold of the budget for bodies and answers.
func (s *Server) HeldBytes() int64 { return s.held.used.Load() }

// HoldBytes takes n bytes of that budget, as requests under way would.
func (s *Server) HoldBytes(n int) error { return s.held.take(n) }

// OpenStreams counts what reads from the broker.
func (s *Server) OpenStreams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return s.streams.open
}

// SharedRequests counts the requests on connections of HTTP/2.
func (s *Server) SharedRequests() int64 { return s.shared.Load() }

// Limits that tests go up to.
const (
	HeldBytesMax    = heldBytesMax
	SingleBytesMax  = singleBytesMax
	BatchBytesMax   = batchBytesMax
	StatesMax       = statesMax
	MessageBytesMax = messageBytesMax
)

// ReadMessages reads the messages of a WebSocket up to the end, and returns how
// much memory the largest held.
func ReadMessages(r io.Reader, limit int, each func(message []byte)) (heldMax int, err error) {
	held := 0
	m := messageReader{r: bufio.NewReaderSize(r, socketReadBytes), limit: limit, control: func(opcode, []byte) {},
		take: func(n int) error { held += n; heldMax = max(heldMax, held); return nil }}
	for {
		message, n, err := m.next()
		if held -= n; err != nil {
			return heldMax, err
		}
		if held != 0 {
			panic("what was taken is not what is to be given back")
		}
		each(message)
	}
}

// CloseCode is the code that an error of ReadMessages closes the socket with.
func CloseCode(err error) int {
	if e := (*closeError)(nil); errors.As(err, &e) {
		return int(e.code)
	}
	return 0
}

// DecodeMessage decodes a message of signalbox.v1, up to what the broker would
// be asked for.
func DecodeMessage(b []byte) (op, ref string, err error) {
	m, err := decodeMessage(b)
	if err == nil && m.op == "publish" {
		_, err = m.publish("a")
	}
	return m.op, m.ref, err
}

// LoopbackHost is the check of the Host header.
func LoopbackHost(host string) bool { return loopbackHost(host) }

// ParseLane reads what a lane would take from the beginning of b: a request
// and its size, or nil if it waits for more or leaves it to net/http.
func ParseLane(b []byte) (r *http.Request, size int) {
	var q laneRequest
	if what := q.parse(b); what != lanePublish && what != laneMessage {
		return nil, 0
	}
	return q.http(nil), q.size
}

// LaneBytes is the most that a lane takes.
const LaneBytes = laneBytes
