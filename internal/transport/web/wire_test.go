// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"runtime"
	"strings"
	"testing"
	"time"
)

// raw opens a connection, sends lines as they are, and reads the answer's head.
func (d *door) raw(lines ...string) (net.Conn, *bufio.Reader, string) {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		d.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			d.t.Fatalf("reading the head: %v", err)
		}
		if line == "\r\n" {
			return c, r, head.String()
		}
		head.WriteString(line)
	}
}

// nginx speaks HTTP/1.0 to its upstreams by default, which knows no chunks.
func TestStreamToHTTP10HasNoChunks(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.StreamLife = 100 * time.Millisecond })
	d.fill("a", 2)
	_, r, head := d.raw("GET /v1/topics/a/events HTTP/1.0", "Host: localhost", "Accept: text/event-stream")
	if strings.Contains(strings.ToLower(head), "transfer-encoding") || !strings.Contains(head, "Connection: close") {
		t.Errorf("head to HTTP/1.0: %s", head)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(body), "retry: ") || strings.Count(string(body), "\ndata: ") != 3 {
		t.Errorf("body to HTTP/1.0: %s", body)
	}
}

// HTTP/2 connections cannot be taken over; the stream is the same.
func TestStreamOverHTTP2(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 50 * time.Millisecond })
	hs := httptest.NewUnstartedServer(d.server)
	hs.EnableHTTP2 = true
	hs.StartTLS()
	defer hs.Close()
	d.fill("a", 3000)
	req, err := http.NewRequest("GET", hs.URL+"/v1/topics/a/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := hs.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	eq(t, "protocol", res.Proto, "HTTP/2.0")
	s := &source{t: t, res: res, messages: make(chan message, 100_000), ended: make(chan error, 1), cancel: func() {}}
	go s.read()
	events, _ := s.untilSync()
	eq(t, "events", len(events), 3000)
	d.structured("a", ev("live", "")).want(t, 200)
	if m := s.dispatched(); !strings.Contains(m.data, `"id":"live"`) {
		t.Errorf("the live event is %+v", m)
	}
	if m, _ := s.next(); m.hasData || m.lastID == "" {
		t.Errorf("instead of a heartbeat came %+v", m)
	}
	go d.stop()
	if _, err := s.rest(); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
}

// Frames larger than every buffer, and many small ones, arrive as they are.
func TestFramesOfAnySizeArriveWhole(t *testing.T) {
	d := openDoor(t)
	d.put("big", `{"max_event_bytes":16777216}`).want(t, 201)
	want := map[string]int{}
	for i, size := range []int{0, 1, 3000, 4000, 4090, 4096, 8192, 65_000, 65_536, 70_000, 1 << 20, 5 << 20} {
		id := fmt.Sprint("e", i)
		want[id] = size
		d.do(request{method: "POST", path: "/v1/topics/big/events", body: ev(id, "", `"data":"`+strings.Repeat("x", size)+`"`), unchecked: true,
			header: []string{"Content-Type: application/cloudevents+json"}}).want(t, 200)
	}
	live := d.follow("/v1/topics/big/events?cursor=now")
	live.untilSync()
	events, _ := d.follow("/v1/topics/big/events").untilSync()
	eq(t, "events", len(events), len(want))
	check := func(m message, id string) {
		t.Helper()
		if n := strings.Count(m.data, "x") - strings.Count(`"t.x"`, "x"); n != want[id] || !strings.Contains(m.data, `"id":"`+id+`"`) {
			t.Errorf("event %s has %d bytes of data, want %d", id, n, want[id])
		}
	}
	for i, m := range events {
		check(m, fmt.Sprint("e", i))
	}
	want["l"] = 3 << 20
	d.do(request{method: "POST", path: "/v1/topics/big/events", body: ev("l", "", `"data":"`+strings.Repeat("x", 3<<20)+`"`), unchecked: true,
		header: []string{"Content-Type: application/cloudevents+json"}}).want(t, 200)
	check(live.dispatched(), "l")
}

// bulk publishes n events of about 10 kB each.
func (d *door) bulk(topic, prefix string, n int) {
	d.t.Helper()
	pad := `"data":"` + strings.Repeat("x", 10_000) + `"`
	for from := 0; from < n; from += 500 {
		var b strings.Builder
		for i := from; i < min(n, from+500); i++ {
			b.WriteString(map[bool]string{true: "[", false: ","}[i == from])
			b.WriteString(ev(fmt.Sprintf("%s%05d", prefix, i), "", pad))
		}
		d.do(request{method: "POST", path: "/v1/topics/" + topic + "/events", body: b.String() + "]", unchecked: true,
			header: []string{"Content-Type: application/cloudevents-batch+json"}}).want(d.t, 200)
	}
}

// lines are what was logged; those that find no room are dropped.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func slogTo(l lines) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func TestRefusalIsLoggedForDebugging(t *testing.T) {
	logged := make(lines, 16)
	d := openDoor(t, func(o *doorOptions) {
		o.web.Logger = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	d.get("/v1/topics/a/events?cursor=x").refused(t, 400, "cursor_invalid")
	line := <-logged
	for _, part := range []string{"level=DEBUG", "method=GET", "path=/v1/topics/a/events", "remote=127.0.0.1:", "code=cursor_invalid", "field=cursor"} {
		if !strings.Contains(line, part) {
			t.Errorf("the log says %s, without %s", line, part)
		}
	}
}

// A reader that takes nothing is cut, its goroutines go with it, and
// it loses nothing, for it resumes from the last id that it saw.
func TestStalledReaderIsCutAndResumes(t *testing.T) {
	logged := make(lines, 16)
	d := openDoor(t, func(o *doorOptions) {
		o.web.StallTimeout = 300 * time.Millisecond
		o.web.Logger = slog.New(slog.NewTextHandler(logged, nil))
	})
	goroutines := runtime.NumGoroutine()
	c, r, _ := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
	_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
	const n = 2000 // 20 MB, far more than the kernel takes for both sides
	d.bulk("a", "e", n)
	eventually(t, "the stalled reader is cut", func() bool { return d.server.OpenStreams() == 0 })
	select {
	case line := <-logged:
		if !strings.Contains(line, "reader cut") || !strings.Contains(line, "stall=300ms") {
			t.Errorf("the log gives no reason for the cut: %s", line)
		}
	case <-time.After(patience):
		t.Error("the log does not tell of the cut")
	}
	body, err := io.ReadAll(httputil.NewChunkedReader(r))
	if err == nil {
		t.Error("the cut looks like an end in good order")
	}
	d.client.CloseIdleConnections()
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines+8 })
	var seen []string
	lastID := ""
	for block := range strings.SplitSeq(string(body), "\n\n") {
		if id, data, ok := strings.Cut(block, "\ndata: "); ok && strings.HasSuffix(data, "}") && strings.HasPrefix(id, "id: ") {
			lastID = strings.TrimPrefix(id, "id: ")
			seen = append(seen, data)
		}
	}
	if len(seen) == 0 || len(seen) == n {
		t.Fatalf("the stalled reader got %d of %d events", len(seen), n)
	}
	d.opt.web.StallTimeout = patience // a busy machine may hold up this reader, too
	d.restart()
	events, _ := d.follow("/v1/topics/a/events", "Last-Event-ID: "+lastID).untilSync()
	for _, m := range events {
		seen = append(seen, m.data)
	}
	eq(t, "events in all", len(seen), n)
	for i, data := range seen {
		if !strings.Contains(data, fmt.Sprintf(`"id":"e%05d"`, i)) {
			t.Fatalf("event %d is %s", i, clip([]byte(data)))
		}
	}
}

// A reader that takes something now and then is paced, however long it takes.
func TestSlowReaderIsPacedNotCut(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = 3 * time.Second })
	const n = 600 // 6 MB
	d.bulk("a", "e", n)
	c, r, _ := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
	_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
	began := time.Now()
	chunks := httputil.NewChunkedReader(r)
	piece := make([]byte, 128<<10)
	got := 0
	for got < n*10_000 {
		m, err := io.ReadFull(chunks, piece)
		if got += m; err != nil {
			t.Fatalf("cut after %v and %d bytes: %v", time.Since(began), got, err)
		}
		time.Sleep(150 * time.Millisecond)
	}
	if took := time.Since(began); took < 2*d.opt.web.StallTimeout {
		t.Fatalf("the reader took only %v and shows nothing", took)
	}
}

// A reader that falls out of what is retained while it is connected is
// told in the stream.
func TestReaderThatFallsOutIsTold(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = time.Minute })
	d.bulk("a", "e", 3000) // 30 MB: the stream stalls in the middle
	c, r, _ := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
	_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
	d.do(request{method: http.MethodDelete, path: "/v1/topics/a"}).want(t, 204)
	body, err := io.ReadAll(httputil.NewChunkedReader(r))
	if err != nil {
		t.Fatalf("the stream broke: %v", err)
	}
	blocks := strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n")
	last := blocks[len(blocks)-1]
	if !strings.HasPrefix(last, "event: signalbox.reset\ndata: {") || !strings.Contains(last, `"code":"cursor_expired"`) || !strings.HasSuffix(last, "\nretry: 60000") {
		t.Errorf("the stream ended with %s", clip([]byte(last)))
	}
	if strings.Contains(string(body), "signalbox.sync") {
		t.Error("the reader was told that it has everything")
	}
}

// A reader that resets its connection is gone at once, not at the next
// heartbeat.
func TestLeavingReaderIsNoticed(t *testing.T) {
	d := openDoor(t)
	for _, leave := range []func(c *net.TCPConn){
		func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },                         // reset
		func(c *net.TCPConn) { _ = c.CloseWrite() },                                        // half-closed
		func(c *net.TCPConn) { _, _ = c.Write(make([]byte, 256<<10)); _ = c.CloseWrite() }, // sends what nobody reads
	} {
		c, _, _ := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
		eq(t, "open streams", d.server.OpenStreams(), 1)
		leave(c.(*net.TCPConn))
		eventually(t, "the stream is gone", func() bool { return d.server.OpenStreams() == 0 })
	}
}

// Beyond the limit connections are closed at once, and streams count.
func TestConnectionsAreLimited(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.MaxConns = 3 })
	var streams []net.Conn
	for range 3 {
		c, _, _ := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
		streams = append(streams, c)
	}
	if _, err := d.client.Get(d.url("/healthz")); err == nil {
		t.Error("a connection over the limit was served")
	}
	_ = streams[0].Close()
	eventually(t, "a place is free again", func() bool {
		res, err := d.client.Get(d.url("/healthz"))
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == 200
	})
}

// A shutdown waits for streams that end, and for no others.
func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout, o.web.ShutdownGrace = time.Minute, 300*time.Millisecond })
	_, r, _ := d.raw("GET /v1/topics/a/events HTTP/1.1", "Host: localhost", "Accept: text/event-stream")
	d.bulk("a", "e", 2000)
	d.stop() // which would wait for a minute
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err == nil {
		t.Error("the stalled stream ended in good order")
	}
}
