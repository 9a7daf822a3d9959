// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/event"
)

const (
	// idleConnsMax bounds the idle connections kept to one broker. The standard library's 2 would make a program with
	// many concurrent publishers open and close connections all the time.
	idleConnsMax = 256
	// attemptTimeout bounds one try of a call that has a short answer; it stops a silent broker from holding a caller
	// that passed a context without a deadline.
	attemptTimeout = 30 * time.Second
	// watchdogTimeout is three heartbeats: a stream that was silent for so long is dead, even if its socket is not.
	watchdogTimeout = 45 * time.Second
	// pingAfter is how long a connection of HTTP/2 is silent before it is asked whether it is still there, and how long
	// the answer may take: together less than the watchdog.
	pingAfter = 15 * time.Second
)

// Client talks to one broker. It is safe for concurrent use and needs no closing.
type Client struct {
	base     string // scheme, host and path prefix, without a trailing slash
	http     *http.Client
	roots    *x509.CertPool // nil: those of the system
	clock    *Clock         // nil: the broker stamps
	retry    Retry
	attempt  time.Duration
	watchdog time.Duration
	agent    string
	token    TokenSource // nil: nobody says who the caller is
}

// Option changes how a client behaves.
type Option func(*Client)

// WithHTTPClient sets the HTTP client, for TLS settings or a transport of one's own. Its Timeout must be 0: it would
// cut every stream.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithRootCAs makes the client trust these authorities, and no others, for https. It has no effect beside WithHTTPClient.
func WithRootCAs(roots *x509.CertPool) Option { return func(c *Client) { c.roots = roots } }

// WithClock makes the client stamp with a clock that it shares with others, or that continues a stored one. A nil clock
// turns stamping off: the broker then stamps each event on arrival, which orders events by arrival.
func WithClock(k *Clock) Option { return func(c *Client) { c.clock = k } }

// WithRetry sets the patience of the client. Retry{Attempts: 1} never tries a call twice.
func WithRetry(r Retry) Option { return func(c *Client) { c.retry = r } }

// WithAttemptTimeout bounds a single try of a call with a short answer; 0 means 30 s. Streams and state downloads are
// bounded by silence instead, see [WithWatchdog].
func WithAttemptTimeout(d time.Duration) Option { return func(c *Client) { c.attempt = d } }

// WithWatchdog sets for how long a stream or a download may be silent before it counts as dead; 0 means 45 s, three of
// the broker's heartbeats.
func WithWatchdog(d time.Duration) Option { return func(c *Client) { c.watchdog = d } }

// TokenSource returns a token that says who the caller is. It is asked for each request, and for each try of it.
type TokenSource func(ctx context.Context) (string, error)

// WithToken makes the client say who the caller is, to read what only agents of the ticket protocol may read. The
// tokens of an agent are made by ticket.Tokens.
func WithToken(source TokenSource) Option { return func(c *Client) { c.token = source } }

// WithUserAgent names the program in the broker's logs.
func WithUserAgent(name string) Option { return func(c *Client) { c.agent = name } }

// New returns a client of the broker at baseURL, for example "http://127.0.0.1:8080". It does not connect.
func New(baseURL string, opts ...Option) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, event.Errorf(event.CodeParameterInvalid,
			"The broker URL %q is not usable; give scheme and host, for example http://127.0.0.1:8080.", baseURL).With("url")
	}
	if u.User != nil {
		return nil, event.Errorf(event.CodeParameterInvalid,
			"The broker URL must not carry a user name or password; put credentials into the HTTP client").With("url")
	}
	c := &Client{base: u.String(), clock: NewClock(0), agent: "signalbox-go"}
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		c.http = newHTTPClient(c.roots)
	}
	if c.http.Timeout != 0 {
		return nil, fmt.Errorf("client: the HTTP client's Timeout of %s would cut every stream; use WithAttemptTimeout instead", c.http.Timeout)
	}
	c.retry = c.retry.withDefaults()
	if c.attempt <= 0 {
		c.attempt = attemptTimeout
	}
	if c.watchdog <= 0 {
		c.watchdog = watchdogTimeout
	}
	return c, nil
}

// newHTTPClient follows no redirects: a broker never sends one, and a proxy that does (to a login page, say) must show
// up as an error instead of swallowing events.
func newHTTPClient(roots *x509.CertPool) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	// Over https it is HTTP/2, where all calls share a connection. One whose other end has vanished must not be handed
	// to the next call again and again.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	t.MaxIdleConns = idleConnsMax
	t.MaxIdleConnsPerHost = idleConnsMax
	// Compression buffers: an event would wait for the ones behind it.
	t.DisableCompression = true
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// With returns a client that differs in some options and shares the connections. WithHTTPClient and WithRootCAs have no
// effect here.
func (c *Client) With(opts ...Option) *Client {
	other := *c
	for _, o := range opts {
		o(&other)
	}
	other.http, other.roots = c.http, c.roots
	return &other
}

// Clock returns the clock this client stamps with, nil when stamping is off.
func (c *Client) Clock() *Clock { return c.clock }

// observe merges what was read into the clock.
func (c *Client) observe(h event.HLC) {
	if c.clock != nil && h != 0 {
		c.clock.Observe(h)
	}
}

// topicPath is the URL of a topic and what is below it, each element escaped.
func (c *Client) topicPath(topic string, below ...string) string {
	var b strings.Builder
	b.WriteString(c.base)
	b.WriteString("/v1/topics/")
	b.WriteString(pathEscape(topic))
	for _, s := range below {
		b.WriteByte('/')
		b.WriteString(pathEscape(s))
	}
	return b.String()
}

// pathEscape escapes one element of a path. An element of dots alone means "here" or "one up" to everything that a
// request passes on its way, so its dots are escaped as well.
func pathEscape(s string) string {
	if strings.Trim(s, ".") == "" {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
