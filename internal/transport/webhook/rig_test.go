// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/identity"
	"signalbox/internal/transport/webhook"
)

// rig is a broker with an engine.
type rig struct {
	*broker.Broker
	t      testing.TB
	dir    string
	fs     *vfs.MemFS   // nil: the machine's files in dir
	clock  broker.Clock // nil: the machine's
	change func(*webhook.Options)
	stop   func()
	roots  *x509.CertPool
	guard  *egress.Guard
}

// newRig starts one that may send to this machine, and retries at once.
func newRig(t testing.TB, change func(*webhook.Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), change: change, roots: x509.NewCertPool()}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	r.t.Helper()
	allowed, err := egress.ParseAllowed([]string{"127.0.0.0/8"})
	if err != nil {
		r.t.Fatal(err)
	}
	guard := egress.NewGuard(egress.Options{Allowed: allowed})
	r.guard = guard
	logger := slog.New(slog.DiscardHandler)
	bo := broker.Options{Dir: r.dir, Logger: logger, CheckSink: guard.CheckSink, Clock: r.clock}
	if r.fs != nil {
		bo.Dir, bo.FS = "data", r.fs
	}
	b, err := broker.Open(bo)
	if err != nil {
		r.t.Fatal(err)
	}
	o := webhook.Options{Broker: b, Guard: guard, Logger: logger, Schedule: []time.Duration{10 * time.Millisecond}, Origin: "broker.example",
		Transport: func(t *http.Transport) { t.TLSClientConfig = &tls.Config{RootCAs: r.roots} }}
	if r.change != nil {
		r.change(&o)
	}
	e, err := webhook.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	stop := e.Start(context.Background())
	r.Broker = b
	r.stop = sync.OnceFunc(func() {
		stop()
		if err := b.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

// subscribe makes a webhook for topic "a"; more is further members of the config.
func (r *rig) subscribe(sink, more string) string {
	r.t.Helper()
	if !strings.Contains(more, `"topics"`) {
		more += `,"topics":["a"]`
	}
	d, err := event.ParseSubscription(fmt.Appendf(nil, `{"protocol":"HTTP","sink":%q,"config":{"start":"earliest"%s}}`, sink, more))
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := r.CreateSubscription(context.Background(), identity.Anonymous(), d)
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Document.ID
}

// replace gives a webhook another sink.
func (r *rig) replace(id, sink string) {
	r.t.Helper()
	info, err := r.Subscription(id)
	if err != nil {
		r.t.Fatal(err)
	}
	info.Document.Sink = sink
	if _, err := r.UpdateSubscription(context.Background(), identity.Anonymous(), id, info.Document); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) publish(topic, id, key string) {
	r.t.Helper()
	ev, err := event.Draft{ID: id, Source: "/s", Type: "t", Subject: key, Data: []byte(`{"n":1}`), DataContentType: "application/json"}.Event()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Publish(context.Background(), identity.Anonymous(), broker.PublishRequest{Topic: topic, Events: []*event.Event{ev}}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) status(id string) broker.SubscriptionStatus {
	r.t.Helper()
	info, err := r.Subscription(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Status
}

// patience is how long a test waits for what must come. It decides nothing but when a
// test that fails gives up.
const patience = time.Minute

// until waits until something is so.
func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not after %s", what, patience)
		}
	}
}

// push is a request that arrived at a sink.
type push struct {
	method string
	header http.Header
	body   []byte
	event  *event.Event
}

func (p *push) id() string { return p.event.ID() }

// sink is an endpoint.
type sink struct {
	*httptest.Server
	mu    sync.Mutex
	got   []push
	reply func(w http.ResponseWriter, p *push, n int) // n counts from 1; nil: 204
}

func (s *sink) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	p := push{method: req.Method, header: req.Header.Clone(), body: body}
	if p.event, _ = event.DecodeDelivered(body); p.event == nil {
		p.event, _ = event.DecodeBinary(req.Header, body)
	}
	s.mu.Lock()
	s.got = append(s.got, p)
	n := len(s.got)
	s.mu.Unlock()
	if s.reply != nil {
		s.reply(w, &p, n)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *rig) sink(reply func(w http.ResponseWriter, p *push, n int)) *sink {
	r.t.Helper()
	s := &sink{reply: reply}
	s.Server = httptest.NewServer(s)
	r.t.Cleanup(s.Close)
	return s
}

func (s *sink) pushes() []push {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]push(nil), s.got...)
}

func (s *sink) ids() (ids []string) {
	for _, p := range s.pushes() {
		if p.event != nil {
			ids = append(ids, p.id())
		}
	}
	return ids
}
