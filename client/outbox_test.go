// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

func openOutbox(t *testing.T, c *client.Client, path string, o client.OutboxOptions) *client.Outbox {
	t.Helper()
	b, err := client.OpenOutbox(c, path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func put(t *testing.T, b *client.Outbox, id string) *event.Event {
	t.Helper()
	d := draft
	d.ID = id
	ev, err := b.Put("t", d)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// send runs an outbox until nothing waits.
func flush(t *testing.T, b *client.Outbox) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	bounded, enough := context.WithTimeout(t.Context(), patience)
	defer enough()
	if err := b.Flush(bounded); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
}

// reports collects what an outbox tells.
type reports struct {
	mu  sync.Mutex
	all []client.OutboxReport
}

func (r *reports) note(x client.OutboxReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, x)
}

func (r *reports) told() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		line := fmt.Sprint(x.Event.ID(), " ", x.Fate)
		if x.Err != nil {
			line += " " + string(x.Err.Code)
		}
		out = append(out, line)
	}
	return out
}

// What an agent put while the broker was away arrives in order and once, whatever dies meanwhile, with the stamps of when
// it was put.
func TestOutboxDeliversInOrderAndOnceAcrossCrashes(t *testing.T) {
	const n = 60
	b := testBroker(t)
	compacted(t, connect(t, b.url), "other", "")
	b.kill()
	path := filepath.Join(t.TempDir(), "outbox")
	c := connect(t, b.url)
	box := openOutbox(t, c, path, client.OutboxOptions{})
	var stamps []event.HLC
	for i := range n {
		stamps = append(stamps, put(t, box, fmt.Sprint(i)).HLC())
	}
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	var told reports
	for round := 0; ; round++ { // the agent dies again and again
		box = openOutbox(t, connect(t, b.url), path, client.OutboxOptions{OnReport: told.note})
		if box.Status().Waiting == 0 {
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		until := max(0, box.Status().Waiting-15)
		go func() {
			for box.Status().Waiting > until {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if round%2 == 1 {
			b.restart(t)
		}
		_ = box.Run(ctx)
		_ = box.Close()
	}
	var got []string
	for item, err := range c.Follow(t.Context(), []string{"t"}, client.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Kind != client.ItemEvent {
			break
		}
		if i := len(got); item.Event.ID() != fmt.Sprint(i) || item.Event.HLC() != stamps[i] {
			t.Fatalf("the event %d is %s, stamped %s instead of %s", i, item.Event.ID(), item.Event.HLC(), stamps[i])
		}
		got = append(got, item.Event.ID())
	}
	if len(got) != n {
		t.Errorf("%d events arrived", len(got))
	}
	if lines := slices.Compact(told.told()); len(lines) != n {
		t.Errorf("told of %d: %v", len(lines), lines)
	}
}

// A lost answer is answered by the same event, and the receipt says that it was there.
func TestOutboxRepeatsTheSameEventAfterALostAnswer(t *testing.T) {
	b := testBroker(t)
	var told reports
	box := openOutbox(t, connect(t, b.url, client.WithHTTPClient(httpClient(&loseFirstAnswer{}))), filepath.Join(t.TempDir(), "outbox"), client.OutboxOptions{OnReport: told.note})
	put(t, box, "1")
	flush(t, box)
	if len(told.all) != 1 || told.all[0].Receipt.Outcome != event.OutcomeDuplicate || told.all[0].Receipt.Position != 1 {
		t.Errorf("told %+v", told.all)
	}
}

// A refused event goes to the dead letters with its reason, and does not hold up the next one.
func TestOutboxRefusedEventBlocksNobody(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	path := filepath.Join(t.TempDir(), "outbox")
	var told reports
	box := openOutbox(t, c, path, client.OutboxOptions{OnReport: told.note, DeadMax: 2})
	for _, id := range []string{"1", "2", "3", "4"} {
		put(t, box, id)
		d := draft
		d.ID, d.Subject = id+"-keyless", ""
		if _, err := box.Put("t", d); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, box)
	want := []string{"1 sent", "1-keyless refused key_required", "2 sent", "2-keyless refused key_required", "3 sent", "3-keyless refused key_required", "4 sent", "4-keyless refused key_required"}
	if !slices.Equal(told.told(), want) {
		t.Errorf("told %q", told.told())
	}
	_ = box.Close()
	box = openOutbox(t, c, path, client.OutboxOptions{})
	dead := box.Dead()
	if len(dead) != 4 || dead[0].Event.ID() != "1-keyless" || dead[3].Code != event.CodeKeyRequired || dead[3].Reason == "" || dead[3].At.IsZero() {
		t.Fatalf("dead letters %+v", dead)
	}
	if err := box.Discard(dead[3]); err != nil {
		t.Fatal(err)
	}
	_ = box.Close()
	box = openOutbox(t, c, path, client.OutboxOptions{DeadMax: 2})
	if dead := box.Dead(); len(dead) != 2 || dead[0].Event.ID() != "2-keyless" {
		t.Errorf("of three dead letters, with room for two: %+v", dead)
	}
}

// After a long time offline an event counts as of when it was put: what happened since wins. It is delivered all the
// same, and what is below the floor is a dead letter.
func TestOutboxStampIsOfWhenItWasPut(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	compacted(t, c, "t", "")
	ago := func() time.Time { return time.Now().Add(-3 * time.Hour) }
	var told reports
	box := openOutbox(t, connect(t, b.url, client.WithClock(client.NewClockAt(0, ago))), filepath.Join(t.TempDir(), "outbox"), client.OutboxOptions{OnReport: told.note})
	put(t, box, "1")
	if _, err := c.Publish(t.Context(), "t", draft); err != nil {
		t.Fatal(err)
	}
	flush(t, box)
	if len(told.all) != 1 || told.all[0].Receipt.Outcome != event.OutcomeSuperseded {
		t.Errorf("told %+v", told.all)
	}
}

// What expires before its turn is dropped and reported. A relative expiry counts from when the event was put.
func TestOutboxDropsWhatExpiredMeanwhile(t *testing.T) {
	b := testBroker(t)
	var mu sync.Mutex
	lead := -2 * time.Hour
	clock := client.NewClockAt(0, func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(lead)
	})
	var told reports
	box := openOutbox(t, connect(t, b.url, client.WithClock(clock)), filepath.Join(t.TempDir(), "outbox"), client.OutboxOptions{OnReport: told.note})
	for id, extensions := range map[string]map[string]any{"presence": {"expiry": 10}, "alarm": {"expiry": 1_000_000}} {
		d := draft
		d.ID, d.Extensions = id, extensions
		ev, err := box.Put("t", d)
		if err != nil {
			t.Fatal(err)
		}
		if _, absolute := ev.ExpiryTime(); !absolute || ev.Expiry() != 0 || len(extensions) != 1 {
			t.Errorf("%s has expirytime %t, expiry %d; the draft was changed to %v", id, absolute, ev.Expiry(), extensions)
		}
	}
	mu.Lock()
	lead = 0
	mu.Unlock()
	flush(t, box)
	if got := slices.Sorted(slices.Values(told.told())); !slices.Equal(got, []string{"alarm sent", "presence expired"}) {
		t.Errorf("told %q", got)
	}
	if s := box.Status(); s.Expired != 1 || s.Sent != 1 {
		t.Errorf("status %+v", s)
	}
}

// An outbox is bounded, and says so before it takes what it cannot keep.
func TestOutboxIsBounded(t *testing.T) {
	c := connect(t, "http://127.0.0.1:1")
	for _, o := range []client.OutboxOptions{{EventsMax: 3}, {BytesMax: 600}} {
		box := openOutbox(t, c, filepath.Join(t.TempDir(), "outbox"), o)
		var err error
		n := 0
		for ; err == nil && n < 10; n++ {
			_, err = box.Put("t", draft)
		}
		if e := event.AsError(err); e.Code != event.CodeOutboxFull || !e.Code.Class().Retryable || n-1 != box.Status().Waiting || n > 4 {
			t.Errorf("%+v: the event %d is refused with %v", o, n, err)
		}
	}
}

// The same event twice is one; another one under the same name is a mistake.
func TestOutboxKnowsWhatWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	c := connect(t, "http://127.0.0.1:1")
	box := openOutbox(t, c, path, client.OutboxOptions{})
	first := put(t, box, "1")
	if again := put(t, box, "1"); !again.Equal(first) || box.Status().Waiting != 1 {
		t.Errorf("%d wait", box.Status().Waiting)
	}
	d := draft
	d.ID, d.Data = "1", []byte(`{}`)
	if _, err := box.Put("t", d); event.AsError(err).Code != event.CodeIDReused {
		t.Errorf("another event with the same id: %v", err)
	}
	if _, err := client.OpenOutbox(c, path, client.OutboxOptions{}); event.AsError(err).Code != event.CodeStoreLocked {
		t.Errorf("a second opening: %v", err)
	}
	if _, err := box.Put("not a topic", draft); event.AsError(err).Code != event.CodeTopicInvalid {
		t.Errorf("a bad topic: %v", err)
	}
	_ = box.Close()
	if _, err := box.Put("t", draft); err == nil {
		t.Error("a closed outbox takes events")
	}
}

// Only what is about the event makes a dead letter. A portal, a proxy, an expired credential or a broken broker is waited
// for, but not for ever by all the others.
func TestOutboxTellsTheWayFromTheEvent(t *testing.T) {
	html := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte("<html>")) }
	}
	refuse := func(code event.Code, facts map[string]any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			problem(w, code, code.Class().Retryable, facts)
		}
	}
	for name, k := range map[string]struct {
		answer http.HandlerFunc
		times  int // that it is given before the event is accepted
		want   string
	}{
		"portal":            {html(200), 20, "sent"},
		"portal in the way": {html(302), 20, "sent"},
		"proxy forbids":     {html(403), 20, "sent"},
		"wrong address":     {refuse(event.CodeNotFound, nil), 20, "sent"},
		"broken broker":     {refuse(event.CodeInternal, nil), 9, "sent"},
		"broken by event":   {refuse(event.CodeInternal, nil), 10, "refused internal"},
		"too large for one": {html(413), 1, "refused internal"},
		"disk full":         {refuse(event.CodeDiskFull, nil), 20, "sent"},
		"clock ahead":       {refuse(event.CodeHLCDrift, map[string]any{"drift_ms": 502, "max_drift_ms": 500}), 3, "sent"},
		"clock far ahead":   {refuse(event.CodeHLCDrift, map[string]any{"drift_ms": 61_000, "max_drift_ms": 500}), 1, "refused hlc_drift"},
	} {
		t.Run(name, func(t *testing.T) {
			var rec recorder
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if rec.note(r) <= k.times {
					k.answer(w, r)
					return
				}
				receipt(w, event.OutcomeAccepted, 1, event.NewHLC(7000, 1))
			})
			var told reports
			box := openOutbox(t, c, filepath.Join(t.TempDir(), "outbox"), client.OutboxOptions{OnReport: told.note})
			put(t, box, "1")
			flush(t, box)
			if got := told.told(); !slices.Equal(got, []string{"1 " + k.want}) {
				t.Errorf("told %q", got)
			}
			for _, r := range rec.all() {
				if r.body != rec.all()[0].body {
					t.Errorf("a try differs from the first: %s", r.body)
				}
			}
		})
	}
}

// Something in the way that answers one event with nonsense for a day does not hold up the others for ever.
func TestOutboxPatienceEnds(t *testing.T) {
	var mu sync.Mutex
	lead := time.Duration(0)
	clock := client.NewClockAt(0, func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(lead) })
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		lead += 5 * time.Hour
		mu.Unlock()
		w.WriteHeader(http.StatusForbidden)
	}, client.WithClock(clock))
	var told reports
	box := openOutbox(t, c, filepath.Join(t.TempDir(), "outbox"), client.OutboxOptions{OnReport: told.note})
	put(t, box, "1")
	put(t, box, "2")
	flush(t, box)
	if got := told.told(); len(got) != 2 || lead < 48*time.Hour {
		t.Errorf("told %q after %s", got, lead)
	}
}
