// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"signalbox/internal/tracing"
)

const (
	traceA, spanA = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	traceB, spanB = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
)

func parent(trace, span, flags string) string { return "00-" + trace + "-" + span + "-" + flags }

// receiver is a collector of OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span // guarded by mu
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL.Path, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rs := range export.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// traced opens a door whose spans go to the receiver; flush sends them.
func traced(t *testing.T, r *receiver) (d *door, flush func() []*otlp.Span) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	tracer, err := tracing.Open(t.Context(), slog.New(slog.NewTextHandler(logTo{t}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	d = openDoor(t, func(o *doorOptions) { o.web.Tracer = tracer })
	return d, func() []*otlp.Span {
		d.stop()
		tracer.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.spans
	}
}

func spansNamed(spans []*otlp.Span, name string) (out []*otlp.Span) {
	for _, s := range spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

func linked(s *otlp.Span) (out []string) {
	for _, l := range s.Links {
		out = append(out, hex.EncodeToString(l.TraceId)+"-"+hex.EncodeToString(l.SpanId))
	}
	return out
}

// TestTraceGoesFromPublishToDelivery: the publisher's request, the broker's span,
// the event and its delivery hang together.
func TestTraceGoesFromPublishToDelivery(t *testing.T) {
	d, flush := traced(t, newReceiver(t))
	d.structured("a", ev("1", ""), "traceparent: "+parent(traceA, spanA, "01"), "tracestate: x=1").want(t, 200)
	s := d.follow("/v1/topics/a/events", "traceparent: "+parent(traceB, spanB, "01"))
	events, _ := s.untilSync()
	if !strings.Contains(events[0].data, `"traceparent":"`+parent(traceA, spanA, "01")+`","tracestate":"x=1"`) {
		t.Errorf("the event is %s", events[0].data)
	}
	s.close()
	spans := flush()
	publish, deliver := spansNamed(spans, "publish"), spansNamed(spans, "deliver")
	if len(publish) != 1 || len(deliver) != 1 {
		t.Fatalf("the spans are %v", spans)
	}
	eq(t, "the publish's trace", hex.EncodeToString(publish[0].TraceId), traceA)
	eq(t, "its parent", hex.EncodeToString(publish[0].ParentSpanId), spanA)
	eq(t, "the delivery's trace, its reader's", hex.EncodeToString(deliver[0].TraceId), traceB)
	sameList(t, "the delivery's links", linked(deliver[0]), []string{traceA + "-" + spanA})
}

// TestStartingTraceIsNeverOverwritten (CloudEvents extension Distributed Tracing):
// whoever passes an event on has a trace of his own, for his hop.
func TestStartingTraceIsNeverOverwritten(t *testing.T) {
	d, flush := traced(t, newReceiver(t))
	start := parent(traceB, spanB, "01")
	d.structured("a", ev("1", "", fmt.Sprintf(`"traceparent":%q`, start)), "traceparent: "+parent(traceA, spanA, "01"), "tracestate: x=1").want(t, 200)
	e := d.get("/v1/topics/a/events").want(t, 200).list(t)[0]
	eq(t, "the event's traceparent", e["traceparent"], any(start))
	eq(t, "its tracestate", e["tracestate"], any(nil))
	spans := flush()
	publish := spansNamed(spans, "publish")[0]
	eq(t, "the publish's trace", hex.EncodeToString(publish.TraceId), traceA)
	sameList(t, "its links", linked(publish), []string{traceB + "-" + spanB})
	sameList(t, "the delivery's links", linked(spansNamed(spans, "deliver")[0]), []string{traceB + "-" + spanB})
}

// TestRepetitionInAnotherTraceIsADuplicate: a producer that tries again has a new
// span, and the same event.
func TestRepetitionInAnotherTraceIsADuplicate(t *testing.T) {
	d := openDoor(t) // without a tracer: what an event carries does not depend on it
	first := d.structured("a", ev("1", ""), "traceparent: "+parent(traceA, spanA, "00")).want(t, 200).object(t)
	again := d.structured("a", ev("1", ""), "traceparent: "+parent(traceB, spanB, "01")).want(t, 200).object(t)
	eq(t, "outcome", again["outcome"], any("duplicate"))
	eq(t, "position", again["position"], first["position"])
	e := d.get("/v1/topics/a/events").want(t, 200).list(t)[0]
	eq(t, "the event's traceparent", e["traceparent"], any(parent(traceA, spanA, "00")))
	d.structured("b", ev("1", ""), "traceparent: nonsense").want(t, 200)
	if e := d.get("/v1/topics/b/events").want(t, 200).list(t)[0]; e["traceparent"] != nil {
		t.Errorf("a header that is not valid became %v", e["traceparent"])
	}
}

// TestSpansAreBounded: what is published must not become as many exports; and
// what nobody samples makes none.
func TestSpansAreBounded(t *testing.T) {
	d, flush := traced(t, newReceiver(t))
	for i := range 20 {
		d.structured("a", ev(fmt.Sprint("unsampled", i), ""), "traceparent: "+parent(traceB, spanB, "00")).want(t, 200)
	}
	began := time.Now().Unix()
	for i := range 300 {
		d.structured("a", ev(fmt.Sprint(i), "")).want(t, 200)
	}
	seconds := time.Now().Unix() - began + 1
	spans := flush()
	if n := len(spansNamed(spans, "publish")); n == 0 || int64(n) > 100*seconds {
		t.Errorf("%d spans of 300 publishes in %d seconds", n, seconds)
	}
	for _, s := range spans {
		if hex.EncodeToString(s.TraceId) == traceB {
			t.Errorf("what the caller does not sample made the span %s", s.Name)
		}
	}
}

func TestTracingIsOffUnlessAskedFor(t *testing.T) {
	if tracer, err := tracing.Open(t.Context(), slog.Default()); tracer != nil || err != nil {
		t.Errorf("without a word: %v, %v", tracer, err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if tracer, err := tracing.Open(t.Context(), slog.Default()); tracer != nil || err != nil {
				t.Errorf("%v, %v", tracer, err)
			}
		})
	}
	for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_SAMPLER": "jaeger_remote"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := tracing.Open(t.Context(), slog.Default()); err == nil {
				t.Error("what there is not was taken")
			}
		})
	}
}
