// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"signalbox/internal/transport/web"
)

// rawPublish is a plain publish as its bytes.
func rawPublish(id string, more ...string) string {
	head := "POST /v1/topics/a.b/events HTTP/1.1\r\nHost: localhost\r\nce-specversion: 1.0\r\nce-id: " + id +
		"\r\nce-source: /t\r\nce-type: t.x\r\nContent-Type: application/json\r\n"
	return head + strings.Join(append(more, "Content-Length: 7\r\n\r\n{\"a\":1}"), "\r\n")
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

// TestOddRequestsOnAPublishersConnection sends what a lane does not take behind
// what it does, in one write and on the same connection: each request is
// answered, in order, as if it had come alone.
func TestOddRequestsOnAPublishersConnection(t *testing.T) {
	d := openDoor(t)
	for name, c := range map[string]struct{ odd, want string }{
		"another method":     {"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n", `200 [{"name":"a.b"`},
		"a query":            {strings.Replace(rawPublish("q"), "/events ", "/events?ack=none ", 1), `202 {"ack":"none"}`},
		"a chunked body":     {strings.Replace(rawPublish("c"), "Content-Length: 7\r\n\r\n{\"a\":1}", "Transfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n", 1), `200 {"outcome":"accepted"`},
		"an encoded path":    {strings.Replace(rawPublish("e"), "a.b", "a%2Eb", 1), `200 {"outcome":"accepted"`},
		"a tab":              {rawPublish("t", "ce-subject:\tk"), `200 {"outcome":"accepted"`},
		"a line fold":        {rawPublish("f", "ce-subject: k\r\n k"), `200 {"outcome":"accepted"`},
		"a bare line feed":   {strings.ReplaceAll(rawPublish("l"), "\r\n", "\n"), `200 {"outcome":"accepted"`},
		"no host":            {strings.Replace(rawPublish("h"), "Host: localhost\r\n", "", 1), "400 "},
		"two lengths":        {rawPublish("2", "Content-Length: 8"), "400 "},
		"a name of a space":  {rawPublish("s", "bad name: x"), "400 "},
		"a foreign host":     {strings.Replace(rawPublish("x"), "localhost", "example.com", 1), `403 {"type":"/errors#host_refused"`},
		"a large event":      {strings.Replace(rawPublish("b", "ce-dummy: "+strings.Repeat("x", web.LaneBytes)), "dummy", "large", 1), `200 {"outcome":"accepted"`},
		"a refused event":    {strings.Replace(rawPublish("r"), "ce-type: t.x\r\n", "", 1), `400 {"type":"/errors#event_invalid"`},
		"a field sent twice": {rawPublish("w", "ce-subject: a", "ce-subject: b"), `400 {"type":"/errors#header_invalid"`},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", d.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(conn, rawPublish("1"+name[2:4])+rawPublish("2"+name[2:4])+c.odd); err != nil {
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

// TestExpectContinueIsAnswered sends a publish whose body waits for the
// broker's word, as curl does with larger ones.
func TestExpectContinueIsAnswered(t *testing.T) {
	d := openDoor(t)
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
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
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
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
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
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

// FuzzLanes holds that whatever a lane takes for a publish, net/http reads in
// the same way, to the byte.
func FuzzLanes(f *testing.F) {
	f.Add([]byte(rawPublish("1")))
	f.Add([]byte(rawPublish("1", "Connection: keep-alive", "X: a  b ", "x: c") + rawPublish("2")))
	f.Add([]byte(rawPublish("1", "Host: again")))
	f.Add([]byte(rawPublish("1", "ce-subject:", "a|b: 1")))
	f.Add([]byte(strings.Replace(rawPublish("1"), "localhost", "[::1]:80", 1)))
	f.Add([]byte(strings.Replace(rawPublish("1"), "Content-Length: 7", "Content-Length: 0", 1)))
	f.Add([]byte(strings.Replace(rawPublish("1"), "Content-Length: 7", "Content-Length: +7", 1)))
	f.Add([]byte(strings.ReplaceAll(rawPublish("1"), "\r\n", "\n")))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, size := web.ParseLane(b)
		if got == nil {
			return
		}
		if size > len(b) || size > web.LaneBytes {
			t.Fatalf("%d of %d bytes were taken", size, len(b))
		}
		source := bytes.NewReader(b[:size])
		reader := bufio.NewReader(source)
		want, err := http.ReadRequest(reader)
		if err != nil {
			t.Fatalf("net/http refuses what a lane takes: %v", err)
		}
		gotBody, _ := io.ReadAll(got.Body)
		wantBody, err := io.ReadAll(want.Body)
		if err != nil || !bytes.Equal(gotBody, wantBody) {
			t.Fatalf("the body is %q, net/http reads %q, %v", gotBody, wantBody, err)
		}
		if left := reader.Buffered() + source.Len(); left > 0 {
			t.Fatalf("net/http leaves %d bytes of the request", left)
		}
		maps.DeleteFunc(want.Header, func(name string, _ []string) bool { return name == "Connection" })
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
