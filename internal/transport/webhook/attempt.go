// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/metrics"
	"signalbox/internal/signature"
)

const (
	// answerBytes is what is read of an answer, so that its connection can be used
	// again; nothing of it is kept. A longer one costs its sender the connection.
	answerBytes = 16 << 10
	// answerTime is how long the rest of an answer may take once its status is
	// known.
	answerTime = time.Second
	// batchMax bounds the events of one batch.
	batchMax = 100
	// answerHeaderBytes bounds the head of an answer.
	answerHeaderBytes = 32 << 10
	// retryAfterMax is the longest time for which an endpoint may put the broker off.
	retryAfterMax = 6 * time.Hour
	// throttled is for how long an endpoint is left alone that says that it gets too
	// much, and not for how long.
	throttled = time.Minute
	// jitter spreads retries over a fifth of their time, either way.
	jitter = 5
)

// newTransports makes the transports without and with TLS. They follow no redirect.
func (e *Engine) newTransports() (transports [2]*http.Transport) {
	for i := range transports {
		t := &http.Transport{
			Proxy:                  nil, // not that of the environment: it would dial what the guard refuses
			DialContext:            e.opt.Guard.Dialer(i == 1),
			ForceAttemptHTTP2:      true,
			DisableCompression:     true,
			MaxConnsPerHost:        e.opt.HostAttempts,
			MaxIdleConnsPerHost:    e.opt.HostAttempts,
			MaxIdleConns:           e.opt.Attempts,
			IdleConnTimeout:        time.Minute,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: answerHeaderBytes,
		}
		if e.opt.Transport != nil {
			e.opt.Transport(t)
		}
		transports[i] = t
	}
	return transports
}

func (e *Engine) transport(target *url.URL) *http.Transport {
	if target.Scheme == "https" {
		return e.transports[1]
	}
	return e.transports[0]
}

// consignment is what was handed out at one time, and what its requests have in common.
type consignment struct {
	lot      lot
	w        *broker.Webhook
	request  *http.Request // without a body; nil: it cannot be made
	keys     []signature.Key
	messages []message
	deadline time.Time // by which its attempts end
	expired  bool      // the token for the sink has, so none is sent
}

func (e *Engine) consign(ctx context.Context, lot lot, w *broker.Webhook, target *url.URL, messages []message) *consignment {
	c := &consignment{lot: lot, w: w, keys: e.keys(w), messages: messages, deadline: time.Now().Add(e.timeout(&w.Document))}
	now := time.Now()
	c.expired = w.Document.TokenExpired(now)
	if r, err := e.request(ctx, w, target, http.MethodPost, now); err == nil {
		c.request = r
	}
	return c
}

// sign returns the request of a message, signed at this moment.
func (c *consignment) sign(ctx context.Context, m *message) *http.Request {
	r := c.request.WithContext(ctx)
	r.Header = maps.Clone(c.request.Header)
	maps.Copy(r.Header, m.header)
	at := time.Now()
	r.Header.Set(signature.HeaderID, m.id)
	r.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	r.Header.Set(signature.HeaderSignature, signature.Sign(c.keys, m.id, at, m.body))
	body := m.body
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody() // which cannot fail
	return r
}

// message is what one request carries.
type message struct {
	id     string // stable over the attempts; no event has a say in it
	header http.Header
	body   []byte
	events []broker.HandedOut // without the events themselves
}

// messages puts events in the form that the subscriber wants, in at most so many
// messages if it wants batches. It keeps of them only that form.
func (e *Engine) messages(w *broker.Webhook, handed []broker.HandedOut, most int) (list []message) {
	incarnation := e.b.Head().Incarnation
	prefix := "msg_" + incarnation + "_" + w.Document.ID + "_"
	mode := w.Document.Config.ContentMode
	if mode == event.ContentBatch {
		for len(handed) > 0 {
			n := len(handed)
			if len(list)+1 < most {
				n = batched(handed)
			}
			list = append(list, batch(prefix, handed[:n]))
			handed = handed[n:]
		}
		return list
	}
	for i, h := range handed {
		position, _, _ := strings.Cut(h.Token, ".")
		m := message{id: prefix + position, events: handed[i : i+1], header: http.Header{"Content-Type": {"application/cloudevents+json"}}, body: h.Event}
		if mode == event.ContentBinary {
			// Shaped events may lack what the standard wants, and some have no data or no
			// type of it, which webhooks must have (CloudEvents webhook 2.1): these go as
			// they are.
			if decoded, err := event.DecodeDelivered(h.Event); err == nil {
				header := http.Header{}
				if body := decoded.EncodeBinary(header); len(body) > 0 && header.Get("Content-Type") != "" {
					m.header, m.body = header, body
				}
			}
		}
		handed[i].Event = nil
		list = append(list, m)
	}
	return list
}

// batched is how many of the events go in one batch. Each attempt that has failed
// divides that by four: so an event for which its endpoint refuses all of a batch is
// soon alone, and does not take others with it to the dead letters.
func batched(handed []broker.HandedOut) (n int) {
	most := batchMax
	for ; n < len(handed); n++ {
		most = min(most, max(1, batchMax>>min(16, 2*(handed[n].Attempt-1))))
		if n >= most {
			break
		}
	}
	return n
}

func batch(prefix string, handed []broker.HandedOut) message {
	m := message{header: http.Header{"Content-Type": {"application/cloudevents-batch+json"}}, events: handed, body: []byte{'['}}
	sum := sha256.New()
	for i, h := range handed {
		if i > 0 {
			m.body = append(m.body, ',')
		}
		m.body = append(m.body, h.Event...)
		handed[i].Event = nil
		position, _, _ := strings.Cut(h.Token, ".")
		_, _ = io.WriteString(sum, position+" ") // a hash takes everything
	}
	m.body = append(m.body, ']')
	// A batch that is sent again may be put together in another way, and is then
	// another message.
	m.id = prefix + hex.EncodeToString(sum.Sum(nil)[:12])
	return m
}

// outcome is what became of an attempt.
type outcome struct {
	class      metrics.WebhookClass
	reason     string
	hold       time.Duration // the endpoint wants to be left alone
	unanswered bool          // it had the request, and said nothing
	disable    string        // why nothing more may be sent to it
	took       time.Duration
	unsent     bool // nothing has left
}

// halts reports whether the endpoint is to get nothing more for now.
func (o *outcome) halts() bool { return o.hold > 0 || o.disable != "" }

// send makes one attempt, as soon as its host has a token of sending for it, if the
// endpoint may still get something then. It ends by the deadline, whatever the endpoint
// does.
func (e *Engine) send(ctx context.Context, ep *endpoint, c *consignment, m *message) (o outcome) {
	ctx, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	select {
	case c.lot.sending <- struct{}{}:
	case <-ctx.Done():
		return outcome{class: metrics.WebhookFailed, unsent: true}
	}
	began := time.Now()
	defer func() {
		o.took = time.Since(began)
		if o.halts() {
			e.halt(ep)
		}
		<-c.lot.sending
	}()
	if e.sinkOf(ep) != c.w.Document.Sink || ctx.Err() != nil {
		return outcome{class: metrics.WebhookFailed, unsent: true}
	}
	if c.request == nil {
		return outcome{class: metrics.WebhookFailed, reason: "the request cannot be made"}
	}
	var written atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { written.Store(i.Err == nil) }})
	answer, err := e.transport(c.request.URL).RoundTrip(c.sign(traced, m))
	if err != nil {
		return e.failure(err, written.Load(), c.w.Document.ID)
	}
	e.finish(answer, cancel)
	o = classify(answer, time.Now())
	if c.expired {
		o.reason += missedToken(answer)
	}
	return o
}

// missedToken is what is told beside an answer to a request without the token, which had
// expired.
func missedToken(answer *http.Response) string {
	if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden {
		return ""
	}
	return ", and was sent no token: that in sinkcredential has expired"
}

// timeout leaves time to store what became of an attempt before the event's
// deadline.
func (e *Engine) timeout(d *event.Subscription) time.Duration {
	return min(e.opt.Timeout, d.Config.Visibility.Std()*2/3)
}

// request makes a request with what every one to an endpoint has at a time.
func (e *Engine) request(ctx context.Context, w *broker.Webhook, target *url.URL, method string, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	headers, err := w.Document.SinkHeaders()
	if err != nil {
		return nil, err
	}
	req.Header = headers
	req.Header.Set("User-Agent", "signalbox")
	switch scheme, credentials := w.Document.Authorization(now); scheme {
	case "Basic":
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credentials)))
	case "Bearer":
		req.Header.Set("Authorization", "Bearer "+credentials)
	}
	if w.Document.Config.Handshake {
		req.Header.Set("Webhook-Request-Origin", e.opt.Origin)
	}
	return req, nil
}

// keys are those with which the subscriber wants to be signed to.
func (e *Engine) keys(w *broker.Webhook) (keys []signature.Key) {
	if w.Document.Config.Signature == event.SignatureHMAC {
		for _, secret := range w.Document.Config.Secrets {
			if k, err := signature.Parse(secret); err == nil { // it was checked when it was stored
				keys = append(keys, k)
			}
		}
		return keys
	}
	for _, k := range e.b.WebhookKeys() {
		keys = append(keys, k.Key)
	}
	return keys
}

// finish reads a little of the answer, for no longer than a moment.
func (e *Engine) finish(answer *http.Response, cancel context.CancelFunc) {
	late := time.AfterFunc(answerTime, cancel)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, answer.Body, answerBytes) // what it says does not matter
	_ = answer.Body.Close()                               // nor that there is more
}

// classify says what an answer means (Standard Webhooks, operations; CloudEvents
// webhook 2.2). A redirect is an answer like any other, and not followed.
func classify(answer *http.Response, now time.Time) outcome {
	code := answer.StatusCode
	o := outcome{class: metrics.WebhookFailed, reason: fmt.Sprintf("the endpoint answered %d", code)}
	switch {
	case code >= 200 && code < 300:
		return outcome{class: metrics.WebhookDelivered}
	case code == http.StatusGone:
		o.disable = "it answered 410: its subscriber wants no more events"
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		o.hold = retryAfter(answer.Header.Get("Retry-After"), now)
		if o.hold == 0 && code == http.StatusTooManyRequests {
			o.hold = throttled
		}
	}
	return o
}

// retryAfter reads the header in both of its forms (RFC 9110 10.2.3). A number may
// have any number of digits.
func retryAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), retryAfterMax)
	}
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds > int64(retryAfterMax/time.Second) {
		return retryAfterMax
	}
	return time.Duration(seconds) * time.Second
}

// refused is all that a subscriber is told of an address that is refused: what the
// names of the broker's own network stand for is none of its business.
const refused = "the endpoint's host leads to an address that the broker does not connect to"

// failure says what the lack of an answer means. An endpoint whose address is
// refused gets nothing more: trying again would change nothing.
func (e *Engine) failure(err error, written bool, id string) outcome {
	if refusal := (*egress.Refusal)(nil); errors.As(err, &refusal) {
		e.log.Warn("a webhook leads to an address that is refused", "subscription", id, "address", refusal.Address, "todo", "webhook_allow allows more addresses")
		return outcome{class: metrics.WebhookRefused, reason: refused, disable: refused}
	}
	o := outcome{class: metrics.WebhookFailed, reason: "the endpoint cannot be reached", unanswered: written}
	var dns *net.DNSError
	var netErr net.Error
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &noTLS):
		o.reason = "the endpoint does not speak TLS"
	case errors.As(err, &dns):
		o.reason = "the endpoint's name cannot be resolved"
	case errors.As(err, &netErr) && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded):
		o.class, o.reason = metrics.WebhookTimeout, "the endpoint did not answer in time"
	case strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: "):
		o.reason = "the endpoint's certificate is not accepted"
	case written:
		o.reason = "the endpoint ended the connection without an answer"
	}
	return o
}

// delay is how long an event waits after an attempt.
func (e *Engine) delay(attempt int) time.Duration {
	d := e.opt.Schedule[min(max(attempt, 1), len(e.opt.Schedule))-1]
	spread := d / jitter
	if spread <= 0 {
		return d
	}
	return d - spread + rand.N(2*spread)
}
