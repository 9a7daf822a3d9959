// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/broker"
	"signalbox/internal/porttest"
	"signalbox/internal/transport/web"
)

// door is a broker behind its HTTP door on a loopback socket. Every request
// that goes through do is held against api/openapi.yaml, the answer too.
type door struct {
	t      *testing.T
	opt    doorOptions
	broker *broker.Broker
	server *web.Server
	addr   string
	client *http.Client
	stop   func() // ends the door gracefully; may be called more than once
	agent  string // who reads, where a test does not say it; "": nobody
}

// reader is the header of whoever reads. Messages and changes of the registry say
// themselves who they are from.
func (d *door) reader(path string) []string {
	if strings.HasPrefix(path, "/v1/messages") || strings.HasPrefix(path, "/v1/agents") {
		return nil
	}
	return as(d.agent)
}

type doorOptions struct {
	dir    string // "" is a fresh one
	broker broker.Options
	web    web.Options
	// listen changes the listening socket, whose options the connections inherit.
	listen func(fd int) error
}

func openDoor(t *testing.T, opts ...func(*doorOptions)) *door {
	t.Helper()
	d := &door{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	for _, o := range opts {
		o(&d.opt)
	}
	if d.opt.dir == "" {
		d.opt.dir = filepath.Join(t.TempDir(), "data")
	}
	addr, release, err := porttest.Hold() // a door that is opened again is where it was
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	d.addr = addr
	d.start()
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *door) start() {
	d.t.Helper()
	quiet := slog.New(slog.NewTextHandler(logTo{d.t}, &slog.HandlerOptions{Level: slog.LevelError}))
	bo, wo := d.opt.broker, d.opt.web
	bo.Dir = d.opt.dir
	if bo.Logger == nil {
		bo.Logger = quiet
	}
	b, err := broker.Open(bo)
	if err != nil {
		d.t.Fatalf("broker.Open: %v", err)
	}
	wo.Broker = b
	if wo.Logger == nil {
		wo.Logger = quiet
	}
	s, err := web.New(wo)
	if err != nil {
		d.t.Fatalf("web.New: %v", err)
	}
	var lc net.ListenConfig
	if listen := d.opt.listen; listen != nil {
		lc.Control = func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = listen(int(fd)) }), err)
		}
	}
	l, err := lc.Listen(context.Background(), "tcp", d.addr)
	if err != nil {
		d.t.Fatalf("listen: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	d.broker, d.server = b, s
	d.stop = sync.OnceFunc(func() {
		d.client.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			d.t.Errorf("Serve: %v", err)
		}
		if err := b.Close(); err != nil {
			d.t.Errorf("broker.Close: %v", err)
		}
	})
}

// restart ends the door gracefully and opens it again on the same directory
// and address.
func (d *door) restart() {
	d.t.Helper()
	d.stop()
	d.start()
	d.t.Cleanup(func() { d.stop() })
}

// logTo sends diagnostics to the test's log.
type logTo struct{ t *testing.T }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

func (d *door) url(path string) string {
	if d.opt.web.TLS != nil {
		return "https://" + d.addr + path
	}
	return "http://" + d.addr + path
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// request is what a test sends. Header lines are "name: value".
type request struct {
	method string
	path   string
	header []string
	body   string
	// unchecked requests break the contract on purpose in a way that the
	// document's validator would refuse before the broker does.
	unchecked bool
}

func (d *door) do(q request) answer {
	d.t.Helper()
	if q.method == "" {
		q.method = http.MethodGet
	}
	req, err := http.NewRequest(q.method, d.url(q.path), strings.NewReader(q.body))
	if err != nil {
		d.t.Fatalf("%s %s: %v", q.method, q.path, err)
	}
	lines := slices.Clone(q.header)
	if q.method != http.MethodPost || !strings.HasPrefix(q.path, "/v1/topics/") { // who publishes is no reader
		lines = append(lines, d.reader(q.path)...)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", q.method, q.path, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatalf("%s %s: reading the answer: %v", q.method, q.path, err)
	}
	a := answer{res.StatusCode, res.Header, body}
	checkContract(d.t, req, q, a)
	return a
}

func (d *door) get(path string, header ...string) answer {
	d.t.Helper()
	return d.do(request{path: path, header: header})
}

// structured publishes an event in structured mode.
func (d *door) structured(topic, body string, header ...string) answer {
	d.t.Helper()
	return d.do(request{method: "POST", path: "/v1/topics/" + topic + "/events", body: body,
		header: append([]string{"Content-Type: application/cloudevents+json"}, header...)})
}

func (d *door) batch(topic, body string, header ...string) answer {
	d.t.Helper()
	return d.do(request{method: "POST", path: "/v1/topics/" + topic + "/events", body: body,
		header: append([]string{"Content-Type: application/cloudevents-batch+json"}, header...)})
}

// binary publishes an event in binary mode; the header gives type and source
// a value where it does not.
func (d *door) binary(topic, id, body string, header ...string) answer {
	d.t.Helper()
	base := []string{"ce-specversion: 1.0", "ce-id: " + id}
	for _, line := range []string{"ce-source: /t", "ce-type: t.x"} {
		name, _, _ := strings.Cut(line, ":")
		if !slices.ContainsFunc(header, func(h string) bool { return strings.HasPrefix(strings.ToLower(h), name) }) {
			base = append(base, line)
		}
	}
	return d.do(request{method: "POST", path: "/v1/topics/" + topic + "/events", header: append(base, header...), body: body})
}

// put sets a topic's policy.
func (d *door) put(topic, policy string) answer {
	d.t.Helper()
	return d.do(request{method: "PUT", path: "/v1/topics/" + topic, body: policy, header: []string{"Content-Type: application/json"}})
}

// ev is a structured event with a key; more are further members.
func ev(id, key string, more ...string) string {
	members := append([]string{fmt.Sprintf(`"specversion":"1.0","id":%q,"source":"/t","type":"t.x"`, id)}, more...)
	if key != "" {
		members = append(members, fmt.Sprintf(`"subject":%q`, key))
	}
	return "{" + strings.Join(members, ",") + "}"
}

const someData = `"data":{"a":1}`

// want fails unless the answer has the status.
func (a answer) want(t *testing.T, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, clip(a.body))
	}
	return a
}

// refused fails unless the answer is a problem document with the code.
func (a answer) refused(t *testing.T, status int, code string) map[string]any {
	t.Helper()
	a.want(t, status)
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("Content-Type %q, want a problem document: %s", ct, clip(a.body))
	}
	p := a.object(t)
	if p["code"] != code || p["type"] != "/errors#"+code || p["status"] != float64(status) {
		t.Fatalf("problem %s, want code %s and status %d", clip(a.body), code, status)
	}
	for _, member := range []string{"title", "detail"} {
		if s, _ := p[member].(string); s == "" {
			t.Errorf("problem %s has no %s", clip(a.body), member)
		}
	}
	return p
}

func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("not what was expected: %v: %s", err, clip(a.body))
	}
}

func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("not a JSON object: %v: %s", err, clip(a.body))
	}
	return m
}

func (a answer) list(t *testing.T) []map[string]any {
	t.Helper()
	var l []map[string]any
	if err := json.Unmarshal(a.body, &l); err != nil {
		t.Fatalf("not a JSON array of objects: %v: %s", err, clip(a.body))
	}
	return l
}

func (a answer) ids(t *testing.T) []string {
	t.Helper()
	var ids []string
	for _, e := range a.list(t) {
		ids = append(ids, e["id"].(string))
	}
	return ids
}

func (a answer) cursor() string { return a.header.Get("Signalbox-Cursor") }

func clip(b []byte) string {
	if len(b) > 600 {
		return string(b[:600]) + "…"
	}
	return string(b)
}

func eq[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func sameList(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// patience is how long a test waits for what must come. It decides nothing but
// when a test that fails gives up, so a machine that is busy may take its time.
const patience = 60 * time.Second

// eventually waits for a condition that needs no exact moment.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("waited in vain: %s", what)
}

func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "?" + q.Encode()
}

func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
