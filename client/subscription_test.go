// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

// subscriber is a client of a broker of its own.
func subscriber(t *testing.T) *client.Client {
	t.Helper()
	return connect(t, testBroker(t).url)
}

func publishNumbers(t *testing.T, c *client.Client, topic string, n int) {
	t.Helper()
	for i := range n {
		_, err := c.Publish(t.Context(), topic, event.Draft{ID: fmt.Sprint(i + 1), Source: "/s", Type: "t.x", Subject: fmt.Sprint("k", i%3), Data: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWork: workers take every event once, and what became of it is what the
// handler returned.
func TestWork(t *testing.T) {
	c := subscriber(t)
	s, err := c.CreateSubscription(t.Context(), client.NewSubscription(event.KindPull, "a"))
	if err != nil {
		t.Fatal(err)
	}
	publishNumbers(t, c, "a", 9)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var mu sync.Mutex
	var done []string
	tries := map[string]int{}
	err = c.Work(ctx, s.ID, client.WorkOptions{Concurrency: 3, Delay: time.Millisecond}, func(_ context.Context, h client.Handed) error {
		mu.Lock()
		defer mu.Unlock()
		id := h.Event.ID()
		tries[id]++
		switch {
		case id == "4":
			return &client.RejectError{Reason: "no fours"}
		case id == "5" && h.Attempt == 1:
			return errors.New("not the first time")
		}
		if done = append(done, id); len(done) == 8 {
			stop()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the worker ended with %v", err)
	}
	slices.Sort(done)
	if got := strings.Join(done, " "); got != "1 2 3 5 6 7 8 9" || tries["5"] != 2 {
		t.Errorf("done are %s, and 5 was tried %d times", got, tries["5"])
	}
	if s, err = c.Subscription(t.Context(), s.ID); err != nil || s.Status.Acked != 8 || s.Status.DeadLetters != 1 {
		t.Errorf("the status is %+v, %v", s.Status, err)
	}
	letters, err := c.DeadLetters(t.Context(), s.ID, client.LetterFilter{Cause: "rejected"})
	if err != nil || len(letters) != 1 || letters[0].Error != "no fours" {
		t.Fatalf("the dead letters are %+v, %v", letters, err)
	}
	moved, full, err := c.Redrive(t.Context(), s.ID, client.LetterFilter{}, nil)
	if err != nil || moved != 1 || full {
		t.Errorf("redriven %d, %v, %v", moved, full, err)
	}
	handed, err := c.Fetch(t.Context(), s.ID, client.FetchOptions{Wait: 20 * time.Second})
	if err != nil || len(handed) != 1 || handed[0].Event.ID() != "4" {
		t.Fatalf("what came back is %+v, %v", handed, err)
	}
	if err := c.Reject(t.Context(), s.ID, handed[0].Token, "still none"); err != nil {
		t.Error(err)
	}
	if err := c.Ack(t.Context(), s.ID, handed[0].Token); !errors.Is(err, client.ErrHandoutStale) {
		t.Errorf("an acknowledgement after the rejection: %v", err)
	}
	if moved, err := c.Discard(t.Context(), s.ID, client.LetterFilter{}, "a test", nil); err != nil || moved != 1 {
		t.Errorf("discarded %d, %v", moved, err)
	}
}

// TestFollowSubscription: what the loop has dealt with is acknowledged, also when
// it is left; the rest comes again.
func TestFollowSubscription(t *testing.T) {
	c := subscriber(t)
	document := client.NewSubscription(event.KindStream, "a")
	document.Config.Start = "earliest"
	s, err := c.CreateSubscription(t.Context(), document)
	if err != nil {
		t.Fatal(err)
	}
	publishNumbers(t, c, "a", 5)
	read := func(n int) (ids []string) {
		t.Helper()
		for item, err := range c.FollowSubscription(t.Context(), s.ID, client.SubscriptionOptions{AckEvery: 2}) {
			if err != nil {
				t.Fatal(err)
			}
			if item.Kind == client.ItemEvent {
				ids = append(ids, item.Event.ID())
			}
			if len(ids) == n || item.Kind == client.ItemSynced {
				break
			}
		}
		return ids
	}
	if got := read(3); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("first came %v", got)
	}
	// The third was being dealt with when the loop was left.
	if got := read(9); !slices.Equal(got, []string{"3", "4", "5"}) {
		t.Errorf("then came %v", got)
	}
	if _, err := c.SeekSubscription(t.Context(), s.ID, "earliest"); err != nil {
		t.Fatal(err)
	}
	if got := read(1); !slices.Equal(got, []string{"1"}) {
		t.Errorf("after a seek came %v", got)
	}
	if err := c.DeleteSubscription(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	for _, err := range c.FollowSubscription(t.Context(), s.ID, client.SubscriptionOptions{}) {
		if e := event.AsError(err); e == nil || e.Code != event.CodeSubscriptionUnknown {
			t.Errorf("of a deleted one: %v", err)
		}
	}
}

// TestStreamIsReplaced: who loses the stream to another ends, and does not fight
// for it.
func TestStreamIsReplaced(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		send(w, "event: signalbox.gap\ndata: {\"from\":\"@1\",\"to\":\"@7\"}\n\nevent: signalbox.end\ndata: {\"reason\":\"replaced\"}\n\n")
	})
	gaps := 0
	for item, err := range c.FollowSubscription(t.Context(), "s", client.SubscriptionOptions{}) {
		switch {
		case err != nil:
			if !errors.Is(err, client.ErrStreamReplaced) {
				t.Errorf("the follower ended with %v", err)
			}
		case item.Kind == client.ItemGap && item.Gap.To.Position == 7:
			gaps++
		}
	}
	if gaps != 1 {
		t.Errorf("%d gaps were told", gaps)
	}
}

// A subscription whose creation was not answered is not created again: nobody
// would know of the first.
func TestCreationIsNotRepeated(t *testing.T) {
	var r recorder
	c := serve(t, func(w http.ResponseWriter, req *http.Request) {
		r.note(req)
		drop(w)
	})
	_, err := c.CreateSubscription(t.Context(), client.NewSubscription(event.KindPull))
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || len(r.all()) != 1 {
		t.Errorf("%d requests, %v", len(r.all()), err)
	}
}
