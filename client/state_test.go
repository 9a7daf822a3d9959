// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

func line(position uint64) string {
	return strings.TrimPrefix(strings.Split(frame(position), "\n")[1], "data: ") + "\n"
}

func stateHeader(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Signalbox-Cursor", "@90.k3f9x0ab")
	w.Header().Set("Signalbox-Log-Ms", "1764422645000")
}

func readState(t *testing.T, s *client.State) (positions []uint64, last error) {
	t.Helper()
	for ev, err := range s.Events() {
		if err != nil {
			return positions, err
		}
		positions = append(positions, ev.Position())
	}
	return positions, nil
}

func TestState(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if rec.note(r) == 1 {
			problem(w, event.CodeOverloaded, true, nil)
			return
		}
		stateHeader(w)
		_, _ = io.WriteString(w, line(3)+line(8))
	})
	s, err := c.State(t.Context(), "a.b", "c.*")
	if err != nil {
		t.Fatal(err)
	}
	if s.Cursor() != at(90) || s.LogTime().UnixMilli() != 1764422645000 {
		t.Errorf("exact at %s, %s", s.Cursor(), s.LogTime())
	}
	if got, err := readState(t, s); err != nil || !slices.Equal(got, []uint64{3, 8}) || s.Cut() {
		t.Errorf("got %v, %v, cut %t", got, err, s.Cut())
	}
	if path := rec.all()[1].path; path != "/v1/state?topics=a.b%2Cc.%2A" {
		t.Errorf("asked for %s", path)
	}
	if c.Clock().Last() != event.NewHLC(1008, 1) {
		t.Error("the state was not merged into the clock")
	}
}

// A download that the broker cuts says where to follow from: the state up to there is whole.
func TestStateCut(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stateHeader(w)
		_, _ = io.WriteString(w, line(3)+`{"specversion":"1.0","id":"c","source":"/signalbox","type":"signalbox.cut","datacontenttype":"application/json","data":{"cursor":"@3.k3f9x0ab"}}`+"\n")
	})
	s, err := c.State(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readState(t, s); err != nil || !slices.Equal(got, []uint64{3}) || !s.Cut() || s.Cursor() != at(3) {
		t.Errorf("got %v, %v, cut %t at %s", got, err, s.Cut(), s.Cursor())
	}
}

// Half a state must never pass for the whole.
func TestStateBroken(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"connection lost": func(w http.ResponseWriter, _ *http.Request) {
			stateHeader(w)
			send(w, line(3))
			panic(http.ErrAbortHandler)
		},
		"half a line": func(w http.ResponseWriter, _ *http.Request) { stateHeader(w); send(w, line(3)+line(4)[:20]) },
		"not events":  func(w http.ResponseWriter, _ *http.Request) { stateHeader(w); send(w, line(3)+"{}\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := serve(t, h).State(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readState(t, s); err == nil || !slices.Equal(got, []uint64{3}) {
				t.Errorf("got %v, %v; want an error behind the first event", got, err)
			}
		})
	}
}

func TestStateRefused(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { problem(w, event.CodeNotCompacted, false, nil) })
	if _, err := c.State(t.Context(), "t"); event.AsError(err).Code != event.CodeNotCompacted {
		t.Errorf("got %v", err)
	}
	c = serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	if _, err := c.State(t.Context(), "t"); err == nil || !strings.Contains(err.Error(), "no cursor") {
		t.Errorf("got %v", err)
	}
	c = serve(t, func(w http.ResponseWriter, _ *http.Request) { drop(w) })
	if _, err := c.State(t.Context(), "t"); !errors.As(err, new(*client.UnreachableError)) {
		t.Errorf("got %v", err)
	}
}

// Keys are data: whatever they hold must reach the broker as the key it is.
func TestKeyPaths(t *testing.T) {
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { rec.note(r); _, _ = io.WriteString(w, line(3)) })
	for key, want := range map[string]string{
		"T-998": "T-998", "a/b": "a%2Fb", "..": "%2E%2E", ".": "%2E", "ä b?c#d%": "%C3%A4%20b%3Fc%23d%25", "a..b": "a..b",
	} {
		if _, err := c.Key(t.Context(), "t", key); err != nil {
			t.Fatal(err)
		}
		seen := rec.all()
		if got := seen[len(seen)-1].path; got != "/v1/topics/t/state/"+want {
			t.Errorf("key %q was asked for as %s", key, got)
		}
	}
}

func TestTopics(t *testing.T) {
	var rec recorder
	const info = `{"name":"t","policy":{"cleanup_policy":"compact"},"events":3,"bytes":4,"keys":2,"tombstones":1,"oldest":"@0.k3f9x0ab","head":"@9.k3f9x0ab","floor":"5.00001"}`
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		rec.note(r)
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, info)
		case r.URL.Path == "/v1/topics":
			fmt.Fprintf(w, "[%s]", info)
		case r.URL.Path == "/readyz":
			_, _ = io.WriteString(w, `{"status":"ok"}`)
		default:
			_, _ = io.WriteString(w, info)
		}
	})
	ctx := t.Context()
	p := event.DefaultPolicy()
	p.CleanupPolicy = event.CleanupCompact
	info1, created, err := c.PutTopic(ctx, "t", p)
	if err != nil || !created || info1.Keys != 2 || info1.Head != at(9) || info1.Floor != event.NewHLC(5, 1) || info1.Policy.CleanupPolicy != "compact" {
		t.Errorf("put: %+v, %t, %v", info1, created, err)
	}
	if got, err := event.ParsePolicy([]byte(rec.all()[0].body)); err != nil || !got.Equal(p) {
		t.Errorf("the policy went out as %s", rec.all()[0].body)
	}
	if info2, err := c.Topic(ctx, "t"); err != nil || info2.Name != "t" {
		t.Errorf("get: %+v, %v", info2, err)
	}
	if list, err := c.Topics(ctx); err != nil || len(list) != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if err := errors.Join(c.DeleteTopic(ctx, "t"), c.Ready(ctx)); err != nil {
		t.Error(err)
	}
}
