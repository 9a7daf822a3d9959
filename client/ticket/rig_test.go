// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// space is a broker with agents that are registered.
type space struct {
	t   testing.TB
	c   *client.Client
	url string
}

func newSpace(t *testing.T) *space { t.Helper(); return newSpaceOf(t, tickettest.Staff()) }

func newSpaceOf(t *testing.T, staff []ticket.Change) *space {
	t.Helper()
	url, stop, err := tickettest.Serve(t.TempDir(), staff)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	return &space{t: t, c: c, url: url}
}

// send sends a message of an agent and returns its id.
func (s *space) send(from string, d ticket.Draft) string {
	s.t.Helper()
	m, err := ticketclient.NewSender(s.c, from, tickettest.Key(from)).Sign(d)
	if err == nil {
		_, err = s.c.PostMessage(s.t.Context(), m.Bytes())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return m.Header().ID
}

// open opens a ticket and returns the header of the message.
func (s *space) open(id string) ticket.Header {
	s.t.Helper()
	h := ticket.Header{Type: ticket.TypeOpen, TicketID: id, TraceID: "trace-" + id, To: "orchestrator"}
	h.ID = s.send("desk", ticket.Draft{Header: h, Payload: &ticketclient.Open{
		Op: "open", SourceRef: "desk:" + id, Title: "The web is slow", BodyRef: "desk:" + id + "/body", Requester: "u1", Priority: 2,
	}})
	return h
}

// ask has the orchestrator ask a domain for a plan.
func (s *space) ask(open ticket.Header, domain string) ticket.Header {
	s.t.Helper()
	h := open
	h.ID = s.send("orch", ticketclient.Answer(&open, ticket.TypePlanRequest, domain, "", &ticketclient.PlanRequest{
		SliceID: "s1", Revision: 1, Objective: "Keep the attacker out", Targets: []string{"fw/1"},
	}))
	return h
}

// said waits for a message of a type that an agent has sent.
func (s *space) said(from, kind string, n int) *ticketclient.Message {
	s.t.Helper()
	return s.await("", from, kind, n)
}

// saidOf waits for a message about a ticket.
func (s *space) saidOf(id, from, kind string) *ticketclient.Message {
	s.t.Helper()
	return s.await(id, from, kind, 1)
}

func (s *space) await(id, from, kind string, n int) *ticketclient.Message {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), tickettest.Patience)
	defer cancel()
	orch := s.c.With(client.WithToken(ticketclient.Tokens(s.c, "orch", tickettest.Key("orch"))))
	for item, err := range orch.Follow(ctx, []string{"bus.main.>"}, client.FollowOptions{}) {
		if err != nil {
			s.t.Fatalf("%s has not sent %d of %s: %v", from, n, kind, err)
		}
		if item.Kind != client.ItemEvent || item.Event.Source() != from || item.Event.Type() != ticket.EventType+kind || id != "" && item.Event.Subject() != id {
			continue
		}
		if n--; n > 0 {
			continue
		}
		m, err := ticketclient.DecodeMessage(item.Event.Data())
		if err != nil {
			s.t.Fatal(err)
		}
		return m
	}
	return nil
}

// proposed is what the agent of the network would do.
func proposed(context.Context, *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
	return &ticketclient.Proposal{
		Steps:    []ticketclient.Step{{Verb: "acl.block", Target: "fw/1", Params: []byte(`{"address":"192.0.2.1"}`), Precheck: "it is not blocked", Postcheck: "it is blocked"}},
		Rollback: []ticketclient.Step{{Verb: "acl.unblock", Target: "fw/1", Params: []byte(`{"address":"192.0.2.1"}`)}},
		Risk:     ticketclient.Risk{BlastRadius: "one address", Reversibility: "full", DataClass: "none"}, Tier: 1,
	}, nil
}

// agent is a domain agent that runs until stop is called.
type agent struct {
	stop func()
	a    *ticketclient.Agent
}

// work starts the agent of the network on a store.
func (s *space) work(path string, change func(*ticketclient.AgentOptions)) *agent {
	s.t.Helper()
	store, err := client.OpenLedgerFile(filepath.Join(path, "net.book"))
	if err != nil {
		s.t.Fatal(err)
	}
	o := ticketclient.AgentOptions{
		Name: "net", Key: tickettest.Key("net"), Store: store, Plan: proposed, HeartbeatEvery: 100 * time.Millisecond,
		Execute: ticketclient.Steps(func(context.Context, *ticketclient.Execution, ticketclient.Step, string) (string, error) {
			return "log:1", nil
		}),
		OnError: func(err error) { s.t.Log(err) },
	}
	if change != nil {
		change(&o)
	}
	a, err := ticketclient.OpenAgent(s.t.Context(), s.c, o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			<-ended
			_ = store.Close()
		}
	}
	s.t.Cleanup(stop)
	return &agent{stop: stop, a: a}
}
