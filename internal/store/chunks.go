// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Pebble's write-ahead logs and manifests are files of chunks in blocks of
// 32 KiB. A record is one chunk (full), or several (first, middle…, last). The
// header of a chunk is its CRC, its length and its kind; in a log the log's
// number follows, and since format FormatWALSyncChunks the offset up to which
// the log was synced when the chunk was written. See the package comment of
// pebble/v2/record.
const (
	chunkBlock       = 32 << 10
	chunkHeader      = 7  // CRC, length, kind
	chunkHeaderLog   = 11 // and the log's number
	chunkHeaderSync  = 19 // and the synced offset
	chunkFull        = 1
	chunkFirst       = 2
	chunkKindPlain   = 1 // …4: a manifest's
	chunkKindLog     = 5 // …8: a log's
	chunkKindSync    = 9 // …12: a log's, with the synced offset
	chunkKindAfter   = 13
	chunkKindsPerSet = 4
)

// chunk is a chunk that is intact.
type chunk struct {
	bytes  int    // header included
	starts bool   // it begins a record
	end    bool   // it is the mark that a log was closed
	synced uint64 // how far the log was synced when the chunk was written
}

// chunkReader tells the intact chunks of one file from anything else.
type chunkReader struct {
	log    bool
	number uint32 // of the log; its file may hold older chunks, for it is used again
	crcs   *crc32.Table
}

// parse reads the chunk that b begins with; ok is false if there is none.
func (r *chunkReader) parse(b []byte) (c chunk, ok bool) {
	if len(b) < chunkHeader {
		return c, false
	}
	kind, header := b[6], chunkHeader
	switch {
	case !r.log && kind >= chunkKindPlain && kind < chunkKindLog:
	case r.log && kind >= chunkKindLog && kind < chunkKindSync:
		header = chunkHeaderLog
	case r.log && kind >= chunkKindSync && kind < chunkKindAfter:
		header = chunkHeaderSync
	default:
		return c, false
	}
	c.bytes = header + int(binary.LittleEndian.Uint16(b[4:]))
	if r.log && len(b) >= chunkHeaderLog {
		number := binary.LittleEndian.Uint32(b[7:])
		if kind == chunkKindLog && c.bytes == chunkHeaderLog && number == r.number+1 && binary.LittleEndian.Uint32(b) == 0 {
			return chunk{bytes: chunkHeaderLog, end: true}, true
		}
		if number != r.number {
			return c, false
		}
	}
	if c.bytes > len(b) || r.checksum(b[6:c.bytes]) != binary.LittleEndian.Uint32(b) {
		return c, false
	}
	if header == chunkHeaderSync {
		c.synced = binary.LittleEndian.Uint64(b[11:])
	}
	position := (kind-1)%chunkKindsPerSet + 1
	c.starts = position == chunkFull || position == chunkFirst
	return c, true
}

// checksum is the masked CRC-32C that Pebble stores.
func (r *chunkReader) checksum(b []byte) uint32 {
	c := crc32.Checksum(b, r.crcs)
	return (c>>15 | c<<17) + 0xa282ead8
}

// padding reports whether the rest of a full block is what a writer leaves
// where no further header fits.
func (r *chunkReader) padding(rest []byte) bool {
	fits := chunkHeader
	if r.log {
		fits = chunkHeaderSync
	}
	if len(rest) >= fits {
		return false
	}
	for _, b := range rest {
		if b != 0 {
			return false
		}
	}
	return true
}

// tail is what a file of chunks has after its intact beginning.
type tail struct {
	records int   // intact ones, counted by their beginnings, before broken
	broken  int64 // where the first bytes are that are no chunk; -1: nowhere
	starts  int   // records that begin after broken, intact
	synced  bool  // a later chunk says that the file was synced beyond broken
}

// read goes through the whole file. After bytes that are no chunk it looks for
// intact chunks at every offset, to the end of the file.
func (r *chunkReader) read(f io.Reader) (tail, error) {
	t := tail{broken: -1}
	block := make([]byte, chunkBlock)
	for start := int64(0); ; start += chunkBlock {
		n, err := io.ReadFull(f, block)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return t, err
		}
		if closed := r.block(block[:n], start, &t); closed {
			return t, nil
		}
	}
}

// block goes through one block; closed reports that the log ends here in order.
func (r *chunkReader) block(b []byte, start int64, t *tail) (closed bool) {
	for i := 0; i < len(b); {
		c, ok := r.parse(b[i:])
		switch {
		case ok && c.end:
			if t.broken < 0 {
				return true
			}
		case ok && t.broken < 0:
			if c.starts {
				t.records++
			}
		case ok:
			if c.starts {
				t.starts++
			}
			t.synced = t.synced || c.synced > uint64(t.broken)
		case t.broken < 0 && len(b) == chunkBlock && r.padding(b[i:]):
			return false
		default:
			if t.broken < 0 {
				t.broken = start + int64(i)
			}
			c.bytes = 1
		}
		i += c.bytes
	}
	return false
}
