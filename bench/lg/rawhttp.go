// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// rawHTTP is one keep-alive HTTP/1.1 connection that costs little CPU. It
// understands the answers of net/http servers, no more.
type rawHTTP struct {
	conn net.Conn
	in   *bufio.Reader
	// expect must occur near the beginning of every answer's body, so that a
	// refusal dressed as a success or a duplicate is not counted as work done.
	expect []byte
}

func dialRaw(host, expect string) (*rawHTTP, error) {
	c, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	return &rawHTTP{conn: c, in: bufio.NewReaderSize(c, 16<<10), expect: []byte(expect)}, nil
}

// post sends the request and reads the whole answer.
func (h *rawHTTP) post(r *request) error {
	if _, err := h.conn.Write(r.buf); err != nil {
		return err
	}
	status, length, chunked, err := h.readHead()
	if err != nil {
		return err
	}
	switch {
	case chunked:
		err = h.skipChunks()
	case length > 0:
		err = h.skip(length)
	case length < 0 && status != 204:
		err = errors.New("the answer has no length")
	}
	if status/100 != 2 {
		return fmt.Errorf("status %d", status)
	}
	return err
}

func (h *rawHTTP) readHead() (status, length int, chunked bool, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := h.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			if len(line) < 12 {
				return 0, 0, false, errors.New("bad status line")
			}
			status, _ = strconv.Atoi(string(line[9:12]))
			continue
		}
		if len(line) == 0 {
			return status, length, chunked, nil
		}
		k := bytes.IndexByte(line, ':')
		if k == 14 && strings.EqualFold(string(line[:k]), "Content-Length") {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(line[k+1:])))
		} else if k == 17 && strings.EqualFold(string(line[:k]), "Transfer-Encoding") {
			chunked = true
		}
	}
}

// skip discards n bytes of a body after it looked for what is expected.
func (h *rawHTTP) skip(n int) error {
	if err := h.check(n); err != nil {
		return err
	}
	_, err := h.in.Discard(n)
	return err
}

func (h *rawHTTP) check(n int) error {
	if len(h.expect) == 0 {
		return nil
	}
	b, err := h.in.Peek(min(n, 512))
	if err != nil {
		return err
	}
	if !bytes.Contains(b, h.expect) {
		return fmt.Errorf("%q is not in the answer %q", h.expect, b)
	}
	return nil
}

func (h *rawHTTP) skipChunks() error {
	for first := true; ; first = false {
		line, err := h.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 64)
		if err != nil {
			return err
		}
		if first {
			if err := h.check(int(n)); err != nil {
				return err
			}
		}
		if _, err := h.in.Discard(int(n) + 2); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}
