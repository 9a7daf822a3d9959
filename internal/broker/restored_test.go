// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"testing"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
)

// TestRestoredLogRefusesOlderCursors: positions that were given out since a
// backup are given out again, so that a cursor from before must not be resumed.
func TestRestoredLogRefusesOlderCursors(t *testing.T) {
	x := newBox(t, broker.Options{})
	x.mustSend("a", x.draft("1", "", nil))
	old := x.Head()
	x.restart()
	if x.Head() != old {
		t.Fatalf("after a mere restart the head is %s instead of %s", x.Head(), old)
	}
	x.options.Restored = true
	x.restart()
	x.options.Restored = false
	head := x.Head()
	if head.Position != old.Position || head.Incarnation == old.Incarnation {
		t.Fatalf("the head was %s and is %s after the restore", old, head)
	}
	x.restart()
	defer x.close()
	if x.Head() != head {
		t.Errorf("the head was %s and is %s after another restart", head, x.Head())
	}
	patterns, err := event.ParsePatterns("a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Read(broker.ReadRequest{Patterns: patterns, Start: dispatch.Start{Cursor: &old}})
	if err == nil || event.AsError(err).Code != event.CodeCursorForeign {
		t.Errorf("a cursor from before the restore gives %v", err)
	}
	reader, err := x.Read(broker.ReadRequest{Patterns: patterns, Start: dispatch.Start{Cursor: &head}})
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
}
