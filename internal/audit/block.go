// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// block is a piece of an export, of whole lines. Blocks are parsed beside each
// other, and followed in order.
type block struct {
	text   []byte
	lines  []parsedLine
	parsed chan struct{} // closed once lines are there
}

// parsedLine is what can be said of a line by itself.
type parsedLine struct {
	start, checkpoint []byte // the line, if it is one of these
	err               error

	index         uint64
	leaf, chain   [32]byte
	known         bool
	content, body bool // it does not give its leaf, or its digest
	hasBody       bool
	needsBody     bool
}

const (
	blockBytes = 1 << 20
	// lineBytesMax is for the largest event that a topic can take, in base64.
	lineBytesMax = 64 << 20
)

// readBlocks cuts an export into blocks and has them parsed.
func readBlocks(ctx context.Context, r io.Reader, out chan<- *block) error {
	defer close(out)
	work := make(chan *block)
	defer close(work)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			var scratch []byte
			for b := range work {
				b.parse(&scratch)
				close(b.parsed)
			}
		}()
	}
	var rest []byte
	for {
		text := make([]byte, len(rest)+blockBytes)
		n := copy(text, rest)
		m, err := io.ReadFull(r, text[n:])
		text = text[:n+m]
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return fmt.Errorf("audit: reading the export: %w", err)
		}
		cut := len(text)
		if !ended {
			cut = bytes.LastIndexByte(text, '\n') + 1
		}
		rest = text[cut:]
		if len(rest) > lineBytesMax {
			return fmt.Errorf("audit: reading the export: %w", ErrExportTooLong)
		}
		if cut > 0 {
			b := &block{text: text[:cut], parsed: make(chan struct{})}
			select {
			case out <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case work <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if ended {
			return nil
		}
	}
}

func (b *block) parse(scratch *[]byte) {
	for text := b.text; len(text) > 0; {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		text = rest
		b.lines = append(b.lines, parseOne(line, whole, scratch))
	}
}

func parseOne(line []byte, whole bool, scratch *[]byte) (p parsedLine) {
	switch {
	case !whole:
		p.err = errors.New("it has no end; the export was cut within it")
		return p
	case bytes.HasPrefix(line, startPrefix):
		p.start = line
		return p
	case bytes.HasPrefix(line, checkpointPrefix):
		p.checkpoint = line
		return p
	}
	l, err := ParseLine(line, scratch)
	if err != nil {
		p.err = err
		return p
	}
	p.index, p.leaf, p.chain, p.known, p.hasBody = l.Index, l.Leaf, l.Chain, l.Known, l.Body != nil
	if l.Known {
		// What an event was goes with it; what is said of anything else is kept for ever.
		p.needsBody = l.Kind != KindEvent && l.Kind != KindExpiry
		p.content = l.Entry.Leaf() != l.Leaf
		p.body = !l.checkBody()
	}
	return p
}
