// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

func at(position uint64) event.Cursor {
	return event.Cursor{Position: position, Incarnation: incarnation}
}

// collect follows until n items of a kind came, and returns all positions of events.
func collect(t *testing.T, c *client.Client, o client.FollowOptions, kind client.ItemKind, n int) (positions []uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for item, err := range c.Follow(ctx, []string{"t"}, o) {
		if err != nil {
			t.Fatalf("after %v: %v", positions, err)
		}
		if item.Kind == client.ItemEvent {
			if item.Event.Position() != item.Cursor.Position {
				t.Fatalf("the event at %d came with cursor %s", item.Event.Position(), item.Cursor)
			}
			positions = append(positions, item.Event.Position())
		}
		if item.Kind == kind {
			if n--; n == 0 {
				return positions
			}
		}
	}
	return positions
}

// logServer streams the events 1..n behind Last-Event-ID, and cuts every connection after a random number of bytes: in
// the middle of lines, behind CR, between id and data.
func logServer(n uint64, seed uint64) http.HandlerFunc {
	rng := rand.New(rand.NewPCG(seed, 1))
	cuts := make(chan int, 10_000)
	for range cap(cuts) {
		cuts <- rng.IntN(700)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		from := event.Cursor{}
		if id := r.Header.Get("Last-Event-ID"); id != "" {
			from, _ = event.ParseCursor(id)
		}
		var b strings.Builder
		b.WriteString("retry: 1\n\n:ok\n\n")
		for p := from.Position + 1; p <= n; p++ {
			b.WriteString(frame(p))
		}
		fmt.Fprintf(&b, "event: signalbox.sync\nid: @%d.%s\ndata: {\"cursor\":\"@%d.%s\",\"log_ms\":5}\n\n", n, incarnation, n, incarnation)
		whole := b.String()
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		part := whole[:min(<-cuts, len(whole))]
		fmt.Fprintf(buf, "%x\r\n%s\r\n", len(part), part)
		if len(part) == len(whole) {
			fmt.Fprintf(buf, "0\r\n\r\n")
		}
		_ = buf.Flush()
	}
}

// However connections break, the follower sees every event once and in order.
func TestFollowResumesWithoutGapOrRepeat(t *testing.T) {
	const n = 60
	for seed := range uint64(5) {
		c := serve(t, logServer(n, seed))
		got := collect(t, c, client.FollowOptions{}, client.ItemSynced, 1)
		want := make([]uint64, n)
		for i := range want {
			want[i] = uint64(i + 1)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %v", seed, got)
		}
	}
}

// A proxy that replays what it buffered must not show an event twice.
func TestFollowDropsRepeats(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		send(w, frame(1)+frame(2)+frame(1)+frame(2)+frame(3))
	})
	if got := collect(t, c, client.FollowOptions{}, client.ItemEvent, 3); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
}

func TestFollowItems(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		if r.Header.Get("Last-Event-ID") != "" {
			<-r.Context().Done()
			return
		}
		send(w, "retry: 1\n\n:ok\n\n"+frame(4))
		send(w, "event: signalbox.sync\nid: @6.k3f9x0ab\ndata: {\"cursor\":\"@6.k3f9x0ab\",\"log_ms\":1764422645000}\n\n")
		send(w, ": \nid: @6.k3f9x0ab\n\n: \nid: @9.k3f9x0ab\n\n")
		send(w, "event: signalbox.something-newer\nid: @11.k3f9x0ab\ndata: {}\n\n")
		send(w, frame(12))
	})
	var got []string
	for item, err := range c.Follow(t.Context(), []string{"t"}, client.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(item.Kind, " ", item.Cursor.Position))
		if item.Kind == client.ItemSynced && item.LogTime.UnixMilli() != 1764422645000 {
			t.Errorf("log time %s", item.LogTime)
		}
		if item.Kind == client.ItemEvent && item.Cursor.Position == 12 {
			break
		}
	}
	if want := []string{"1 4", "2 6", "3 9", "3 11", "1 12"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if last := c.Clock().Last(); last != event.NewHLC(1012, 1) {
		t.Errorf("the clock is at %s: what was followed was not merged", last)
	}
}

func TestFollowStarts(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.FixedZone("", 3600))
	for name, tc := range map[string]struct {
		topics []string
		o      client.FollowOptions
		path   string
		id     string
	}{
		"oldest":   {[]string{"a.b"}, client.FollowOptions{}, "/v1/topics/a.b/events", ""},
		"cursor":   {[]string{"a.b"}, client.FollowOptions{Cursor: at(7)}, "/v1/topics/a.b/events", "@7.k3f9x0ab"},
		"filter":   {[]string{"a.b"}, client.FollowOptions{Filter: "n > 1 AND a = 'b&c'"}, "/v1/topics/a.b/events?filter=n+%3E+1+AND+a+%3D+%27b%26c%27", ""},
		"now":      {[]string{"a.b"}, client.FollowOptions{Now: true, View: "history"}, "/v1/topics/a.b/events?cursor=now&view=history", ""},
		"since":    {[]string{"a.b"}, client.FollowOptions{Since: since}, "/v1/topics/a.b/events?cursor=2026-01-02T02%3A04%3A05.6Z", ""},
		"event id": {[]string{"a.b"}, client.FollowOptions{EventID: "e-1"}, "/v1/topics/a.b/events", "e-1"},
		"patterns": {[]string{"a.*", "b.>"}, client.FollowOptions{Cursor: at(7)}, "/v1/events?topics=a.%2A%2Cb.%3E", "@7.k3f9x0ab"},
	} {
		t.Run(name, func(t *testing.T) {
			var rec recorder
			c := serve(t, func(w http.ResponseWriter, r *http.Request) { rec.note(r); stream(w); send(w, frame(90)) })
			for _, err := range c.Follow(t.Context(), tc.topics, tc.o) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			first := rec.all()[0]
			if first.path != tc.path || first.header.Get("Last-Event-ID") != tc.id || first.header.Get("Accept") != "text/event-stream" {
				t.Errorf("asked for %s with Last-Event-ID %q", first.path, first.header.Get("Last-Event-ID"))
			}
		})
	}
}

func TestFollowRefusesContradictions(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for name, tc := range map[string]struct {
		topics []string
		o      client.FollowOptions
	}{
		"no topic":              {nil, client.FollowOptions{}},
		"not a pattern":         {[]string{"a b"}, client.FollowOptions{}},
		"two starts":            {[]string{"t"}, client.FollowOptions{Now: true, EventID: "x"}},
		"event id in a pattern": {[]string{"t.*"}, client.FollowOptions{EventID: "x"}},
	} {
		for _, err := range c.Follow(t.Context(), tc.topics, tc.o) {
			if e := (*event.Error)(nil); !errors.As(err, &e) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}

// After the first item a follower resumes from its cursor, not from where it first began.
func TestFollowResumesFromItsCursorNotItsStart(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := rec.note(r)
		stream(w)
		if n > 1 {
			send(w, frame(uint64(n)))
		}
	})
	collect(t, c, client.FollowOptions{Now: true}, client.ItemEvent, 2)
	seen := rec.all()
	if len(seen) != 3 || !strings.Contains(seen[1].path, "cursor=now") || strings.Contains(seen[2].path, "now") || seen[2].header.Get("Last-Event-ID") != "@2.k3f9x0ab" {
		t.Errorf("requests %+v", seen)
	}
}

const resetBlock = "event: signalbox.reset\ndata: {\"code\":\"cursor_expired\",\"oldest\":\"@50.k3f9x0ab\",\"head\":\"@90.k3f9x0ab\",\"topics\":[\"t\"],\"state\":\"/v1/state?topics=t\",\"detail\":\"Gone.\"}\nretry: 60000\n\n"

// resetServer refuses cursors below 50.
func resetServer(rec *recorder) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec.note(r)
		stream(w)
		cur, _ := event.ParseCursor(r.Header.Get("Last-Event-ID"))
		if cur.Position < 50 {
			send(w, "retry: 1\n\n:ok\n\n"+resetBlock)
			return
		}
		send(w, frame(cur.Position+1))
	}
}

func TestFollowResetIsAnErrorByDefault(t *testing.T) {
	var rec recorder
	c := serve(t, resetServer(&rec))
	var last error
	for item, err := range c.Follow(t.Context(), []string{"t"}, client.FollowOptions{Cursor: at(7)}) {
		if last = err; err == nil {
			t.Errorf("got %+v before the error", item)
		}
	}
	var e *event.Error
	if !errors.As(last, &e) || e.Code != event.CodeCursorExpired || e.Facts["oldest"] != "@50.k3f9x0ab" || e.Facts["head"] != "@90.k3f9x0ab" {
		t.Errorf("got %#v", last)
	}
	if n := len(rec.all()); n != 1 {
		t.Errorf("%d requests: a reset is not tried again", n)
	}
}

func TestFollowResetPolicies(t *testing.T) {
	bootstrapped := false
	for name, tc := range map[string]struct {
		policy func(context.Context, *client.Reset) (event.Cursor, error)
		want   uint64
	}{
		"oldest": {client.ResetToOldest, 51},
		"bootstrap": {func(_ context.Context, r *client.Reset) (event.Cursor, error) {
			bootstrapped = r.State == "/v1/state?topics=t" && slices.Equal(r.Topics, []string{"t"})
			return at(88), nil
		}, 89},
	} {
		t.Run(name, func(t *testing.T) {
			var rec recorder
			c := serve(t, resetServer(&rec))
			var kinds []client.ItemKind
			for item, err := range c.Follow(t.Context(), []string{"t"}, client.FollowOptions{Cursor: at(7), OnReset: tc.policy}) {
				if err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, item.Kind)
				if item.Kind == client.ItemReset && (item.Reset.Code != event.CodeCursorExpired || item.Reset.Oldest != at(50)) {
					t.Errorf("reset %+v", item.Reset)
				}
				if item.Kind == client.ItemEvent {
					if item.Event.Position() != tc.want {
						t.Errorf("went on at %d, want %d", item.Event.Position(), tc.want)
					}
					break
				}
			}
			if !slices.Equal(kinds, []client.ItemKind{client.ItemReset, client.ItemEvent}) {
				t.Errorf("items %v", kinds)
			}
		})
	}
	if !bootstrapped {
		t.Error("the policy was not told where the state is")
	}
}

func TestFollowResetPolicyMayRefuse(t *testing.T) {
	var rec recorder
	c := serve(t, resetServer(&rec))
	own := errors.New("no state")
	o := client.FollowOptions{Cursor: at(7), OnReset: func(context.Context, *client.Reset) (event.Cursor, error) { return event.Cursor{}, own }}
	var last error
	for _, err := range c.Follow(t.Context(), []string{"t"}, o) {
		last = err
	}
	if !errors.Is(last, own) {
		t.Errorf("got %v", last)
	}
}

// A socket that looks open and says nothing is found out, and counts only while the follower waits for it.
func TestFollowWatchdog(t *testing.T) {
	t.Parallel()
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if rec.note(r) == 1 {
			stream(w)
			send(w, frame(1))
			<-r.Context().Done()
			return
		}
		stream(w)
		send(w, frame(2))
	}, client.WithWatchdog(time.Second))
	var why []error
	o := client.FollowOptions{OnRetry: func(err error, _ time.Duration) { why = append(why, err) }}
	for item, err := range c.Follow(t.Context(), []string{"t"}, o) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Cursor.Position == 2 {
			break
		}
		time.Sleep(1500 * time.Millisecond) // The agent's own work is not the broker's silence.
	}
	// A server on a busy machine may be silent for longer than that once more.
	if len(why) == 0 || slices.ContainsFunc(why, func(err error) bool { return !strings.Contains(err.Error(), "not even a heartbeat") }) {
		t.Errorf("reconnected because of %v", why)
	}
}

func TestFollowEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"refusal":      {func(w http.ResponseWriter, _ *http.Request) { problem(w, event.CodeViewInvalid, false, nil) }, "view_invalid"},
		"not a stream": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "instead of an event stream"},
		"bad event":    {func(w http.ResponseWriter, _ *http.Request) { stream(w); send(w, "id: @5\ndata: {}\n\n") }, "the event at @5 is unreadable"},
		"bad cursor":   {func(w http.ResponseWriter, _ *http.Request) { stream(w); send(w, "id: 5\ndata: {}\n\n") }, "is not a cursor"},
		"endless lines": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w)
			send(w, strings.Repeat("data: xxxxxxxxxxxxxxxxxxxxxxx", 700_000))
		}, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, tc.h)
			n := 0
			for _, err := range c.Follow(t.Context(), []string{"t"}, client.FollowOptions{}) {
				if n++; err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v", err)
				}
			}
			if n != 1 {
				t.Errorf("%d rounds of the loop", n)
			}
		})
	}
}

// Retryable refusals and connections that fail are waited out, and the wait grows.
func TestFollowWaitsOutRefusals(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch rec.note(r) {
		case 1:
			problem(w, event.CodeShuttingDown, true, nil)
		case 2:
			drop(w)
		default:
			stream(w)
			send(w, frame(1))
		}
	})
	if got := collect(t, c, client.FollowOptions{}, client.ItemEvent, 1); !slices.Equal(got, []uint64{1}) {
		t.Errorf("got %v", got)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { stream(w); send(w, frame(1)); <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Follow(ctx, []string{"t"}, client.FollowOptions{}) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("got %v", last)
	}
}
