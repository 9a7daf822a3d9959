// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"signalbox/client"
	"signalbox/event"
)

const (
	storyTopic = "fleet.tasks"
	storyTask  = "T-998"
)

// story is the play: Alpha assigns, Beta works, and the broker keeps them of one mind.
type story struct {
	*narrator
	url   string
	clock *demoClock

	alpha, beta *client.Client

	left     event.Cursor   // where Alpha was when its link broke
	back     event.Cursor   // where Alpha was when it was up to date again
	assigned string         // id of the last event that Alpha had
	late     event.HLC      // stamp of an event that is kept back for later
	done     *event.Event   // the event that completed the task
	ledger   []*event.Event // all that Alpha was ever handed
}

// scenes are the parts of the story.
func (s *story) scenes() []func(context.Context) error {
	return []func(context.Context) error{
		s.assign, s.work, s.comeBack, s.comeBackByID, s.plainSSE, s.tooLate, s.forget, s.rogue,
	}
}

// play tells what it is given from start to end.
func (s *story) play(ctx context.Context, scenes []func(context.Context) error) error {
	fmt.Fprintf(s.out, "Signalbox demo: a real broker at %s, real clients, real sockets.\n"+
		"Time is simulated: where hours pass in the story, the clocks of broker and agents are set forward.\n", s.url)
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return err
		}
	}
	return s.verdict()
}

// status is what the events of the story carry.
type status struct {
	Status string `json:"status"`
	For    string `json:"for,omitempty"`
}

func read(ev *event.Event) status {
	var d status
	_ = json.Unmarshal(ev.Data(), &d) // An event without data, a tombstone, has no status.
	return d
}

// report publishes a status of the task.
func (s *story) report(ctx context.Context, c *client.Client, who string, d status, hlc event.HLC) (event.Receipt, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return event.Receipt{}, err
	}
	draft := event.Draft{Source: "/agents/" + who, Type: "task.status", Subject: storyTask, Data: data}
	if hlc != 0 {
		draft.Extensions = map[string]any{"hlc": hlc.String()}
	}
	r, err := c.Publish(ctx, storyTopic, draft)
	if err == nil {
		s.says(who, "publishes %s → %s at %s", d.Status, r.Outcome, r.Cursor)
	}
	return r, err
}

// assign has Alpha hand out the task, Beta see it, and Alpha's link break.
func (s *story) assign(ctx context.Context) (err error) {
	s.scene("Alpha assigns a task to Beta")
	if s.alpha, err = s.agent("alpha"); err != nil {
		return err
	}
	if s.beta, err = s.agent("beta"); err != nil {
		return err
	}
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	if _, _, err := s.alpha.PutTopic(ctx, storyTopic, policy); err != nil {
		return err
	}
	if _, err := s.report(ctx, s.alpha, "alpha", status{Status: "ASSIGNED", For: "beta"}, 0); err != nil {
		return err
	}
	for _, a := range []struct {
		name string
		c    *client.Client
	}{{"beta", s.beta}, {"alpha", s.alpha}} {
		items, err := s.untilSynced(ctx, a.c, a.name, client.FollowOptions{})
		if err != nil {
			return err
		}
		seen := statuses(items)
		s.claim(slices.Equal(seen, []string{"ASSIGNED"}), "%s follows %s and sees ASSIGNED, then that it is up to date", a.name, storyTopic)
		if a.name == "alpha" && len(items) > 0 {
			s.left, s.assigned = items[len(items)-1].Cursor, items[0].Event.ID()
			s.ledger = append(s.ledger, items[0].Event)
		}
	}
	s.says("alpha", "loses its link; it has everything up to %s", s.left)
	return nil
}

// work has Beta go through the task while Alpha is away.
func (s *story) work(ctx context.Context) error {
	s.scene("Beta works for four hours, with an accident on the way (time is simulated)")
	var before event.HLC
	for _, step := range []struct {
		after  time.Duration
		status string
	}{
		{5 * time.Minute, "PENDING"}, {25 * time.Minute, "PICKING"}, {90 * time.Minute, "ERROR_DROPPED"},
		{30 * time.Minute, "RECOVERING"}, {90 * time.Minute, "COMPLETED"},
	} {
		s.clock.pass(step.after)
		r, err := s.report(ctx, s.beta, "beta", status{Status: step.status}, 0)
		if err != nil {
			return err
		}
		if step.status == "ERROR_DROPPED" {
			// A camera saw the accident as well, between Beta's last step and this one. Its report will be late.
			s.late = before.Next(0)
		}
		before = r.HLC
	}
	return nil
}

// comeBack has Alpha resume with the cursor it had.
func (s *story) comeBack(ctx context.Context) error {
	s.scene("Alpha is back after four hours, with its cursor")
	items, err := s.untilSynced(ctx, s.alpha, "alpha", client.FollowOptions{Cursor: s.left})
	if err != nil {
		return err
	}
	s.claim(slices.Equal(statuses(items), []string{"COMPLETED"}), "it receives exactly one event, COMPLETED, and then the sync marker")
	drones := 0
	for _, it := range items {
		if read(it.Event).Status == "ERROR_DROPPED" {
			drones++
			s.says("alpha", "dispatches an error-recovery drone")
		}
		s.done, s.back = it.Event, it.Cursor
		s.ledger = append(s.ledger, it.Event)
	}
	s.claim(drones == 0, "no error-recovery drone is dispatched for an accident that is long over")
	d, err := s.alpha.Digest(ctx, storyTopic)
	if err != nil {
		return err
	}
	own := client.DigestOf(slices.Values(s.ledger), client.DigestOptions{At: d.LogTime})
	s.claim(len(own.Diff(d)) == 0, "the digest of Alpha's own ledger equals the broker's at %s", d.Cursor)
	return nil
}

// comeBackByID is the variant of an agent that kept event ids, as EventSource and older clients do.
func (s *story) comeBackByID(ctx context.Context) error {
	s.scene("A variant: Alpha kept only the id of its last event")
	items, err := s.untilSynced(ctx, s.alpha, "alpha", client.FollowOptions{EventID: s.assigned})
	if err != nil {
		return err
	}
	s.claim(slices.Equal(statuses(items), []string{"COMPLETED"}), "it receives exactly one event, COMPLETED, as with the cursor")
	return nil
}

// untilSynced follows the topic up to the sync marker and returns the events before it.
func (s *story) untilSynced(ctx context.Context, c *client.Client, who string, o client.FollowOptions) (items []client.Item, err error) {
	for item, err := range c.Follow(ctx, []string{storyTopic}, o) {
		switch {
		case err != nil:
			return items, err
		case item.Kind == client.ItemEvent:
			s.says(who, "receives %s %s at %s", storyTask, describe(item.Event), item.Cursor)
			items = append(items, item)
		case item.Kind == client.ItemSynced:
			s.says(who, "receives the sync marker: up to date at %s", item.Cursor)
			return items, nil
		}
	}
	return items, errors.New("the stream ended before the sync marker")
}

func describe(ev *event.Event) string {
	if ev.DataKind() == event.NoData {
		return "tombstone"
	}
	return read(ev).Status
}

func statuses(items []client.Item) []string {
	var out []string
	for _, it := range items {
		out = append(out, describe(it.Event))
	}
	return out
}
