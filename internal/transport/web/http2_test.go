// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// newCertificate is for the loopback addresses, and its own authority.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

// openOver opens a door whose client speaks one version of HTTP, over one
// connection.
func openOver(t *testing.T, version string, opts ...func(*doorOptions)) *door {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
	if strings.HasSuffix(version, "TLS") {
		cert, roots := newCertificate(t)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
		opts = append(opts, func(o *doorOptions) { o.web.TLS = &tls.Config{Certificates: []tls.Certificate{cert}} })
	}
	switch version {
	case "HTTP/1.1 over TLS":
		transport.Protocols.SetHTTP1(true)
		transport.MaxConnsPerHost = 0
	case "HTTP/2 over TLS":
		transport.Protocols.SetHTTP2(true)
	default:
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	d := openDoor(t, opts...)
	d.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return d
}

var versions = []string{"HTTP/1.1 over TLS", "HTTP/2 over TLS", "HTTP/2"}

func TestEveryVersionOfHTTPDoesTheSame(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := openOver(t, version, func(o *doorOptions) { o.web.Heartbeat, o.web.StallTimeout = 1100*time.Millisecond, time.Second })
			d.structured("a", ev("1", "", someData)).want(t, 200)
			d.batch("a", "["+ev("2", "")+","+ev("3", "")+"]").want(t, 200)
			d.binary("a", "4", "x").want(t, 200)
			d.structured("a", `{"specversion":"1.0"}`).refused(t, 400, "event_invalid")
			sameList(t, "a poll", d.get("/v1/topics/a/events").ids(t), []string{"1", "2", "3", "4"})
			held := make(chan answer, 1)
			go func() { held <- d.get("/v1/topics/a/events?cursor=@4&wait=20") }()
			s := d.follow("/v1/topics/a/events")
			if want := strings.Fields(version)[0]; !strings.HasPrefix(s.res.Proto, want) {
				t.Errorf("the stream is %s, want %s", s.res.Proto, want)
			}
			events, _ := s.untilSync()
			eq(t, "events before the marker", len(events), 4)
			for i := 5; i < 8; i++ {
				d.structured("a", ev(strconv.Itoa(i), "")).want(t, 200)
				if m := s.dispatched(); !strings.Contains(m.data, `"id":"`+strconv.Itoa(i)+`"`) {
					t.Errorf("live event %d is %s", i, m.data)
				}
			}
			sameList(t, "a long poll", (<-held).ids(t)[:1], []string{"5"})
			// An idle stream outlives the deadline of its last write by far.
			for range 3 {
				m, _ := s.next()
				if m.hasData || !strings.HasPrefix(m.lastID, "@7.") {
					t.Errorf("a heartbeat is %+v", m)
				}
			}
			go d.stop()
			if _, err := s.rest(); err != nil {
				t.Errorf("the shutdown broke the stream: %v", err)
			}
		})
	}
}

// Events of any size and number come over whatever flow control there is.
func TestLargeAnswersOverEveryVersionOfHTTP(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := openOver(t, version)
			d.bulk("a", "e", 500)
			events, _ := d.follow("/v1/topics/a/events").untilSync()
			eq(t, "events", len(events), 500)
			for i, m := range events {
				if !strings.Contains(m.data, fmt.Sprintf(`"id":"e%05d"`, i)) || len(m.data) < 10_000 {
					t.Fatalf("event %d is %.100s", i, m.data)
				}
			}
		})
	}
}

// HTTP/1 holds a browser to six streams; a connection of HTTP/2 carries more.
func TestOneConnectionCarriesManyStreams(t *testing.T) {
	d := openOver(t, "HTTP/2 over TLS")
	var sources []*source
	for range 100 {
		s := d.follow("/v1/topics/a/events?cursor=now")
		s.untilSync()
		sources = append(sources, s)
	}
	d.structured("a", ev("1", "")).want(t, 200)
	for _, s := range sources {
		if m := s.dispatched(); !strings.Contains(m.data, `"id":"1"`) {
			t.Errorf("a stream got %+v", m)
		}
	}
}

// WebSockets stay on HTTP/1.1, also at an address that has HTTP/2.
func TestSocketOverTLS(t *testing.T) {
	d := openOver(t, "HTTP/1.1 over TLS")
	d.fill("a", 100)
	conn, res, err := websocket.Dial(context.Background(), d.url("/v1/topics/a/events"), &websocket.DialOptions{
		HTTPClient: d.client, Subprotocols: []string{v1}, HTTPHeader: http.Header{"Origin": {"https://" + d.addr}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	eq(t, "protocol", res.Proto, "HTTP/1.1")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := &peer{t, conn, ctx}
	ids, _ := p.untilSync()
	eq(t, "events", len(ids), 100)
	p.send(`{"op":"publish","ref":"r","event":%s}`, ev("mine", ""))
	for p.next().Op != "receipt" {
	}
}

// wire2 is a connection of HTTP/2 without encryption on which a test sends frames
// as it likes.
type wire2 struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (d *door) wire2() *wire2 {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	w := &wire2{d.t, c, bufio.NewReader(c)}
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		d.t.Fatal(err)
	}
	w.send(frame2(0x4, 0, 0, nil)) // settings
	return w
}

func frame2(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// get is the head of a request, all literal (RFC 7541, section 6.2.2).
func get(path string) []byte {
	b := []byte{0x82, 0x86, 0x04, byte(len(path))}
	b = append(b, path...)
	b = append(append(b, 0x01, byte(len("localhost"))), "localhost"...)
	b = append(append(b, 0x00, byte(len("accept"))), "accept"...)
	return append(append(b, byte(len("text/event-stream"))), "text/event-stream"...)
}

func (w *wire2) send(b []byte) bool {
	_, err := w.conn.Write(b)
	return err == nil
}

// until reads frames up to one of a kind; false at the end of the connection.
func (w *wire2) until(kind byte) (payload []byte, ok bool) {
	for {
		var h [9]byte
		if _, err := io.ReadFull(w.r, h[:]); err != nil {
			return nil, false
		}
		payload = make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(w.r, payload); err != nil {
			return nil, false
		}
		if h[3] == kind {
			return payload, true
		}
	}
}

// A stream whose reader gives no more credit is reset, and the connection may go
// on (nobody else waits for it).
func TestStalledStreamOfHTTP2IsReset(t *testing.T) {
	logged := make(lines, 64)
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout, o.web.Logger = 300*time.Millisecond, slogTo(logged) })
	d.bulk("a", "e", 100)
	w := d.wire2()
	w.send(frame2(0x1, 0x5, 1, get("/v1/topics/a/events")))
	if _, ok := w.until(0x3); !ok {
		t.Fatal("the connection ended, and not the stream")
	}
	eventually(t, "the stream gone", func() bool { return d.server.OpenStreams() == 0 })
	w.send(frame2(0x6, 0, 0, []byte("12345678")))
	if _, ok := w.until(0x6); !ok {
		t.Error("the connection is gone with the stream")
	}
	for line := range logged {
		if strings.Contains(line, "reader cut") {
			break
		}
	}
}

// A connection of HTTP/2 on which nothing comes is asked, and ends.
func TestSilentConnectionOfHTTP2IsNoticed(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 100 * time.Millisecond })
	w := d.wire2()
	w.send(frame2(0x1, 0x5, 1, get("/v1/topics/a/events")))
	if _, ok := w.until(0x6); !ok {
		t.Fatal("no ping came")
	}
	eventually(t, "the stream gone", func() bool { return d.server.OpenStreams() == 0 })
}

// Rapid reset (CVE-2023-44487): streams that are reset as soon as they are open
// keep nobody else from being served, and leave nothing behind.
func TestRapidResetsHarmNobody(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 10)
	w := d.wire2()
	go func() { _, _ = io.Copy(io.Discard, w.conn) }()
	head := get("/v1/topics/a/events")
	for id := uint32(1); id < 40_000; id += 2 {
		if !w.send(append(frame2(0x1, 0x5, id, head), frame2(0x3, 0, id, []byte{0, 0, 0, 8})...)) {
			break // it was told to calm down
		}
		if id%4001 == 0 {
			d.structured("b", ev(fmt.Sprint(id), "")).want(t, 200)
		}
	}
	_ = w.conn.Close()
	d.structured("b", ev("after", "")).want(t, 200)
	eventually(t, "every stream gone", func() bool {
		return d.server.OpenStreams() == 0 && d.server.SharedRequests() == 0 && d.server.HeldBytes() == 0
	})
}

// CONTINUATION flood (CVE-2023-45288): a head without end is cut off.
func TestEndlessHeadOfHTTP2IsRefused(t *testing.T) {
	d := openDoor(t)
	w := d.wire2()
	go func() { _, _ = io.Copy(io.Discard, w.r) }()
	w.send(frame2(0x1, 0x1, 1, get("/v1/topics/a/events")))                          // without END_HEADERS
	field := append([]byte{0x00, 1, 'x', 0x7f, 0xe1, 0x7e}, make([]byte, 16_352)...) // a value of 16,352 bytes
	for i := range field[6:] {
		field[6+i] = 'y'
	}
	sent := 0
	for w.send(frame2(0x9, 0, 1, field)) {
		if sent += len(field); sent > 64<<20 {
			t.Fatal("64 MiB of a head were taken")
		}
	}
	d.structured("b", ev("after", "")).want(t, 200)
}

// Requests that share connections are bounded as connections are.
func TestRequestsOfHTTP2AreBounded(t *testing.T) {
	d := openOver(t, "HTTP/2", func(o *doorOptions) { o.web.MaxConns = 5 })
	for range 5 {
		d.follow("/v1/topics/a/events?cursor=now").untilSync()
	}
	if res, err := d.client.Get(d.url("/healthz")); err == nil {
		_ = res.Body.Close()
		t.Errorf("a sixth request was answered with %s", res.Status)
	}
}

// A door with a certificate answers nothing without it, a publish least of all.
func TestNothingIsTakenWithoutTLS(t *testing.T) {
	d := openOver(t, "HTTP/2 over TLS")
	body := ev("1", "")
	_, _, head := d.raw("POST /v1/topics/a/events HTTP/1.1", "Host: "+d.addr, "Content-Type: application/cloudevents+json",
		"Content-Length: "+strconv.Itoa(len(body)), "", body)
	if !strings.HasPrefix(head, "HTTP/1.0 400 ") {
		t.Errorf("it is answered with %s", head)
	}
	d.get("/v1/topics/a").refused(t, 404, "topic_unknown")
}

// A browser connects in advance, agrees on a protocol and may never ask for
// anything. net/http would have a shutdown wait for it, longer than the grace here.
func TestShutdownLeavesConnectionsThatNeverAskedForAnything(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var log lockedBuffer
			d := openOver(t, "HTTP/2 over TLS", func(o *doorOptions) {
				o.web.ShutdownGrace = 4 * time.Second
				o.web.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			conf := d.client.Transport.(*http.Transport).TLSClientConfig.Clone()
			conf.NextProtos = []string{proto}
			conn, err := tls.Dial("tcp", d.addr, conf)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			eq(t, "protocol", conn.ConnectionState().NegotiatedProtocol, proto)
			d.stop()
			if said := log.String(); strings.Contains(said, "did not end") {
				t.Errorf("the shutdown waited: %s", said)
			}
		})
	}
}

// lockedBuffer is a log that a test reads while others still write it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
