// SPDX-License-Identifier: Apache-2.0

// Package client is the Go SDK of Signalbox, a broker through which independent software agents coordinate.
//
//	c, err := client.New("http://127.0.0.1:8080")
//	receipt, err := c.Publish(ctx, "fleet.tasks", event.Draft{Source: "/beta", Type: "task.done", Subject: "T-998"})
//	for item, err := range c.Follow(ctx, []string{"fleet.tasks"}, client.FollowOptions{}) { … }
//
// # What it guarantees
//
// A publish that is tried again sends the same bytes: the same source and id, the same HLC. The broker recognises the
// event within its deduplication window, so that a retry after a lost answer never stores an event twice.
//
// A follower resumes after the last item that its caller was handed. It neither skips nor repeats, whatever breaks in
// between: the connection, the broker, a proxy. Where something was removed that the follower had not seen, it says so
// (see [Reset]) and never continues in silence.
//
// Every HLC that a client reads (in events, in receipts, in the state) is merged into its [Clock], so that what an
// agent publishes after reading is ordered after what it read, on whatever machine that came from.
//
// # Agents
//
// A [Ledger] is what most agents want instead of a bare follower: it holds the newest event of every key, suppresses
// actions until it is known what came after, survives crashes with its [LedgerFile], and knows whether it agrees with
// the broker. An [Outbox] is its counterpart for publishing: it takes events while the broker cannot be reached. The
// guide docs/agents.md builds an agent of both.
//
// # Errors
//
// What the broker refuses arrives as the *event.Error that the broker made, code, field and facts included. A broker
// that cannot be reached is an *[UnreachableError].
//
// The package imports package event and the standard library only, so that an agent takes on no further dependency.
package client
