// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"signalbox/event"
)

const (
	// singleBytesMax is the largest event that any topic's policy can allow.
	singleBytesMax = event.MaxMaxEventBytes
	// batchBytesMax lets one such event travel in a batch with its framing.
	batchBytesMax = singleBytesMax + 64<<10
	// policyBytesMax lets a policy carry the largest schema with white space.
	policyBytesMax = 4 * event.MaxSchemaBytes
	// heldBytesMax bounds what all requests together keep in memory, bodies
	// and answers; beyond it they are refused as overload.
	heldBytesMax = 256 << 20
	// bodyEager is what a Content-Length is believed for before any byte has
	// come. A larger buffer grows with what arrives, so that an announcement
	// alone takes no memory from others.
	bodyEager = 64 << 10
	// unwantedBytesMax is how much of a body that is refused is read all the same. Twice
	// what is ever accepted: who sends more is cut.
	unwantedBytesMax = 2 * batchBytesMax
)

// budget counts bytes that requests hold at one time.
type budget struct{ used atomic.Int64 }

func (b *budget) take(n int) error {
	if b.used.Add(int64(n)) > heldBytesMax {
		b.used.Add(int64(-n))
		return event.Errorf(event.CodeOverloaded, "Requests that are under way hold all the memory meant for them: retry in a second.")
	}
	return nil
}

func (b *budget) give(n int) { b.used.Add(int64(-n)) }

// readBody reads a request's body of at most limit bytes. The caller gives
// len of what it holds back to the budget, whether there is an error or not.
func (s *Server) readBody(r *http.Request, limit int) (body []byte, held int, err error) {
	if r.ContentLength == 0 {
		return nil, 0, nil
	}
	if r.ContentLength > int64(limit) {
		return nil, 0, tooLarge(limit)
	}
	size := bodyEager
	if r.ContentLength > 0 {
		size = min(bodyEager, int(r.ContentLength))
	}
	if err := s.held.take(size); err != nil {
		return nil, 0, err
	}
	held = size
	body = make([]byte, size)
	for n := 0; ; {
		m, err := io.ReadFull(r.Body, body[n:])
		n += m
		switch {
		case err == nil && int64(n) == r.ContentLength:
			return body, held, nil
		case err == nil:
			grow := min(n, limit+1-n) // one byte more than allowed shows a chunked body that is too large
			if r.ContentLength > 0 {
				grow = min(n, int(r.ContentLength)-n)
			}
			if grow == 0 {
				return nil, held, tooLarge(limit)
			}
			if err := s.held.take(grow); err != nil {
				return nil, held, err
			}
			held += grow
			body = append(make([]byte, 0, n+grow), body...)[:n+grow]
		case r.ContentLength < 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return body[:n], held, nil
		default:
			return nil, held, s.bodyFault(err)
		}
	}
}

// unwanted reads what is left of a refused request's body. Many clients send all of it
// before they look for an answer; closing the connection meanwhile takes the answer
// away from them, and leaves them with a reset instead of a code. Whoever has asked
// first (Expect) sends nothing now, and HTTP/2 has its answers beside its bodies.
func (s *Server) unwanted(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 && r.ContentLength <= unwantedBytesMax && r.Body != nil && r.Header.Get("Expect") == "" {
		// The time that a request has; a poll may have lifted it.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opt.ReadTimeout))
		_, _ = io.CopyN(io.Discard, r.Body, unwantedBytesMax)
	}
}

func tooLarge(limit int) error {
	return event.Errorf(event.CodeRequestTooLarge, "The body is larger than %d bytes: send fewer or smaller events in one request.", limit).Fact("limit", limit)
}

func (s *Server) bodyFault(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return event.Errorf(event.CodeHeaderInvalid, "The body did not arrive within %v: send it faster, or less of it at once.", s.opt.ReadTimeout).With("Content-Length")
	}
	return event.Errorf(event.CodeHeaderInvalid, "The body does not have the length or the chunks that its head announced.").With("Content-Length")
}
