// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"strings"
	"testing"

	"signalbox/event"
)

func TestParseTraceTakesWhatW3CAllows(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for parent, want := range map[string]bool{
		"00-" + trace + "-" + span + "-01":                     true,
		"00-" + trace + "-" + span + "-00":                     true,
		"cc-" + trace + "-" + span + "-01-what-the-future-has": true,
		"00-" + trace + "-" + span + "-01-what":                false,
		"ff-" + trace + "-" + span + "-01":                     false,
		"00-" + strings.ToUpper(trace) + "-" + span + "-01":    false,
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01":   false,
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01":  false,
		"cc-" + trace + "-" + span + "-01-\n":                  false,
		"00-" + trace + "-" + span:                             false,
		"":                                                     false,
	} {
		if got, ok := event.ParseTrace(parent, "a=1"); ok != want || ok && (got.Parent != parent || got.State != "a=1") {
			t.Errorf("%q: %v, %+v", parent, ok, got)
		}
	}
	if got, ok := event.ParseTrace("00-"+trace+"-"+span+"-01", "a=\x00"); !ok || got.State != "" {
		t.Errorf("a wrong tracestate is %+v, %v", got, ok)
	}
}
