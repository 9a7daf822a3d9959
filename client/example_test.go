// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"signalbox/client"
	"signalbox/event"
)

// exampleBroker starts a broker for an example and returns its URL.
func exampleBroker() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "signalbox-example-")
	if err != nil {
		panic(err)
	}
	b, err := newBroker(dir)
	if err != nil {
		panic(err)
	}
	return b.url, func() { b.kill(); _ = os.RemoveAll(dir) }
}

// must keeps the examples short; a program deals with its errors.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func ExampleClient_Publish() {
	url, stop := exampleBroker()
	defer stop()
	ctx := context.Background()

	c := must(client.New(url))
	receipt, err := c.Publish(ctx, "fleet.tasks", event.Draft{
		Source: "/agents/beta", Type: "task.completed", Subject: "T-998", Data: []byte(`{"status":"COMPLETED"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Outcome, "at position", receipt.Position)
	// Output: accepted at position 1
}

// A precondition keeps two agents from claiming the same task.
func ExampleClient_Publish_precondition() {
	url, stop := exampleBroker()
	defer stop()
	ctx := context.Background()

	c := must(client.New(url))
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	_, _, err := c.PutTopic(ctx, "fleet.claims", policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, agent := range []string{"alpha", "beta"} {
		_, err := c.Publish(ctx, "fleet.claims", event.Draft{
			Source: "/agents/" + agent, Type: "task.claimed", Subject: "T-998", Data: []byte(`"` + agent + `"`),
		}, client.IfAbsent())
		if position, conflict := client.ConflictPosition(err); conflict {
			fmt.Println(agent, "is late: the claim is at position", position)
			continue
		}
		fmt.Println(agent, "has it")
	}
	// Output:
	// alpha has it
	// beta is late: the claim is at position 1
}

func ExampleClient_Follow() {
	url, stop := exampleBroker()
	defer stop()
	ctx := context.Background()

	c := must(client.New(url))
	for _, n := range []string{"one", "two"} {
		must(c.Publish(ctx, "greetings", event.Draft{Source: "/me", Type: "greeting", Data: []byte(`"` + n + `"`)}))
	}
	for item, err := range c.Follow(ctx, []string{"greetings"}, client.FollowOptions{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch item.Kind {
		case client.ItemEvent:
			fmt.Println(item.Event.Position(), string(item.Event.Data()))
			// Store item.Cursor once the event is dealt with: it is where the next run resumes.
		case client.ItemSynced:
			fmt.Println("up to date")
			return // A real agent goes on: what comes from here on is live.
		}
	}
	// Output:
	// 1 "one"
	// 2 "two"
	// up to date
}

// An agent whose cursor has expired starts over from the state.
func ExampleFollowOptions_onReset() {
	c := must(client.New("http://127.0.0.1:8080"))
	tasks := make(map[string]*event.Event)

	bootstrap := func(ctx context.Context, r *client.Reset) (event.Cursor, error) {
		clear(tasks)
		s, err := c.State(ctx, r.Topics...)
		if err != nil {
			return event.Cursor{}, err
		}
		for ev, err := range s.Events() {
			if err != nil {
				return event.Cursor{}, err
			}
			if key, ok := ev.Key(); ok {
				tasks[key] = ev
			}
		}
		return s.Cursor(), nil
	}
	_ = client.FollowOptions{OnReset: bootstrap}
}

func ExampleClient_State() {
	url, stop := exampleBroker()
	defer stop()
	ctx := context.Background()

	c := must(client.New(url))
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	_, _, err := c.PutTopic(ctx, "fleet.tasks", policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, status := range []string{"PENDING", "PICKING", "COMPLETED"} {
		must(c.Publish(ctx, "fleet.tasks", event.Draft{Source: "/beta", Type: "task.status", Subject: "T-998", Data: []byte(`"` + status + `"`)}))
	}
	state := must(c.State(ctx, "fleet.tasks"))
	for ev, err := range state.Events() {
		if err != nil {
			fmt.Println(err)
			return
		}
		key, _ := ev.Key()
		fmt.Println(key, string(ev.Data()))
	}
	fmt.Println("follow from position", state.Cursor().Position)
	// Output:
	// T-998 "COMPLETED"
	// follow from position 3
}

// An agent finds out whether its own ledger agrees with the broker.
func ExampleDigestOf() {
	url, stop := exampleBroker()
	defer stop()
	ctx := context.Background()

	c := must(client.New(url))
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	_, _, err := c.PutTopic(ctx, "fleet.tasks", policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, task := range []string{"T-1", "T-2", "T-3"} {
		must(c.Publish(ctx, "fleet.tasks", event.Draft{Source: "/beta", Type: "task.status", Subject: task, Data: []byte(`"DONE"`)}))
	}
	var ledger []*event.Event
	for item, err := range c.Follow(ctx, []string{"fleet.tasks"}, client.FollowOptions{}) {
		if err != nil || item.Kind == client.ItemSynced {
			break
		}
		ledger = append(ledger, item.Event)
	}
	theirs := must(c.Digest(ctx, "fleet.tasks"))
	o := client.DigestOptions{At: theirs.LogTime}
	fmt.Println("all three differ in", len(client.DigestOf(slices.Values(ledger), o).Diff(theirs)), "buckets")
	fmt.Println("two of them differ in", len(client.DigestOf(slices.Values(ledger[:2]), o).Diff(theirs)), "bucket")
	// Output:
	// all three differ in 0 buckets
	// two of them differ in 1 bucket
}

// Errors carry the broker's code and what it measured.
func ExampleClient_errors() {
	url, stop := exampleBroker()
	defer stop()

	c := must(client.New(url))
	_, err := c.Publish(context.Background(), "fleet tasks", event.Draft{Source: "/beta", Type: "task.status"})
	var refused *event.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code, refused.Code.Class().Retryable)
	}
	// Output: topic_invalid false
}
