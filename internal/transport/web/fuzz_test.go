// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/transport/web"
)

// FuzzRequests sends any method, target, headers and body. Whatever comes, the
// answer is no server error but one that may be retried, a refusal is a
// problem document with a known code, and nothing stays held.
func FuzzRequests(f *testing.F) {
	b, err := broker.Open(broker.Options{Dir: f.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = b.Close() })
	s, err := web.New(web.Options{Broker: b, Logger: slog.New(slog.DiscardHandler), StreamLife: time.Millisecond, StateTime: time.Second})
	if err != nil {
		f.Fatal(err)
	}
	const structured = "Content-Type: application/cloudevents+json"
	f.Add("POST", "/v1/topics/a/events", structured+"\nIf-Match: \"@1\"", ev("1", "k", someData))
	f.Add("POST", "/v1/topics/a/events?ack=none", structured+"\nIdempotency-Key: \"k\"", ev("2", "k", someData))
	f.Add("POST", "/v1/topics/a/events", "Content-Type: application/cloudevents-batch+json", "["+ev("3", "")+"]")
	f.Add("POST", "/v1/topics/a/events", "ce-specversion: 1.0\nce-id: 4\nce-source: /t\nce-type: t.x\nce-subject: B%C3%A4r", "x")
	f.Add("PUT", "/v1/topics/s", "Content-Type: application/json", `{"cleanup_policy":"compact","retention":null}`)
	f.Add("GET", "/v1/topics/a/events?cursor=@1&limit=2&on_reset=earliest", "Last-Event-ID: 1", "")
	f.Add("GET", "/v1/events?topics=a.*,%3E&cursor=2026-01-01T00:00:00Z", "Accept: text/event-stream;q=0.5, */*;q=0.1", "")
	f.Add("GET", "/v1/topics/a/events?view=history&named=true", "Accept: text/event-stream", "")
	f.Add("GET", "/v1/topics/s/state/a%2Fb", "If-None-Match: \"@1\"", "")
	f.Add("PUT", "/v1/topics/e", "Content-Type: application/json", `{"durability":"ephemeral","retention":"1s"}`)
	f.Add("POST", "/v1/topics/e/events", structured, ev("5", "k", someData))
	f.Add("GET", "/v1/topics/e/events?live=abcdefgh.1", "", "")
	f.Add("GET", "/v1/topics/$presence/events?agent=/a", "Accept: text/event-stream", "")
	f.Add("PUT", "/v1/presence/%2Fagents%2Fbeta?ttl=1s", "Content-Type: application/json", `{"ledger":"ok"}`)
	f.Add("DELETE", "/v1/topics/a", "Host: localhost:1", "")
	f.Add("POST", "/v1/filters/dry-run", "", `{"filter":"data.n > 1","topics":["a"],"last":3,"event":"latest"}`)
	f.Add("POST", "/v1/filters/dry-run", "", `{"filters":[{"sql":"n > 1"}],"strict":true,"event":`+ev("5", "k", someData)+`}`)
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		if strings.Contains(target, "wait=") {
			return // would only wait
		}
		r, err := http.NewRequest(method, "http://localhost/", strings.NewReader(body))
		if err != nil {
			return
		}
		u, err := r.URL.Parse(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		r.URL, r.RequestURI = u, target
		for line := range strings.SplitSeq(header, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if name == "Host" {
				r.Host = value
			} else if name != "" {
				r.Header.Add(name, value)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(ctx))
		checkFuzzed(t, w.Result())
		if s.HeldBytes() != 0 || s.OpenStreams() != 0 {
			t.Errorf("%d bytes are held and %d readers open", s.HeldBytes(), s.OpenStreams())
		}
	})
}

func checkFuzzed(t *testing.T, res *http.Response) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode < 400 {
		return
	}
	var p struct {
		Code   event.Code `json:"code"`
		Status int        `json:"status"`
		Detail string     `json:"detail"`
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Status != res.StatusCode || p.Detail == "" || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%d without a problem document: %q", res.StatusCode, body)
	}
	if p.Code.Class().HTTP >= 500 && !p.Code.Class().Retryable {
		t.Fatalf("a request brought about %s", body)
	}
}
