// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"testing"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

// TestHistoryOfALag: a reader of history gets what is superseded until the lag has
// passed, one of what is current never does; whether it reads one topic or several,
// and whether what is past the lag is compacted or not.
func TestHistoryOfALag(t *testing.T) {
	r := newRig(t, 1) // whatever is read is read from the store
	defer r.close()
	r.do(lagging(r.put("a", event.CleanupCompact, 1, 1<<40), 10_000), r.put("b", event.CleanupDelete, 1<<40, 0))
	r.do(r.publish(publishing{topic: "a", key: "k", id: "1"}), r.publish(publishing{topic: "b", id: "2"}))
	r.do(r.publish(publishing{topic: "a", key: "k", id: "3"}))
	r.tick(6_000)
	late := publishing{topic: "a", key: "k", id: "4", hlc: event.NewHLC(r.now-60_000, 0)}
	r.do(r.publish(late), r.publish(publishing{topic: "a", key: "k", id: "5"}), r.publish(publishing{topic: "b", id: "6"}))
	check := func(when, one, several, current string) {
		t.Helper()
		for _, c := range [][3]string{{"a", dispatch.ViewHistory, one}, {"a,b", dispatch.ViewHistory, several}, {"a", "", current}} {
			reader := r.mustOpen(c[0], dispatch.Start{}, c[1])
			if got := drain(t, reader, dispatch.Limit{Events: 2, Bytes: 1 << 20}); got != c[2] {
				t.Errorf("%s, view %q of %s has %s, not %s", when, c[1], c[0], got, c[2])
			}
			reader.Close()
		}
	}
	check("at first", "1 3 4 5", "1 2 3 4 5 6", "5")
	r.tick(4_000)
	check("until it is compacted", "4 5", "2 4 5 6", "5")
	r.do(r.compact("a", 6))
	check("after the lag", "4 5", "2 4 5 6", "5")
	cursor := event.Cursor{Position: 1}
	if _, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(t, "a"), Start: dispatch.Start{Cursor: &cursor}}); err != nil {
		t.Errorf("compaction is nothing to be missed, but a cursor gets %v", err)
	}
}
