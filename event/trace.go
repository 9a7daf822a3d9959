// SPDX-License-Identifier: Apache-2.0

package event

import "strings"

// Trace is the context of a trace in the form of W3C Trace Context, level 1. As
// attributes of an event it is the trace in which the event began (CloudEvents
// extension Distributed Tracing): it stays what it is on every hop, and what
// belongs to one hop travels in the headers of the protocol.
type Trace struct {
	Parent string // traceparent
	State  string // tracestate; "" if there is none
}

// maxTraceState is what W3C asks everybody to pass on at least (section 3.3.1.5).
const maxTraceState = 512

// ParseTrace reads the two headers of a request. What is not valid is as if it
// were not there (section 3.2.2.3): no request fails for its tracing.
func ParseTrace(parent, state string) (Trace, bool) {
	const length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if len(parent) < length || len(parent) > maxTraceState || !printable(parent) || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return Trace{}, false
	}
	version, trace, span, flags := parent[:2], parent[3:35], parent[36:52], parent[53:length]
	if !lowerHex(version) || !lowerHex(trace) || !lowerHex(span) || !lowerHex(flags) || version == "ff" ||
		strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return Trace{}, false
	}
	// A later version may have more behind a dash (section 3.2.2.4).
	if len(parent) > length && (version == "00" || parent[length] != '-') {
		return Trace{}, false
	}
	if len(state) > maxTraceState || !printable(state) {
		state = ""
	}
	return Trace{parent, state}, true
}

func lowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
