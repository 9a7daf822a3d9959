// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// message is what an EventSource dispatches, and beside it what only its
// internals see: blocks without data, which carry an id or a retry.
type message struct {
	name    string // "message" where the block had no event field
	data    string
	lastID  string
	hasData bool // without data nothing is dispatched
	retry   int  // ms, 0 if the block had none
	comment string
}

// source reads an event stream as the HTML standard has it (section 9.2.6):
// lines end with LF, CR or CRLF, a leading byte order mark is dropped, an id
// persists and is ignored with a NUL in it, retry takes digits only, one space
// after the colon is dropped, and what is unfinished at the end is discarded.
type source struct {
	t        *testing.T
	res      *http.Response
	messages chan message
	ended    chan error // nil for an end in good order
	cancel   context.CancelFunc
}

// follow opens a stream; the answer must be one.
func (d *door) follow(path string, header ...string) *source {
	d.t.Helper()
	s, err := d.tryFollow(path, header...)
	if err != nil {
		d.t.Fatalf("follow %s: %v", path, err)
	}
	return s
}

func (d *door) tryFollow(path string, header ...string) (*source, error) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", d.url(path), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	for _, line := range append(header, d.reader(path)...) {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := d.client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || ct != "text/event-stream; charset=utf-8" {
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		cancel()
		return nil, errors.New(res.Status + " " + ct + " " + clip(body))
	}
	s := &source{t: d.t, res: res, messages: make(chan message, 100_000), ended: make(chan error, 1), cancel: cancel}
	go s.read()
	d.t.Cleanup(s.close)
	return s, nil
}

func (s *source) close() {
	s.cancel()
	_ = s.res.Body.Close()
}

func (s *source) read() {
	defer close(s.messages)
	r := bufio.NewReader(s.res.Body)
	if bom, _ := r.Peek(3); string(bom) == "\uFEFF" {
		_, _ = r.Discard(3)
	}
	m, lastID, data, any := message{name: "message"}, "", []string{}, false
	for {
		line, err := readLine(r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			s.ended <- err
			return
		}
		if line == "" {
			if any {
				m.lastID, m.hasData, m.data = lastID, len(data) > 0, strings.Join(data, "\n")
				s.messages <- m
			}
			m, data, any = message{name: "message"}, nil, false
			continue
		}
		any = true
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			m.comment += value
		case "event":
			m.name = value
		case "data":
			data = append(data, value)
		case "id":
			if !strings.Contains(value, "\x00") {
				lastID = value
			}
		case "retry":
			if n, err := strconv.Atoi(value); err == nil && strings.Trim(value, "0123456789") == "" {
				m.retry = n
			}
		}
	}
}

func readLine(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		c, err := r.ReadByte()
		switch {
		case err != nil:
			return "", err
		case c == '\n':
			return b.String(), nil
		case c == '\r':
			if next, _ := r.Peek(1); string(next) == "\n" {
				_, _ = r.Discard(1)
			}
			return b.String(), nil
		}
		b.WriteByte(c)
	}
}

// next returns the next block of any kind.
func (s *source) next() (message, bool) {
	s.t.Helper()
	select {
	case m, ok := <-s.messages:
		return m, ok
	case <-time.After(patience):
		s.t.Fatalf("nothing came on the event stream for %v", patience)
		return message{}, false
	}
}

// dispatched returns the next block that page code would see.
func (s *source) dispatched() message {
	s.t.Helper()
	for {
		m, ok := s.next()
		if !ok {
			s.t.Fatal("the event stream ended")
		}
		if m.hasData {
			return m
		}
	}
}

// untilSync collects the data events up to the sync marker, which is the last.
func (s *source) untilSync() (events []message, sync message) {
	s.t.Helper()
	for {
		m := s.dispatched()
		if m.name == "signalbox.sync" {
			return events, m
		}
		events = append(events, m)
	}
}

// rest reads to the end of the stream.
func (s *source) rest() (all []message, err error) {
	s.t.Helper()
	for {
		m, ok := s.next()
		if !ok {
			return all, <-s.ended
		}
		all = append(all, m)
	}
}

// TestEventSourceParser makes sure that the other tests look through the eyes
// of the standard.
func TestEventSourceParser(t *testing.T) {
	const in = "\uFEFFdata: a\r\rid: 1\r\nevent:e\r\ndata\ndata:  b\n\n: c\nid: 2\n\nretry: 12x\nretry: 34\n\nid: x\x00y\ndata: z\n\ndata: lost"
	s := &source{t: t, res: &http.Response{Body: io.NopCloser(strings.NewReader(in))}, messages: make(chan message, 10), ended: make(chan error, 1)}
	s.read()
	all, err := s.rest()
	if err != nil {
		t.Fatal(err)
	}
	want := []message{
		{name: "message", data: "a", hasData: true},
		{name: "e", data: "\n b", lastID: "1", hasData: true},
		{name: "message", lastID: "2", comment: "c"},
		{name: "message", lastID: "2", retry: 34},
		{name: "message", data: "z", lastID: "2", hasData: true},
	}
	for i := range max(len(all), len(want)) {
		if i >= len(all) || i >= len(want) || all[i] != want[i] {
			t.Fatalf("parsed %+v, want %+v", all, want)
		}
	}
}
