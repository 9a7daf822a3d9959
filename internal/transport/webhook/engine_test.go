// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/internal/signature"
	"signalbox/internal/transport/webhook"
)

// TestDelivery: what is published arrives once, signed with the broker's own key,
// in the order of its key.
func TestDelivery(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(nil)
	id := r.subscribe(s.URL+"/hook?x=1", "")
	for i := range 50 {
		r.publish("a", fmt.Sprint(i), fmt.Sprint("k", i%3))
		r.publish("b", fmt.Sprint(i), "k")
	}
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == 50 })
	last := map[string]int{}
	var ids []string
	keys := []signature.Key{}
	for _, k := range r.WebhookKeys() {
		public, err := signature.Parse(k.Key.Public())
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, public)
	}
	for _, p := range s.pushes() {
		var n int
		_, _ = fmt.Sscan(p.id(), &n)
		if key := p.event.Subject(); n < last[key] {
			t.Errorf("event %d of key %s comes after %d", n, key, last[key])
		} else {
			last[key] = n
		}
		ids = append(ids, p.id())
		h := p.header
		if err := signature.Verify(keys, h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), p.body, time.Now()); err != nil {
			t.Errorf("%v: %v", h, err)
		}
		if p.method != http.MethodPost || h.Get("Content-Type") != "application/cloudevents+json" || h.Get("User-Agent") != "signalbox" {
			t.Errorf("%s %v", p.method, h)
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 50 {
		t.Errorf("arrived: %v", ids)
	}
}

// TestEachAttemptIsSignedAnew: the id stays, the time and the signature are those
// of the attempt, and during a rotation of secrets there are two. An id with dots
// in it does not get into what is signed.
func TestEachAttemptIsSignedAnew(t *testing.T) {
	// Whatever is taken off for the spread, more than a second is left, and the time differs.
	r := newRig(t, func(o *webhook.Options) { o.Schedule = []time.Duration{1300 * time.Millisecond} })
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	const first, second = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
	id := r.subscribe(s.URL, `,"signature":"v1","secrets":["`+second+`","`+first+`"],"content_mode":"binary"`)
	r.publish("a", "a.1700000000.{}", "k")
	r.until("it is acknowledged", func() bool { return r.status(id).Acked == 1 })
	pushes := s.pushes()
	if len(pushes) != 3 {
		t.Fatalf("%d attempts", len(pushes))
	}
	ids, times := map[string]bool{}, map[string]bool{}
	for _, p := range pushes {
		h := p.header
		ids[h.Get("Webhook-Id")], times[h.Get("Webhook-Timestamp")] = true, true
		if strings.Contains(h.Get("Webhook-Id"), ".") || strings.Count(h.Get("Webhook-Signature"), "v1,") != 2 || string(p.body) != `{"n":1}` || h.Get("Ce-Type") != "t" {
			t.Errorf("%v %s", h, p.body)
		}
		for _, secret := range []string{first, second} {
			k, err := signature.Parse(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := signature.Verify([]signature.Key{k}, h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), p.body, time.Now()); err != nil {
				t.Errorf("with %s: %v", secret, err)
			}
		}
	}
	if len(ids) != 1 || len(times) != 3 {
		t.Errorf("ids %v, times %v", ids, times)
	}
}

// TestRetryHoldsBackItsKeyOnly: while an event waits to be tried again, later ones
// of its key wait, and those of other keys go on.
func TestRetryHoldsBackItsKeyOnly(t *testing.T) {
	r, clock := newClockRig(t, func(o *webhook.Options) { o.Schedule = []time.Duration{time.Hour} })
	s := r.sink(func(w http.ResponseWriter, p *push, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	id := r.subscribe(s.URL, "")
	r.publish("a", "1", "held")
	r.until("the first is tried", func() bool { return len(s.ids()) == 1 })
	r.publish("a", "2", "held")
	r.publish("a", "3", "free")
	r.until("the one of the other key is acknowledged", func() bool { return r.status(id).Acked == 1 })
	clock.ahead.Add(int64(2 * time.Hour))
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == 3 })
	if got := strings.Join(s.ids(), " "); got != "1 3 1 2" {
		t.Errorf("the order is %s", got)
	}
}

// TestStrictOrder: with strict nothing overtakes.
func TestStrictOrder(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, p *push, n int) {
		if n%3 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	id := r.subscribe(s.URL, `,"order":"strict"`)
	for i := range 9 {
		r.publish("a", fmt.Sprint(i), "")
	}
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == 9 })
	if got := strings.Join(slices.Compact(s.ids()), " "); got != "0 1 2 3 4 5 6 7 8" {
		t.Errorf("the order is %s", got)
	}
}

// TestUnordered: with unordered an event that waits to be tried again holds back
// nothing, those of its key neither.
func TestUnordered(t *testing.T) {
	r, clock := newClockRig(t, func(o *webhook.Options) { o.Schedule = []time.Duration{time.Hour} })
	s := r.sink(func(w http.ResponseWriter, p *push, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	id := r.subscribe(s.URL, `,"order":"unordered"`)
	r.publish("a", "1", "same")
	r.until("the first is tried", func() bool { return len(s.ids()) == 1 })
	r.publish("a", "2", "same")
	r.until("the second is delivered", func() bool { return r.status(id).Acked == 1 })
	clock.ahead.Add(int64(2 * time.Hour))
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == 2 })
	if got := strings.Join(s.ids(), " "); got != "1 2 1" {
		t.Errorf("the order is %s", got)
	}
	if st := r.status(id); st.Parked != 0 {
		t.Errorf("%+v", st)
	}
}

// TestEveryPushHasABody: an event without data, or whose data has no type, is sent
// structured where binary is wanted, for webhooks must have a body and a
// Content-Type (CloudEvents webhook 2.1).
func TestEveryPushHasABody(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(nil)
	id := r.subscribe(s.URL, `,"content_mode":"binary","order":"strict"`)
	for _, d := range []event.Draft{{ID: "none"}, {ID: "bytes", Data: []byte{1, 2}}, {ID: "text", Data: []byte("x"), DataContentType: "text/plain"}} {
		d.Source, d.Type = "/s", "t"
		ev, err := d.Event()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Publish(t.Context(), identity.Anonymous(), broker.PublishRequest{Topic: "a", Events: []*event.Event{ev}}); err != nil {
			t.Fatal(err)
		}
	}
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == 3 })
	var forms []string
	for _, p := range s.pushes() {
		if len(p.body) == 0 {
			t.Errorf("%v has no body", p.header)
		}
		id := p.header.Get("Ce-Id")
		if id == "" {
			id = p.id()
		}
		forms = append(forms, id+" "+p.header.Get("Content-Type"))
	}
	if got := strings.Join(forms, ", "); got != "none application/cloudevents+json, bytes application/cloudevents+json, text text/plain" {
		t.Error(got)
	}
}

// TestChallengeIsNotAnswered: a credential is sent as its subscriber gave it, and
// whatever a 401 asks for is no cause to send anything else (CloudEvents webhook 3).
func TestChallengeIsNotAnswered(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n == 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	d, err := event.ParseSubscription(fmt.Appendf(nil, `{"protocol":"HTTP","sink":%q,"sinkcredential":{"credentialtype":"ACCESSTOKEN","accesstoken":"mF_9","accesstokentype":"bearer","accesstokenexpiresutc":"2030-01-01T00:00:00Z"},"config":{"topics":["a"],"start":"earliest"}}`, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.CreateSubscription(t.Context(), identity.Anonymous(), d)
	if err != nil {
		t.Fatal(err)
	}
	r.publish("a", "1", "k")
	r.until("it is acknowledged", func() bool { return r.status(info.Document.ID).Acked == 1 })
	for _, p := range s.pushes() {
		if got := p.header.Get("Authorization"); got != "Bearer mF_9" {
			t.Errorf("Authorization: %s", got)
		}
	}
	if st := r.status(info.Document.ID); st.Nacked != 1 {
		t.Errorf("%+v", st)
	}
}

// TestExpiredTokenIsToldApart: the status of a subscription says that its token was not
// sent any more, where the endpoint refuses what has none.
func TestExpiredTokenIsToldApart(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, _ *push, _ int) { w.WriteHeader(http.StatusUnauthorized) })
	var ids [2]string // one is asked for its consent first
	var ends time.Time
	r.until("they are made before their token ends", func() bool {
		ends = time.Now().Add(2 * time.Second)
		for i := range ids {
			d, err := event.ParseSubscription(fmt.Appendf(nil, `{"protocol":"HTTP","sink":%q,"sinkcredential":{"credentialtype":"ACCESSTOKEN","accesstoken":"mF_9","accesstokentype":"bearer","accesstokenexpiresutc":%q},"config":{"topics":["%d"],"handshake":%t}}`,
				s.URL, ends.Format(time.RFC3339Nano), i, i == 1))
			if err != nil {
				t.Fatal(err)
			}
			info, err := r.CreateSubscription(t.Context(), identity.Anonymous(), d)
			if err != nil {
				return false
			}
			ids[i] = info.Document.ID
		}
		return true
	})
	time.Sleep(time.Until(ends))
	for i, refused := range []string{"the endpoint answered 401", "the endpoint has not consented to the handshake: it must answer OPTIONS with WebHook-Allowed-Origin"} {
		r.publish(strconv.Itoa(i), "1", "k")
		want := refused + ", and was sent no token: that in sinkcredential has expired"
		r.until("it says why", func() bool { return r.status(ids[i]).Error == want })
	}
	for _, p := range s.pushes() {
		if got := p.header.Get("Authorization"); got != "" && p.method != http.MethodOptions { // which does not wait for an event
			t.Errorf("Authorization: %s", got)
		}
	}
}

// TestStockDocument: a document as the clients of other brokers send it, with the
// filters of a Knative Trigger in it, is a webhook that gets what passes them.
func TestStockDocument(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(nil)
	d, err := event.ParseSubscription(fmt.Appendf(nil, `{"protocol":"HTTP","protocolSettings":{"method":"POST","headers":{"X-Tenant":"one"}},"sink":%q,
		"filters":[{"exact":{"type":"com.example.task.completed","source":"/fleet"}},{"any":[{"prefix":{"subject":"drone-"}},{"cesql":"EXISTS severity"}]}]}`, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.CreateSubscription(t.Context(), identity.Anonymous(), d)
	if err != nil {
		t.Fatal(err)
	}
	const completed = "com.example.task.completed"
	for _, d := range []event.Draft{
		{ID: "passes", Source: "/fleet", Type: completed, Subject: "drone-1"},
		{ID: "another type", Source: "/fleet", Type: "com.example.task", Subject: "drone-1"},
		{ID: "another source", Source: "/fleet/2", Type: completed, Subject: "drone-1"},
		{ID: "neither of any", Source: "/fleet", Type: completed, Subject: "Drone-1"},
		{ID: "passes, too", Source: "/fleet", Type: completed, Extensions: map[string]any{"severity": 3}},
	} {
		ev, err := d.Event()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Publish(t.Context(), identity.Anonymous(), broker.PublishRequest{Topic: "tasks", Events: []*event.Event{ev}}); err != nil {
			t.Fatal(err)
		}
	}
	r.until("what passes is acknowledged", func() bool { st := r.status(info.Document.ID); return st.Acked == 2 && st.Cursor.Position == 5 })
	got := s.ids()
	slices.Sort(got)
	if strings.Join(got, ", ") != "passes, passes, too" || s.pushes()[0].header.Get("X-Tenant") != "one" {
		t.Errorf("it got %q, %v", got, s.pushes()[0].header)
	}
}

// TestGoneDisables: 410 ends deliveries at once, with an event that says so and
// without losing the place; resuming goes on.
func TestGoneDisables(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusGone)
		}
	})
	notices := r.sink(nil)
	r.subscribe(notices.URL, `,"topics":["$subscriptions"]`)
	id := r.subscribe(s.URL, `,"order":"strict"`)
	r.publish("a", "1", "")
	r.publish("a", "2", "")
	r.until("it is disabled", func() bool { st := r.status(id); return st.Disabled && st.Ready == 1 })
	if st := r.status(id); !st.NextAttempt.IsZero() {
		t.Errorf("the next attempt is at %s, of %d events", st.NextAttempt, st.Ready)
	}
	time.Sleep(50 * time.Millisecond) // in which a further attempt would come
	if n := len(s.pushes()); n != 1 {
		t.Errorf("%d attempts at an endpoint that is gone", n)
	}
	r.until("it is told", func() bool { return len(notices.pushes()) == 1 })
	if p := notices.pushes()[0]; p.event.Type() != "signalbox.subscription.disabled" || p.event.Subject() != id {
		t.Errorf("told: %s", p.body)
	}
	if _, err := r.PauseSubscription(t.Context(), identity.Anonymous(), id, false); err != nil {
		t.Fatal(err)
	}
	r.until("the rest is delivered", func() bool { return r.status(id).Acked == 2 })
	if got := strings.Join(s.ids(), " "); got != "1 1 2" {
		t.Errorf("it got %s", got)
	}
}

// TestRetryAfterIsObeyed: before the time that an endpoint has named, nothing is
// sent to it, of any key.
func TestRetryAfterIsObeyed(t *testing.T) {
	for name, header := range map[string]func() string{
		"seconds": func() string { return "2" },
		"date":    func() string { return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			var at time.Time
			s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
				if n == 1 {
					at = time.Now() // before the time that is named is counted from
					w.Header().Set("Retry-After", header())
					w.WriteHeader(http.StatusServiceUnavailable)
				} else if n == 2 && time.Since(at) < 1500*time.Millisecond {
					t.Errorf("an attempt after %s", time.Since(at))
				}
			})
			id := r.subscribe(s.URL, "")
			r.publish("a", "1", "x")
			r.until("it is tried", func() bool { return r.status(id).Nacked == 1 })
			r.publish("a", "2", "y")
			r.until("all are acknowledged", func() bool { return r.status(id).Acked == 2 })
		})
	}
}

// TestNextAttemptWaitsForTheEndpoint: the status names no time before which nothing is
// sent to the endpoint, whatever else comes back from it earlier.
func TestNextAttemptWaitsForTheEndpoint(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n == 1 {
			w.Header().Set("Retry-After", "3600")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	r.publish("a", "1", "x")
	r.publish("a", "2", "y")
	id := r.subscribe(s.URL, "")
	r.until("both wait", func() bool { return r.status(id).Ready == 2 })
	if st := r.status(id); st.NextAttempt.IsZero() || st.NextAttempt.Before(st.Endpoint.HeldUntil) {
		t.Errorf("the next attempt is at %s, and nothing is sent before %s", st.NextAttempt, st.Endpoint.HeldUntil)
	}
}

// TestRefusedAddressIsPermanent: a sink that leads where it must not is sent
// nothing, is disabled, and is not tried again.
func TestRefusedAddressIsPermanent(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(nil)
	id := r.subscribe(s.URL, "")
	own := r.sink(nil)
	refused := r.subscribe(own.URL, "")
	r.guard.Own(own.Listener.Addr()) // from now on it is the broker itself
	r.publish("a", "1", "x")
	r.until("the other is delivered", func() bool { return r.status(id).Acked == 1 })
	r.until("it is disabled", func() bool { return r.status(refused).Disabled })
	if n := len(own.pushes()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	// What a name stands for in the broker's network is nobody's business.
	if st := r.status(refused); st.Error == "" || strings.Contains(st.Error, "127.0.0.1") {
		t.Errorf("the subscriber is told %q", st.Error)
	}
}

// TestRedirectIsNotFollowed: 302 and 307 are failures.
func TestRedirectIsNotFollowed(t *testing.T) {
	for _, code := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		r := newRig(t, nil)
		inside := r.sink(nil)
		s := r.sink(func(w http.ResponseWriter, _ *push, n int) {
			if n == 1 {
				w.Header().Set("Location", inside.URL)
				w.WriteHeader(code)
			}
		})
		id := r.subscribe(s.URL, "")
		r.publish("a", "1", "x")
		r.until("it is acknowledged", func() bool { return r.status(id).Acked == 1 })
		if st := r.status(id); len(inside.pushes()) != 0 || st.Nacked != 1 || !strings.Contains(st.Error, fmt.Sprint(code)) {
			t.Errorf("%d: %d requests at the target of the redirect, %+v", code, len(inside.pushes()), st)
		}
	}
}

// TestSpentEventIsADeadLetter: after the last attempt the event is in the topic of
// dead letters, with what the endpoint said.
func TestSpentEventIsADeadLetter(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(func(w http.ResponseWriter, p *push, _ int) {
		if p.id() == "bad" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	id := r.subscribe(s.URL, `,"max_attempts":3`)
	r.publish("a", "bad", "x")
	r.publish("a", "good", "x")
	r.until("the other is delivered", func() bool { return r.status(id).Acked == 1 })
	letters, _, err := r.Letters(identity.Anonymous(), id, broker.LetterFilter{}, 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Attempts != 3 || letters[0].Cause != "attempts" || !strings.Contains(letters[0].Error, "422") {
		t.Errorf("%+v, %v", letters, err)
	}
	if got := strings.Join(s.ids(), " "); got != "bad bad bad good" {
		t.Errorf("it got %s", got)
	}
}

// TestBatch: a batch holds several events, is signed as one, and is acknowledged
// as one.
func TestBatch(t *testing.T) {
	r := newRig(t, nil)
	s := r.sink(nil)
	for i := range 30 {
		r.publish("a", fmt.Sprint(i), fmt.Sprint(i))
	}
	id := r.subscribe(s.URL, `,"content_mode":"batch"`)
	r.until("all are acknowledged", func() bool { return r.status(id).Acked == 30 })
	n := 0
	for _, p := range s.pushes() {
		events, err := event.DecodeDeliveredBatch(p.body)
		if err != nil || p.header.Get("Content-Type") != "application/cloudevents-batch+json" {
			t.Fatalf("%v %v", p.header, err)
		}
		n += len(events)
	}
	if n != 30 || len(s.pushes()) > 10 {
		t.Errorf("%d events in %d requests", n, len(s.pushes()))
	}
}
