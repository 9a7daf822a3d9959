// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/broker"
	"signalbox/internal/transport/webhook"
)

// TestPowerLoss lets the power fail at random instants while events are sent, one
// after the other. No event is lost, none is sent again after its acknowledgement
// was durable, and every attempt that arrived was counted before.
func TestPowerLoss(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashableMem()
	id, st := "", broker.SubscriptionStatus{} // before anything is sent
	r := &rig{t: t, fs: fs, roots: x509.NewCertPool(), change: func(o *webhook.Options) {
		o.Schedule = []time.Duration{5 * time.Millisecond}
		if id != "" {
			info, err := o.Broker.Subscription(id)
			if err != nil {
				t.Fatal(err)
			}
			st = info.Status
		}
	}}
	r.start()
	defer func() { r.stop() }()
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n%4 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id = r.subscribe(s.URL, `,"order":"strict","visibility":"1s","max_attempts":100,"quarantine_after":100`)
	const events = 60
	for i := range events {
		r.publish("a", fmt.Sprint(i), "")
	}
	for range 3 {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond) // when the power fails, not what is waited for
		s.mu.Lock()                                                // nothing arrives meanwhile
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		arrived := len(s.got)
		s.mu.Unlock()
		r.stop()
		s.mu.Lock()
		s.got = s.got[:arrived] // what came since never happened
		s.mu.Unlock()
		fs, r.fs = after, after
		r.start()
		if st.HandedOut < uint64(arrived) {
			t.Errorf("%d requests arrived, and %d attempts are counted", arrived, st.HandedOut)
		}
		r.until("it goes on", func() bool { now := r.status(id); return now.Acked > st.Acked || now.Acked == events })
		for _, p := range s.pushes()[arrived:] {
			var n uint64
			if _, err := fmt.Sscan(p.id(), &n); err != nil || n < st.Acked {
				t.Errorf("event %s is sent again after it was acknowledged, as the first %d were", p.id(), st.Acked)
			}
		}
	}
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == events })
	got := map[string]bool{}
	for _, event := range s.ids() {
		got[event] = true
	}
	if len(got) != events || r.status(id).Letters != 0 {
		t.Errorf("%d of %d events arrived", len(got), events)
	}
}
