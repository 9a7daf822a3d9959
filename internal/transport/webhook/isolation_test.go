// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
// cannot be reached, one that works gets its events at once. Guards F29, steps 1
// and 2.
func TestDeadEndpointsHoldUpNobody(t *testing.T) {
	// Fewer attempts than dead endpoints, and a time limit longer than the test.
	r := newRig(t, func(o *webhook.Options) { o.Attempts, o.HostAttempts, o.Timeout = 64, 16, time.Minute })
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
		dead = append(dead, r.subscribe(sink, `,"visibility":"2m"`))
	}
	for i := range 20 {
		began := time.Now()
		r.publish("a", fmt.Sprint(i), "k")
		r.until("it is delivered", func() bool { return r.status(id).Acked == uint64(i+2) })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("event %d took %s", i, took)
		}
	}
	if st := r.status(dead[0]); st.Acked != 0 {
		t.Errorf("a dead endpoint: %+v", st)
	}
}

// TestAheadOfAHost: what is handed out ahead to a fast host waits for its turn, over
// either version of HTTP. When the host then stops answering, each event fails once at
// most for it, and all come when it answers again.
func TestAheadOfAHost(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			const most, quick, all = 8, 300, 600
			var under, peak atomic.Int64
			var stuck atomic.Bool
			s := &sink{reply: func(w http.ResponseWriter, _ *push, n int) {
				defer under.Add(-1)
				now := under.Add(1)
				for seen := peak.Load(); now > seen && !peak.CompareAndSwap(seen, now); seen = peak.Load() {
				}
				if n == quick {
					stuck.Store(true)
				}
				for stuck.Load() {
					time.Sleep(time.Millisecond)
				}
				w.WriteHeader(http.StatusNoContent)
			}}
			s.Server = httptest.NewUnstartedServer(s)
			s.EnableHTTP2 = true
			r := newRig(t, func(o *webhook.Options) { o.HostAttempts = most })
			if http2 {
				s.StartTLS()
				r.roots.AddCert(s.Certificate())
			} else {
				s.Start()
			}
			t.Cleanup(s.Close)
			for i := range all {
				r.publish("a", fmt.Sprint(i), fmt.Sprint("k", i%50))
			}
			id := r.subscribe(s.URL, `,"visibility":"1m"`)
			r.until("the host is stuck", stuck.Load)
			r.until("it has all that it may have", func() bool { return under.Load() == most })
			r.until("no more is handed out than may be ready", func() bool { return r.status(id).Outstanding <= 4*most })
			stuck.Store(false)
			r.until("all are delivered", func() bool { return r.status(id).Acked == all })
			if got := s.ids(); len(got) != all || peak.Load() > most {
				t.Errorf("%d requests for %d events, %d at one time", len(got), all, peak.Load())
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
// and little is read of what it says. Guards F29, step 1, and F27, step 6.
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
			r := newRig(t, func(o *webhook.Options) { o.Timeout, o.Schedule = 2*time.Second, []time.Duration{time.Hour} })
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
	if after := r.status(id); after.HandedOut != before.HandedOut || after.Cursor != before.Cursor || len(s.pushes()) != int(before.HandedOut) {
		t.Errorf("before %+v, after %+v, %d requests", before, after, len(s.pushes()))
	}
}
