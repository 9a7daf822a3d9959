// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/internal/transport/webhook"
)

// TestRetryAfterHasBounds: both forms of the header are read, nobody can put the
// broker off for more than six hours, and what is not a time is none.
func TestRetryAfterHasBounds(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		code   int
		header string
		want   time.Duration
	}{
		{503, "120", 2 * time.Minute},
		{503, " 120 ", 2 * time.Minute},
		{503, "0", 0},
		{503, "", 0},
		{503, "soon", 0},
		{503, "-5", 0},
		{503, "1.5", 0},
		{503, "1h", 0},
		{503, "21600", 6 * time.Hour},
		{503, "21601", 6 * time.Hour},
		{503, "99999999999999999999", 6 * time.Hour},
		{503, "9223372036854775807", 6 * time.Hour},
		{503, "00000000000000000000000000000060", time.Minute},
		{503, strings.Repeat("9", 400), 6 * time.Hour},
		{503, "1 2", 0},
		{503, "Sun, 29 Nov 2026 12:03:00 GMT", 3 * time.Minute},
		{503, "Sun, 29 Nov 2026 11:59:00 GMT", 0},
		{503, "Tue, 29 Nov 2028 12:00:00 GMT", 6 * time.Hour},
		{429, "5", 5 * time.Second},
		{429, "", time.Minute},
		{429, "soon", time.Minute},
		{500, "120", 0},
		{301, "120", 0},
		{204, "120", 0},
	} {
		answer := &http.Response{StatusCode: c.code, Header: http.Header{"Retry-After": {c.header}}}
		if got := webhook.Hold(answer, now); got != c.want {
			t.Errorf("%d with %q: left alone for %s, not %s", c.code, c.header, got, c.want)
		}
	}
}

// setClock is a clock that tests move.
type setClock struct {
	began time.Time
	ahead atomic.Int64 // ns
}

func (c *setClock) Wall() time.Time     { return c.began.Add(c.Mono()) }
func (c *setClock) Mono() time.Duration { return time.Since(c.began) + time.Duration(c.ahead.Load()) }

// newClockRig starts one whose clock the test moves.
func newClockRig(t *testing.T, change func(*webhook.Options)) (*rig, *setClock) {
	t.Helper()
	clock := &setClock{began: time.Now()}
	r := &rig{t: t, dir: t.TempDir(), clock: clock, change: change, roots: x509.NewCertPool()}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r, clock
}

// TestABatchFailsOnce: one request that fails is one failure of its endpoint,
// however many events it has.
func TestABatchFailsOnce(t *testing.T) {
	r := newRig(t, func(o *webhook.Options) { o.Schedule = []time.Duration{200 * time.Millisecond} })
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	for i := range 30 {
		r.publish("a", fmt.Sprint(i), fmt.Sprint(i))
	}
	id := r.subscribe(s.URL, `,"content_mode":"batch"`)
	r.until("the first batch has failed", func() bool { return r.status(id).Nacked == 30 })
	if e := r.status(id).Endpoint; e.Circuit != broker.CircuitClosed || e.Failures > 1 {
		t.Errorf("after one failure: %+v", e)
	}
	r.until("all are delivered", func() bool { return r.status(id).Acked == 30 })
}

// TestOneBadEventOfABatchGoesAlone: those that were sent with it are delivered, for
// a batch that has failed is sent again in smaller ones.
func TestOneBadEventOfABatchGoesAlone(t *testing.T) {
	r := newRig(t, func(o *webhook.Options) { o.Schedule = []time.Duration{100 * time.Millisecond} })
	s := r.sink(func(w http.ResponseWriter, p *push, _ int) {
		if strings.Contains(string(p.body), `"id":"bad"`) {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	const events = 40
	for i := range events {
		r.publish("a", fmt.Sprint(i), fmt.Sprint(i))
	}
	r.publish("a", "bad", "bad")
	id := r.subscribe(s.URL, `,"content_mode":"batch","max_attempts":4`)
	r.until("it is a dead letter", func() bool { return r.status(id).Letters > 0 })
	r.until("the others are delivered", func() bool { return r.status(id).Acked == events })
	if st := r.status(id); st.Letters != 1 {
		t.Errorf("%+v", st)
	}
}

// TestDisableAfter: an endpoint that has done nothing but fail for as long as its
// subscriber allows gets nothing more, with an event that says so; its place is kept,
// and resuming goes on from there. Another that has failed no longer goes on.
func TestDisableAfter(t *testing.T) {
	r, clock := newClockRig(t, nil)
	var well atomic.Bool
	reply := func(w http.ResponseWriter, _ *push, _ int) {
		if !well.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	s, patient, notices := r.sink(reply), r.sink(reply), r.sink(nil)
	r.subscribe(notices.URL, `,"topics":["$subscriptions"]`)
	id := r.subscribe(s.URL, `,"max_attempts":100,"disable_after":"1h"`)
	other := r.subscribe(patient.URL, `,"max_attempts":100,"disable_after":null`)
	r.publish("a", "1", "k")
	r.publish("a", "2", "k")
	r.until("both circuits are open", func() bool { return r.status(id).Nacked == 5 && r.status(other).Nacked == 5 })
	clock.ahead.Add(int64(30 * time.Minute))
	r.until("there is a probe of each", func() bool { return r.status(id).Nacked == 6 && r.status(other).Nacked == 6 })
	if st := r.status(id); st.Disabled {
		t.Errorf("after half an hour: %+v", st)
	}
	clock.ahead.Add(int64(31 * time.Minute))
	r.until("it is disabled", func() bool { return r.status(id).Disabled })
	r.until("it is told", func() bool { return len(notices.pushes()) > 0 })
	if p := notices.pushes()[0]; p.event.Type() != "signalbox.subscription.disabled" || p.event.Subject() != id || !strings.Contains(string(p.body), "disable_after") {
		t.Errorf("told: %s", p.body)
	}
	r.until("the other is tried", func() bool { return r.status(other).Nacked == 7 })
	before := len(s.pushes())
	clock.ahead.Add(int64(time.Hour))
	r.until("the other is tried once more", func() bool { return r.status(other).Nacked == 8 })
	if st := r.status(id); len(s.pushes()) != before || st.Outstanding != 1 || st.Letters != 0 || r.status(other).Disabled {
		t.Errorf("%d requests after it was disabled, %+v", len(s.pushes())-before, st)
	}
	well.Store(true)
	if _, err := r.PauseSubscription(t.Context(), identity.Anonymous(), id, false); err != nil {
		t.Fatal(err)
	}
	r.until("all is delivered", func() bool { return r.status(id).Acked == 2 })
	if got := s.ids(); strings.Join(got[before:], " ") != "1 2" {
		t.Errorf("after it was resumed it got %v", got[before:])
	}
}

// TestAnOldSinkSaysNothingOfTheNewOne: what comes of requests to an endpoint that
// was replaced meanwhile, be it 410, does nothing to the one that is there now.
func TestAnOldSinkSaysNothingOfTheNewOne(t *testing.T) {
	r := newRig(t, nil)
	asked, answer := make(chan struct{}), make(chan struct{})
	old := r.sink(func(w http.ResponseWriter, _ *push, _ int) {
		close(asked)
		<-answer
		w.WriteHeader(http.StatusGone)
	})
	now := r.sink(nil)
	id := r.subscribe(old.URL, "")
	r.publish("a", "1", "k")
	<-asked
	r.replace(id, now.URL)
	close(answer)
	r.until("it is delivered", func() bool { return r.status(id).Acked == 1 })
	if st := r.status(id); st.Disabled || st.Nacked != 1 || len(now.pushes()) != 1 {
		t.Errorf("%+v", st)
	}
}

// TestProbeGoesAlone: an open circuit has nothing sent; once its pause is over one
// attempt goes, and nothing beside it; its success lets all others go.
func TestProbeGoesAlone(t *testing.T) {
	r, clock := newClockRig(t, nil)
	probe := make(chan struct{})
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		switch {
		case n <= 5:
			w.WriteHeader(http.StatusInternalServerError)
		case n == 6:
			<-probe
		}
	})
	id := r.subscribe(s.URL, `,"max_attempts":100`)
	r.publish("a", "first", "first")
	r.until("the circuit is open", func() bool { return r.status(id).Nacked == 5 })
	for i := range 20 {
		r.publish("a", fmt.Sprint(i), fmt.Sprint(i))
	}
	time.Sleep(50 * time.Millisecond) // in which an attempt would come
	if st := r.status(id); len(s.pushes()) != 5 || st.HandedOut != 5 {
		t.Errorf("%d requests at an endpoint whose circuit is open, %d attempts", len(s.pushes()), st.HandedOut)
	}
	clock.ahead.Add(int64(time.Minute))
	r.publish("a", "wakes", "wakes")
	r.until("there is a probe", func() bool { return len(s.pushes()) == 6 })
	r.publish("a", "beside", "beside")
	time.Sleep(50 * time.Millisecond) // in which another would come
	if st := r.status(id); len(s.pushes()) != 6 || st.HandedOut != 6 {
		t.Errorf("%d requests beside a probe, %d attempts", len(s.pushes()), st.HandedOut)
	}
	close(probe)
	r.until("all are delivered", func() bool { return r.status(id).Acked == 23 })
}
