// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"signalbox/internal/transport/web"
)

// line is a WebSocket on which a test sends frames as it likes.
type line struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (d *door) line(path, subprotocol string, header ...string) *line {
	d.t.Helper()
	conn, r, head := d.raw(append([]string{"GET " + path + " HTTP/1.1", "Host: " + d.addr, "Connection: keep-alive, Upgrade", "Upgrade: WebSocket",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: " + subprotocol}, header...)...)
	if !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		d.t.Fatalf("the handshake is answered with %s", head)
	}
	return &line{d.t, conn, r}
}

// frame is a client's frame: first is its first byte, the payload is masked.
func frame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{0x12, 0xfe, 0x00, 0x7b}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i&3])
	}
	return b
}

func (l *line) send(b ...[]byte) {
	l.t.Helper()
	for _, p := range b {
		if _, err := l.conn.Write(p); err != nil {
			l.t.Fatalf("sending: %v", err)
		}
	}
}

// read returns the next frame of the server, which is whole and not masked.
func (l *line) read() (op byte, payload []byte, err error) {
	l.t.Helper()
	var h [2]byte
	if _, err := io.ReadFull(l.r, h[:]); err != nil {
		return 0, nil, err
	}
	if h[0]&0xf0 != 0x80 || h[1]&0x80 != 0 {
		l.t.Fatalf("a server's frame begins with %x", h)
	}
	n := int(h[1])
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(l.r, b[:])
		n = int(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(l.r, b[:])
		n = int(binary.BigEndian.Uint64(b[:]))
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(l.r, payload)
	return h[0] & 0xf, payload, err
}

// control returns the next control frame, past whatever is delivered.
func (l *line) control() (op byte, payload []byte) {
	l.t.Helper()
	for {
		op, payload, err := l.read()
		if err != nil {
			l.t.Fatalf("reading a control frame: %v", err)
		}
		if op >= 8 {
			return op, payload
		}
	}
}

// closedWith reads the close frame and the end of the connection.
func (l *line) closedWith() (code int, reason string) {
	l.t.Helper()
	for {
		op, payload, err := l.read()
		if err != nil {
			l.t.Fatalf("before the close frame: %v", err)
		}
		if op != 8 {
			continue
		}
		if len(payload) >= 2 {
			code, reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
		}
		_ = l.conn.(*net.TCPConn).CloseWrite()
		if _, _, err := l.read(); !errors.Is(err, io.EOF) {
			l.t.Errorf("after the close frame comes %v and not the end", err)
		}
		return code, reason
	}
}

const (
	text   = 0x81
	binmsg = 0x82
)

// The handshake's answer is that of the example in RFC 6455, section 1.3.
func TestHandshakeIsAnswered(t *testing.T) {
	d := openDoor(t)
	_, _, head := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: "+d.addr, "Upgrade: websocket", "Connection: Upgrade",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: x, cloudevents.json", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
	for _, want := range []string{"HTTP/1.1 101 Switching Protocols\r\n", "Upgrade: websocket\r\n", "Connection: Upgrade\r\n",
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", "Sec-WebSocket-Protocol: cloudevents.json\r\n"} {
		if !strings.Contains(head, want) {
			t.Errorf("the answer has no %q:\n%s", want, head)
		}
	}
	if strings.Contains(head, "Extensions") {
		t.Errorf("an extension was agreed on:\n%s", head)
	}
}

func TestWrongHandshakesAreRefused(t *testing.T) {
	d := openDoor(t)
	good := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "signalbox.v1"}
	for _, c := range []struct{ name, value, field string }{
		{"Connection", "", "Connection"},
		{"Connection", "keep-alive", "Connection"},
		{"Sec-WebSocket-Version", "", "Sec-WebSocket-Version"},
		{"Sec-WebSocket-Version", "8", "Sec-WebSocket-Version"},
		{"Sec-WebSocket-Key", "", "Sec-WebSocket-Key"},
		{"Sec-WebSocket-Key", "AAAA", "Sec-WebSocket-Key"},
		{"Sec-WebSocket-Key", "nonsense", "Sec-WebSocket-Key"},
		{"Sec-WebSocket-Protocol", "", "Sec-WebSocket-Protocol"},
		{"Sec-WebSocket-Protocol", "cloudevents.avro, cloudevents.proto", "Sec-WebSocket-Protocol"},
	} {
		header := []string{}
		for name, value := range good {
			if name == c.name {
				value = c.value
			}
			if value != "" {
				header = append(header, name+": "+value)
			}
		}
		a := d.do(request{path: "/v1/topics/a/events", header: header, unchecked: true})
		eq(t, c.name+": "+c.value, a.refused(t, 400, "handshake_invalid")["field"], any(c.field))
		if version := a.header.Get("Sec-WebSocket-Version"); (version == "13") != (c.field == "Sec-WebSocket-Version") {
			t.Errorf("%s %q is answered with version %q", c.name, c.value, version)
		}
		if p := a.header.Get("Sec-WebSocket-Protocol"); p != "" {
			t.Errorf("a refusal names the subprotocol %q", p)
		}
	}
	eq(t, "streams", d.server.OpenStreams(), 0)
}

// A page may open a socket only if its origin is the broker's own or allowed,
// letter for letter.
func TestOriginsAreComparedExactly(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.Origins = []string{"https://console.example", "http://localhost:3000"} })
	port := d.addr[strings.LastIndex(d.addr, ":"):]
	for origin, want := range map[string]bool{
		"http://127.0.0.1" + port: true, "https://console.example": true, "http://localhost:3000": true,
		"http://localhost" + port: false, "https://127.0.0.1" + port: false, "http://127.0.0.1": false, "http://127.0.0.1" + port + "/": false,
		"http://127.0.0.1" + port + "0": false, "http://127.0.0.1" + port + ".evil.example": false, "http://x@127.0.0.1" + port: false,
		"http://console.example": false, "https://console.example.evil.example": false, "https://evilconsole.example": false,
		"https://console.example:443": false, "https://CONSOLE.example": false, "http://localhost:30000": false,
		"null": false, "file://": false, "*": false, "http://evil.example": false, "": false,
	} {
		a := d.do(request{path: "/v1/topics/a/events", unchecked: true, header: []string{"Origin: " + origin, "Upgrade: websocket"}})
		p := a.object(t)
		if got := p["code"] != "origin_refused"; got != want {
			t.Errorf("origin %q: %s", origin, a.body)
		}
	}
	d.line("/v1/topics/a/events", v1, "Origin: http://127.0.0.1"+port)
	d.do(request{path: "/v1/topics/a/events", unchecked: true, header: []string{"Origin: https://console.example", "Origin: https://console.example",
		"Upgrade: websocket"}}).refused(t, 403, "origin_refused")
}

// What RFC 6455 forbids ends the socket, with the code that the standard gives.
func TestHostileFramesEndTheSocket(t *testing.T) {
	d := openDoor(t)
	cut := func(b []byte, n int) []byte { return b[:n] }
	closing := func(code uint16, reason string) []byte {
		return frame(0x88, string(binary.BigEndian.AppendUint16(nil, code))+reason)
	}
	for _, c := range []struct {
		what string
		code int
		send []byte
	}{
		{"5.1: a frame without a mask", 1002, []byte{text, 2, '{', '}'}},
		{"5.2: reserved bit 1, with which compression begins", 1002, frame(0xc1, "{}")},
		{"5.2: reserved bit 2", 1002, frame(0xa1, "{}")},
		{"5.2: reserved bit 3", 1002, frame(0x91, "{}")},
		{"5.2: opcode 3", 1002, frame(0x83, "{}")},
		{"5.2: opcode 11", 1002, frame(0x8b, "")},
		{"5.2: a length of 16 bits that has 7", 1002, []byte{text, 0x80 | 126, 0, 125, 0, 0, 0, 0}},
		{"5.2: a length of 64 bits that has 16", 1002, []byte{text, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}},
		{"5.2: a length of 64 bits with the first set", 1002, []byte{text, 0x80 | 127, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"5.4: a continuation of nothing", 1002, frame(0x80, "{}")},
		{"5.4: a message within a message", 1002, append(frame(0x01, "{"), frame(text, "}")...)},
		{"5.5: a control frame in pieces", 1002, frame(0x09, "x")},
		{"5.5: a control frame of 126 bytes", 1002, frame(0x89, strings.Repeat("x", 126))},
		{"5.5.1: half a code", 1002, frame(0x88, "x")},
		{"7.4.1: code 1005", 1002, closing(1005, "")},
		{"7.4.1: code 1006", 1002, closing(1006, "")},
		{"7.4.1: code 999", 1002, closing(999, "")},
		{"7.4.2: code 2000", 1002, closing(2000, "")},
		{"7.4.2: code 5000", 1002, closing(5000, "")},
		{"5.5.1: a reason that is not UTF-8", 1007, closing(1000, "\xff")},
		{"8.1: text that is not UTF-8", 1007, frame(text, "{\"op\":\"\xff\"}")},
		{"8.1: text that ends within a character", 1007, frame(text, "\xe2\x82")},
		{"7.4.1: a kind of data that is not taken", 1003, frame(binmsg, "{}")},
		{"a frame of 2^63-1 bytes", 1009, []byte{text, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}},
		{"a frame of one byte too many", 1009, cut(frame(text, strings.Repeat(" ", web.MessageBytesMax+1)), 14)},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := d.line("/v1/topics/a/events", v1)
			l.t = t
			l.send(c.send)
			code, reason := l.closedWith()
			if code != c.code || reason == "" {
				t.Errorf("closed with %d %q, want %d and a reason", code, reason, c.code)
			}
		})
	}
	eventually(t, "every socket gone", func() bool { return d.server.OpenStreams() == 0 && d.server.HeldBytes() == 0 })
}

// 5.5.1: a close frame is answered with its code, and the server ends the
// connection.
func TestCloseFramesAreAnswered(t *testing.T) {
	d := openDoor(t)
	for _, code := range []int{1000, 1001, 1003, 1011, 1014, 3000, 4999, 0} {
		l := d.line("/v1/topics/a/events", v1)
		payload := ""
		if code > 0 {
			payload = string(binary.BigEndian.AppendUint16(nil, uint16(code))) + "bye"
		}
		l.send(frame(0x88, payload))
		got, _ := l.closedWith()
		eq(t, "code of the answer", got, code)
	}
}

// 5.5.2: pings are answered with their payload, also within a message; 5.5.3: a
// pong that nobody asked for is no fault.
func TestPingsAreAnswered(t *testing.T) {
	d := openDoor(t)
	l := d.line("/v1/topics/a/events?cursor=now", v1)
	for _, payload := range []string{"", "x", strings.Repeat("y", 125)} {
		l.send(frame(0x8a, "unasked"), frame(0x89, payload))
		op, got := l.control()
		eq(t, "opcode", op, 0xa)
		eq(t, "payload", string(got), payload)
	}
	message := `{"op":"publish","ref":"r","event":` + ev("1", "") + `}`
	l.send(frame(0x01, message[:7]), frame(0x89, "within"))
	_, got := l.control()
	eq(t, "payload", string(got), "within")
	l.send(frame(0x80, message[7:]))
	for {
		_, b, err := l.read()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), `"op":"receipt"`) {
			return
		}
	}
}

// 5.4: a message may come in pieces of any size, and a character may be cut.
func TestMessagesMayBeFragmented(t *testing.T) {
	d := openDoor(t)
	d.put("a", `{"max_event_bytes":16777216}`).want(t, 201)
	l := d.line("/v1/topics/a/events?cursor=now", "cloudevents.json")
	for i, c := range []struct{ size, piece int }{{10, 1}, {10, 0}, {300, 7}, {70_000, 60_000}, {200_000, 1 << 10}, {5 << 20, 1 << 20}} {
		id := fmt.Sprint("e", i)
		message := ev(id, "", `"data":"`+strings.Repeat("é", c.size/2)+`"`)
		first, rest := byte(0x01), message
		for c.piece > 0 && len(rest) > c.piece {
			l.send(frame(first, rest[:c.piece]))
			first, rest = 0x00, rest[c.piece:]
		}
		l.send(frame(first, rest), frame(0x80, ""))
		for {
			_, b, err := l.read()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), `"id":"`+id+`"`) {
				eq(t, "data", strings.Count(string(b), "é"), c.size/2)
				break
			}
		}
	}
	eq(t, "bytes held", d.server.HeldBytes(), 0)
}

// Endless tiny fragments, each of which costs more than it carries.
func TestEndlessFragmentsEndTheSocket(t *testing.T) {
	d := openDoor(t)
	for _, payload := range []string{" ", ""} {
		l := d.line("/v1/topics/a/events", v1)
		one := frame(0x00, payload)
		many := []byte{}
		for range 1000 {
			many = append(many, one...)
		}
		l.send(frame(0x01, payload))
		go func() {
			for {
				if _, err := l.conn.Write(many); err != nil {
					return
				}
			}
		}()
		for {
			op, b, err := l.read()
			if err != nil {
				t.Fatal(err)
			}
			if op == 8 {
				eq(t, "code", int(binary.BigEndian.Uint16(b)), 1009)
				break
			}
		}
		_ = l.conn.Close()
	}
	eventually(t, "every socket gone", func() bool { return d.server.OpenStreams() == 0 && d.server.HeldBytes() == 0 })
}

// A message that trickles in holds memory for as long as a request may.
func TestTricklingMessageEndsTheSocket(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.ReadTimeout = time.Second })
	l := d.line("/v1/topics/a/events", v1)
	f := frame(text, strings.Repeat(" ", 1000))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for i := range f {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if _, err := l.conn.Write(f[i : i+1]); err != nil {
				return
			}
		}
	}()
	for {
		op, b, err := l.read()
		if err != nil {
			t.Fatal(err)
		}
		if op == 8 {
			eq(t, "code", int(binary.BigEndian.Uint16(b)), 1008)
			return
		}
	}
}

// What is announced takes no memory, and what all sockets hold together is
// bounded.
func TestSocketsShareTheBudget(t *testing.T) {
	d := openDoor(t)
	l := d.line("/v1/topics/a/events", v1)
	l.send(frame(text, strings.Repeat(" ", 16<<20))[:14])
	eventually(t, "memory for what comes", func() bool { return d.server.HeldBytes() > 0 })
	held := d.server.HeldBytes()
	if held > 100_000 {
		t.Errorf("an announcement holds %d bytes", held)
	}
	if err := d.server.HoldBytes(web.HeldBytesMax - int(held) - 1000); err != nil {
		t.Fatal(err)
	}
	full := d.line("/v1/topics/a/events", v1)
	full.send(frame(text, strings.Repeat(" ", 2000)))
	code, reason := full.closedWith()
	eq(t, "code", code, 1013)
	eq(t, "reason", reason, "overloaded")
}
