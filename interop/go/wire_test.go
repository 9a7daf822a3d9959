// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/uuid"
)

// receipt is the broker's answer to one event.
type receipt struct {
	Outcome, Topic, Source, ID, Position, Cursor, HLC string
}

// problem is the broker's answer to what it refuses.
type problem struct {
	Status      int
	Code, Field string
}

// topic is one topic of the broker under test, and the SDK's client for it.
type topic struct {
	t      *testing.T
	ctx    context.Context
	name   string
	url    string
	client cloudevents.Client
	last   tap
}

// tap keeps the bodies of the client's last request and answer: the SDK itself
// shows a program neither what it sends nor the body of an answer that is no
// event.
type tap struct{ request, answer []byte }

func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	p.request = nil
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		p.request, r.Body = b, io.NopCloser(bytes.NewReader(b))
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if p.answer, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(p.answer))
	return resp, nil
}

func newTopic(t *testing.T) *topic {
	t.Helper()
	base := os.Getenv("SIGNALBOX_URL")
	if base == "" {
		t.Skip("SIGNALBOX_URL names no broker")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	name := "interop.go." + uuid.NewString()
	p := &topic{t: t, ctx: ctx, name: name, url: base + "/v1/topics/" + name}
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget(p.url+"/events"), cehttp.WithRoundTripper(&p.last))
	if err != nil {
		t.Fatal(err)
	}
	p.client = client
	return p
}

// modes are the SDK's two ways to send one event.
var modes = map[string]func(context.Context) context.Context{
	"binary":     binding.WithForceBinary,
	"structured": binding.WithForceStructured,
}

// send publishes with the SDK's client and returns the receipt.
func (p *topic) send(mode string, e cloudevents.Event) receipt {
	p.t.Helper()
	result := p.client.Send(modes[mode](p.ctx), e)
	if !cloudevents.IsACK(result) {
		p.t.Fatalf("%s: %v", mode, result)
	}
	var r receipt
	p.decode(p.last.answer, &r)
	return r
}

// refused publishes what the broker must not take.
func (p *topic) refused(mode string, e cloudevents.Event) problem {
	p.t.Helper()
	result := p.client.Send(modes[mode](p.ctx), e)
	if !cloudevents.IsNACK(result) || cloudevents.IsUndelivered(result) {
		p.t.Fatalf("%s: %v", mode, result)
	}
	var out problem
	p.decode(p.last.answer, &out)
	return out
}

func (p *topic) decode(b []byte, v any) {
	p.t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
}

func (p *topic) do(method, path, body, accept string) *http.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// poll reads the topic as a batch: decoded by the SDK, and as it came.
func (p *topic) poll() (events []cloudevents.Event, raw []json.RawMessage) {
	p.t.Helper()
	resp := p.do(http.MethodGet, "/events", "", "")
	if !cehttp.IsHTTPBatch(resp.Header) {
		p.t.Fatalf("%s: %v", resp.Status, resp.Header)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	p.decode(b, &raw)
	resp.Body = io.NopCloser(bytes.NewReader(b))
	if events, err = cehttp.NewEventsFromHTTPResponse(resp); err != nil {
		p.t.Fatal(err)
	}
	return events, raw
}

// follow reads the topic's stream up to its sync marker and has the SDK decode
// every event of it.
func (p *topic) follow() (events []cloudevents.Event, ids []string) {
	p.t.Helper()
	resp := p.do(http.MethodGet, "/events", "", "text/event-stream")
	name, id := "", ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "":
			name = ""
		case field == "event":
			name = value
		case field == "id":
			id = value
		case field == "data" && name == "signalbox.sync":
			return events, ids
		case field == "data":
			e := cloudevents.NewEvent()
			p.decode([]byte(value), &e)
			events, ids = append(events, e), append(ids, id)
		}
	}
	p.t.Fatalf("the stream ended without a sync marker: %v", lines.Err())
	return nil, nil
}
