// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
)

// TestReaderThatBeganAfterARemovalResumesBeforeIt reads a topic from the oldest
// event on, one event at a time and with a new reader for each, although a
// tombstone further on was purged before it began. It guards that beginning at
// the oldest never expires, also when it takes several requests; and that a
// removal since then does expire what has not come to it.
func TestReaderThatBeganAfterARemovalResumesBeforeIt(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("from the store: ", restart), func(t *testing.T) {
			x := newBox(t, broker.Options{})
			defer x.close()
			x.put("t", func(p *event.Policy) {
				p.CleanupPolicy, p.DeleteRetention = event.CleanupCompact, event.Duration(time.Minute)
			})
			for i := range 3 {
				x.mustSend("t", x.draft(fmt.Sprint(i), fmt.Sprint("key-", i), nil))
			}
			x.mustSend("t", x.draft("gone", "key-gone", map[string]any{"bare": true}))
			x.mustSend("t", x.draft("last", "key-last", nil))
			x.pass(time.Hour)
			if restart {
				x.restart()
			}
			cursor := event.Cursor{}
			var got []string
			for range 4 {
				reader := x.follow("t", dispatch.Start{Cursor: &cursor})
				window, err := reader.Poll(dispatch.Limit{Events: 1, Bytes: 1 << 20})
				if err != nil {
					t.Fatalf("at %s: %v", cursor, err)
				}
				if n := len(window.Deliveries); n != 1 {
					t.Fatalf("%d events at %s", n, cursor)
				}
				got = append(got, deliveredEvent(t, &window.Deliveries[0]).ID())
				id, _, _ := strings.Cut(strings.TrimPrefix(string(window.Deliveries[0].Frame), "id: "), "\n")
				if id != window.Cursor.String() {
					t.Errorf("the event's own id is %s and the window's cursor %s", id, window.Cursor)
				}
				reader.Close()
				cursor = window.Cursor
			}
			if want := []string{"0", "1", "2", "last"}; !slices.Equal(got, want) {
				t.Errorf("read %v, want %v", got, want)
			}
			if cursor.Began != 0 {
				t.Errorf("past the removal the cursor is still %s", cursor)
			}
			plain := event.Cursor{Position: 1, Incarnation: cursor.Incarnation}
			if _, err := x.Read(broker.ReadRequest{Patterns: mustPatterns(t, "t"), Start: dispatch.Start{Cursor: &plain}}); event.AsError(err).Code != event.CodeCursorExpired {
				t.Errorf("a reader that was there before the removal is told %v", err)
			}
		})
	}
}
