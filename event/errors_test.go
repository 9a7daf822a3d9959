// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"signalbox/event"
)

func TestErrors(t *testing.T) {
	e := event.Errorf(event.CodeHLCDrift, "The clock is %d ms ahead: %w", 7, io.ErrUnexpectedEOF).With("hlc").Fact("drift_ms", 7).Fact("limit_ms", 5)
	if e.Field != "hlc" || e.Facts["drift_ms"] != 7 || e.Facts["limit_ms"] != 5 || !errors.Is(e, io.ErrUnexpectedEOF) {
		t.Errorf("got %+v", e)
	}
	if got := e.Error(); got != "hlc_drift: The clock is 7 ms ahead: unexpected EOF" {
		t.Errorf("text is %q", got)
	}
	if got := event.AsError(fmt.Errorf("publishing: %w", e)); got != e {
		t.Errorf("not found in the chain: %v", got)
	}
	if event.AsError(nil) != nil {
		t.Error("nil is an error")
	}
	// The text of an unforeseen error is for the operator, not for the caller.
	secret := errors.New("open /secret: permission denied")
	internal := event.AsError(secret)
	if internal.Code != event.CodeInternal || strings.Contains(internal.Message, "secret") {
		t.Errorf("the caller sees %q", internal.Message)
	}
	if !strings.Contains(internal.Error(), "secret") || !errors.Is(internal, secret) {
		t.Errorf("the operator sees %q", internal.Error())
	}
}

// TestMessagesAreUTF8: a header name that is not must not spoil the problem document.
func TestMessagesAreUTF8(t *testing.T) {
	_, err := event.DecodeBinary(headers("ce-\x80: 1"), nil)
	if e := wantCode(t, err, event.CodeEventInvalid); !utf8.ValidString(e.Message) || e.Field != "\uFFFD" {
		t.Errorf("message %q, field %q", e.Message, e.Field)
	}
}

// TestMessagesAreBounded: an answer is not larger than what provoked it.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 30_000)
	_, e1 := event.ParseCursor(long)
	_, e2 := event.ParseHLC(long)
	_, e3 := event.ParsePattern(long)
	_, e4 := event.DecodeJSON(structured(quote(long) + ":1"))
	_, e5 := event.DecodeJSON(structured(`"data":{` + quote(long) + `:1,` + quote(long) + `:2}`))
	_, e6 := event.ParsePolicy([]byte(`{` + quote(long) + `:1}`))
	_, e7 := event.DetectMode("application/cloudevents+" + long)
	_, e8 := event.DecodeJSON(structured(`"x":"` + long))
	_, e9 := event.ParseDuration(long)
	for i, err := range []error{e1, e2, e3, e4, e5, e6, e7, e8, e9, event.CheckTopic(long), event.CheckPath(long), event.CheckKey(long)} {
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%d: %v", i, err)
		}
	}
}
