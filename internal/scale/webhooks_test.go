// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// TestScaleIdleWebhooks makes a hundred thousand webhooks of which hardly any event
// concerns one. They cost no memory, do not make a start take longer, and an event
// finds the one that it concerns, whatever else there is.
func TestScaleIdleWebhooks(t *testing.T) {
	t.Parallel()
	n := times(t, 100_000)
	got := make(chan time.Time, 100)
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		got <- time.Now()
		w.WriteHeader(http.StatusNoContent)
	}))
	defer sink.Close()
	p := start(t)
	subscribe := func(sink, filter string) error {
		body := fmt.Sprintf(`{"protocol":"HTTP","sink":%q,"filters":[{"exact":{"type":"made","subject":%q}}],"config":{"topics":["hooks.>"]}}`, sink, filter)
		_, err := p.try("POST", "/v1/subscriptions", body, http.StatusCreated, "Content-Type", "application/json")
		return err
	}
	if err := subscribe(sink.URL, "k7"); err != nil {
		t.Fatal(err)
	}
	p.abandon("webhooks", n, func(i int) error { return subscribe("https://hooks.example.com/", fmt.Sprint("nobody-", i)) })
	sent := 0
	publish := func(when string) {
		t.Helper()
		began := time.Now()
		p.publish(func(int) string { return "hooks.a" }, fmt.Sprint("e", sent), 20) // one of them is about k7
		sent++
		select {
		case at := <-got:
			t.Logf("%s: an event is at its endpoint after %s", when, at.Sub(began).Round(time.Millisecond))
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: an event does not find its webhook", when)
		}
	}
	publish("beside all of them")
	for _, c := range []struct {
		how    string
		signal syscall.Signal
	}{{"stopped", stopped}, {"killed", killed}} {
		p.restarts(c.how, c.signal, func() {})
		began, last := time.Now(), time.Now()
		publish("after it was " + c.how)
		for time.Since(last) < 3*time.Second {
			if p.metric(`signalbox_webhook_due{when="now"}`) > 0 {
				last = time.Now()
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("after it was %s all were looked at within %s; then %s", c.how, last.Sub(began).Round(time.Millisecond), mib(p.settled()))
	}
	if len(got) != 0 {
		t.Errorf("%d events came twice", len(got))
	}
}
