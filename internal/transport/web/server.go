// SPDX-License-Identifier: Apache-2.0

// Package web is the HTTP door of the broker: publish, read by SSE, poll and
// long poll, state, digest, topics and operation (api/openapi.yaml is its
// contract). It turns requests into calls of package broker and answers into
// bytes, and holds no rule about events: what is refused here is only what
// HTTP itself makes wrong (a body without end, a header twice, a URL that does
// not exist).
//
// It guarantees that every refusal is a problem document (RFC 9457) with a
// code of package event, that no request makes it hold more than its named
// limits, and that a reader that stops reading is cut and loses nothing, for
// it has its cursor. It imports broker, identity and event, never a stage
// behind broker and never another transport.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/metrics"
	"signalbox/internal/tracing"
)

// Options is what a [Server] is made of. Broker is required; a zero duration
// or count means the default given with each field.
type Options struct {
	Broker *broker.Broker
	Logger *slog.Logger // slog.Default

	// Tracer makes spans; nil makes none.
	Tracer *tracing.Tracer

	// ReadTimeout stops requests that trickle in. 60 s. Answers that take
	// longer (streams, long polls, downloads) lift it, see [lift].
	ReadTimeout time.Duration
	// Heartbeat is how long an event stream stays silent at most. 15 s, the
	// interval that the HTML standard recommends against legacy proxies.
	Heartbeat time.Duration
	// StreamLife is how long an event stream lasts, within a fifth. 10 min: it
	// must end in good order before a proxy cuts it in the middle of a frame.
	StreamLife time.Duration
	// StallTimeout cuts a reader that took not one byte for so long. 10 s.
	StallTimeout time.Duration
	// StateTime is how long a download of state may take, as it pins a
	// snapshot of the store. 5 min.
	StateTime time.Duration
	// ShutdownGrace is what Serve gives open requests to end. 10 s.
	ShutdownGrace time.Duration
	// MaxConns stops connections from using up the file descriptors, which
	// the store could not survive. 11,000: ten thousand streams, and room for
	// those who publish and who look after the broker.
	MaxConns int
	// TLS is with what the door proves who it is. Nil: it does not, and speaks
	// HTTP without encryption.
	TLS *tls.Config
	// Origins are the origins, such as https://console.example, whose pages may
	// open a WebSocket and change things beside those of the broker's own.
	Origins []string
	// Processors is how many there are; one stream more than that writes at one
	// time. GOMAXPROCS.
	Processors int
}

// The limits that no option changes.
const (
	// readHeaderTimeout stops connections that never finish a request head.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout frees connections that are kept alive for nothing.
	idleTimeout = 2 * time.Minute
	// headerBytesMax must let a binary-mode event of 64 KiB pass whose
	// attributes are all percent-encoded; it stops heads beyond that.
	headerBytesMax = 256 << 10
)

// Server serves one broker over HTTP. It is an http.Handler too.
type Server struct {
	opt    Options
	broker *broker.Broker
	log    *slog.Logger
	mux    *http.ServeMux
	pages  *http.CrossOriginProtection // which web pages may change things
	// The mux's handlers of publishPath and messagesPath, for lanes.
	publisher, messenger http.HandlerFunc
	held                 budget  // bytes of bodies and answers in memory
	streams              streams // event streams that left net/http
	newcomers            newcomers
	states               atomic.Int64
	exports              atomic.Int64
	conns                atomic.Int64
	shared               atomic.Int64 // requests on connections of HTTP/2
	turns                turns
	metrics              *metrics.Metrics
	date                 dateField
}

// New makes a server; nothing runs until Serve or ServeHTTP is called.
func New(o Options) (*Server, error) {
	if o.Broker == nil {
		return nil, errors.New("web: Options.Broker is required")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.ReadTimeout = orDefault(o.ReadTimeout, 60*time.Second)
	o.Heartbeat = orDefault(o.Heartbeat, 15*time.Second)
	o.StreamLife = orDefault(o.StreamLife, 10*time.Minute)
	o.StallTimeout = orDefault(o.StallTimeout, 10*time.Second)
	o.StateTime = orDefault(o.StateTime, 5*time.Minute)
	o.ShutdownGrace = orDefault(o.ShutdownGrace, 10*time.Second)
	o.MaxConns = orDefault(o.MaxConns, 11_000)
	o.Processors = orDefault(o.Processors, runtime.GOMAXPROCS(0))
	s := &Server{
		opt: o, broker: o.Broker, log: o.Logger, turns: newTurns(o.Processors), metrics: o.Broker.Metrics(),
		pages: http.NewCrossOriginProtection(),
	}
	for _, origin := range o.Origins {
		if err := s.pages.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("web: Options.Origins: %w", err)
		}
	}
	s.metrics.Source(s.sample)
	s.mux = s.routes()
	return s, nil
}

func orDefault[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// Serve answers on l until ctx ends, then drains the broker, lets streams end
// in good order and returns. There is no write timeout for the whole server:
// it would cut event streams in the middle (golang/go#16100); every write
// is bounded by how long its client takes nothing instead, see patience.go.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       s.opt.ReadTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ConnState:         s.countConn,
		Protocols:         new(http.Protocols),
		HTTP2:             s.http2(),
		TLSConfig:         s.opt.TLS,
	}
	hs.Protocols.SetHTTP1(true)
	lanes := newLanes(s, l)
	serve := func() error { return hs.Serve(lanes) }
	if s.opt.TLS == nil {
		hs.Protocols.SetUnencryptedHTTP2(true) // for programs that know; browsers have no such thing
	} else {
		hs.Protocols.SetHTTP2(true)
		serve = func() error { return hs.ServeTLS(lanes, "", "") }
	}
	failed := make(chan error, 2)
	go lanes.accept(failed)
	go func() { failed <- serve() }()
	var broken error
	select {
	case broken = <-failed:
	case <-ctx.Done():
	}
	s.broker.Drain()
	defer time.AfterFunc(newcomerGrace, s.newcomers.close).Stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.ShutdownGrace)
	defer cancel()
	err := hs.Shutdown(grace)
	if err == nil {
		err = lanes.wait(grace)
	}
	if err == nil {
		err = s.streams.wait(grace)
	}
	if err == nil {
		return broken
	}
	s.log.Warn("connections did not end within the grace period and are closed", "grace", s.opt.ShutdownGrace, "todo", "nothing: their clients come back")
	s.streams.close()
	lanes.abandon()
	err = hs.Close()
	// Their goroutines see that at the next write, and then let go of the
	// broker, which the caller is about to close.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.ShutdownGrace)
	defer cancel()
	return errors.Join(broken, err, lanes.wait(last), s.streams.wait(last))
}

const (
	// streamsPerConn is for a connection of HTTP/2. Browsers open no more than
	// 100 or so; together they are bounded by MaxConns. A client that opens and
	// resets them faster than they end (rapid reset) is cut off by net/http at four
	// times as many.
	streamsPerConn = 250
	// uploadBytes is what one connection of HTTP/2 may have sent that nobody has
	// read yet. It is not in the budget of bodies, so it is small.
	uploadBytes = 256 << 10
)

// http2 bounds connections of HTTP/2 as those of HTTP/1 are: one that takes
// nothing ends as a stalled reader does, and one on which nothing comes is asked
// whether it is still there.
func (s *Server) http2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streamsPerConn,
		MaxReceiveBufferPerConnection: uploadBytes,
		MaxReceiveBufferPerStream:     uploadBytes,
		WriteByteTimeout:              s.opt.StallTimeout,
		SendPingTimeout:               s.opt.Heartbeat,
		PingTimeout:                   silenceMax * s.opt.Heartbeat,
	}
}

// countConn counts the connections of net/http out. An event stream, which is
// StateHijacked, counts itself out when it ends.
func (s *Server) countConn(conn net.Conn, state http.ConnState) {
	s.newcomers.note(conn, state)
	if state == http.StateClosed {
		s.conns.Add(-1)
	}
}

// ServeHTTP answers one request. Those that share a connection are bounded as
// connections are, and broken off for the same reason.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		s.serve(w, r, s.mux)
		return
	}
	defer s.shared.Add(-1)
	if s.shared.Add(1) > int64(s.opt.MaxConns) {
		s.metrics.HTTP.Dropped.Inc()
		panic(http.ErrAbortHandler)
	}
	answer := newSharedAnswer(w, s.opt.StallTimeout)
	s.serve(answer, r, s.mux)
	answer.end()
}

// serve is what every request goes through, in lanes too.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, h http.Handler) {
	if err := s.checkRequest(r); err != nil {
		s.problem(w, r, err)
		return
	}
	h.ServeHTTP(w, r)
}

// checkRequest refuses what no route wants.
func (s *Server) checkRequest(r *http.Request) error {
	if !loopbackHost(r.Host) {
		return event.Errorf(event.CodeHostRefused,
			"The host %.80q is not this machine: while the broker has no identity configured, call it as localhost or by a loopback address.", r.Host).With("Host")
	}
	if err := s.checkPage(r); err != nil {
		return err
	}
	// A compressed body would have to be limited by its expanded size on every
	// route alike; it is refused on every route instead.
	for _, encoding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(encoding, "identity") {
			return event.Errorf(event.CodeEncodingUnsupported,
				"The Content-Encoding %.40q is not understood: send the body as it is.", encoding).With("Content-Encoding")
		}
	}
	// The mux would redirect, and a redirected POST becomes a GET.
	if p := r.URL.EscapedPath(); p != "*" && (strings.Contains(p, "//") || len(path.Clean(p)) < len(p)-1) {
		return event.Errorf(event.CodeNotFound,
			"The path %.80q has empty or dot segments: remove them, or percent-encode a slash or dot that belongs to a key.", p)
	}
	return nil
}
