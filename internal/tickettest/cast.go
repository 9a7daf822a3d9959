// SPDX-License-Identifier: Apache-2.0

package tickettest

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/orchestrator"
	"signalbox/ticket"
)

// Client returns a client that reads as an agent.
func Client(t testing.TB, url, agent string) *client.Client {
	t.Helper()
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	return c.With(client.WithToken(ticketclient.Tokens(c, agent, Key(agent))))
}

// Run runs several things beside each other until what it returns is called.
func Run(ctx context.Context, all ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, one := range all {
		running.Go(func() { one(ctx) })
	}
	return func() { cancel(); running.Wait() }
}

// Orchestrator returns what runs the reference orchestrator by a policy, and a
// channel with the names of tickets that have come to their end.
func Orchestrator(t testing.TB, url, policy string) (run func(context.Context), ended <-chan string) {
	t.Helper()
	p, err := orchestrator.ParsePolicy([]byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan string, 10)
	o, err := ticketclient.NewOrchestrator(Client(t, url, "orch"), ticketclient.OrchestratorOptions{
		Name: "orch", Key: Key("orch"),
		Decide: func(t *ticketclient.Ticket, now time.Time) ([]ticketclient.Move, time.Time) {
			return p.Decide("orch", t, now)
		},
		OnMove: func(t *ticketclient.Ticket, m ticketclient.Move, err error) {
			if s, ok := m.Payload.(*ticketclient.State); ok && err == nil && (s.To == "CLOSED" || s.To == "CANCELLED") {
				ends <- t.ID
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) { _ = o.Run(ctx) }, ends
}

// Agent returns what runs a domain agent. Its store is a file of its own.
func Agent(t testing.TB, url string, o ticketclient.AgentOptions) (run func(context.Context)) {
	t.Helper()
	store, err := client.OpenLedgerFile(filepath.Join(t.TempDir(), o.Name+".book"))
	if err != nil {
		t.Fatal(err)
	}
	o.Key, o.Store = Key(o.Name), store
	a, err := ticketclient.OpenAgent(t.Context(), Client(t, url, o.Name), o)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) { _ = a.Run(ctx); _ = store.Close() }
}

// Open opens a ticket.
func Open(ctx context.Context, t testing.TB, url, id, source string) {
	t.Helper()
	_, err := ticketclient.NewSender(Client(t, url, "desk"), "desk", Key("desk")).Send(ctx, ticket.Draft{
		Header: ticket.Header{Type: ticket.TypeOpen, TicketID: id, TraceID: "trace-" + id, To: ticket.RoleOrchestrator},
		Payload: &ticketclient.Open{
			Op: "open", SourceRef: source, Title: "The web is slow", BodyRef: "desk:" + id + "/body", Requester: "u1", Priority: 2,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Wait waits until one request waits at a gate.
func Wait(ctx context.Context, t testing.TB, gate *ticketclient.Gate) *ticketclient.Waiting {
	t.Helper()
	for {
		waiting, err := gate.Waiting(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(waiting) > 0 {
			return waiting[0]
		}
		select {
		case <-ctx.Done():
			t.Fatal("nothing waits at the gate")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Await waits for the end of a ticket.
func Await(ctx context.Context, t testing.TB, ended <-chan string, id string) {
	t.Helper()
	select {
	case got := <-ended:
		if got != id {
			t.Fatalf("the ticket %s has ended, and not %s", got, id)
		}
	case <-ctx.Done():
		t.Fatalf("the ticket %s has not come to its end", id)
	}
}
