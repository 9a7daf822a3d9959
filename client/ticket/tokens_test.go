// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// TestFollowerGoesOnWithFreshTokens: a stream ends with its token, and the follower
// comes back with another by itself, and gets each message once.
func TestFollowerGoesOnWithFreshTokens(t *testing.T) {
	s := newSpace(t)
	made := 0
	c := s.c.With(client.WithToken(func(context.Context) (string, error) {
		made++
		over := time.Now().Add(-28 * time.Second) // the clocks may differ by thirty
		return ticket.Token{Agent: "net", Space: "main", Issued: over.Add(-time.Minute), Expires: over}.Sign(tickettest.Key("net")), nil
	}))
	ctx, cancel := context.WithTimeout(t.Context(), tickettest.Patience)
	defer cancel()
	var want, got []string
	ask := func() {
		n := len(want)
		want = append(want, s.ask(s.open(fmt.Sprint("INC-", n+1)), "network").ID)
	}
	ask()
	for item, err := range c.Follow(ctx, []string{"bus.main.plan.network"}, client.FollowOptions{OnRetry: func(error, time.Duration) { ask() }}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Kind == client.ItemEvent {
			got = append(got, item.Event.ID())
		}
		if len(got) == 3 {
			break
		}
	}
	// It asks once more than it gets where a token is over before the broker has seen it.
	if !slices.Equal(got, want[:min(len(got), len(want))]) || made < 3 {
		t.Errorf("with %d tokens it got %v, want %v", made, got, want)
	}
}

// TestTokenThatDoesNotCountIsSaid: whoever has no right to a token, and asks by a client
// that sends one, is refused as that, and not taken for somebody who cannot reach the broker.
func TestTokenThatDoesNotCountIsSaid(t *testing.T) {
	s := newSpace(t)
	other := tickettest.Key("comp")
	twice := s.c.With(client.WithToken(ticketclient.Tokens(s.c, "net", other)))
	for _, c := range []*client.Client{s.c, twice} {
		c = c.With(client.WithToken(ticketclient.Tokens(c, "net", other)))
		_, err := c.Ticket(t.Context(), "INC-1")
		unreachable := (*client.UnreachableError)(nil)
		if e := (*event.Error)(nil); !errors.As(err, &e) || e.Code != event.CodeTokenInvalid || errors.As(err, &unreachable) {
			t.Errorf("it was told %v", err)
		}
	}
}
