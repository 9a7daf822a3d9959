// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"signalbox/client"
	"signalbox/event"
)

// plainSSE reads the stream as any HTTP client would, without package client: it is plain server-sent events.
func (s *story) plainSSE(ctx context.Context) error {
	s.scene("The same by plain HTTP, as curl or a browser's EventSource sees it")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/topics/"+storyTopic+"/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", s.left.String())
	s.says("reader", "GET %s, Last-Event-ID: %s", req.URL.Path, s.left)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var data, named int
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if named > 0 {
				break // The block of the sync marker is complete.
			}
			continue
		}
		fmt.Fprintf(s.out, "          |        %s\n", shorten(oneLine(line), 100))
		switch {
		case strings.HasPrefix(line, "event: signalbox.sync"):
			named++
		case strings.HasPrefix(line, "data: ") && named == 0:
			data++
		}
	}
	s.claim(data == 1 && named == 1, "one data line, COMPLETED, and one named event, signalbox.sync")
	return lines.Err()
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// tooLate has an old report of the accident arrive when all is over.
func (s *story) tooLate(ctx context.Context) error {
	s.scene("A camera's report of the accident arrives late")
	camera, err := s.agent("camera")
	if err != nil {
		return err
	}
	s.says("camera", "saw the accident hours ago and stamped its report then: %s", s.late)
	r, err := s.report(ctx, camera, "camera", status{Status: "ERROR_DROPPED"}, s.late)
	if err != nil {
		return err
	}
	s.claim(r.Outcome == event.OutcomeSuperseded, "the outcome is superseded: a newer event of the key has won already")
	now, err := s.alpha.Key(ctx, storyTopic, storyTask)
	if err != nil {
		return err
	}
	s.says("alpha", "reads the state of %s: %s, at position %d", storyTask, describe(now), now.Position())
	s.claim(s.done != nil && now.Position() == s.done.Position() && now.ID() == s.done.ID(), "the state is unchanged")
	items, err := s.untilSynced(ctx, s.alpha, "alpha", client.FollowOptions{Cursor: s.back})
	if err != nil {
		return err
	}
	s.claim(len(items) == 0, "nobody who follows the current view is bothered with it")
	return nil
}

// forget deletes the task and lets its deletion be forgotten as well.
func (s *story) forget(ctx context.Context) error {
	s.scene("The task is deleted")
	r, err := s.beta.Publish(ctx, storyTopic, event.Draft{Source: "/agents/beta", Type: "task.removed", Subject: storyTask})
	if err != nil {
		return err
	}
	s.says("beta", "publishes a tombstone (an event without data) → %s at %s", r.Outcome, r.Cursor)
	_, err = s.alpha.Key(ctx, storyTopic, storyTask)
	s.claim(refusedWith(err, event.CodeKeyUnknown), "%s has no state any more", storyTask)

	s.scene("A day later the deletion is forgotten as well (time is simulated)")
	s.clock.pass(25 * time.Hour)
	t, err := s.whenForgotten(ctx)
	if err != nil {
		return err
	}
	s.says("broker", "has %d events, %d keys and %d tombstones; the floor is %s", t.Events, t.Keys, t.Tombstones, t.Floor)
	items, err := s.untilSynced(ctx, s.alpha, "alpha", client.FollowOptions{View: "history"})
	if err != nil {
		return err
	}
	s.claim(t.Events == 0 && t.Keys == 0 && t.Tombstones == 0 && len(items) == 0, "after delete_retention every trace of %s is gone", storyTask)

	s.says("camera", "sends one more old report, stamped %s", s.late)
	_, err = s.report(ctx, s.beta, "camera", status{Status: "ERROR_DROPPED"}, s.late)
	s.refusal("broker", err)
	s.claim(refusedWith(err, event.CodeHLCStale), "the old event is refused as hlc_stale: what was deleted does not come back")
	return nil
}

// whenForgotten waits until the broker's timers and its cleaner have seen the new time.
func (s *story) whenForgotten(ctx context.Context) (client.TopicInfo, error) {
	for {
		t, err := s.alpha.Topic(ctx, storyTopic)
		if err != nil || t.Events == 0 && t.Tombstones == 0 {
			return t, err
		}
		select {
		case <-ctx.Done():
			return t, nil // The claim says what is still there.
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// rogue is a producer whose clock is a day ahead.
func (s *story) rogue(ctx context.Context) error {
	s.scene("A producer's clock is a day ahead")
	ahead := event.NewHLC(s.clock.Wall().Add(24*time.Hour).UnixMilli(), 0)
	_, err := s.report(ctx, s.beta, "rogue", status{Status: "COMPLETED"}, ahead)
	s.refusal("broker", err)
	s.claim(refusedWith(err, event.CodeHLCDrift), "it is refused as hlc_drift: one wrong clock does not infect the others")
	drift, ok := event.AsError(err).Facts["drift_ms"].(int64)
	day := (24 * time.Hour).Milliseconds()
	s.claim(ok && drift > day-time.Minute.Milliseconds() && drift <= day, "the refusal carries the measured drift, %d ms", drift)
	return nil
}

// refusal prints why something was refused.
func (n *narrator) refusal(who string, err error) {
	if e := (*event.Error)(nil); errors.As(err, &e) {
		n.says(who, "refuses, %s: %s", e.Code, e.Message)
	}
}

func refusedWith(err error, codes ...event.Code) bool {
	e := (*event.Error)(nil)
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}
