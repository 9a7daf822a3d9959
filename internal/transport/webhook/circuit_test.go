// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

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
		{503, "99999999999999999999", 0},
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

// TestProbeGoesAlone: an open circuit has nothing sent; once its pause is over one
// attempt goes, and nothing beside it; its success lets all others go.
func TestProbeGoesAlone(t *testing.T) {
	clock := &setClock{began: time.Now()}
	r := &rig{t: t, dir: t.TempDir(), clock: clock, roots: x509.NewCertPool()}
	r.start()
	t.Cleanup(func() { r.stop() })
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
