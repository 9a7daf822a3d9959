// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Objects are put below a URL, each once: If-None-Match keeps one that is there from
// being replaced. With credentials the requests are signed as object stores want it.
type Objects struct {
	base        *url.URL
	credentials *Credentials
	client      *http.Client
}

const (
	// requestTimeout bounds one request, its answer included.
	requestTimeout = 30 * time.Second
	// objectBytesMax bounds an object that is read again.
	objectBytesMax = 64 << 20
	// answerBytesMax is how much is read of an answer that nobody looks at, so that its
	// connection can be used again.
	answerBytesMax = 64 << 10
)

// NewObjects returns the place below a URL. Without credentials requests are not signed.
func NewObjects(base string, credentials *Credentials) (*Objects, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("outside: %q is no URL", base)
	}
	return &Objects{base: u, credentials: credentials, client: &http.Client{
		Timeout:       requestTimeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 2 * requestTimeout, TLSHandshakeTimeout: requestTimeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Last implements [Place]: the objects are not listed.
func (o *Objects) Last(context.Context) ([]byte, error) { return nil, nil }

// Append implements [Place].
func (o *Objects) Append(ctx context.Context, first uint64, lines []byte) (taken []byte, err error) {
	name := fmt.Sprintf("entries/%020d.ndjson", first)
	if err = o.Put(ctx, name, "application/x-ndjson", lines); errors.Is(err, ErrTaken) {
		return o.get(ctx, name)
	}
	return nil, err
}

// ErrTaken says that there is an object of that name already.
var ErrTaken = errors.New("outside: there is an object of that name already")

// Put makes an object, unless there is one of that name.
func (o *Objects) Put(ctx context.Context, name, kind string, body []byte) error {
	answer, err := o.do(ctx, http.MethodPut, name, kind, body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, answerBytesMax))
	err = errors.Join(err, answer.Body.Close())
	switch {
	case answer.StatusCode == http.StatusPreconditionFailed:
		return ErrTaken
	case err == nil && answer.StatusCode/100 != 2:
		err = fmt.Errorf("outside: the place answered with %s", answer.Status)
	}
	return err
}

func (o *Objects) get(ctx context.Context, name string) ([]byte, error) {
	answer, err := o.do(ctx, http.MethodGet, name, "", nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, objectBytesMax))
	err = errors.Join(err, answer.Body.Close())
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("outside: the place has %s and answered with %s when it was asked for it", name, answer.Status)
	}
	return body, err
}

func (o *Objects) do(ctx context.Context, method, name, kind string, body []byte) (*http.Response, error) {
	u := o.base.JoinPath(name)
	u.RawPath = escapePath(u.Path)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if method == http.MethodPut {
		req.Header.Set("Content-Type", kind)
		req.Header.Set("If-None-Match", "*")
	}
	if o.credentials != nil {
		o.credentials.sign(req, body, time.Now())
	}
	return o.client.Do(req)
}
