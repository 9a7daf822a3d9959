// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/transport/web"
	"signalbox/ticket"
)

// rawPublish is a plain publish as its bytes.
func rawPublish(id string, more ...string) string {
	head := "POST /v1/topics/a.b/events HTTP/1.1\r\nHost: localhost\r\nce-specversion: 1.0\r\nce-id: " + id +
		"\r\nce-source: /t\r\nce-type: t.x\r\nContent-Type: application/json\r\n"
	return head + strings.Join(append(more, "Content-Length: 7\r\n\r\n{\"a\":1}"), "\r\n")
}

// rawMessage posts an envelope as its bytes.
func rawMessage(envelope string) string {
	return fmt.Sprintf("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(envelope), envelope)
}

// answers reads n answers from a connection and returns their status and body.
func answers(t *testing.T, r *bufio.Reader, n int) (out []string) {
	t.Helper()
	for range n {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if date, err := http.ParseTime(res.Header.Get("Date")); res.StatusCode == http.StatusOK && (err != nil || time.Since(date).Abs() > time.Minute) {
			t.Errorf("the date is %q", res.Header.Get("Date"))
		}
		out = append(out, fmt.Sprint(res.StatusCode, " ", string(body)))
	}
	return out
}

// dialPublisher opens a connection, which ends with the test.
func dialPublisher(t *testing.T, d *door) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// TestOddRequestsOnAPublishersConnection sends what a lane does not take behind
// what it does, in one write and on the same connection: each request is
// answered, in order, as if it had come alone.
func TestOddRequestsOnAPublishersConnection(t *testing.T) {
	d := openDoor(t)
	for name, c := range map[string]struct{ odd, want string }{
		"another method":      {"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n", `200 [{"name":"a.b"`},
		"a query":             {strings.Replace(rawPublish("q"), "/events ", "/events?ack=none ", 1), `202 {"ack":"none"}`},
		"a chunked body":      {strings.Replace(rawPublish("c"), "Content-Length: 7\r\n\r\n{\"a\":1}", "Transfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n", 1), `200 {"outcome":"accepted"`},
		"an encoded path":     {strings.Replace(rawPublish("e"), "a.b", "a%2Eb", 1), `200 {"outcome":"accepted"`},
		"a tab":               {rawPublish("t", "ce-subject:\tk"), `200 {"outcome":"accepted"`},
		"a line fold":         {rawPublish("f", "ce-subject: k\r\n k"), `200 {"outcome":"accepted"`},
		"a bare line feed":    {strings.ReplaceAll(rawPublish("l"), "\r\n", "\n"), `200 {"outcome":"accepted"`},
		"no host":             {strings.Replace(rawPublish("h"), "Host: localhost\r\n", "", 1), "400 "},
		"two lengths":         {rawPublish("2", "Content-Length: 8"), "400 "},
		"a name of a space":   {rawPublish("s", "bad name: x"), "400 "},
		"a foreign host":      {strings.Replace(rawPublish("x"), "localhost", "example.com", 1), `403 {"type":"/errors#host_refused"`},
		"a large event":       {strings.Replace(rawPublish("b", "ce-dummy: "+strings.Repeat("x", web.LaneBytes)), "dummy", "large", 1), `200 {"outcome":"accepted"`},
		"a refused event":     {strings.Replace(rawPublish("r"), "ce-type: t.x\r\n", "", 1), `400 {"type":"/errors#event_invalid"`},
		"a host that is none": {strings.Replace(rawPublish("n"), "localhost", "localhost:#", 1), "400 "},
		"a line too many":     {"\r\n" + rawPublish("m"), `200 {"outcome":"accepted"`},
		"a line before a GET": {"\r\nGET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n", `200 [{"name":"a.b"`},
		"a field sent twice":  {rawPublish("w", "ce-subject: a", "ce-subject: b"), `400 {"type":"/errors#header_invalid"`},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialPublisher(t, d)
			id := strings.ReplaceAll(name, " ", "-")
			if _, err := io.WriteString(conn, rawPublish("1"+id)+rawPublish("2"+id)+c.odd); err != nil {
				t.Fatal(err)
			}
			got := answers(t, bufio.NewReader(conn), 3)
			for i, want := range []string{`200 {"outcome":"accepted"`, `200 {"outcome":"accepted"`, c.want} {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("answer %d is %s, want %s", i, got[i], want)
				}
			}
		})
	}
}

// TestMessagesOnAPublishersConnection sends messages between publishes, with and
// without what a lane leaves to net/http: a query, and an envelope that is too long.
func TestMessagesOnAPublishersConnection(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	message := func(ticketID, title string) string {
		payload := strings.Replace(openPayload, "Web is slow", title, 1)
		return string(envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", payload, func(d *ticket.Draft) { d.TicketID = ticketID }).Bytes())
	}
	long := strings.Replace(openPayload, `"op":`, `"more":"`+strings.Repeat("m", web.LaneBytes)+`","op":`, 1)
	conn := dialPublisher(t, d)
	requests := []string{
		rawPublish("1"), rawMessage(message("INC-1", "One")), rawMessage("[]"), rawPublish("2"), rawMessage(message("INC-2", "Two")),
		strings.Replace(rawMessage(message("INC-3", "Three")), "/v1/messages", "/v1/messages?ack=durable", 1), rawMessage(message("INC-4", "Four")),
		rawMessage(string(envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", long, func(d *ticket.Draft) { d.TicketID = "INC-5" }).Bytes())),
	}
	if _, err := io.WriteString(conn, strings.Join(requests, "")); err != nil {
		t.Fatal(err)
	}
	for i, got := range answers(t, bufio.NewReader(conn), len(requests)) {
		want := `200 {"outcome":"accepted"`
		if i == 2 {
			want = `400 {"type":"/errors#message_invalid"`
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("answer %d is %s, want %s", i, got, want)
		}
	}
	eq(t, "messages", d.count("bus.main.ticket.orchestrator"), 5)
}

// TestExpectContinueIsAnswered sends a publish whose body waits for the
// broker's word, as curl does with larger ones.
func TestExpectContinueIsAnswered(t *testing.T) {
	d := openDoor(t)
	conn := dialPublisher(t, d)
	head, body, _ := strings.Cut(rawPublish("1", "Expect: 100-continue"), "\r\n\r\n")
	if _, err := io.WriteString(conn, head+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	if got := answers(t, r, 1); !strings.HasPrefix(got[0], "200 ") {
		t.Error(got)
	}
}

// TestPublishInManyPieces sends requests byte by byte over one connection.
func TestPublishInManyPieces(t *testing.T) {
	d := openDoor(t)
	conn := dialPublisher(t, d)
	r := bufio.NewReader(conn)
	for i := range 3 {
		for _, c := range []byte(rawPublish(fmt.Sprint(i))) {
			if _, err := conn.Write([]byte{c}); err != nil {
				t.Fatal(err)
			}
		}
		if got := answers(t, r, 1); !strings.HasPrefix(got[0], `200 {"outcome":"accepted"`) {
			t.Error(got)
		}
	}
}

// TestShutdownEndsIdlePublishers checks that connections that wait for their
// next publish do not hold a shutdown back.
func TestShutdownEndsIdlePublishers(t *testing.T) {
	d := openDoor(t)
	conn := dialPublisher(t, d)
	if _, err := io.WriteString(conn, rawPublish("1")); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	answers(t, r, 1)
	d.stop()
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%d bytes, %v, where the connection should have ended", n, err)
	}
}

// FuzzLanes holds that whatever a lane takes for a publish, a server of net/http
// reads in the same way, to the byte.
func FuzzLanes(f *testing.F) {
	f.Add([]byte(rawPublish("1")))
	f.Add([]byte(rawPublish("1", "Connection: keep-alive", "X: a  b ", "x: c") + rawPublish("2")))
	f.Add([]byte(rawPublish("1", "Host: again")))
	f.Add([]byte(rawPublish("1", "ce-subject:", "a|b: 1")))
	f.Add([]byte(strings.Replace(rawPublish("1"), "localhost", "[::1]:80", 1)))
	f.Add([]byte(strings.Replace(rawPublish("1"), "Content-Length: 7", "Content-Length: 0", 1)))
	f.Add([]byte(strings.Replace(rawPublish("1"), "Content-Length: 7", "Content-Length: +7", 1)))
	f.Add([]byte(strings.ReplaceAll(rawPublish("1"), "\r\n", "\n")))
	f.Add([]byte(strings.Replace(rawPublish("1"), "localhost", "localhost:#", 1)))
	f.Add([]byte(rawPublish("1", "Pragma: no-cache")))
	f.Add([]byte(rawMessage("{}")))
	f.Add([]byte(strings.Replace(rawMessage("{}"), " HTTP/1.1", "?ack=proof HTTP/1.1", 1)))
	f.Add([]byte(strings.Replace(rawMessage("{}"), "/v1/messages", "/v1/messages/", 1)))
	server := newPipeServer(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, size := web.ParseLane(b)
		if got == nil {
			return
		}
		if size > len(b) || size > web.LaneBytes {
			t.Fatalf("%d of %d bytes were taken", size, len(b))
		}
		gotBody, _ := io.ReadAll(got.Body)
		want := server.read(t, b[:size])
		if !bytes.Equal(gotBody, want.body) {
			t.Fatalf("the body is %q, net/http reads %q", gotBody, want.body)
		}
		want.Header.Del("Connection")
		if !reflect.DeepEqual(got.Header, want.Header) {
			t.Fatalf("the fields are %q, net/http reads %q", got.Header, want.Header)
		}
		for _, pair := range [][2]any{
			{got.Method, want.Method}, {got.URL.String(), want.URL.String()}, {got.Host, want.Host}, {got.Proto, want.Proto},
			{got.RequestURI, want.RequestURI}, {got.ContentLength, want.ContentLength}, {false, want.Close}, {0, len(want.TransferEncoding)},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("%v, and net/http reads %v", pair[0], pair[1])
			}
		}
	})
}

// pipeServer is net/http over connections in memory; it says what it read.
type pipeServer struct {
	conns chan net.Conn
	heard chan heard
}

type heard struct {
	*http.Request
	body []byte
}

func newPipeServer(f *testing.F) *pipeServer {
	p := &pipeServer{conns: make(chan net.Conn), heard: make(chan heard, 1)}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.heard <- heard{r, body}
	})}
	go func() { _ = s.Serve(p) }()
	f.Cleanup(func() { _ = s.Close() })
	return p
}

// read sends a request and one that must follow it, so that bytes that are left
// over show.
func (p *pipeServer) read(t *testing.T, request []byte) heard {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	p.conns <- theirs
	go func() {
		_, _ = ours.Write(request)
		_, _ = io.WriteString(ours, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
	}()
	r := bufio.NewReader(ours)
	var first heard
	for i := range 2 {
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("net/http does not take request %d: %v, %v", i, res, err)
		}
		if h := <-p.heard; i == 0 {
			first = h
		} else if h.URL.Path != "/next" {
			t.Fatalf("net/http reads %s %s behind the request", h.Method, h.URL)
		}
	}
	return first
}

// Accept, Close and Addr make it a net.Listener.
func (p *pipeServer) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p *pipeServer) Close() error   { close(p.conns); return nil }
func (p *pipeServer) Addr() net.Addr { return &net.UnixAddr{Net: "pipe", Name: "pipe"} }

// lateListener gives out a last connection after it was closed, as a system may
// that had it in its queue.
type lateListener struct {
	net.Listener
	late func() net.Conn
	once sync.Once
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		l.once.Do(func() { c, err = l.late(), nil })
	}
	return c, err
}

// TestNoLaneOutlivesTheServer lets a connection arrive at the moment of the
// shutdown: it is closed before Serve returns, for the broker is closed next.
func TestNoLaneOutlivesTheServer(t *testing.T) {
	d := openDoor(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := make(chan net.Conn, 1)
	l := &lateListener{Listener: inner, late: func() net.Conn {
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return nil
		}
		defer other.Close()
		out, err := net.Dial("tcp", other.Addr().String())
		if err != nil {
			t.Error(err)
			return nil
		}
		peer <- out
		in, err := other.Accept()
		if err != nil {
			t.Error(err)
		}
		return in
	}}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(ctx, l) }()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	conn := <-peer
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v, where the connection should have ended", n, err)
	}
}

// TestPublishesOfOneConnectionShareNoBytes publishes one event after the other
// over one connection, whose memory is used again for each, and reads them back.
func TestPublishesOfOneConnectionShareNoBytes(t *testing.T) {
	d := openDoor(t)
	conn := dialPublisher(t, d)
	const n = 50
	var all strings.Builder
	for i := range n {
		all.WriteString(strings.Replace(rawPublish(fmt.Sprint("id-", i), fmt.Sprint("ce-subject: key-", i)), `{"a":1}`, fmt.Sprintf(`{"%3d":0}`, i), 1))
	}
	request := strings.ReplaceAll(all.String(), "Content-Length: 7", "Content-Length: 9")
	go func() { _, _ = io.WriteString(conn, request) }()
	answers(t, bufio.NewReader(conn), n)
	res, err := d.client.Get("http://" + d.addr + "/v1/topics/a.b/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var events []struct {
		ID      string
		Subject string
		Topic   string
		Data    map[string]int
	}
	if err := json.NewDecoder(res.Body).Decode(&events); err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if _, ok := e.Data[fmt.Sprintf("%3d", i)]; !ok || e.ID != fmt.Sprint("id-", i) || e.Subject != fmt.Sprint("key-", i) || e.Topic != "a.b" {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	if len(events) != n {
		t.Errorf("%d events were read", len(events))
	}
}
