// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/ticket"
)

// TestRanges: which versions a receiver reads that gives a range. A higher minor is
// always read, a lower one than asked for and another major never.
func TestRanges(t *testing.T) {
	for _, c := range []struct{ accepts, reads, not string }{
		{">=1.0.0 <2.0.0", "1.0.0 1.9.3", "0.9.9 2.0.0"},
		{">=1.2 <1.4", "1.2.0 1.3.9 1.9.0", "1.1.9 2.2.0"},
		{"1.2", "1.2.0 1.2.7 1.3.0", "1.1.9 2.2.0"},
		{"=1.2.3", "1.2.3 1.3.0", "1.2.2"},
		{"^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"},
		{"^0.2", "0.2.0 0.3.0", "0.1.0 1.0.0"},
		{"~1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"},
		{"1.x", "1.0.0 1.7.0", "2.0.0 0.1.0"},
		{"1 || 3", "1.0.0 3.1.0", "2.0.0 4.0.0"},
		{">1", "2.0.0 7.0.0", "1.9.9"},
		{"<=1.2", "0.1.0 1.0.0 1.9.0", "2.0.0"},
		{"*", "0.0.0 999999.0.0", ""},
	} {
		r, err := ticket.ParseRange(c.accepts)
		if err != nil {
			t.Errorf("%s: %v", c.accepts, err)
			continue
		}
		for _, v := range strings.Fields(c.reads) {
			if !r.Reads(v) {
				t.Errorf("%s does not read %s", c.accepts, v)
			}
		}
		for _, v := range strings.Fields(c.not) {
			if r.Reads(v) {
				t.Errorf("%s reads %s", c.accepts, v)
			}
		}
	}
	for _, wrong := range []string{"", " ", "1.2.3.4", "v1", ">= 1", ">2 <1", "1 ||", "1.2-rc1", "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "01"} {
		if _, err := ticket.ParseRange(wrong); err == nil || event.AsError(err).Code != event.CodePayloadInvalid {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if (ticket.Range{}).Reads("1.0.0") {
		t.Error("a range of nothing reads something")
	}
}

// FuzzRange: whatever stands in a heartbeat, a range that reads a version reads the
// next minor, too.
func FuzzRange(f *testing.F) {
	f.Add(">=1.2 <2 || ^3.1", "1.4.0")
	f.Fuzz(func(t *testing.T, text, version string) {
		var major, minor, patch uint16
		if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
			return
		}
		r, err := ticket.ParseRange(text)
		if err == nil && r.Reads(fmt.Sprintf("%d.%d.%d", major, minor, patch)) && !r.Reads(fmt.Sprintf("%d.%d.0", major, int(minor)+1)) {
			t.Errorf("%q reads %d.%d.%d and not the next minor", text, major, minor, patch)
		}
	})
}

// TestLevels: whom the bus asks when a target does not answer.
func TestLevels(t *testing.T) {
	for target, want := range map[string]string{"network": "orchestrator", "gate": "orchestrator", "intake": "orchestrator", "orchestrator": "platform-ops", "platform-ops": ""} {
		if got, above := ticket.Above(target); got != want || above != (want != "") {
			t.Errorf("above %s is %q", target, got)
		}
	}
}

// TestDerivedIDs are ids, and the same for the same.
func TestDerivedIDs(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	id := ticket.DeriveID(at, "a", "b")
	if id != ticket.DeriveID(at, "a", "b") || id == ticket.DeriveID(at, "a", "c") || id == ticket.DeriveID(at.Add(time.Millisecond), "a", "b") {
		t.Error(id)
	}
	if drawn := ticket.NewID(at); id[:14] != drawn[:14] || len(id) != len(drawn) {
		t.Errorf("%s is not of the form of %s", id, drawn)
	}
}
