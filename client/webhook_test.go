// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/internal/signature"
)

const hookSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// hook sends a request as the broker does, signed at a time.
func hook(t *testing.T, h http.Handler, id string, at time.Time, contentType, body string, change func(http.Header)) *httptest.ResponseRecorder {
	t.Helper()
	k, err := signature.Parse(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature.Sign([]signature.Key{k}, id, at, []byte(body)))
	if change != nil {
		change(req.Header)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

const hooked = `{"position":"7","topic":"a","hlc":"1764422645000.00001","specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}`

// TestWebhookReceiver: what is signed and new is handed on once; what is not
// signed, too old or malformed is refused.
func TestWebhookReceiver(t *testing.T) {
	var got []string
	var fail error
	r, err := client.NewWebhookReceiver(client.WebhookOptions{Keys: []string{hookSecret}}, func(_ context.Context, ev *event.Event) error {
		got = append(got, ev.ID()+"@"+strconv.FormatUint(ev.Position(), 10))
		return fail
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	const structured = "application/cloudevents+json"
	binary := func(h http.Header) {
		for name, value := range map[string]string{"id": "2", "source": "/s", "type": "t", "specversion": "1.0", "position": "8", "topic": "a"} {
			h.Set("Ce-"+name, value)
		}
	}
	for _, c := range []struct {
		what, id, contentType, body string
		at                          time.Time
		change                      func(http.Header)
		fail                        error
		status                      int
		got                         string
	}{
		{"new", "m1", structured, hooked, now, nil, nil, 204, "1@7"},
		{"again", "m1", structured, hooked, now, nil, nil, 204, ""},
		{"old", "m2", structured, hooked, now.Add(-6 * time.Minute), nil, nil, 401, ""},
		{"ahead", "m2", structured, hooked, now.Add(6 * time.Minute), nil, nil, 401, ""},
		{"another id", "m2", structured, hooked, now, func(h http.Header) { h.Set("Webhook-Id", "m3") }, nil, 401, ""},
		{"no signature", "m2", structured, hooked, now, func(h http.Header) { h.Del("Webhook-Signature") }, nil, 401, ""},
		{"failing", "m2", structured, hooked, now, nil, errors.New("no"), 500, "1@7"},
		{"failed before", "m2", structured, hooked, now, nil, nil, 204, "1@7"},
		{"gone", "m4", structured, hooked, now, nil, client.ErrWebhookGone, 410, "1@7"},
		{"malformed", "m5", structured, "{}", now, nil, nil, 400, ""},
		{"in another format", "m5", "application/cloudevents+xml", "<event/>", now, nil, nil, 415, ""},
		{"no event", "m5", "application/json", `{"b":2}`, now, nil, nil, 415, ""},
		{"binary", "m6", "application/json", `{"b":2}`, now, binary, nil, 204, "2@8"},
		{"batch", "m7", "application/cloudevents-batch+json", "[" + hooked + "," + strings.Replace(hooked, `"id":"1"`, `"id":"3"`, 1) + "]", now, nil, nil, 204, "1@7 3@7"},
	} {
		got, fail = nil, c.fail
		w := hook(t, r, c.id, c.at, c.contentType, c.body, c.change)
		if w.Code != c.status || strings.Join(got, " ") != c.got {
			t.Errorf("%s: %d %s, handed on %v", c.what, w.Code, w.Body, got)
		}
	}
}

// TestReceiverForgetsTheOldest: a receiver remembers so many messages, and of more
// the last ones.
func TestReceiverForgetsTheOldest(t *testing.T) {
	var got int
	r, err := client.NewWebhookReceiver(client.WebhookOptions{Keys: []string{hookSecret}}, func(context.Context, *event.Event) error { got++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	r.Remember(3)
	now := time.Now()
	for i, c := range []struct {
		id  string
		new bool
	}{
		{"1", true}, {"2", true}, {"3", true}, {"1", false}, {"4", true}, {"2", false}, {"3", false}, {"4", false},
		{"1", true}, {"3", false}, {"5", true}, {"6", true}, {"4", true}, {"5", false}, {"6", false},
	} {
		before := got
		if w := hook(t, r, c.id, now, "application/cloudevents+json", hooked, nil); w.Code != http.StatusNoContent || (got > before) != c.new {
			t.Errorf("message %s, number %d: %d, handed on %t", c.id, i, w.Code, got > before)
		}
	}
}

// TestWebhookHandshake: consent is in headers, for the origin that is wanted.
func TestWebhookHandshake(t *testing.T) {
	r, err := client.NewWebhookReceiver(client.WebhookOptions{Keys: []string{hookSecret}, Origin: "broker.example", Rate: 120}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for origin, allowed := range map[string]string{"broker.example": "broker.example", "other.example": "", "": ""} {
		req := httptest.NewRequest(http.MethodOptions, "/hook", nil)
		req.Header.Set("Webhook-Request-Origin", origin)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Header().Get("Webhook-Allowed-Origin") != allowed || (w.Header().Get("Webhook-Allowed-Rate") == "120") != (allowed != "") {
			t.Errorf("%q: %v", origin, w.Header())
		}
	}
	for _, keys := range [][]string{nil, {"secret"}, {"whsec_AAAA"}} {
		if _, err := client.NewWebhookReceiver(client.WebhookOptions{Keys: keys}, nil); err == nil {
			t.Errorf("the keys %q are accepted", keys)
		}
	}
}

// TestWebhookKeys: the broker publishes its keys, and a rotation leaves the old one
// in use for a while.
func TestWebhookKeys(t *testing.T) {
	b := must(newBroker(t.TempDir()))
	defer b.kill()
	c := must(client.New(b.url))
	first, err := c.WebhookKeys(t.Context())
	if err != nil || len(first) != 1 || !first[0].Until.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := c.RotateWebhookKey(t.Context(), time.Hour)
	if err != nil || len(second) != 2 || second[1].Public != first[0].Public || second[1].Until.IsZero() || second[0].Public == first[0].Public {
		t.Fatalf("%+v, %v", second, err)
	}
	if third, err := c.RotateWebhookKey(t.Context(), 0); err != nil || len(third) != 1 {
		t.Fatalf("%+v, %v", third, err)
	}
}

func ExampleWebhookReceiver() {
	receiver := must(client.NewWebhookReceiver(client.WebhookOptions{Keys: []string{hookSecret}}, func(_ context.Context, ev *event.Event) error {
		fmt.Println(ev.Type(), "from", ev.Source())
		return nil // acknowledged; an error has it sent again
	}))
	http.Handle("/hook", receiver)
}
