// SPDX-License-Identifier: Apache-2.0

// Package tracing exports spans by OTLP: one for each publish and one for each
// window of events that is delivered, linked to the traces in which the events
// began. It is off unless the environment variables of OpenTelemetry say where to
// send them; a nil *Tracer is a tracer that is off, and whoever has one does
// nothing else for it.
//
// It imports event, and is the one place that knows OpenTelemetry.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"signalbox/event"
)

const (
	// spansPerSecond bounds the spans that are recorded, whatever the sampler
	// says: ten thousand publishes a second must not become as many exports.
	spansPerSecond = 100
	// linksMax bounds the links of one span; a window may have hundreds of events.
	linksMax = 32
	// closeTimeout bounds the last export.
	closeTimeout = 3 * time.Second
)

// Tracer makes spans. All methods are safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open returns a tracer as the environment describes it (OTEL_EXPORTER_OTLP_…,
// OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, OTEL_BSP_…), or nil if it does not ask
// for traces. It fails if it asks for what there is not.
func Open(ctx context.Context, logger *slog.Logger) (*Tracer, error) {
	if !asked() {
		return nil, nil
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" {
		return nil, event.Errorf(event.CodeParameterInvalid, "OTEL_EXPORTER_OTLP_PROTOCOL is %.40q, and traces are sent as http/protobuf only. Set it to that, and the endpoint to the collector's port for it (4318).", protocol)
	}
	sampler, err := sampling()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: the exporter: %w", err)
	}
	named, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "signalbox")), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("tracing: the resource: %w", err)
	}
	// OpenTelemetry has one handler for the process, and without one it prints.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("traces were not exported", "err", err, "todo", "check the collector and OTEL_EXPORTER_OTLP_ENDPOINT; nothing else is affected")
	}))
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithSampler(&bounded{Sampler: sampler}), sdk.WithResource(named))
	return &Tracer{p, p.Tracer("signalbox")}, nil
}

func asked() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// sampling is what OTEL_TRACES_SAMPLER names; the SDK reads it only if nothing is
// to be put around it.
func sampling() (sdk.Sampler, error) {
	name := cmp.Or(os.Getenv("OTEL_TRACES_SAMPLER"), "parentbased_always_on")
	root, parentBased := strings.CutPrefix(name, "parentbased_")
	var s sdk.Sampler
	switch root {
	case "always_on":
		s = sdk.AlwaysSample()
	case "always_off":
		s = sdk.NeverSample()
	case "traceidratio":
		share, err := strconv.ParseFloat(cmp.Or(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), "1"), 64)
		if err != nil || share < 0 || share > 1 {
			return nil, event.Errorf(event.CodeParameterInvalid, "OTEL_TRACES_SAMPLER_ARG is no share from 0 to 1.")
		}
		s = sdk.TraceIDRatioBased(share)
	default:
		return nil, event.Errorf(event.CodeParameterInvalid, "OTEL_TRACES_SAMPLER %.40q is not known: use always_on, always_off or traceidratio, by itself or behind parentbased_.", name)
	}
	if parentBased {
		s = sdk.ParentBased(s)
	}
	return s, nil
}

// bounded samples no more than spansPerSecond.
type bounded struct {
	sdk.Sampler
	mu     sync.Mutex
	second int64 // guarded by mu
	spans  int   // in that second; guarded by mu
}

// ShouldSample implements [sdk.Sampler].
func (b *bounded) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	r := b.Sampler.ShouldSample(p)
	if r.Decision == sdk.RecordAndSample && !b.take(time.Now().Unix()) {
		r.Decision = sdk.Drop
	}
	return r
}

func (b *bounded) take(second int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if second != b.second {
		b.second, b.spans = second, 0
	}
	b.spans++
	return b.spans <= spansPerSecond
}

// Close exports what is left.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // a collector that does not answer must not hold up the end
}

// Span is one that was begun. The zero value is none.
type Span struct{ span trace.Span }

// Publish begins the span of a publish request, as a child of its trace.
func (t *Tracer) Publish(ctx context.Context, from event.Trace, topic string) Span {
	if t == nil {
		return Span{}
	}
	_, span := t.tracer.Start(remote(ctx, from), "publish", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("messaging.system", "signalbox"), attribute.String("messaging.operation.type", "send"), attribute.String("messaging.destination.name", topic)))
	return Span{span}
}

// Recording says whether it is worth telling the span more.
func (s Span) Recording() bool { return s.span != nil && s.span.IsRecording() }

// Events tells a publish's span what was published, and links it to the traces
// in which the events began.
func (s Span) Events(events []*event.Event) {
	if !s.Recording() {
		return
	}
	s.span.SetAttributes(attribute.Int("messaging.batch.message_count", len(events)))
	links := 0
	for _, e := range events {
		parent, _ := e.Attribute("traceparent")
		state, _ := e.Attribute("tracestate")
		if began, ok := event.ParseTrace(parent.String(), state.String()); ok && links < linksMax {
			s.span.AddLink(trace.Link{SpanContext: trace.SpanContextFromContext(remote(context.Background(), began))})
			links++
		}
	}
}

// End ends the span.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		code := string(event.AsError(err).Code)
		s.span.SetAttributes(attribute.String("error.type", code))
		s.span.SetStatus(codes.Error, code)
	}
	s.span.End()
}

// Delivered records that a window of events was handed to a reader, if one of
// them began in a trace that is sampled. The span is a child of the reader's
// request, and linked to the events' traces.
func (t *Tracer) Delivered(from event.Trace, door string, events int, traces func(yield func(event.Trace) bool)) {
	if t == nil {
		return
	}
	var links []trace.Link
	for began := range traces {
		c := trace.SpanContextFromContext(remote(context.Background(), began))
		if c.IsSampled() {
			links = append(links, trace.Link{SpanContext: c})
		}
		if len(links) == linksMax {
			break
		}
	}
	if len(links) == 0 {
		return
	}
	_, span := t.tracer.Start(remote(context.Background(), from), "deliver", trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...),
		trace.WithAttributes(attribute.String("messaging.system", "signalbox"), attribute.String("messaging.operation.type", "receive"),
			attribute.String("signalbox.door", door), attribute.Int("messaging.batch.message_count", events)))
	span.End()
}

// remote is a context whose span is the one that the trace names.
func remote(ctx context.Context, t event.Trace) context.Context {
	if t.Parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
}
