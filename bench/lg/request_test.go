// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// parse reads the rendered request as a server would.
func parse(t *testing.T, r *request) (*http.Request, []byte) {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.buf)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	return req, body
}

func TestBinaryRequestIsPatchedInPlace(t *testing.T) {
	r, err := newRequest(requestSpec{
		URL: "http://127.0.0.1:1/v1/topics/bench/events", Mode: "binary", Type: "application/json",
		Data: statusData, Size: 512, Keys: 1000, Run: "r",
	})
	if err != nil {
		t.Fatal(err)
	}
	r.fill(41, time.Now())
	r.fill(42, time.Now())
	req, body := parse(t, r)
	if len(body) != 512 || !json.Valid(body) {
		t.Fatalf("body of %d bytes: %s", len(body), body)
	}
	if got := req.Header.Get("ce-id"); got != "r-000000000042" {
		t.Errorf("ce-id is %q", got)
	}
	if got, want := req.Header.Get("ce-subject"), "k0598"; got != want { // 42 * 7919 mod 1000
		t.Errorf("ce-subject is %q, want %q", got, want)
	}
	if want := []byte(`"task":"T-0598"`); !bytes.Contains(body, want) {
		t.Errorf("%s is not in %s", want, body)
	}
}

func TestBatchRequestHasDistinctEvents(t *testing.T) {
	r, err := newRequest(requestSpec{
		URL: "http://127.0.0.1:1/x", Mode: "batch", Data: statusData, Size: 512, Batch: 100, Keys: 1000, Run: "r",
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for post := range 3 {
		r.fill(post, time.Now())
		req, body := parse(t, r)
		if got := req.Header.Get("Content-Type"); got != "application/cloudevents-batch+json" {
			t.Fatalf("Content-Type is %q", got)
		}
		var events []struct {
			ID   string
			Data json.RawMessage
		}
		if err := json.Unmarshal(body, &events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			ids[e.ID] = true
			if len(e.Data) != 512 {
				t.Fatalf("data of %d bytes", len(e.Data))
			}
		}
	}
	if len(ids) != 300 {
		t.Errorf("%d distinct ids, want 300", len(ids))
	}
}

func TestPlainRequestCarriesTheStamp(t *testing.T) {
	now := time.Unix(1700000000, 123456789)
	r, err := newRequest(requestSpec{URL: "http://127.0.0.1:1/publish", Mode: "plain", Data: fanData, Size: 256})
	if err != nil {
		t.Fatal(err)
	}
	r.fill(0, now)
	_, body := parse(t, r)
	var got int64
	stamps(body, func(ns int64) { got = ns })
	if len(body) != 256 || got != now.UnixNano() {
		t.Errorf("%d bytes with stamp %d, want 256 with %d", len(body), got, now.UnixNano())
	}
}

// TestManyKeysTopicsAndExpiries: what only the large stores use.
func TestManyKeysTopicsAndExpiries(t *testing.T) {
	var expiry expiries
	if err := expiry.Set("87:2,3:3600"); err != nil {
		t.Fatal(err)
	}
	r, err := newRequest(requestSpec{
		URL: "http://127.0.0.1:1/v1/topics/t{topic}/events", Mode: "batch", Data: statusData, Size: 512, Batch: 200, Keys: 1_000_000, Topics: 10_000, Expiry: expiry, Run: "r",
	})
	if err != nil {
		t.Fatal(err)
	}
	r.fill(10_007, time.Now())
	req, body := parse(t, r)
	if req.URL.Path != "/v1/topics/t00007/events" {
		t.Errorf("the path is %s", req.URL.Path)
	}
	var events []struct {
		Subject string
		Expiry  int
		Data    json.RawMessage
	}
	if err := json.Unmarshal(body, &events); err != nil {
		t.Fatal(err)
	}
	expire := map[int]int{}
	for _, e := range events {
		expire[e.Expiry]++
		if len(e.Data) != 512 || len(e.Subject) != len("k999999") {
			t.Errorf("an event of %d bytes with key %s", len(e.Data), e.Subject)
		}
	}
	if want := map[int]int{0: 20, 2: 174, 3600: 6}; !maps.Equal(expire, want) {
		t.Errorf("events by expiry are %v, want %v", expire, want)
	}
}

// TestReplayCountsBytesUpToTheMarker, however the stream is cut.
func TestReplayCountsBytesUpToTheMarker(t *testing.T) {
	const text = ":ok\n\nid: 1\ndata: {}\n\nid: 2\ndata: {}\n\nevent: signalbox.sync\nid: 2\n\n"
	for _, body := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		r, err := countUntil(body, "\ndata:", "\nevent: signalbox.sync\n", time.Now())
		if err != nil || r.events != 2 || r.bytes != strings.Index(text, "\nevent:") {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
