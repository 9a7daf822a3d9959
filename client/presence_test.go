// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

// One follower reads a durable topic and an ephemeral one. Events of the latter
// come without a position and move no cursor, and others see the follower under
// its name, with what it reports.
func TestFollowEphemeralTopicsUnderAName(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	policy := event.DefaultPolicy()
	policy.Durability = event.DurabilityEphemeral
	if _, _, err := c.PutTopic(ctx, "load", policy); err != nil {
		t.Fatal(err)
	}
	publish := func(topic, key string) event.Receipt {
		d := draft
		d.Subject = key
		r, err := c.Publish(ctx, topic, d)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	publish("log", "a")
	if r := publish("load", "a"); r.Position != 0 || r.Outcome != event.OutcomeAccepted {
		t.Fatalf("the receipt is %+v", r)
	}
	var order []string
	for item, err := range c.Follow(ctx, []string{"log", "load"}, client.FollowOptions{Agent: "/agents/beta"}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Kind == client.ItemSynced {
			publish("load", "b")
			publish("log", "b")
		}
		if item.Kind != client.ItemEvent {
			continue
		}
		order = append(order, item.Event.Topic()+" "+item.Event.Subject())
		if item.Event.Position() != 0 && item.Event.Position() != item.Cursor.Position {
			t.Errorf("the cursor of %s is %s", order[len(order)-1], item.Cursor)
		}
		if len(order) == 4 {
			break
		}
	}
	seen := map[string]bool{}
	for _, s := range order {
		seen[s] = true
	}
	if len(seen) != 4 {
		t.Errorf("the follower got %v", order)
	}
	if err := c.Report(ctx, "/agents/beta", map[string]string{"ledger": "diverged"}, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.Report(ctx, "", nil, 0); err == nil {
		t.Error("a status of nobody was reported")
	}
	for p, err := range c.Present(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Key != "/agents/beta" || p.Agent != p.Key || string(p.Status) != `{"ledger":"diverged"}` || p.Until.Before(p.Reported) {
			t.Errorf("present is %+v", p)
		}
	}
}

func TestPresenceOfOneThatHasLeft(t *testing.T) {
	ev, err := event.DecodeDelivered([]byte(`{"specversion":"1.0","id":"1","source":"/v1/presence","type":"signalbox.presence","subject":"/agents/beta"}`))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := client.PresenceOf(ev); err != nil || p.Key != "/agents/beta" || p.Connections != 0 {
		t.Errorf("one that has left is %+v, %v", p, err)
	}
}
