// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// TestStartRaisesTheFeatureLevel: what this version writes is unknown to the one
// before, which must refuse the data from then on.
func TestStartRaisesTheFeatureLevel(t *testing.T) {
	fs := vfs.NewMem()
	r := newRig(t, fs, nil)
	r.close()
	level := func(change int) (before int) {
		s, err := store.Open(store.Options{Dir: rigDir, FS: fs, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		p, err := projector.Open(s)
		if err != nil {
			t.Fatal(err)
		}
		before = p.Settings().FeatureLevel
		if change == 0 {
			return before
		}
		settings := p.Settings()
		settings.FeatureLevel = change
		out, err := p.Apply([]*eventlog.Proposal{{Kind: eventlog.KindControl, Sequence: p.Space().Sequence + 1, Control: eventlog.Control{Op: eventlog.OpConfigure, Settings: &settings}}})
		if err == nil {
			err = s.Commit(out.Batch, func() {})
		}
		if err != nil || out.Results[0].Err != nil {
			t.Fatal(err, out.Results)
		}
		out.Batch.Close()
		return before
	}
	if got := level(1); got != projector.FeatureLevel {
		t.Fatalf("a new log has level %d", got)
	}
	if got := level(0); got != 1 {
		t.Fatalf("the test did not lower it: %d", got)
	}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	r.close()
	if got := level(0); got != projector.FeatureLevel {
		t.Errorf("after a start it is %d", got)
	}
}
