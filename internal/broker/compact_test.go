// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
)

// TestCompactReclaimsAtOnce: what is gone takes no room any more, and what is there stays, as the digest and a
// verification tell.
func TestCompactReclaimsAtOnce(t *testing.T) {
	r := newRig(t, vfs.NewMem(), nil)
	r.putTopic("state", compact)
	noise := rand.New(rand.NewPCG(1, 2)) // which does not compress
	data := func() string {
		b := make([]byte, 32<<10)
		for i := range b {
			b[i] = 'a' + byte(noise.IntN(26))
		}
		return string(b)
	}
	for i := range 300 {
		r.mustPublish([]string{"state", "gone"}[i%2], r.event("/load", fmt.Sprint(i), fmt.Sprint(i%6), `{"d":"`+data()+`"}`, nil))
	}
	r.reopen() // so that the rows are in tables
	if err := r.b.DeleteTopic(context.Background(), anonymous(), "gone"); err != nil {
		t.Fatal(err)
	}
	digest := must(r.b.Digest(context.Background(), "state"))
	var steps []broker.CompactProgress
	before, after, err := r.b.Compact(context.Background(), func(p broker.CompactProgress) { steps = append(steps, p) })
	if err != nil {
		t.Fatal(err)
	}
	if after*4 > before {
		t.Errorf("the database had %d bytes and has %d", before, after)
	}
	if len(steps) == 0 || steps[len(steps)-1].Step != steps[0].Steps {
		t.Errorf("progress %+v", steps)
	}
	if again := must(r.b.Digest(context.Background(), "state")); again.Buckets != digest.Buckets {
		t.Error("the state has changed")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := r.b.Compact(ctx, func(broker.CompactProgress) {}); err == nil {
		t.Error("a compaction whose caller has left goes on")
	}
	r.fill("state", "later", 3)
	r.close()
	r.mustVerify()
	if _, _, err := r.b.Compact(context.Background(), nil); errorCode(err) != event.CodeShuttingDown {
		t.Errorf("compacting a broker that is closed: %v", err)
	}
}

// TestUpkeepKeepsTheSettings: a command that opens the log does not know how the broker is configured.
func TestUpkeepKeepsTheSettings(t *testing.T) {
	x := newBox(t, broker.Options{MaxDrift: 7 * time.Second, DedupWindow: 99 * time.Hour})
	x.close()
	x.options.MaxDrift, x.options.DedupWindow, x.options.KeepSettings = 0, 0, true
	x.open()
	if s := x.Settings(); s.MaxDriftMillis != 7000 || s.DedupMillis != 99*3600*1000 {
		t.Errorf("the settings are %+v", s)
	}
	x.close()
}
