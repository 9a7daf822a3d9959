// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"testing"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
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

// TestRaisedLagBringsNothingBack: what was past the shorter lag and is not removed yet
// is not read again, by no way there is, when the lag becomes longer: its key was removed,
// and the tombstone is gone.
func TestRaisedLagBringsNothingBack(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int64
	}{{"longer", 5_000, 1 << 40}, {"from none", 0, 1 << 40}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1) // whatever is read is read from the store
			defer func() { r.close() }()
			policy := func(lag int64) *eventlog.Proposal {
				return lagging(r.put("a", event.CleanupCompact, 1, 5_000), lag)
			}
			r.do(policy(5_000), r.put("b", event.CleanupDelete, 1<<40, 0))
			r.do(r.publish(publishing{topic: "a", key: "k", id: "1"}), r.publish(publishing{topic: "b", id: "2"}))
			r.do(r.publish(publishing{topic: "a", key: "k", id: "3", bare: true}), r.publish(publishing{topic: "a", key: "l", id: "4"}))
			r.tick(5_000) // the tombstone is purged, and no history
			r.do(policy(c.before))
			r.do(policy(c.after))
			r.do(r.publish(publishing{topic: "a", key: "l", id: "5"}), r.publish(publishing{topic: "b", id: "6"}))
			check := func(when string) {
				t.Helper()
				for list, want := range map[string]string{"a": "4 5", "a,b": "2 4 5 6"} {
					reader := r.mustOpen(list, dispatch.Start{}, dispatch.ViewHistory)
					if got := drain(t, reader, dispatch.Limit{Events: 2, Bytes: 1 << 20}); got != want {
						t.Errorf("%s, the history of %s is %s, not %s", when, list, got, want)
					}
					reader.Close()
				}
				for position, want := range map[uint64]bool{1: false, 4: true} {
					_, found, err := r.dispatch.Lookup("a", position, dispatch.ViewHistory)
					shown, err2 := r.dispatch.RetainedAt(t.Context(), patterns(t, "a"), event.Cursor{Position: position}, func(*dispatch.Retained) {})
					if err != nil || err2 != nil || found != want || shown != want {
						t.Errorf("%s, position %d is found: %t, %v; shown: %t, %v", when, position, found, err, shown, err2)
					}
				}
			}
			check("at first")
			r.close()
			r.open()
			check("after a restart")
			r.do(r.compact("a", 6))
			check("after it was removed")
		})
	}
}
