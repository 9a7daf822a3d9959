// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// A domain agent of the network, and the beginning of an orchestrator: it asks the
// agent how it would look at a switch. Package internal/orchestrator goes on to the end.
func Example() {
	dir := must(os.MkdirTemp("", "signalbox-example-"))
	defer func() { _ = os.RemoveAll(dir) }()
	url, stop, err := tickettest.Serve(filepath.Join(dir, "data"), tickettest.Staff())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), tickettest.Patience)
	defer cancel()
	c := must(client.New(url))

	store := must(client.OpenLedgerFile(filepath.Join(dir, "net")))
	defer func() { _ = store.Close() }()
	agent := must(ticketclient.OpenAgent(ctx, c, ticketclient.AgentOptions{
		Name: "net", Key: tickettest.Key("net"), Store: store,
		Plan: func(_ context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			return &ticketclient.Proposal{
				Steps: []ticketclient.Step{{Verb: "host.inspect", Target: r.Targets[0], Reversible: new(true), Precheck: "it answers", Postcheck: "its ports are known"}},
				Risk:  ticketclient.Risk{BlastRadius: "none", Reversibility: "nothing is changed", DataClass: "none"},
			}, nil
		},
		Execute: ticketclient.Steps(func(_ context.Context, _ *ticketclient.Execution, s ticketclient.Step, _ string) (string, error) {
			fmt.Println("net:", s.Verb, s.Target)
			return "inventory/42", nil
		}),
	}))

	orchestrator := must(ticketclient.NewOrchestrator(c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"),
		Decide: func(t *ticketclient.Ticket, _ time.Time) ([]ticketclient.Move, time.Time) {
			last := t.Messages[len(t.Messages)-1]
			switch p := last.Payload.(type) {
			case *ticketclient.Open:
				return []ticketclient.Move{{Type: ticket.TypePlanRequest, To: "network", Cause: last.ID, Key: "ask", Payload: &ticketclient.PlanRequest{
					SliceID: "look", Revision: 1, Objective: p.Title, Targets: []string{"switch/7"},
				}}}, time.Time{}
			case *ticketclient.Proposal:
				fmt.Println("orch: would now plan", p.SliceID)
				cancel()
			}
			return nil, time.Time{}
		},
	}))

	desk := ticketclient.NewSender(c, "desk", tickettest.Key("desk"))
	must(desk.Send(ctx, ticket.Draft{
		Header:  ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-7", TraceID: "inc-7", To: "orchestrator"},
		Payload: &ticketclient.Open{Op: "open", SourceRef: "desk:7", Title: "Which ports are open?", BodyRef: "desk:7/body", Requester: "u1", Priority: 4},
	}))
	go func() { _ = agent.Run(ctx) }()
	_ = orchestrator.Run(ctx)
	// Output: orch: would now plan look
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
