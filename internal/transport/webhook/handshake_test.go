// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/transport/webhook"
)

// TestHandshake: nothing is sent until the endpoint has consented, which only
// headers do, and then every delivery names the origin.
func TestHandshake(t *testing.T) {
	for name, answer := range map[string]struct {
		origin, rate string
		status       int
		consents     bool
	}{
		"the origin":            {"broker.example", "", 200, true},
		"any origin":            {"*", "*", 200, true},
		"whatever the status":   {"broker.example", "600", 405, true},
		"status without header": {"", "", 200, false},
		"another origin":        {"other.example", "", 200, false},
		"a rate that is none":   {"*", "0", 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			s := r.sink(func(w http.ResponseWriter, p *push, _ int) {
				if p.method != http.MethodOptions {
					return
				}
				if answer.origin != "" {
					w.Header().Set("WebHook-Allowed-Origin", answer.origin)
				}
				if answer.rate != "" {
					w.Header().Set("WebHook-Allowed-Rate", answer.rate)
				}
				w.WriteHeader(answer.status)
			})
			id := r.subscribe(s.URL, `,"handshake":true`)
			r.publish("a", "1", "k")
			if answer.consents {
				r.until("it is delivered", func() bool { return r.status(id).Acked == 1 })
			} else {
				r.until("it is asked again", func() bool { return r.status(id).Endpoint.Failures > 1 })
			}
			if rate, err := strconv.Atoi(s.pushes()[0].header.Get("WebHook-Request-Rate")); err != nil || rate < 1 {
				t.Errorf("it asks for the rate %d, %v", rate, err)
			}
			for i, p := range s.pushes() {
				if p.header.Get("WebHook-Request-Origin") != "broker.example" || (p.method == http.MethodOptions) != (i == 0 || !answer.consents) {
					t.Errorf("request %d: %s %v", i, p.method, p.header)
				}
			}
			if st := r.status(id); st.Endpoint.Consented != answer.consents {
				t.Errorf("%+v", st.Endpoint)
			}
		})
	}
}

// TestAllowedRateIsKept: an endpoint that allows so many requests a minute gets no
// more. A request may be late, so what counts is how many there are since the first
// could come.
func TestAllowedRateIsKept(t *testing.T) {
	r := newRig(t, nil)
	var times []time.Time
	s := r.sink(func(w http.ResponseWriter, p *push, _ int) {
		if p.method == http.MethodOptions {
			w.Header().Set("WebHook-Allowed-Origin", "*")
			w.Header().Set("WebHook-Allowed-Rate", "300")
			return
		}
		times = append(times, time.Now()) // one at a time comes
	})
	id := r.subscribe(s.URL, `,"handshake":true,"order":"unordered"`)
	began := time.Now()
	for _, n := range []string{"1", "2", "3", "4"} {
		r.publish("a", n, "")
	}
	r.until("all are delivered", func() bool { return r.status(id).Acked == 4 })
	for i, at := range times {
		if after := at.Sub(began); after < time.Duration(i)*200*time.Millisecond {
			t.Errorf("request %d comes after %s", i, after)
		}
	}
}

// TestConsentByCallback: an endpoint may consent later, by the URL that it was
// given, and nobody can with another.
func TestConsentByCallback(t *testing.T) {
	r := newRig(t, func(o *webhook.Options) {
		o.PublicURL, o.Schedule = "https://broker.example/", []time.Duration{time.Hour} // until it is asked again
	})
	s := r.sink(func(http.ResponseWriter, *push, int) {})
	id := r.subscribe(s.URL, `,"handshake":true`)
	r.publish("a", "1", "k")
	r.until("it is asked", func() bool { return r.status(id).Endpoint.Failures > 0 })
	callback, err := url.Parse(s.pushes()[0].header.Get("WebHook-Request-Callback"))
	if err != nil || callback.Host != "broker.example" {
		t.Fatalf("%v, %v", callback, err)
	}
	token := strings.TrimPrefix(callback.Path, "/v1/webhook-consents/")
	for _, wrong := range []string{"", id, id + ".", id + ".0000", "x" + token} {
		if err := r.Consent(t.Context(), wrong, 0); err == nil {
			t.Errorf("the token %q is accepted", wrong)
		}
	}
	if err := r.Consent(t.Context(), token, 0); err != nil {
		t.Fatal(err)
	}
	r.until("it is delivered", func() bool { return r.status(id).Acked == 1 })
	victim := r.sink(func(http.ResponseWriter, *push, int) {})
	r.replace(id, victim.URL)
	if err := r.Consent(t.Context(), token, 0); err == nil || r.status(id).Endpoint.Consented {
		t.Errorf("an endpoint has consented for another: %v", err)
	}
}

// TestNobodyConsentsForAnother: an answer that comes when the subscription has
// another sink already is no consent of that one.
func TestNobodyConsentsForAnother(t *testing.T) {
	r := newRig(t, nil)
	asked, answer := make(chan struct{}), make(chan struct{})
	own := r.sink(func(w http.ResponseWriter, _ *push, n int) {
		if n == 1 {
			close(asked)
			<-answer
		}
		w.Header().Set("WebHook-Allowed-Origin", "*")
	})
	victim := r.sink(func(http.ResponseWriter, *push, int) {})
	id := r.subscribe(own.URL, `,"handshake":true`)
	r.publish("a", "1", "k")
	<-asked
	r.replace(id, victim.URL)
	close(answer)
	r.until("the other is asked", func() bool { return len(victim.pushes()) > 1 })
	for _, p := range victim.pushes() {
		if p.method != http.MethodOptions {
			t.Errorf("it gets %s %s", p.method, p.body)
		}
	}
	if e := r.status(id).Endpoint; e.Consented {
		t.Errorf("%+v", e)
	}
}

// TestSinkWithoutTLS: whoever answers https with plain HTTP has no certificate that could be
// at fault.
func TestSinkWithoutTLS(t *testing.T) {
	r := newRig(t, nil)
	id := r.subscribe(strings.Replace(r.sink(nil).URL, "http:", "https:", 1), "")
	r.publish("a", "1", "k")
	r.until("it has failed", func() bool { return r.status(id).Nacked > 0 })
	if got := r.status(id).Error; got != "the endpoint does not speak TLS" {
		t.Errorf("told: %s", got)
	}
}
