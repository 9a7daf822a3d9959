// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
)

// note is what the ticketing system is told.
type note struct {
	ID    string `json:"id"`
	Text  string `json:"text"`
	Close bool   `json:"close"`
}

// ticketing is the ticketing system, which is down when the first note comes.
func ticketing(t *testing.T) (*httptest.Server, <-chan note) {
	notes, down := make(chan note, 10), true
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n note
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || r.URL.Path != "/tickets/42/notes" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		if down { // one request at a time: the moves of a ticket keep their order
			down = false
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		notes <- n
	})), notes
}

// signed posts a webhook of the ticketing system.
func signed(handler http.Handler, body, secret string) int {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	req := httptest.NewRequest(http.MethodPost, "/desk", strings.NewReader(body))
	req.Header.Set("X-Desk-Signature", hex.EncodeToString(mac.Sum(nil)))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w.Code
}

// TestTicketGoesInAndItsStateComesBack, with a webhook that comes twice, one that is
// forged, and a ticketing system that is down at first.
func TestTicketGoesInAndItsStateComesBack(t *testing.T) {
	url, stop, err := tickettest.Serve(t.TempDir(), tickettest.Staff())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), tickettest.Patience)
	defer cancel()
	system, notes := ticketing(t)
	defer system.Close()
	c := tickettest.Client(t, url, "desk")
	d := &desk{sender: ticketclient.NewSender(c, "desk", tickettest.Key("desk")), secret: []byte("s"), system: system.URL, http: system.Client()}
	handler, err := d.handler(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	bridge := httptest.NewServer(handler)
	defer bridge.Close()
	for range 2 { // a second start makes no second subscription
		if err := subscribe(ctx, c, bridge.URL+"/signalbox"); err != nil {
			t.Fatal(err)
		}
	}
	post := func(body, secret string) int { return signed(handler, body, secret) }
	const body = `{"number":"42","event":"open","title":"web-7 is slow","asset":"web-7","reporter":"u1","priority":2,"change":1}`
	if code := post(body, "guessed"); code != http.StatusUnauthorized {
		t.Errorf("a forged webhook: %d", code)
	}
	for range 2 {
		if code := post(body, "s"); code != http.StatusAccepted {
			t.Fatalf("a webhook: %d", code)
		}
	}
	if code := post(strings.Replace(body, `"open"`, `"cancel"`, 1), "s"); code != http.StatusAccepted {
		t.Fatalf("a cancellation: %d", code)
	}

	orchestrate, ended := tickettest.Orchestrator(t, url, `{"rules":[{"name":"web","source_ref":"desk:*","slices":[{"id":"s","domain":"compute","objective":"{title}","targets":["{*}"]}]}]}`)
	defer tickettest.Run(ctx, orchestrate)()
	tickettest.Await(ctx, t, ended, "DESK-42")
	select {
	case n := <-notes:
		if n.Text != "CANCELLED: cancelled" || !n.Close || n.ID == "" {
			t.Errorf("the note is %+v", n)
		}
	case <-ctx.Done():
		t.Fatal("nothing was written back")
	}
}
