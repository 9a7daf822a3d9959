// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"testing"

	"signalbox/internal/audit"
)

func FuzzDecodeEntry(f *testing.F) {
	tr := newTrail(f, 10)
	for i := range tr.lines {
		f.Add(audit.AppendEntry(nil, &tr.lines[i].Entry))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := audit.DecodeEntry(b)
		if err != nil {
			return
		}
		again, more, err := audit.DecodeEntry(audit.AppendEntry(nil, &e))
		if err != nil || len(more) != 0 || again.Leaf() != e.Leaf() || !bytes.Equal(again.Detail, e.Detail) || len(rest) > len(b) {
			t.Errorf("%x is read as %+v, and that, written again, as %+v (%v)", b, e, again, err)
		}
	})
}

func FuzzOpenCheckpoint(f *testing.F) {
	tr := newTrail(f, 3)
	f.Add(tr.checkpoint(f, 3).Note)
	f.Fuzz(func(t *testing.T, note []byte) {
		for _, n := range audit.SplitNotes(note) {
			if c, err := audit.OpenCheckpoint(n, tr.keys); err == nil && c.Root != tr.root(3) {
				t.Errorf("a forged note is taken: %q", n)
			}
			_, _ = audit.PeekCheckpoint(n) // must not panic
		}
	})
}
