// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"signalbox/event"
)

// opcode is the kind of a WebSocket frame (RFC 6455, section 5.2).
type opcode byte

const (
	opContinuation opcode = 0x0
	opText         opcode = 0x1
	opBinary       opcode = 0x2
	opClose        opcode = 0x8
	opPing         opcode = 0x9
	opPong         opcode = 0xa
)

func (o opcode) control() bool { return o&0x8 != 0 }

const (
	// controlBytesMax is the standard's (section 5.5).
	controlBytesMax = 125
	// fragmentsMax stops a message of endless tiny fragments, each of which
	// costs more than what it carries. With it, fragments of 1 KiB make up the
	// largest message there is.
	fragmentsMax = 17 << 10
)

// closeCode is why a WebSocket ends (RFC 6455, section 7.4, and IANA's registry
// of WebSocket close codes).
type closeCode uint16

const (
	closeNormal      closeCode = 1000
	closeProtocol    closeCode = 1002
	closeUnsupported closeCode = 1003
	closeNone        closeCode = 1005 // a close frame without a code; never sent
	closeNotText     closeCode = 1007
	closePolicy      closeCode = 1008
	closeTooBig      closeCode = 1009
	closeInternal    closeCode = 1011
	closeRestart     closeCode = 1012
	closeLater       closeCode = 1013
	// closeReset is ours: the cursor is no place to resume from, as HTTP's 410.
	closeReset closeCode = 4410
)

// sendable says whether a close frame may carry the code.
func (c closeCode) sendable() bool {
	return c >= 1000 && c <= 1014 && c != 1004 && c != 1005 && c != 1006 || c >= 3000 && c <= 4999
}

// closeError ends a WebSocket with a code that the other side is told.
type closeError struct {
	code   closeCode
	reason string
	peer   bool // the other side said it
}

func (e *closeError) Error() string { return fmt.Sprintf("websocket: close %d: %s", e.code, e.reason) }

func violation(reason string) error { return &closeError{code: closeProtocol, reason: reason} }

// frameHead is what stands before the payload of a client's frame.
type frameHead struct {
	fin  bool
	op   opcode
	size int
	mask [4]byte
}

// readFrameHead reads the head of a frame and checks it as far as it can be
// judged alone.
func readFrameHead(r *bufio.Reader) (h frameHead, err error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return h, err
	}
	h.fin, h.op = b[0]&0x80 != 0, opcode(b[0]&0xf)
	masked, short := b[1]&0x80 != 0, b[1]&0x7f
	switch {
	case b[0]&0x70 != 0:
		return h, violation("reserved bits are set, and no extension was agreed on")
	case !masked:
		return h, violation("a client's frame must be masked")
	case h.op > opBinary && h.op < opClose || h.op > opPong:
		return h, violation("unknown opcode")
	case h.op.control() && !h.fin:
		return h, violation("a control frame must not be fragmented")
	case h.op.control() && short > controlBytesMax:
		return h, violation("a control frame has 125 bytes at most")
	}
	size := uint64(short)
	switch short {
	case 126:
		_, err = io.ReadFull(r, b[:2])
		size = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		_, err = io.ReadFull(r, b[:8])
		size = binary.BigEndian.Uint64(b[:])
	}
	switch {
	case err != nil:
		return h, err
	case short == 126 && size < 126 || short == 127 && size <= 0xffff || size>>63 != 0:
		return h, violation("the length of a frame is not in its shortest form")
	}
	h.size = int(size)
	_, err = io.ReadFull(r, h.mask[:])
	return h, err
}

func tooBig(unit string, limit int) error {
	return &closeError{code: closeTooBig, reason: fmt.Sprintf("request_too_large: a message has at most %d %s", limit, unit)}
}

// unmask takes the mask off a piece of the payload that begins at offset
// (section 5.3).
func unmask(b []byte, mask [4]byte, offset int) {
	var key [8]byte
	for i := range key {
		key[i] = mask[(offset+i)&3]
	}
	wide := binary.LittleEndian.Uint64(key[:])
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= key[i]
	}
}

// appendFrameHead appends the head of a frame that is not fragmented. A server
// does not mask.
func appendFrameHead(dst []byte, op opcode, size int) []byte {
	dst = append(dst, 0x80|byte(op))
	switch {
	case size < 126:
		return append(dst, byte(size))
	case size <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(size))
	}
	return binary.BigEndian.AppendUint64(append(dst, 127), uint64(size))
}

// frameHeadMax is the longest head that a server sends.
const frameHeadMax = 10

// appendClose appends the payload of a close frame; a reason that is too long
// is cut.
func appendClose(dst []byte, code closeCode, reason string) []byte {
	if code == closeNone {
		return dst
	}
	for len(reason) > controlBytesMax-2 {
		_, last := utf8.DecodeLastRuneInString(reason)
		reason = reason[:len(reason)-last]
	}
	return append(binary.BigEndian.AppendUint16(dst, uint16(code)), reason...)
}

// parseClose reads the payload of a close frame (section 5.5.1).
func parseClose(b []byte) error {
	switch {
	case len(b) == 0:
		return &closeError{code: closeNone, peer: true}
	case len(b) == 1:
		return violation("a close frame has no code or a whole one")
	}
	e := &closeError{code: closeCode(binary.BigEndian.Uint16(b)), reason: string(b[2:]), peer: true}
	switch {
	case !e.code.sendable():
		return violation("the code of the close frame must not be sent")
	case !utf8.ValidString(e.reason):
		return &closeError{code: closeNotText, reason: "the reason is not UTF-8"}
	}
	return e
}

// messageReader puts the text messages of a client together. It is owned by the
// goroutine that reads the connection.
type messageReader struct {
	r       *bufio.Reader
	limit   int                             // bytes of a message
	take    func(n int) error               // takes memory from the server's budget
	control func(op opcode, payload []byte) // of pings and pongs; the payload is its own until it returns
	began   time.Time                       // of the message that is being read; zero between messages
}

// next returns the next message. Whatever it returns, the caller gives held
// back to the budget once it is done with the message. A close frame is a
// *closeError of the peer's.
func (m *messageReader) next() (message []byte, held int, err error) {
	defer func() { m.began = time.Time{} }()
	for fragments := 0; ; {
		h, err := readFrameHead(m.r)
		if err != nil {
			return nil, held, err
		}
		if h.op.control() {
			if err := m.readControl(h); err != nil {
				return nil, held, err
			}
			continue
		}
		switch {
		case h.op == opBinary:
			return nil, held, &closeError{code: closeUnsupported, reason: "send JSON in text frames; binary frames belong to formats that are not offered"}
		case fragments == 0 && h.op == opContinuation:
			return nil, held, violation("a continuation of nothing")
		case fragments > 0 && h.op != opContinuation:
			return nil, held, violation("a new message within another")
		case h.size > m.limit-len(message): // refused before it is read
			return nil, held, tooBig("bytes", m.limit)
		case fragments == fragmentsMax:
			return nil, held, tooBig("fragments", fragmentsMax)
		case fragments == 0:
			m.began = time.Now()
		}
		fragments++
		message, err = m.readPayload(message, &held, h)
		switch {
		case err != nil:
			return nil, held, err
		case h.fin && !utf8.Valid(message):
			return nil, held, &closeError{code: closeNotText, reason: "the message is not UTF-8"}
		case h.fin:
			return message, held, nil
		}
	}
}

func (m *messageReader) readControl(h frameHead) error {
	var b [controlBytesMax]byte
	payload := b[:h.size]
	if _, err := io.ReadFull(m.r, payload); err != nil {
		return err
	}
	unmask(payload, h.mask, 0)
	if h.op == opClose {
		return parseClose(payload)
	}
	m.control(h.op, payload)
	return nil
}

// readPayload appends a frame's payload to the message. The memory grows with
// what arrives, not with what was announced.
func (m *messageReader) readPayload(message []byte, held *int, h frameHead) ([]byte, error) {
	for done := 0; done < h.size; {
		if len(message) == cap(message) {
			more := max(min(h.size-done, max(bodyEager, len(message))), len(message)/2)
			if m.take(more) != nil {
				return nil, &closeError{code: closeLater, reason: string(event.CodeOverloaded)}
			}
			*held += more
			message = append(make([]byte, 0, len(message)+more), message...)
		}
		start := len(message)
		message = message[:min(cap(message), start+h.size-done)]
		piece := message[start:]
		if _, err := io.ReadFull(m.r, piece); err != nil {
			return nil, err
		}
		unmask(piece, h.mask, done)
		done += len(piece)
	}
	return message, nil
}
