// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
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
