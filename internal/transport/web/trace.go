// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/metrics"
)

// traceOf is the context of a request's trace (W3C Trace Context): the caller's,
// for this hop. What is not valid, or there twice, is none.
func traceOf(h http.Header) event.Trace {
	parent := h["Traceparent"]
	if len(parent) != 1 {
		return event.Trace{}
	}
	from, _ := event.ParseTrace(parent[0], h.Get("Tracestate"))
	return from
}

// delivered makes the span of a window that was sent.
func (s *Server) delivered(from event.Trace, door *metrics.Door, window []dispatch.Delivery) {
	if s.opt.Tracer == nil {
		return
	}
	s.opt.Tracer.Delivered(from, door.Name, len(window), func(yield func(event.Trace) bool) {
		for i := range window {
			parent, ok := event.LookupJSON(window[i].JSON(), "traceparent")
			if !ok {
				continue
			}
			state, _ := event.LookupJSON(window[i].JSON(), "tracestate")
			if t, ok := event.ParseTrace(parent, state); ok && !yield(t) {
				return
			}
		}
	})
}
