// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"signalbox/event"
)

const (
	// answerBytesMax bounds an answer that is read as a whole: four of the largest events, and every list of topics.
	answerBytesMax = 64 << 20
	// problemBytesMax bounds an error document; what a proxy sends beyond it says nothing new.
	problemBytesMax = 64 << 10
)

// UnreachableError says that no try of a call brought an answer: the broker is not running, the network is broken, or
// the answer was cut. Whether a publish took effect is unknown; publishing the same event again is safe.
type UnreachableError struct {
	URL      string // the broker's base URL
	Attempts int
	Err      error // of the last try
}

func (e *UnreachableError) Error() string {
	tries := "1 try"
	if e.Attempts != 1 {
		tries = strconv.Itoa(e.Attempts) + " tries"
	}
	return fmt.Sprintf("no answer from the broker at %s after %s: %v", e.URL, tries, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// call is one request that may be tried several times. Nearly every call of this package may: reads and policies are
// idempotent, and a publish repeats the event ids it was given.
type call struct {
	method string
	url    string
	header http.Header
	body   []byte
	wait   time.Duration // for which the broker may hold the call, beside what one try may take
	once   bool          // a second try could do the same a second time
}

// tokenError says that there is no token for a request.
type tokenError struct{ error }

func (e *tokenError) Error() string { return "a token cannot be made: " + e.error.Error() }
func (e *tokenError) Unwrap() error { return e.error }

// tokenRefused returns what the broker has said, or that it has said nothing, to whoever makes tokens and asked it for
// what they need: that was as patient as this call is, and what came of it is the answer to this call, too. It is nil
// for every other error.
func tokenRefused(err error) error {
	t := (*tokenError)(nil)
	if !errors.As(err, &t) {
		return nil
	}
	u, e := (*UnreachableError)(nil), (*event.Error)(nil)
	if errors.As(t.error, &u) || errors.As(t.error, &e) {
		return t.error
	}
	return nil
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, k.url, body)
	if err != nil {
		return nil, fmt.Errorf("client: build the request: %w", err)
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", c.agent)
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return nil, &tokenError{err}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// do sends a call until it is answered, and decodes a JSON answer into into, unless that is nil.
func (c *Client) do(ctx context.Context, k call, into any) (int, http.Header, error) {
	status, header, body, err := c.roundTrip(ctx, k)
	if err != nil || into == nil {
		return status, header, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return status, header, fmt.Errorf("client: the answer of %s %s is not what a Signalbox broker sends: %w", k.method, k.url, err)
	}
	return status, header, nil
}

// roundTrip is the retry loop of all calls with a short answer.
func (c *Client) roundTrip(ctx context.Context, k call) (int, http.Header, []byte, error) {
	for n := 1; ; n++ {
		status, header, body, err := c.once(ctx, k)
		if err == nil {
			return status, header, body, nil
		}
		if final := tokenRefused(err); final != nil {
			return 0, nil, nil, final
		}
		again, after := retryable(err)
		if ctx.Err() != nil {
			return 0, nil, nil, fmt.Errorf("client: %s %s: %w (last try: %w)", k.method, k.url, context.Cause(ctx), plain(err))
		}
		if r := (*refusal)(nil); k.once && !errors.As(err, &r) {
			again = false
		}
		if !again || n >= c.retry.Attempts {
			return 0, nil, nil, c.giveUp(err, n)
		}
		if sleepErr := sleep(ctx, c.retry.wait(n, after)); sleepErr != nil {
			return 0, nil, nil, fmt.Errorf("client: %s %s: %w (last try: %w)", k.method, k.url, sleepErr, plain(err))
		}
	}
}

// giveUp turns the error of the last try into what the caller sees.
func (c *Client) giveUp(err error, attempts int) error {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.problem
	}
	return &UnreachableError{URL: c.base, Attempts: attempts, Err: plain(err)}
}

// once is a single try.
func (c *Client) once(caller context.Context, k call) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(caller, c.attempt+k.wait)
	defer cancel()
	late := func(err error) error {
		if caller.Err() != nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return err // it was not the client's own limit that ended the try
		}
		return fmt.Errorf("no answer within %s: %w", c.attempt+k.wait, plain(err))
	}
	req, err := c.request(ctx, k)
	if err != nil {
		return 0, nil, nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil, late(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return 0, nil, nil, readRefusal(res)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	if err != nil {
		return 0, nil, nil, late(err)
	}
	if len(body) > answerBytesMax {
		return 0, nil, nil, fmt.Errorf("the answer is longer than %d bytes", answerBytesMax)
	}
	return res.StatusCode, res.Header, body, nil
}

// refusal is an answer other than 2xx.
type refusal struct {
	problem *event.Error
	status  int
	again   bool
	foreign bool          // no broker speaks here, but something in front of it
	after   time.Duration // from Retry-After
}

func (r *refusal) Error() string { return r.problem.Error() }
func (r *refusal) Unwrap() error { return r.problem }

// retryable decides whether a further try can help, and how long the server asked to wait.
func retryable(err error) (bool, time.Duration) {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.again, r.after
	}
	// A certificate that does not verify will not verify in a second either.
	if c := (*tls.CertificateVerificationError)(nil); errors.As(err, &c) {
		return false, 0
	}
	return true, 0
}

// readRefusal rebuilds the broker's error from its problem document (RFC 9457).
func readRefusal(res *http.Response) *refusal {
	body, _ := io.ReadAll(io.LimitReader(res.Body, problemBytesMax))
	r := &refusal{status: res.StatusCode, after: retryAfter(res.Header.Get("Retry-After"))}
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "application/problem+json" {
		if r.problem, r.again = parseProblem(body); r.problem != nil {
			return r
		}
	}
	r.foreign = true
	// These four mean "later", the others need a person.
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		r.again = true
		r.problem = event.Errorf(event.CodeOverloaded, "Something between this client and the broker answered %s; try again later.", res.Status)
	default:
		r.problem = event.Errorf(event.CodeInternal,
			"The answer %s carries no problem document; check that the URL is a Signalbox broker's.", res.Status)
	}
	r.problem = r.problem.Fact("status", res.StatusCode)
	return r
}

// parseProblem reads a problem document; nil when it is none of ours. Members that the document adds become facts.
func parseProblem(body []byte) (_ *event.Error, again bool) {
	var known struct {
		Code      event.Code `json:"code"`
		Detail    string     `json:"detail"`
		Field     string     `json:"field"`
		Retryable bool       `json:"retryable"`
	}
	if json.Unmarshal(body, &known) != nil || known.Code == "" {
		return nil, false
	}
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&all) != nil {
		return nil, false
	}
	for _, name := range []string{"type", "title", "status", "detail", "code", "field", "retryable", "instance"} {
		delete(all, name)
	}
	e := &event.Error{Code: known.Code, Message: known.Detail, Field: known.Field}
	for name, v := range all {
		e = e.Fact(name, number(v))
	}
	return e, known.Retryable
}

// number gives JSON numbers a Go type a caller can use without knowing encoding/json: int64 where the value is one.
func number(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64()
	return f
}

// retryAfter reads the header's two forms, seconds and an HTTP date; 0 when it is absent or neither.
func retryAfter(s string) time.Duration {
	if n, ok := parseDigits([]byte(s)); ok {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// plain strips the method and the URL that net/http puts around an error: the caller is told both anyway.
func plain(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
