// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// TestOrchestratorPassesOverWhatItCannotRead: one message of a later version ends no
// orchestrator, and what else was said of the ticket is read.
func TestOrchestratorPassesOverWhatItCannotRead(t *testing.T) {
	s := newSpace(t)
	s.ask(s.open("INC-1"), "network")
	broker, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	later := httputil.NewSingleHostReverseProxy(broker)
	later.ModifyResponse = func(res *http.Response) error {
		if !strings.HasPrefix(res.Request.URL.Path, "/v1/tickets/") {
			return nil
		}
		body, err := io.ReadAll(res.Body)
		res.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte(`"type":"plan.request"`), []byte(`"type":"plan.of-later"`))))
		res.Header.Del("Content-Length")
		return err
	}
	between := httptest.NewServer(later)
	defer between.Close()
	c, err := client.New(between.URL)
	if err != nil {
		t.Fatal(err)
	}
	told, read := 0, 0
	o, err := ticketclient.NewOrchestrator(c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"), DryRun: true,
		Decide: func(t *ticketclient.Ticket, _ time.Time) ([]ticketclient.Move, time.Time) {
			read = len(t.Messages)
			return nil, time.Time{}
		},
		OnError: func(error) { told++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Run(t.Context()); err != nil || told != 1 || read != 1 {
		t.Errorf("it was told of %d messages, and decided about %d: %v", told, read, err)
	}
}

// TestOrchestratorGoesOnWithAnotherLog: where the broker was restored, what is known of its
// tickets is not of this log. They are read again from their first message on, and nobody
// has to start the orchestrator anew.
func TestOrchestratorGoesOnWithAnotherLog(t *testing.T) {
	before, after := newSpace(t), newSpace(t)
	first := before.open("INC-1")
	before.ask(first, "network")
	var restored atomic.Bool
	between := httptest.NewServer(&httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		to := before.url
		if restored.Load() {
			to = after.url
		}
		broker, err := url.Parse(to)
		if err != nil {
			panic(err)
		}
		r.SetURL(broker)
	}})
	defer between.Close()
	c, err := client.New(between.URL)
	if err != nil {
		t.Fatal(err)
	}
	looks := make(chan []string, 100)
	o, err := ticketclient.NewOrchestrator(c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"),
		Decide: func(t *ticketclient.Ticket, _ time.Time) ([]ticketclient.Move, time.Time) {
			ids := []string{t.ID}
			for _, m := range t.Messages {
				ids = append(ids, m.ID)
			}
			looks <- ids
			return nil, time.Time{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	stop := tickettest.Run(t.Context(), func(ctx context.Context) { ended <- o.Run(ctx) })
	defer stop()
	looked := func(want ...string) {
		t.Helper()
		deadline := time.After(tickettest.Patience)
		for {
			select {
			case ids := <-looks:
				if slices.Equal(ids, want) {
					return
				}
			case err := <-ended:
				t.Fatalf("the orchestrator has ended: %v", err)
			case <-deadline:
				t.Fatal("the orchestrator does not look at the ticket as it is")
			}
		}
	}
	looked("INC-1", first.ID, before.said("orch", ticket.TypePlanRequest, 1).ID)
	second := after.open("INC-1")
	restored.Store(true)
	between.CloseClientConnections()
	looked("INC-1", second.ID)
	looked("INC-1", second.ID, after.ask(second, "network").ID)
}

// TestRefusedMoveIsEscalatedOnce: whatever is said about the ticket meanwhile, a move that
// the broker refuses again and again pages nobody twice.
func TestRefusedMoveIsEscalatedOnce(t *testing.T) {
	s := newSpace(t)
	open := s.open("INC-1")
	refusals := make(chan error, 100)
	o, err := ticketclient.NewOrchestrator(s.c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"),
		Decide: func(*ticketclient.Ticket, time.Time) ([]ticketclient.Move, time.Time) {
			return []ticketclient.Move{{Type: ticket.TypeState, To: ticket.RoleIntake, Cause: open.ID, Key: "state/1", Payload: &ticketclient.State{
				From: ticket.StateOpen, To: ticket.StateClosed, ReasonCode: "done", Cause: []string{open.ID},
			}}}, time.Time{}
		},
		OnMove: func(_ *ticketclient.Ticket, _ ticketclient.Move, err error) { refusals <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := tickettest.Run(t.Context(), func(ctx context.Context) { _ = o.Run(ctx) })
	for range 9 {
		s.send("net", ticketclient.Answer(&open, ticket.TypeEscalation, ticket.RoleOrchestrator, "", &ticketclient.Escalation{
			ReasonCode: "still_here", Severity: "info", Refs: []string{open.ID}, ContextRef: open.ID, Asks: []string{"Look at it again."},
		}))
		select {
		case err := <-refusals:
			if err == nil {
				t.Fatal("the move was taken")
			}
		case <-time.After(tickettest.Patience):
			t.Fatal("the orchestrator does not look at the ticket")
		}
	}
	stop()
	said, err := s.c.With(client.WithToken(ticketclient.Tokens(s.c, "orch", tickettest.Key("orch")))).Ticket(t.Context(), "INC-1")
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for i := range said.Messages {
		m, err := ticketclient.DecodeMessage(said.Messages[i].Message)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := m.Payload.(*ticketclient.Escalation); ok && e.ReasonCode == "move_refused" {
			pages++
		}
	}
	if pages != 1 {
		t.Errorf("it was escalated %d times", pages)
	}
}
