// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

// state reads the state of topics, as "position:id" in the order it comes.
func (r *rig) state(list string) (ids string, cursor event.Cursor, logMillis int64) {
	r.t.Helper()
	s, err := r.dispatch.OpenState(patterns(r.t, list), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	var all []string
	for {
		d, ok, err := s.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		if !ok {
			return strings.Join(all, " "), s.Cursor(), s.LogMillis()
		}
		all = append(all, fmt.Sprint(d.Position, ":", decode(r.t, &d).ID))
	}
}

func TestState(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("a", event.CleanupCompact, 1, 10_000), r.put("b", event.CleanupCompactDelete, 10_000, 10_000), r.put("empty", event.CleanupCompact, 1, 1))
		r.do(r.publish(publishing{topic: "a", key: "k", id: "old"}), r.publish(publishing{topic: "b", key: "k", id: "b1"}),
			r.publish(publishing{topic: "a", key: "k", id: "a1"}), r.publish(publishing{topic: "log", key: "k"}),
			r.publish(publishing{topic: "a", key: "l", id: "a2", expiresMillis: epoch + 5_000}),
			r.publish(publishing{topic: "a", key: "m", id: "m"}), r.publish(publishing{topic: "a", key: "m", bare: true}),
			r.publish(publishing{topic: "b", key: "k", id: "late", hlc: event.NewHLC(1, 1)}))
		settle()
		check := func(list, want string, logMillis int64) {
			t.Helper()
			got, cursor, millis := r.state(list)
			if got != want || cursor != r.dispatch.Head() || millis != logMillis {
				t.Errorf("the state of %s is %q at %s, %d ms; want %q at %s, %d ms", list, got, cursor, millis-epoch, want, r.dispatch.Head(), logMillis-epoch)
			}
		}
		check("a", "3:a1 5:a2", epoch)
		check("b,a", "2:b1 3:a1 5:a2", epoch)
		check(">", "2:b1 3:a1 5:a2", epoch)
		check("empty", "", epoch)
		check("no.*", "", epoch)
		// The state is as of log time: the clock may be past it.
		r.now += 6_000
		check("a", "3:a1 5:a2", epoch)
		r.tick(0)
		check("a", "3:a1", epoch+6_000)
		r.tick(4_000)
		r.do(r.retire("b", 8))
		check(">", "3:a1", epoch+10_000)
		for list, code := range map[string]event.Code{"log": event.CodeNotCompacted, "a,log": event.CodeNotCompacted, "never": event.CodeTopicUnknown} {
			if s, err := r.dispatch.OpenState(patterns(t, list), nil); err == nil || event.AsError(err).Code != code {
				t.Errorf("the state of %s is %v, %v", list, s, err)
			}
		}
		r.do(r.drop("a"))
		if _, err := r.dispatch.OpenState(patterns(t, "a"), nil); err == nil || event.AsError(err).Code != event.CodeTopicUnknown {
			t.Errorf("the state of a deleted topic: %v", err)
		}
	})
}

// TestStateIsOneSnapshot: what is published while it is being read is not in
// it, however long it takes, and following from its cursor has just that.
func TestStateIsOneSnapshot(t *testing.T) {
	r := newRig(t, 16)
	defer r.close()
	r.do(r.put("a", event.CleanupCompact, 1, 10_000), r.put("b", event.CleanupCompact, 1, 10_000))
	const keys = 5000 // several chunks
	for i := 0; i < keys; i += 500 {
		var batch []publishing
		for j := range 500 {
			batch = append(batch, publishing{topic: []string{"a", "b"}[i/500%2], key: fmt.Sprint(i + j), id: fmt.Sprint(i + j)})
		}
		r.do(r.publish(batch...))
	}
	s, err := r.dispatch.OpenState(patterns(t, "a,b"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	last := uint64(0)
	var later []string
	for i := range keys {
		d, ok, err := s.Next()
		if err != nil || !ok || d.Position <= last || decode(t, &d).ID != fmt.Sprint(i) {
			t.Fatalf("winner %d of %d is %d after %d, %t, %v", i, keys, d.Position, last, ok, err)
		}
		last = d.Position
		if i%1000 == 10 {
			new, removed := fmt.Sprint("new", i), fmt.Sprint("removed", i)
			r.do(r.publish(publishing{topic: "a", key: fmt.Sprint(i + 1), id: new}), r.publish(publishing{topic: "b", key: fmt.Sprint(i), bare: true, id: removed}))
			later = append(later, new, removed)
		}
	}
	if d, ok, err := s.Next(); ok || err != nil {
		t.Fatalf("after the last winner comes %v, %v", d, err)
	}
	cursor := s.Cursor()
	if got := r.read("a,b", dispatch.Start{Cursor: &cursor}, ""); got != strings.Join(later, " ") {
		t.Errorf("following from the state's cursor has %q", got)
	}
}

func TestStateKey(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("a", event.CleanupCompact, 1, 10_000),
			r.publish(publishing{topic: "a", key: "k/1", id: "old"}), r.publish(publishing{topic: "a", key: "k/1", id: "new", data: "[1,\n2]"}),
			r.publish(publishing{topic: "a", key: "short", id: "short", expiresMillis: epoch + 1_000}),
			r.publish(publishing{topic: "a", key: "gone", id: "gone"}), r.publish(publishing{topic: "a", key: "gone", bare: true}),
			r.publish(publishing{topic: "log", key: "k/1"}))
		settle()
		for key, want := range map[string]string{"k/1": "new", "short": "short"} {
			d, err := r.dispatch.StateKey("a", key)
			if err != nil || decode(t, &d.Delivery).ID != want {
				t.Errorf("the state of %q is %s, %v", key, d.JSON(), err)
			}
			if all, err := r.dispatch.Digest(t.Context(), "a"); err != nil || d.Cursor != all.Cursor || d.LogMillis != all.LogMillis {
				t.Errorf("the state of %q is exact at %s and %d, the digest at %s and %d, %v", key, d.Cursor, d.LogMillis, all.Cursor, all.LogMillis, err)
			}
		}
		r.tick(1_000)
		for _, c := range []struct {
			topic, key string
			code       event.Code
		}{
			{"a", "short", event.CodeKeyUnknown}, {"a", "gone", event.CodeKeyUnknown}, {"a", "never", event.CodeKeyUnknown}, {"a", "k", event.CodeKeyUnknown},
			{"log", "k/1", event.CodeNotCompacted}, {"never", "k", event.CodeTopicUnknown},
		} {
			if d, err := r.dispatch.StateKey(c.topic, c.key); err == nil || event.AsError(err).Code != c.code {
				t.Errorf("the state of %q in %s is %s, %v", c.key, c.topic, d.JSON(), err)
			}
		}
	})
}

// TestDigest is the digest of what the state has, and nothing else.
func TestDigest(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("a", event.CleanupCompact, 1, 10_000), r.put("b", event.CleanupCompact, 1, 10_000))
		var want event.Digest
		for i := range 300 {
			e := publishing{topic: "a", key: fmt.Sprint(i % 200), id: fmt.Sprint(i), hlc: event.NewHLC(epoch-int64(i%7), uint16(i)), bare: i == 250}
			if i == 260 {
				e.expiresMillis = epoch + 1_000
			}
			r.do(r.publish(e))
		}
		r.tick(1_000)
		settle()
		s, err := r.dispatch.OpenState(patterns(t, "a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		keys := 0
		for d, ok, err := s.Next(); ok || err != nil; d, ok, err = s.Next() {
			if err != nil {
				t.Fatal(err)
			}
			e := r.events[d.Position]
			want.Toggle(e.Key, e.HLC, "/s", decode(t, &d).ID)
			keys++
		}
		got, err := r.dispatch.Digest(context.Background(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got.Buckets != want || got.Keys != keys || got.Topic != "a" || got.Cursor != r.dispatch.Head() || got.LogMillis != epoch+1_000 {
			t.Errorf("the digest of %d keys at %s, %d ms is not that of the state, which has %d", got.Keys, got.Cursor, got.LogMillis, keys)
		}
		if empty, err := r.dispatch.Digest(context.Background(), "b"); err != nil || empty.Buckets != (event.Digest{}) || empty.Keys != 0 {
			t.Errorf("the digest of an empty topic has %d keys, %v", empty.Keys, err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := r.dispatch.Digest(ended, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a digest that nobody waits for: %v", err)
		}
	})
}

// TestStateKeyOfATopicMadeAnew: the state of a key and the digest are those of
// the topic at their cursor, also while it is deleted and made again.
func TestStateKeyOfATopicMadeAnew(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.do(r.put("a", "compact", 1000, 1000), r.publish(publishing{topic: "a", key: "k"}))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			state, err := r.dispatch.StateKey("a", "k")
			if err != nil || state.Position != state.Cursor.Position {
				t.Errorf("the state at %s is that of position %d, %v", state.Cursor, state.Position, err)
				return
			}
			if digest, err := r.dispatch.Digest(context.Background(), "a"); err != nil || digest.Keys != 1 {
				t.Errorf("the digest at %s has %d keys, %v", digest.Cursor, digest.Keys, err)
				return
			}
		}
	}()
	for range 2000 {
		r.do(r.drop("a"), r.put("a", "compact", 1000, 1000), r.publish(publishing{topic: "a", key: "k"}))
	}
	close(stop)
	<-done
}
