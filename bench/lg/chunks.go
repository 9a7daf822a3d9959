// SPDX-License-Identifier: Apache-2.0

package main

import "bytes"

// chunks takes the chunked transfer coding (RFC 9112, section 7.1) off a stream
// that arrives in arbitrary pieces. Servers may cut a chunk inside an event, so
// looking for markers in the raw bytes would miss some.
type chunks struct {
	raw  bool // the answer is not chunked
	left int  // bytes of the current chunk still to come
	skip int  // bytes of the line end after a chunk still to come
	size int  // the size line as far as it was read
	ext  bool // inside a chunk extension
	done bool // the last chunk was seen
}

// strip removes the coding in place and returns the payload, a prefix of b.
func (c *chunks) strip(b []byte) []byte {
	if c.raw {
		return b
	}
	w, r := 0, 0
	for r < len(b) && !c.done {
		switch {
		case c.left > 0:
			n := copy(b[w:], b[r:min(len(b), r+c.left)])
			w, r = w+n, r+n
			if c.left -= n; c.left == 0 {
				c.skip = 2
			}
		case c.skip > 0:
			c.skip--
			r++
		default:
			c.header(b[r])
			r++
		}
	}
	return b[:w]
}

// header takes one byte of a size line.
func (c *chunks) header(b byte) {
	switch {
	case b == '\n':
		c.left, c.done = c.size, c.size == 0
		c.size, c.ext = 0, false
	case b == ';':
		c.ext = true
	case c.ext || b == '\r':
	case b >= '0' && b <= '9':
		c.size = c.size<<4 | int(b-'0')
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		c.size = c.size<<4 | int(b|0x20-'a'+10)
	}
}

// stamps finds the "@@<19 digits>@@" markers in a stream that arrives in
// pieces, and calls found with the nanoseconds of each. It returns the rest
// that may be the beginning of another marker.
func stamps(b []byte, found func(ns int64)) (rest []byte) {
	for {
		i := bytes.Index(b, []byte("@@"))
		if i < 0 {
			if len(b) > 0 && b[len(b)-1] == '@' {
				return b[len(b)-1:]
			}
			return nil
		}
		if b = b[i:]; len(b) < stampWidth {
			return b
		}
		ns := int64(0)
		for _, d := range b[2 : stampWidth-2] {
			ns = ns*10 + int64(d-'0')
		}
		found(ns)
		b = b[stampWidth:]
	}
}
