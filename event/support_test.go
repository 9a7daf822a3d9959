// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"signalbox/event"
)

// required is the beginning of every structured event in these tests.
const required = `{"specversion":"1.0","id":"1","source":"/t","type":"t.x"`

// structured makes a structured event with further members.
func structured(members string) []byte {
	if members != "" {
		members = "," + members
	}
	return []byte(required + members + "}")
}

func decode(t *testing.T, b []byte) *event.Event {
	t.Helper()
	e, err := event.DecodeJSON(b)
	if err != nil {
		t.Fatalf("DecodeJSON(%s): %v", b, err)
	}
	return e
}

// headers makes the headers of binary mode from "name: value" lines, beside the
// required ones.
func headers(lines ...string) http.Header {
	h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/t"}, "Ce-Type": {"t.x"}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h[http.CanonicalHeaderKey(name)] = []string{strings.TrimSpace(value)}
	}
	return h
}

func decodeBinary(t *testing.T, h http.Header, body string) *event.Event {
	t.Helper()
	e, err := event.DecodeBinary(h, []byte(body))
	if err != nil {
		t.Fatalf("DecodeBinary(%v): %v", h, err)
	}
	return e
}

// wantCode checks that err is an Error with the code and a message that is a sentence.
func wantCode(t *testing.T, err error, code event.Code) *event.Error {
	t.Helper()
	var e *event.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error with code %s", err, code)
	}
	if e.Code != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
	if len(e.Message) < 10 || !strings.HasSuffix(e.Message, ".") {
		t.Errorf("message %q is not a sentence", e.Message)
	}
	return e
}

// wantAttribute checks one attribute by its canonical string.
func wantAttribute(t *testing.T, e *event.Event, name, want string) {
	t.Helper()
	if v, ok := e.Attribute(name); !ok || v.String() != want {
		t.Errorf("attribute %s is %q (%v), want %q", name, v, ok, want)
	}
}

// toBinary encodes in binary mode and decodes again.
func toBinary(t *testing.T, e *event.Event) *event.Event {
	t.Helper()
	h := http.Header{}
	body := e.EncodeBinary(h)
	f, err := event.DecodeBinary(h, body)
	if err != nil {
		t.Fatalf("binary form %v is refused: %v", h, err)
	}
	return f
}

// toStructured encodes in structured mode and decodes again.
func toStructured(t *testing.T, e *event.Event) *event.Event {
	t.Helper()
	return decode(t, e.AppendJSON(nil))
}
