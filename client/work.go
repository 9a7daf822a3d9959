// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"signalbox/event"
)

// Handed is an event that was handed to this worker, which has to settle it with the token before the deadline.
type Handed struct {
	Token    string
	Attempt  int // 1 the first time
	Deadline time.Time
	Event    *event.Event
}

// FetchOptions says what a worker asks for.
type FetchOptions struct {
	Max        int           // how many events at the most, up to 1,000; 0 means 1
	Wait       time.Duration // how long to wait for the first, up to 5 min; behind a proxy less than it waits for
	Visibility time.Duration // how long the events are kept from others; 0 means as the subscription says
}

// Fetch takes events of a pull subscription. It returns none if none came within the wait. If the answer is lost, the
// events that were in it come back after their deadline.
func (c *Client) Fetch(ctx context.Context, id string, o FetchOptions) ([]Handed, error) {
	body := map[string]any{"max": max(1, o.Max), "wait": event.Duration(o.Wait.Round(time.Millisecond)).String()}
	if o.Visibility > 0 {
		body["visibility"] = event.Duration(o.Visibility).String()
	}
	var answer struct {
		Events []struct {
			Token    string          `json:"token"`
			Attempt  int             `json:"attempt"`
			Deadline time.Time       `json:"deadline"`
			Event    json.RawMessage `json:"event"`
		} `json:"events"`
	}
	if _, err := c.post(ctx, call{url: c.subscriptionPath(id, "fetch"), wait: o.Wait}, body, &answer); err != nil {
		return nil, err
	}
	handed := make([]Handed, len(answer.Events))
	for i, e := range answer.Events {
		ev, err := event.DecodeDelivered(e.Event)
		if err != nil {
			return nil, fmt.Errorf("client: an event that was fetched is unreadable: %w", err)
		}
		c.observe(ev.HLC())
		handed[i] = Handed{Token: e.Token, Attempt: e.Attempt, Deadline: e.Deadline, Event: ev}
	}
	return handed, nil
}

// ErrHandoutStale says that an event was not settled: its deadline has passed, and somebody else may have it.
var ErrHandoutStale = errors.New("client: the hand-out is not the last one of its event any more")

// settle says something of one hand-out.
func (c *Client) settle(ctx context.Context, id, verb, token string, more map[string]any) error {
	body := map[string]any{"tokens": []string{token}}
	for name, value := range more {
		body[name] = value
	}
	var answer struct {
		Results []struct {
			Settled bool `json:"settled"`
		} `json:"results"`
	}
	if _, err := c.post(ctx, call{url: c.subscriptionPath(id, verb)}, body, &answer); err != nil {
		return err
	}
	if len(answer.Results) == 1 && !answer.Results[0].Settled {
		return ErrHandoutStale
	}
	return nil
}

// Ack says that an event is done with.
func (c *Client) Ack(ctx context.Context, id, token string) error {
	return c.settle(ctx, id, "ack", token, nil)
}

// Nack has an event handed out again after the delay.
func (c *Client) Nack(ctx context.Context, id, token string, delay time.Duration, reason string) error {
	return c.settle(ctx, id, "nack", token, map[string]any{"delay": event.Duration(delay).String(), "reason": reason})
}

// Extend keeps an event for that long from now.
func (c *Client) Extend(ctx context.Context, id, token string, visibility time.Duration) error {
	return c.settle(ctx, id, "extend", token, map[string]any{"visibility": event.Duration(visibility).String()})
}

// Reject makes a dead letter of an event at once.
func (c *Client) Reject(ctx context.Context, id, token, reason string) error {
	return c.settle(ctx, id, "reject", token, map[string]any{"reason": reason})
}

// RejectError is returned by a handler for an event that no worker will ever take.
type RejectError struct{ Reason string }

func (e *RejectError) Error() string { return "rejected: " + e.Reason }

// WorkOptions says how a worker works.
type WorkOptions struct {
	Concurrency int           // events at one time; 0 means 1
	Visibility  time.Duration // deadline of each event, extended while the handler runs; 0 means 30 s
	Delay       time.Duration // after which an event is handed out again that failed; 0 means 1 s, doubled with each attempt
	// OnError is told of what could not be fetched or settled. It is for logs; nil is fine.
	OnError func(error)
}

const (
	workWait     = 20 * time.Second
	workDelayMax = time.Hour
)

// Work fetches events of a pull subscription and hands them to handle until ctx ends or the subscription does. An
// event is acknowledged when handle returns nil, made a dead letter when it returns a [RejectError], and handed out
// again after a delay, to whichever worker, when it returns another error. While handle runs, the deadline is extended;
// its context ends when that fails, for then another worker may have the event.
//
// Several workers may share a subscription. Delivery is at least once.
func (c *Client) Work(ctx context.Context, id string, o WorkOptions, handle func(context.Context, Handed) error) error {
	w := &worker{c: c, id: id, o: o, handle: handle, slots: make(chan struct{}, max(1, o.Concurrency))}
	if w.o.Visibility <= 0 {
		w.o.Visibility = 30 * time.Second
	}
	if w.o.Delay <= 0 {
		w.o.Delay = time.Second
	}
	defer w.running.Wait()
	for n := 0; ctx.Err() == nil; {
		free, err := w.wait(ctx)
		if err != nil {
			break
		}
		handed, err := c.Fetch(ctx, id, FetchOptions{Max: free, Wait: workWait, Visibility: w.o.Visibility})
		for range free - len(handed) {
			<-w.slots
		}
		for _, h := range handed {
			w.running.Go(func() {
				defer func() { <-w.slots }()
				w.one(ctx, h)
			})
		}
		if err == nil {
			n = 0
			continue
		}
		if e := (*event.Error)(nil); errors.As(err, &e) && !e.Code.Class().Retryable {
			return err
		}
		w.report(err)
		n++
		_ = sleep(ctx, c.retry.wait(n, 0)) // the loop sees the end of ctx
	}
	return context.Cause(ctx)
}

type worker struct {
	c       *Client
	id      string
	o       WorkOptions
	handle  func(context.Context, Handed) error
	slots   chan struct{} // one token for each event at hand
	running sync.WaitGroup
}

// wait takes every slot that is free, at least one.
func (w *worker) wait(ctx context.Context) (free int, err error) {
	select {
	case w.slots <- struct{}{}:
		free = 1
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		select {
		case w.slots <- struct{}{}:
			free++
			continue
		default:
		}
		return free, nil
	}
}

func (w *worker) report(err error) {
	if err != nil && w.o.OnError != nil {
		w.o.OnError(err)
	}
}

// one handles one event and settles it. A worker that is told to stop still says what became of what it has done.
func (w *worker) one(ctx context.Context, h Handed) {
	handling, stop := context.WithCancel(ctx)
	extended := make(chan struct{})
	go func() {
		defer close(extended)
		w.extend(handling, stop, h.Token)
	}()
	err := w.handle(handling, h)
	stop()
	<-extended
	ctx = context.WithoutCancel(ctx)
	if r := (*RejectError)(nil); errors.As(err, &r) {
		w.report(w.c.Reject(ctx, w.id, h.Token, r.Reason))
		return
	}
	if err != nil {
		w.report(err)
		delay := w.o.Delay
		for n := 1; n < h.Attempt && delay < workDelayMax; n++ {
			delay *= 2
		}
		w.report(w.c.Nack(ctx, w.id, h.Token, min(delay, workDelayMax), err.Error()))
		return
	}
	w.report(w.c.Ack(ctx, w.id, h.Token))
}

// extend keeps the event while it is handled, and ends the handling if it cannot.
func (w *worker) extend(ctx context.Context, stop context.CancelFunc, token string) {
	for sleep(ctx, w.o.Visibility/3) == nil {
		err := w.c.Extend(ctx, w.id, token, w.o.Visibility)
		if ctx.Err() == nil && err != nil {
			w.report(err)
			if errors.Is(err, ErrHandoutStale) {
				stop()
				return
			}
		}
	}
}
