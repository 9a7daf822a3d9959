// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// lineBytesMax bounds one line of a stream, and the data of one block: the largest event a topic's policy allows
// (16 MiB) and room for the attributes that the broker adds. It stops a server, or a proxy that answers with something
// else, from growing this process without end.
const lineBytesMax = 17 << 20

// errLineTooLong is returned for a line or a block beyond the bound. Reconnecting would only meet the same line again,
// so it ends a follower instead of starting a loop.
var errLineTooLong = errors.New("client: a line of the stream is longer than the largest event can be; is this URL a Signalbox broker?")

// block is one dispatched block of an event stream. Unlike a browser's EventSource, the parser also hands over blocks
// without data: the broker's heartbeats are such blocks, and their id moves a follower's cursor forward.
type block struct {
	Event string // the last event field, "" when there was none
	ID    string // the last event ID as of this block, which persists from block to block
	HasID bool   // whether this block itself carried an id
	Data  []byte // data lines joined by LF; valid until the next call
	// HasData tells an empty data field from none at all.
	HasData bool
	// Retry is the reconnection time that this block asked for, 0 when it asked for none.
	Retry time.Duration
}

// sseParser reads an event stream as the HTML standard says (section 9.2.6, "Interpreting an event stream"): lines end
// with LF, CR or CRLF, one leading byte order mark is dropped, a block ends with an empty line, and what a broken
// connection leaves unfinished is discarded.
type sseParser struct {
	r      *bufio.Reader
	max    int
	first  bool // no line has been read yet, so a byte order mark may still come
	skipLF bool // the last line ended with CR: an LF right behind it belongs to that line
	lastID string
	long   []byte // a line that did not fit the reader's buffer at once
	data   []byte // data field of the block being read
}

func newSSEParser(r io.Reader, lineMax int) *sseParser {
	return &sseParser{r: bufio.NewReaderSize(r, 64<<10), max: lineMax, first: true}
}

// next returns the next block. At the end of the input it returns io.EOF, whether or not a block was left unfinished.
func (p *sseParser) next() (block, error) {
	b := block{}
	p.data = p.data[:0]
	for seen := false; ; {
		line, err := p.line()
		if err != nil {
			return block{}, err
		}
		if len(line) == 0 {
			if !seen {
				continue // Blank lines between blocks dispatch nothing.
			}
			b.ID = p.lastID
			// Every data line added an LF; the last one is not part of the data.
			b.Data = bytes.TrimSuffix(p.data, []byte{'\n'})
			return b, nil
		}
		if line[0] == ':' {
			continue // A comment: keeps proxies awake and carries nothing.
		}
		seen = true
		if err := p.field(&b, line); err != nil {
			return block{}, err
		}
	}
}

// field applies one line to the block.
func (p *sseParser) field(b *block, line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		if len(p.data)+len(value) >= p.max {
			return errLineTooLong
		}
		p.data = append(append(p.data, value...), '\n')
		b.HasData = true
	case "event":
		b.Event = string(value)
	case "id":
		// An id with a NUL is ignored: it could not be sent back in a header.
		if bytes.IndexByte(value, 0) < 0 {
			p.lastID, b.HasID = string(value), true
		}
	case "retry":
		if ms, ok := parseDigits(value); ok {
			b.Retry = time.Duration(ms) * time.Millisecond
		}
	}
	return nil
}

// parseDigits reads ASCII digits alone, as the standard asks of retry. More than nine digits is eleven days or more,
// which no reconnection time means.
func parseDigits(b []byte) (uint32, bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	return uint32(n), err == nil
}

// line returns the next line without its ending; the slice is valid until the next call. A line is returned as soon as
// its CR is there: waiting for an LF that may belong to nothing would hold back an event.
func (p *sseParser) line() ([]byte, error) {
	p.long = p.long[:0]
	for {
		if _, err := p.r.Peek(1); err != nil {
			return nil, err
		}
		buf, _ := p.r.Peek(p.r.Buffered())
		if p.skipLF {
			p.skipLF = false
			if buf[0] == '\n' {
				_, _ = p.r.Discard(1)
				continue
			}
		}
		i := bytes.IndexAny(buf, "\r\n")
		if i < 0 {
			p.long = append(p.long, buf...)
			_, _ = p.r.Discard(len(buf))
			if len(p.long) > p.max {
				return nil, errLineTooLong
			}
			continue
		}
		p.skipLF = buf[i] == '\r'
		line := buf[:i]
		if len(p.long) > 0 {
			p.long = append(p.long, line...)
			line = p.long
		}
		_, _ = p.r.Discard(i + 1)
		if len(line) > p.max {
			return nil, errLineTooLong
		}
		if p.first {
			p.first = false
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		return line, nil
	}
}
