// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"signalbox/event"
)

// ErrStreamReplaced ends a follower of a subscription whose stream another one has taken.
var ErrStreamReplaced = errors.New("client: another connection has taken the stream of the subscription")

// SubscriptionOptions says how a stream subscription is followed.
type SubscriptionOptions struct {
	// AckEvery is after how many events their cursor is acknowledged; 0 means 100. It is, too, at the marker, when
	// nothing comes, and at the end.
	AckEvery int
	// OnRetry is as in [FollowOptions].
	OnRetry func(err error, wait time.Duration)
}

// FollowSubscription follows a stream subscription from the cursor that the broker keeps, and acknowledges what the body
// of the loop has dealt with. An event whose cursor was not acknowledged comes again: delivery is at least once. The
// loop ends as that of [Client.Follow] does, and with [ErrStreamReplaced].
func (c *Client) FollowSubscription(ctx context.Context, id string, o SubscriptionOptions) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		sub := &acknowledger{ctx: ctx, id: id, every: o.AckEvery}
		if sub.every <= 0 {
			sub.every = 100
		}
		f := &follower{c: c, topics: []string{">"}, opts: FollowOptions{OnRetry: o.OnRetry}, sub: sub}
		err := f.run(ctx, yield)
		// What was dealt with counts, whatever ended the loop.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAckTimeout)
		defer cancel()
		sub.ctx = last
		_ = sub.acknowledge(f) // else it comes again
		if err != nil && !errors.Is(err, errStopped) {
			yield(Item{Cursor: f.cursor}, err)
		}
	}
}

// lastAckTimeout keeps the last acknowledgement from holding up who leaves the loop.
const lastAckTimeout = 5 * time.Second

// acknowledger is the part of a follower that belongs to a subscription.
type acknowledger struct {
	ctx   context.Context
	id    string
	every int
	count int          // events since the last acknowledgement
	acked event.Cursor // the last that was acknowledged
}

// passed counts an item that was dealt with.
func (k *acknowledger) passed(f *follower, idle bool) error {
	k.count++
	if k.count < k.every && !idle {
		return nil
	}
	return k.acknowledge(f)
}

func (k *acknowledger) acknowledge(f *follower) error {
	if !f.started || f.cursor == k.acked {
		return nil
	}
	k.count = 0
	if err := f.c.Acknowledge(k.ctx, k.id, f.cursor); err != nil {
		return err
	}
	k.acked = f.cursor
	return nil
}

// notice deals with what the broker says of the subscription itself.
func (k *acknowledger) notice(f *follower, b block, yield func(Item, error) bool) error {
	if b.Event == "signalbox.gap" {
		gap := &Gap{}
		if err := json.Unmarshal(b.Data, gap); err != nil {
			return permanent{fmt.Errorf("client: the gap block is unreadable: %w", err)}
		}
		if !yield(Item{Kind: ItemGap, Cursor: f.cursor, Gap: gap}, nil) {
			return errStopped
		}
		return nil
	}
	var end struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(b.Data, &end); err != nil {
		return permanent{fmt.Errorf("client: the end block is unreadable: %w", err)}
	}
	f.started = false // the cursor is the broker's, and may be another now
	if end.Reason == "replaced" {
		return permanent{ErrStreamReplaced}
	}
	return nil
}
