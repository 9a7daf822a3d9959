// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/transport/web"
)

// A compressed body is refused on every route alike, before anything of
// it is read.
func TestCompressedBodiesAreRefusedEverywhere(t *testing.T) {
	d := openDoor(t)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	for _, encoding := range []string{"gzip", "GZIP", "br, gzip", "deflate", "nonsense", "identity, gzip"} {
		for _, rt := range []struct{ method, path string }{
			{"POST", "/v1/topics/a/events"}, {"PUT", "/v1/topics/a"}, {"GET", "/v1/topics/a/events"}, {"GET", "/healthz"},
		} {
			d.do(request{method: rt.method, path: rt.path, body: bomb.String(), unchecked: true,
				header: []string{"Content-Type: application/cloudevents+json", "Content-Encoding: " + encoding}}).
				refused(t, 415, "encoding_unsupported")
		}
	}
	d.structured("a", ev("1", ""), "Content-Encoding: identity").want(t, 200)
}

// Small requests that would grow are refused quickly and without memory.
func TestSmallRequestsCannotTakeMuchMemory(t *testing.T) {
	d := openDoor(t)
	d.structured("a", ev("warm", "")).want(t, 200)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			d.structured("a", ev("1", "", `"data":`+strings.Repeat("[", 100_000))).want(t, 400)
		})
		wg.Go(func() {
			var b strings.Builder
			for i := range 1_000_000 {
				fmt.Fprintf(&b, `,"a%d":1`, i)
			}
			d.structured("a", `{"specversion":"1.0"`+b.String()+"}").want(t, 400)
		})
		wg.Go(func() {
			d.batch("a", "["+strings.Repeat("{},", 1_000_000)+"{}]").want(t, 400)
		})
		wg.Go(func() {
			d.binary("a", "1", "", manyAttributes(300)...).refused(t, 400, "event_invalid")
		})
		wg.Go(func() {
			// The net/http of some versions of Go has a limit of its own.
			a := d.do(request{method: "POST", path: "/v1/topics/a/events", unchecked: true,
				header: append(manyAttributes(10_000), "ce-specversion: 1.0", "ce-id: 1", "ce-source: /t", "ce-type: t.x")})
			if a.status != http.StatusRequestHeaderFieldsTooLarge {
				a.refused(t, 400, "event_invalid")
			}
		})
	}
	wg.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	eq(t, "bytes held by requests", d.server.HeldBytes(), 0)
	eq(t, "events", d.count("a"), 1)
}

func manyAttributes(n int) []string {
	header := make([]string, n)
	for i := range header {
		header[i] = fmt.Sprintf("ce-x%d: 1", i)
	}
	return header
}

// A head beyond the limit is refused by net/http, which then closes.
func TestEndlessHeadIsRefused(t *testing.T) {
	d := openDoor(t)
	_, _, head := d.raw("GET /healthz HTTP/1.1", "Host: localhost", "X: "+strings.Repeat("x", 600<<10))
	if !strings.HasPrefix(head, "HTTP/1.1 431") {
		t.Errorf("head %s, want 431", head)
	}
}

// Events of 64 KiB must pass in every mode (CloudEvents, Size Limits).
func TestEventsOf64KiBPassInEveryMode(t *testing.T) {
	d := openDoor(t)
	const size = 64 << 10
	frame := len(ev("1", "", `"data":""`))
	event := ev("1", "", `"data":"`+strings.Repeat("x", size-frame)+`"`)
	eq(t, "size of the event", len(event), size)
	d.structured("a", event).want(t, 200)
	d.batch("b", "["+event+"]").want(t, 200)
	d.binary("c", "1", strings.Repeat("x", size-100), "Content-Type: text/plain").want(t, 200)
	d.binary("d", "1", "", "ce-subject: "+strings.Repeat("x", 1000), "ce-note: "+strings.Repeat("%C3%A4", 30_000)).want(t, 200)
	eq(t, "characters of the attribute", len([]rune(d.published("d", "1")["note"].(string))), 30_000)
}

// TestRefusalReachesWhoSendsEverythingFirst: most clients look for an answer only then.
func TestRefusalReachesWhoSendsEverythingFirst(t *testing.T) {
	d := openDoor(t)
	body := make([]byte, web.BatchBytesMax+web.SingleBytesMax/2)
	for head, code := range map[string]string{
		"Content-Type: application/json": "request_too_large",
		"Content-Encoding: gzip":         "encoding_unsupported",
		"Origin: https://example.com":    "origin_refused",
	} {
		conn, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(conn, "POST /v1/topics/a/events HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n", head, len(body))
		if err == nil {
			_, err = conn.Write(body)
		}
		var answer *http.Response
		var said []byte
		if err == nil {
			answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
		}
		if err == nil {
			said, err = io.ReadAll(answer.Body)
		}
		if err != nil || !strings.Contains(string(said), `"code":"`+code+`"`) {
			t.Errorf("%s: %s, %v", head, said, err)
		}
		_ = conn.Close()
	}
}

func TestBodyLimits(t *testing.T) {
	d := openDoor(t)
	d.put("big", `{"max_event_bytes":16777216}`).want(t, 201)
	whole := func(n int) string { // a structured event of n bytes
		frame := len(ev("1", "", `"data":""`))
		return ev("1", "", `"data":"`+strings.Repeat("x", n-frame)+`"`)
	}
	post := func(path, contentType, body string) answer {
		return d.do(request{method: "POST", path: path, body: body, unchecked: true, header: []string{"Content-Type: " + contentType}})
	}
	post("/v1/topics/big/events", "application/cloudevents+json", whole(web.SingleBytesMax-1024)).want(t, 200)
	post("/v1/topics/big/events", "application/cloudevents+json", whole(web.SingleBytesMax+1)).refused(t, 413, "request_too_large")
	post("/v1/topics/big/events", "application/cloudevents-batch+json", strings.Repeat(" ", web.BatchBytesMax)+"[]").refused(t, 413, "request_too_large")
	chunked := func(body string) answer {
		t.Helper()
		req, err := http.NewRequest("POST", d.url("/v1/topics/c/events"), io.MultiReader(strings.NewReader(body))) // length unknown
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/cloudevents+json")
		res, err := d.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, _ := io.ReadAll(res.Body)
		return answer{res.StatusCode, res.Header, b}
	}
	for _, n := range []int{200, 64 << 10, 64<<10 + 1, 200_000} {
		chunked(strings.Replace(whole(n), `"1"`, fmt.Sprintf(`"c%d"`, n), 1)).want(t, 200)
	}
	chunked(strings.Repeat(" ", web.SingleBytesMax+1)).refused(t, 413, "request_too_large")
	eq(t, "chunked events", d.count("c"), 4)
	eq(t, "bytes held by requests", d.server.HeldBytes(), 0)
}

// A Content-Length is not believed: what was announced but has not come takes
// no memory from others, and does not stay for ever.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.ReadTimeout = 2 * patience })
	conns := make([]net.Conn, 200)
	for i := range conns { // 3 GiB announced
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "POST /v1/topics/a/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\nContent-Length: 16000000\r\n\r\n{")
		conns[i] = c
	}
	eventually(t, "the requests are being read", func() bool { return d.server.HeldBytes() > 10<<20 })
	if held := d.server.HeldBytes(); held > 20<<20 {
		t.Errorf("%d MiB are held for what has not come", held>>20)
	}
	d.structured("a", ev("1", "")).want(t, 200)
	for _, c := range conns {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	for _, c := range conns {
		wantLine(t, "a body that ended early", c, " 400 ")
	}
	eventually(t, "nothing is held in the end", func() bool { return d.server.HeldBytes() == 0 })
}

// wantLine fails unless an answer begins with a line that has a part.
func wantLine(t *testing.T, what string, c net.Conn, part string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, part) {
		t.Fatalf("%s was answered with %q, %v", what, line, err)
	}
}

// A body that does not come holds up nothing for longer than the read timeout.
func TestBodiesThatNeverComeAreGivenUp(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.ReadTimeout = 2 * time.Second }) // for the head, on a busy machine
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "POST /v1/topics/a/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\nContent-Length: 16000000\r\n\r\n{")
	wantLine(t, "a body that never came", c, " 400 ")
	eventually(t, "nothing is held in the end", func() bool { return d.server.HeldBytes() == 0 })
}

// A body that ends early or has broken chunks is refused, not half stored.
func TestBrokenBodiesAreRefused(t *testing.T) {
	d := openDoor(t)
	for _, body := range []string{
		"Content-Length: 1000\r\n\r\n" + ev("1", ""),
		"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"spe\r\n",
	} {
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "POST /v1/topics/a/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\n"+body)
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		res, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(res), "HTTP/1.1 400") {
			t.Errorf("a broken body was answered with %q, %v", clip(res), err)
		}
		_ = c.Close()
	}
	eq(t, "events", d.count("a"), 0)
}

// A publisher that pipelines is answered in order.
func TestPipelinedPublishes(t *testing.T) {
	d := openDoor(t)
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var b strings.Builder
	const n = 50
	for i := range n {
		body := ev(fmt.Sprint(i), "")
		fmt.Fprintf(&b, "POST /v1/topics/a/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	_, _ = io.WriteString(c, b.String())
	_ = c.SetReadDeadline(time.Now().Add(patience))
	r := bufio.NewReader(c)
	for i := range n {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if !strings.Contains(string(body), fmt.Sprintf(`"id":"%d"`, i)) {
			t.Fatalf("answer %d is %s", i, body)
		}
	}
}
