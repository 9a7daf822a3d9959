// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

const incarnation = "k3f9x0ab"

// fast makes tests quick where a broker would be patient.
var fast = client.Retry{Attempts: 5, Min: time.Millisecond, Max: 5 * time.Millisecond}

// serve runs a real HTTP server for one test.
func serve(t *testing.T, h http.HandlerFunc, opts ...client.Option) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return connect(t, srv.URL, opts...)
}

func connect(t *testing.T, url string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, append([]client.Option{client.WithRetry(fast)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problem answers as the broker refuses.
func problem(w http.ResponseWriter, code event.Code, retryable bool, facts map[string]any) {
	doc := map[string]any{"type": "/errors#" + string(code), "title": "t", "status": code.Class().HTTP, "detail": "Do something else.", "code": code, "retryable": retryable}
	for k, v := range facts {
		doc[k] = v
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code.Class().HTTP)
	_ = json.NewEncoder(w).Encode(doc)
}

// drop ends the connection without an answer.
func drop(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// request is what a server saw.
type request struct {
	path   string
	header http.Header
	body   string
}

// recorder keeps the requests of one server.
type recorder struct {
	mu   sync.Mutex
	seen []request
}

func (r *recorder) note(req *http.Request) (n int) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, request{path: req.URL.RequestURI(), header: req.Header.Clone(), body: string(body)})
	return len(r.seen)
}

func (r *recorder) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.seen...)
}

// receipt answers a publish of one event.
func receipt(w http.ResponseWriter, outcome event.Outcome, position uint64, h event.HLC) {
	_, _ = w.Write(event.Receipt{
		Outcome: outcome, Topic: "t", Source: "/s", ID: "1", Position: position,
		Cursor: event.Cursor{Position: position, Incarnation: incarnation}, HLC: h,
	}.AppendJSON(nil))
}

// frame is an event as a stream carries it.
func frame(position uint64) string {
	return fmt.Sprintf("id: @%d.%s\ndata: "+`{"position":"%d","hlc":"%d.00001","specversion":"1.0","id":"e%d","source":"/s","type":"t.x","subject":"k%d"}`+"\n\n",
		position, incarnation, position, 1000+position, position, position)
}

func stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
}

func send(w http.ResponseWriter, s string) {
	_, _ = io.WriteString(w, s)
	_ = http.NewResponseController(w).Flush()
}

// loseFirstAnswer passes requests on and loses the first answer: the server has done its work, and nobody knows.
type loseFirstAnswer struct{ requests int }

func (l *loseFirstAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if l.requests++; l.requests == 1 && err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return res, err
}

func httpClient(t http.RoundTripper) *http.Client { return &http.Client{Transport: t} }
