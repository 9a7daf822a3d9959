// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/internal/transport/webhook"
)

// trickle is an endpoint that takes requests and behaves badly.
func trickle(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn // guarded by mu
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			open.Go(func() { defer func() { _ = c.Close() }(); serve(c) })
		}
	}()
	return "http://" + l.Addr().String()
}

// drip writes a byte at a time until the other side has enough.
func drip(c net.Conn, text string) {
	for i := 0; ; i++ {
		if _, err := c.Write([]byte{text[min(i, len(text)-1)]}); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestDeadEndpointsHoldUpNobody: beside very many endpoints that hang, drip or
// cannot be reached, one that works gets its events at once.
func TestDeadEndpointsHoldUpNobody(t *testing.T) {
	// Fewer attempts than dead endpoints, and a time limit longer than the test.
	r := newRig(t, func(o *webhook.Options) { o.Attempts, o.HostAttempts, o.Timeout = 64, 16, 2*patience })
	s := r.sink(nil)
	id := r.subscribe(s.URL, "")
	r.publish("a", "first", "k") // the endpoint shows that it works
	r.until("the first is delivered", func() bool { return r.status(id).Acked == 1 })
	var dead []string
	for i := range 300 {
		sink := trickle(t, drain)
		if i%10 == 0 {
			sink = "http://127.0.0.1:1/" // nobody listens
		}
		dead = append(dead, r.subscribe(sink, `,"visibility":"4m"`))
	}
	for i := range 20 {
		r.publish("a", fmt.Sprint(i), "k")
		r.until("it is delivered", func() bool { return r.status(id).Acked == uint64(i+2) })
	}
	if st := r.status(dead[0]); st.Acked != 0 {
		t.Errorf("a dead endpoint: %+v", st)
	}
}

// TestBusyEndpointsHoldUpNoNewOne: beside endpoints that work, and have taken all that
// they may, those that have shown nothing yet get their events, one behind another.
func TestBusyEndpointsHoldUpNoNewOne(t *testing.T) {
	const most = 16
	r := newRig(t, func(o *webhook.Options) { o.Attempts, o.HostAttempts, o.Timeout = most, 4, 2*patience })
	release := make(chan struct{})
	defer close(release)
	var busy []string
	for range most {
		s := r.sink(func(_ http.ResponseWriter, _ *push, n int) {
			if n > 1 {
				<-release
			}
		})
		busy = append(busy, r.subscribe(s.URL, `,"topics":["a"],"visibility":"4m"`))
	}
	r.publish("a", "first", "")
	r.until("they have shown that they work", func() bool {
		return !slices.ContainsFunc(busy, func(id string) bool { return r.status(id).Acked == 0 })
	})
	for i := range 4 {
		r.publish("a", fmt.Sprint(i), "")
	}
	r.until("they have all that they may have", func() bool {
		out := uint64(0)
		for _, id := range busy {
			out += r.status(id).Outstanding
		}
		return out >= most-most/8
	})
	var fresh []string
	for range 5 {
		fresh = append(fresh, r.subscribe(r.sink(nil).URL, `,"topics":["b"]`))
	}
	r.publish("b", "1", "")
	r.until("the new ones have theirs", func() bool {
		return !slices.ContainsFunc(fresh, func(id string) bool { return r.status(id).Acked == 0 })
	})
}

// stuckSink is an endpoint that answers after a while, until so many requests have
// come: then it takes no notice of any until it is released.
type stuckSink struct {
	*sink
	after       time.Duration
	under, peak atomic.Int64
	stuck       atomic.Bool
	one         chan func(w http.ResponseWriter) // answers one request of those that are stuck
}

func newStuckSink(after time.Duration, quick int) *stuckSink {
	s := &stuckSink{after: after, one: make(chan func(http.ResponseWriter))}
	s.sink = &sink{reply: func(w http.ResponseWriter, _ *push, n int) {
		defer s.under.Add(-1)
		now := s.under.Add(1)
		for seen := s.peak.Load(); now > seen && !s.peak.CompareAndSwap(seen, now); seen = s.peak.Load() {
		}
		time.Sleep(s.after)
		if n == quick {
			s.stuck.Store(true)
		}
		for s.stuck.Load() {
			select {
			case answer := <-s.one:
				answer(w)
				return
			case <-time.After(time.Millisecond):
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	return s
}

// stall publishes events, and waits until a host is stuck and has all that it may have.
func (s *stuckSink) stall(r *rig, events, most int, more string) (id string) {
	r.t.Cleanup(func() {
		s.stuck.Store(false)
		s.Close()
	})
	for i := range events {
		r.publish("a", fmt.Sprint(i), fmt.Sprint("k", i))
	}
	id = r.subscribe(s.URL, more)
	r.until("the host is stuck", s.stuck.Load)
	r.until("it has all that it may have", func() bool { return s.under.Load() == int64(most) })
	return id
}

// TestAheadOfAHost: to a fast host events are handed out ahead, and wait there for
// their turn, over either version of HTTP.
func TestAheadOfAHost(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			const most, quick, all = 16, 300, 600
			s := newStuckSink(0, quick)
			r := newRig(t, func(o *webhook.Options) { o.HostAttempts, o.Timeout = most, patience })
			if http2 {
				s.StartTLS()
				r.roots.AddCert(s.Certificate())
			} else {
				s.Start()
			}
			id := s.stall(r, all, most, `,"visibility":"2m"`)
			r.until("some are ready and not too many", func() bool {
				out := r.status(id).Outstanding
				return out > most && out <= 4*most
			})
			s.stuck.Store(false)
			r.until("all are delivered", func() bool { return r.status(id).Acked == all })
			if got := s.ids(); len(got) != all || s.peak.Load() > most {
				t.Errorf("%d requests for %d events, %d at one time", len(got), all, s.peak.Load())
			}
		})
	}
}

// TestNothingAheadOfASlowHost: its events would wait, and lack the time for an answer.
func TestNothingAheadOfASlowHost(t *testing.T) {
	const most, quick, all = 8, 24, 40
	s := newStuckSink(520*time.Millisecond, quick) // an answer that takes a twentieth of the time limit is slow
	r := newRig(t, func(o *webhook.Options) { o.HostAttempts, o.Timeout = most, 10*time.Second })
	s.Start()
	id := s.stall(r, all, most, `,"visibility":"1m"`)
	r.until("no more are handed out", func() bool { return r.status(id).Outstanding == most })
	s.stuck.Store(false)
	r.until("all are delivered", func() bool { return r.status(id).Acked == all })
}

// TestWhatWaitsObeysTheEndpoint: what was handed out ahead does not leave once the
// endpoint wants to be left alone, is paused or has been replaced, and is no attempt.
func TestWhatWaitsObeysTheEndpoint(t *testing.T) {
	const most, quick, all = 16, 300, 600
	for name, say := range map[string]func(r *rig, s *stuckSink, id string){
		"held": func(_ *rig, s *stuckSink, _ string) {
			s.one <- func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		},
		"gone": func(_ *rig, s *stuckSink, _ string) {
			s.one <- func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStuckSink(0, quick)
			r := newRig(t, func(o *webhook.Options) { o.HostAttempts, o.Timeout = most, patience })
			s.Start()
			id := s.stall(r, all, most, `,"max_attempts":1,"visibility":"2m"`)
			r.until("some are ready", func() bool { return r.status(id).Outstanding > most })
			came := len(s.pushes())
			say(r, s, id)
			r.until("what waits comes back", func() bool { return s.under.Load() == most-1 && r.status(id).Ready > 0 })
			s.stuck.Store(false)
			r.until("what is under way ends", func() bool { st := r.status(id); return st.Outstanding == st.Ready })
			if got := len(s.pushes()); got != came {
				t.Errorf("%d more requests", got-came)
			}
			if st := r.status(id); st.Acked+1 != uint64(came) || st.Buried > 1 {
				t.Errorf("after %d requests: %+v", came, st)
			}
		})
	}
}

func drain(c net.Conn) {
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// TestEveryAttemptEnds: whatever an endpoint does, an attempt ends by the timeout,
// and little is read of what it says.
func TestEveryAttemptEnds(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n"
	for name, c := range map[string]struct {
		serve func(net.Conn)
		acked bool
	}{
		"no answer":        {drain, false},
		"drips its head":   {func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nX: "+"y") }, false},
		"closes":           {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }, false},
		"endless head":     {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); flood(c, "HTTP/1.1 200 OK\r\nX: ") }, false},
		"drips its body":   {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); _, _ = c.Write([]byte(head)); drip(c, "z") }, true},
		"endless body":     {func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); flood(c, head) }, true},
		"speaks no HTTP":   {func(c net.Conn) { flood(c, "hello\r\n") }, false},
		"not TLS for once": {func(c net.Conn) { _, _ = c.Write([]byte{0x15, 3, 1, 0, 2, 2, 40}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *webhook.Options) { o.Timeout, o.Schedule = 5*time.Second, []time.Duration{time.Hour} })
			id := r.subscribe(trickle(t, c.serve), "")
			r.publish("a", "1", "k")
			r.until("the attempt ends", func() bool { st := r.status(id); return st.Acked+st.Nacked == 1 })
			if st := r.status(id); (st.Acked == 1) != c.acked || !c.acked && st.Error == "" {
				t.Errorf("%+v", st)
			}
		})
	}
}

// flood sends a beginning, and then whatever the other side takes.
func flood(c net.Conn, begin string) {
	_, _ = c.Write([]byte(begin))
	rest := make([]byte, 64<<10)
	for i := range rest {
		rest[i] = 'x'
	}
	for {
		if _, err := c.Write(rest); err != nil {
			return
		}
	}
}

// TestBytesUnderWayAreBounded: endpoints that hang hold a part of the memory only;
// those that work have the rest.
func TestBytesUnderWayAreBounded(t *testing.T) {
	r := newRig(t, func(o *webhook.Options) { o.Bytes, o.Timeout = 10_000, time.Minute })
	works := r.sink(nil)
	well := r.subscribe(works.URL, "")
	r.publish("a", "first", "k")
	r.until("the first is delivered", func() bool { return r.status(well).Acked == 1 })
	hanging := func() string { return r.subscribe(trickle(t, drain), `,"visibility":"2m","topics":["big"]`) }
	first := hanging()
	ev, err := event.Draft{ID: "big", Source: "/s", Type: "t", Data: bytes.Repeat([]byte("x"), 8000), DataContentType: "text/plain"}.Event()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Publish(t.Context(), identity.Anonymous(), broker.PublishRequest{Topic: "big", Events: []*event.Event{ev}}); err != nil {
		t.Fatal(err)
	}
	r.until("it is under way", func() bool { return r.status(first).HandedOut == 1 })
	waits := hanging()
	for i := range 5 {
		r.publish("a", fmt.Sprint(i), "k")
		r.until("it is delivered", func() bool { return r.status(well).Acked == uint64(i+2) })
	}
	if st := r.status(waits); st.HandedOut != 0 {
		t.Errorf("a second one has %d attempts, where the first one holds what there is", st.HandedOut)
	}
	if _, err := r.DeleteSubscription(t.Context(), identity.Anonymous(), first); err != nil {
		t.Fatal(err)
	}
}

// TestCircuit: after five failures nothing is sent and no attempt is spent; other
// endpoints go on.
func TestCircuit(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, _ *push, _ int) { w.WriteHeader(http.StatusInternalServerError) })
	id := r.subscribe(s.URL, `,"max_attempts":100`)
	for i := range 40 {
		r.publish("a", fmt.Sprint(i), fmt.Sprint(i))
	}
	r.until("the circuit is open", func() bool { return r.status(id).Endpoint.Circuit == "open" })
	r.until("nothing is under way", func() bool { st := r.status(id); return st.Outstanding == st.Ready })
	before := r.status(id)
	r.publish("a", "more", "more")
	other := r.sink(nil)
	well := r.subscribe(other.URL, "")
	r.until("the other gets all", func() bool { return r.status(well).Acked == 41 })
	// What was handed out and could not leave any more was returned, and is no attempt.
	if after := r.status(id); after.HandedOut != before.HandedOut || after.Cursor != before.Cursor || len(s.pushes()) != int(before.Nacked) {
		t.Errorf("before %+v, after %+v, %d requests", before, after, len(s.pushes()))
	}
}
