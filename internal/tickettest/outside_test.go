// SPDX-License-Identifier: Apache-2.0

package tickettest_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/identity"
	"signalbox/internal/tickettest"
	"signalbox/internal/transport/webhook"
	"signalbox/ticket"
)

// sink is an endpoint that takes everything.
type sink struct {
	*httptest.Server
	mu  sync.Mutex
	got []string // ids; guarded by mu
}

func newSink(t *testing.T, each func(id string)) *sink {
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		id, _ := event.LookupJSON(body, "id")
		each(id)
		s.mu.Lock()
		s.got = append(s.got, id)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(tickettest.Patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %s", what, tickettest.Patience)
		}
	}
}

// openSending opens a broker with the agents net and ops that sends webhooks, and brings
// its audit trail to a place before it delivers anything of tickets.
func openSending(t *testing.T, place string) *broker.Broker {
	t.Helper()
	allowed, err := egress.ParseAllowed([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	guard, logger, admin := egress.NewGuard(egress.Options{Allowed: allowed}), slog.New(slog.DiscardHandler), tickettest.Key("admin")
	b, err := broker.Open(broker.Options{
		Dir: t.TempDir(), Logger: logger, CheckSink: guard.CheckSink, AuditSync: true, AuditURL: place, AuditInterval: -1,
		Found: func() (string, ed25519.PublicKey, error) { return "main", tickettest.Public(admin), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := webhook.New(webhook.Options{Broker: b, Guard: guard, Logger: logger, Origin: "broker.example"})
	if err != nil {
		t.Fatal(err)
	}
	stop := e.Start(context.Background())
	t.Cleanup(func() {
		stop()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	for i, c := range []ticket.Change{
		{Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"}}, {Agent: "ops", Roles: []string{ticket.RolePlatformOps}},
	} {
		c.Space, c.Revision, c.At, c.Op, c.Key = "main", int64(i)+1, time.Now().UTC(), ticket.ChangeAdd, ticket.EncodeKey(tickettest.Public(tickettest.Key(c.Agent)))
		signed, err := c.Sign(admin)
		if err == nil {
			_, _, err = b.ChangeAgents(context.Background(), identity.Anonymous(), signed.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestNoMessageIsSentBeforeThePlaceOutsideHasIt: to no webhook. While the place is down
// other events are sent, and once it is back the message is, without another event to wake
// anybody.
func TestNoMessageIsSentBeforeThePlaceOutsideHasIt(t *testing.T) {
	var down atomic.Bool
	place := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(place.Close)
	b, ctx := openSending(t, place.URL), context.Background()
	var early atomic.Int64 // messages that came while the place was down
	s := newSink(t, func(id string) {
		if id != "other" && down.Load() {
			early.Add(1)
		}
	})
	for _, topic := range []string{"bus.main.heartbeat.platform-ops", "a"} {
		d, err := event.ParseSubscription(fmt.Appendf(nil, `{"protocol":"HTTP","sink":%q,"config":{"start":"earliest","topics":[%q]}}`, s.URL, topic))
		if err == nil {
			_, err = b.CreateSubscription(ctx, identity.Named("ops"), d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := ticket.Draft{Header: ticket.Header{Type: ticket.TypeHeartbeat, TicketID: ticket.None, TraceID: "trace", From: "net", To: "platform-ops"},
		Payload: []byte(`{"agent":"net","accepts":">=1.0.0 <2.0.0","domains":["network"],"capabilities":[],"inflight":[],"capacity":1,"seq":1}`)}.Sign(tickettest.Key("net"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the place has the beginning", func() bool { e := b.External(); return e.Entries == e.Size })
	down.Store(true)
	receipt := make(chan error, 1)
	go func() {
		_, err := b.PostMessage(ctx, identity.Anonymous(), m.Bytes())
		receipt <- err
	}()
	until(t, "the message is held", func() bool { return b.External().Messages == 1 })
	other, err := event.Draft{ID: "other", Source: "/s", Type: "t"}.Event()
	if err == nil {
		_, err = b.Publish(ctx, identity.Anonymous(), broker.PublishRequest{Topic: "a", Events: []*event.Event{other}})
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the other event is sent", func() bool { return len(s.ids()) == 1 })
	if ids := s.ids(); ids[0] != "other" || early.Load() != 0 {
		t.Fatalf("while the place is down %q are sent", ids)
	}
	down.Store(false)
	if err := <-receipt; err != nil {
		t.Fatal(err)
	}
	until(t, "the message is sent", func() bool { return len(s.ids()) == 2 })
	if id := s.ids()[1]; id != m.Header().ID {
		t.Errorf("%s was sent, and the message is %s", id, m.Header().ID)
	}
}
