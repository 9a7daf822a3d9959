// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

var draft = event.Draft{Source: "/s", Type: "t.x", Subject: "k", Data: []byte(`{"a":1}`)}

// A retry must be the same event to the broker: the same id, the same stamp, the same request key. Otherwise a lost
// answer stores the event twice.
func TestRetrySendsTheSameBytes(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch rec.note(r) {
		case 1:
			problem(w, event.CodeOverloaded, true, nil)
		case 2:
			drop(w)
		case 3:
			w.WriteHeader(http.StatusBadGateway)
		default:
			receipt(w, event.OutcomeAccepted, 1, event.NewHLC(7000, 1))
		}
	})
	r, err := c.Publish(t.Context(), "t", draft, client.IdempotencyKey("order-7"))
	if err != nil || r.Outcome != event.OutcomeAccepted {
		t.Fatalf("publish: %+v, %v", r, err)
	}
	seen := rec.all()
	if len(seen) != 4 {
		t.Fatalf("%d requests, want 4", len(seen))
	}
	for _, s := range seen {
		if s.body != seen[0].body || s.header.Get("Idempotency-Key") != "order-7" || s.path != "/v1/topics/t/events" {
			t.Errorf("a try differs from the first: %+v", s)
		}
	}
	ev, err := event.DecodeJSON([]byte(seen[0].body))
	if err != nil || ev.ID() == "" || ev.HLC() == 0 {
		t.Errorf("the event has no id or no stamp: %v\n%s", err, seen[0].body)
	}
}

func TestRefusalsAreNotRetried(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rec.note(r)
		problem(w, event.CodeHLCDrift, false, map[string]any{"drift_ms": 86400000, "field": "hlc", "ratio": 1.5, "who": []string{"a"}})
	})
	_, err := c.Publish(t.Context(), "t", draft)
	var e *event.Error
	if !errors.As(err, &e) || e.Code != event.CodeHLCDrift || e.Field != "hlc" || e.Message != "Do something else." {
		t.Fatalf("got %#v", err)
	}
	if e.Facts["drift_ms"] != int64(86400000) || e.Facts["ratio"] != 1.5 || len(e.Facts) != 3 {
		t.Errorf("facts %#v", e.Facts)
	}
	if n := len(rec.all()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestRetriesEnd(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { rec.note(r); problem(w, event.CodeDiskFull, true, nil) })
	_, err := c.Publish(t.Context(), "t", draft)
	if e := event.AsError(err); e.Code != event.CodeDiskFull {
		t.Errorf("got %v, want the broker's error", err)
	}
	if n := len(rec.all()); n != fast.Attempts {
		t.Errorf("%d requests, want %d", n, fast.Attempts)
	}
}

func TestUnreachable(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { drop(w) })
	_, err := c.Publish(t.Context(), "t", draft)
	var u *client.UnreachableError
	if !errors.As(err, &u) || u.Attempts != fast.Attempts {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "Post ") {
		t.Errorf("the message repeats the URL: %v", err)
	}
}

// The caller's deadline wins over patience, and the message still says what was wrong.
// TestTokenIsAskedForOnce: what the broker has said to whoever makes tokens is the answer
// to the call, too, and not a reason to ask for another.
func TestTokenIsAskedForOnce(t *testing.T) {
	for _, refused := range []error{
		&client.UnreachableError{URL: "http://here", Attempts: 3, Err: errors.New("it is away")}, event.Errorf(event.CodeTokenInvalid, "No."), event.Errorf(event.CodeOverloaded, "Later."),
	} {
		asked := 0
		c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request came without a token") }, client.WithToken(func(context.Context) (string, error) {
			asked++
			return "", refused
		}))
		if _, err := c.Topics(t.Context()); !errors.Is(err, refused) || err.Error() != refused.Error() || asked != 1 {
			t.Errorf("after %d tokens: %v", asked, err)
		}
	}
}

func TestDeadlineEndsRetries(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { problem(w, event.CodeOverloaded, true, nil) },
		client.WithRetry(client.Retry{Attempts: 1000, Min: patience, Max: patience}))
	for limit := 500 * time.Millisecond; ; limit *= 2 { // it has to be longer than the first attempt takes
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := c.Publish(ctx, "t", draft)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if strings.Contains(err.Error(), "overloaded") {
			return
		}
		if limit > patience {
			t.Fatalf("after %s it does not say what was wrong: %v", limit, err)
		}
	}
}

// A silent server costs one attempt, not the caller's whole patience.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if rec.note(r) == 1 {
			<-r.Context().Done()
			return
		}
		receipt(w, event.OutcomeDuplicate, 1, event.NewHLC(7000, 1))
	}, client.WithAttemptTimeout(time.Second))
	r, err := c.Publish(t.Context(), "t", draft)
	if err != nil || r.Outcome != event.OutcomeDuplicate {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A caller who gives up earlier is not told of a limit that has not come.
func TestCallersDeadlineIsNotTheAttempts(t *testing.T) {
	t.Parallel()
	var rec recorder
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		rec.note(r)
		<-r.Context().Done()
	}, client.WithAttemptTimeout(time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Publish(ctx, "t", draft)
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "no answer within") {
		t.Errorf("got %v", err)
	}
}

// What an agent publishes after reading is ordered after what it read, whatever its wall clock says.
func TestStampsMergeWhatWasRead(t *testing.T) {
	future := event.NewHLC(time.Now().Add(time.Hour).UnixMilli(), 9)
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rec.note(r)
		receipt(w, event.OutcomeAccepted, 1, future)
	})
	for range 2 {
		if _, err := c.Publish(t.Context(), "t", draft); err != nil {
			t.Fatal(err)
		}
	}
	var stamps []event.HLC
	for _, s := range rec.all() {
		ev, err := event.DecodeJSON([]byte(s.body))
		if err != nil {
			t.Fatal(err)
		}
		stamps = append(stamps, ev.HLC())
	}
	if stamps[0] >= future || stamps[1] <= future {
		t.Errorf("stamps %s then %s around the receipt's %s", stamps[0], stamps[1], future)
	}
}

func TestStampingOffAndGiven(t *testing.T) {
	var rec recorder
	h := func(w http.ResponseWriter, r *http.Request) { rec.note(r); receipt(w, event.OutcomeAccepted, 1, 0) }
	c := serve(t, h, client.WithClock(nil))
	if _, err := c.Publish(t.Context(), "t", draft); err != nil {
		t.Fatal(err)
	}
	own := draft
	own.Extensions = map[string]any{"hlc": "5000.00003"}
	if _, err := serve(t, h).Publish(t.Context(), "t", own); err != nil {
		t.Fatal(err)
	}
	for i, want := range []event.HLC{0, event.NewHLC(5000, 3)} {
		if ev, err := event.DecodeJSON([]byte(rec.all()[i].body)); err != nil || ev.HLC() != want {
			t.Errorf("request %d: %v, %v; want %s", i, ev, err, want)
		}
	}
	if len(draft.Extensions) != 0 {
		t.Error("publishing changed the caller's draft")
	}
}

func TestPreconditions(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rec.note(r)
		problem(w, event.CodeConflict, false, map[string]any{"etag": `"@105"`, "outcome": "conflict"})
	})
	for _, o := range []client.PublishOption{client.IfPosition(7, 9), client.IfPresent(), client.IfAbsent()} {
		_, err := c.Publish(t.Context(), "t", draft, o)
		if p, ok := client.ConflictPosition(err); !ok || p != 105 {
			t.Errorf("conflict position %d, %t of %v", p, ok, err)
		}
	}
	seen := rec.all()
	if got := seen[0].header.Get("If-Match"); got != `"@7", "@9"` {
		t.Errorf("If-Match: %s", got)
	}
	if seen[1].header.Get("If-Match") != "*" || seen[2].header.Get("If-None-Match") != "*" {
		t.Errorf("headers %v, %v", seen[1].header, seen[2].header)
	}
	if _, ok := client.ConflictPosition(errors.New("other")); ok {
		t.Error("any error counts as a conflict")
	}
}

func TestPublishBatch(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rec.note(r)
		_, _ = w.Write([]byte(`[`))
		receipt(w, event.OutcomeAccepted, 1, event.NewHLC(7000, 1))
		_, _ = w.Write([]byte(`,`))
		receipt(w, event.OutcomeDuplicate, 2, event.NewHLC(7000, 2))
		_, _ = w.Write([]byte(`]`))
	})
	var evs []*event.Event
	for range 2 {
		ev, err := c.Prepare(draft)
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, ev)
	}
	rs, err := c.PublishBatch(t.Context(), "t", evs)
	if err != nil || len(rs) != 2 || rs[1].Outcome != event.OutcomeDuplicate {
		t.Fatalf("got %+v, %v", rs, err)
	}
	got, err := event.DecodeBatch([]byte(rec.all()[0].body))
	if err != nil || len(got) != 2 || got[0].ID() != evs[0].ID() || got[0].HLC() >= got[1].HLC() {
		t.Errorf("batch %v, %v", got, err)
	}
}

// What was read from one broker can be published to another: what only a broker may say stays behind.
func TestPublishWhatWasRead(t *testing.T) {
	read, err := event.DecodeDelivered([]byte(`{"position":"105","superseded":true,"producer":"p","hlc":"5000.00001","specversion":"1.0","id":"1","source":"/s","type":"t.x","subject":"k","n":7,"data_base64":"AAE="}`))
	if err != nil {
		t.Fatal(err)
	}
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { rec.note(r); receipt(w, event.OutcomeAccepted, 1, 0) })
	if _, err := c.PublishEvent(t.Context(), "t", read); err != nil {
		t.Fatal(err)
	}
	ev, err := event.DecodeJSON([]byte(rec.all()[0].body))
	if err != nil {
		t.Fatalf("a broker would refuse it: %v", err)
	}
	if n, _ := ev.Attribute("n"); ev.HLC() != read.HLC() || n.Int() != 7 || string(ev.Data()) != "\x00\x01" {
		t.Errorf("the event changed: %s", rec.all()[0].body)
	}
}

func TestNewRefusesUnusableURLs(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://x/?a=1", "http://user:secret@x", "http://x/#f", ":"} {
		if _, err := client.New(u); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q): %v", u, err)
		}
	}
	if _, err := client.New("http://x", client.WithHTTPClient(&http.Client{Timeout: time.Second})); err == nil {
		t.Error("a client that would cut every stream was accepted")
	}
}

func TestRetryAfterHeader(t *testing.T) {
	if d := client.RetryAfter("7"); d != 7*time.Second {
		t.Errorf("seconds: %s", d)
	}
	if d := client.RetryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)); d < 50*time.Second || d > time.Minute {
		t.Errorf("date: %s", d)
	}
	for _, s := range []string{"", "-1", "soon", "1.5"} {
		if d := client.RetryAfter(s); d != 0 {
			t.Errorf("%q: %s", s, d)
		}
	}
}

func TestRetryWaits(t *testing.T) {
	r := client.Retry{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	for n, ms := range map[int]int64{1: 10, 2: 20, 3: 40, 4: 80, 5: 100, 500: 100} {
		for range 200 {
			if d := r.Wait(n, 0); d < 0 || d.Microseconds() > ms*1000 {
				t.Fatalf("wait %d: %s over %d ms", n, d, ms)
			}
		}
	}
	if d := r.Wait(1, 50*time.Millisecond); d < 50*time.Millisecond {
		t.Errorf("the server asked for 50 ms, the wait is %s", d)
	}
	if d := r.Wait(1, time.Hour); d > 110*time.Millisecond {
		t.Errorf("a wait of %s is over the cap", d)
	}
}
