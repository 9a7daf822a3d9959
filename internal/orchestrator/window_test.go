// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"testing"
	"time"
)

// TestWindowIsTheOneOfTheTimeOrTheNext, also over midnight.
func TestWindowIsTheOneOfTheTimeOrTheNext(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct{ start, end, now, from, to string }{
		{"22:00", "04:00", "2026-01-02T23:00:00Z", "2026-01-02T22:00:00Z", "2026-01-03T04:00:00Z"},
		{"22:00", "04:00", "2026-01-03T03:59:59Z", "2026-01-02T22:00:00Z", "2026-01-03T04:00:00Z"},
		{"22:00", "04:00", "2026-01-03T04:00:00Z", "2026-01-03T22:00:00Z", "2026-01-04T04:00:00Z"},
		{"09:00", "17:00", "2026-01-03T08:00:00Z", "2026-01-03T09:00:00Z", "2026-01-03T17:00:00Z"},
		{"09:00", "17:00", "2026-01-03T17:00:00Z", "2026-01-04T09:00:00Z", "2026-01-04T17:00:00Z"},
	} {
		start, end, err := (&WindowRule{Start: c.start, End: c.end}).at(at(c.now))
		if err != nil || !start.Equal(at(c.from)) || !end.Equal(at(c.to)) {
			t.Errorf("at %s the window of %s to %s is %s to %s, %v", c.now, c.start, c.end, start, end, err)
		}
	}
}
