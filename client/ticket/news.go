// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

// newsMax bounds the names of tickets that were heard of and not looked at. Beyond it
// all that are open are looked at.
const newsMax = 100_000

// news is which tickets something was said about. What was said is read elsewhere: a
// stream leaves out what has expired.
type news struct {
	sign chan struct{} // has an element when there is something to take

	mu    sync.Mutex
	names map[string]bool // guarded by mu
	all   bool            // guarded by mu; something may have been missed
}

func newNews() *news {
	return &news{sign: make(chan struct{}, 1), names: map[string]bool{}}
}

// heard notes a ticket; "" stands for all of them.
func (n *news) heard(name string) {
	n.mu.Lock()
	if name == "" || len(n.names) >= newsMax {
		n.all = true
		clear(n.names)
	}
	if !n.all {
		n.names[name] = true
	}
	n.mu.Unlock()
	select {
	case n.sign <- struct{}{}:
	default:
	}
}

// take returns what was heard since the last call.
func (n *news) take() (names map[string]bool, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names, all = n.names, n.all
	n.names, n.all = map[string]bool{}, false
	return names, all
}

// listen hears what is said in a space until ctx ends. Every connection begins with
// news of all tickets, for something may have been said before it.
func (n *news) listen(ctx context.Context, c *client.Client, space string, onError func(error)) error {
	var topics []string
	for _, t := range ticket.Types() {
		if topic := ticket.TopicRoot + "." + space + "." + t.Family + ".>"; t.Name != ticket.TypeHeartbeat && !slices.Contains(topics, topic) {
			topics = append(topics, topic)
		}
	}
	onRetry := func(err error, _ time.Duration) {
		if err != nil {
			onError(fmt.Errorf("the broker was lost, and is looked for again: %w", err))
		}
	}
	// Where the log was restored, or cleaned up behind what was heard of, it goes on at the
	// end: news of all tickets follow.
	onReset := func(_ context.Context, r *client.Reset) (event.Cursor, error) {
		onError(fmt.Errorf("the tickets that are open are read again: %w", r.Err()))
		return r.Head, nil
	}
	for item, err := range c.Follow(ctx, topics, client.FollowOptions{Now: true, OnRetry: onRetry, OnReset: onReset}) {
		if err != nil {
			return err
		}
		switch item.Kind {
		case client.ItemEvent:
			n.heard(item.Event.Subject())
		case client.ItemSynced:
			n.heard("")
		}
	}
	return context.Cause(ctx)
}
