// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"context"
	"testing"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// TestOrchestratorPassesOverWhatItCannotRead: one message that cannot be read does not
// keep the orchestrator from all that was said after it.
func TestOrchestratorPassesOverWhatItCannotRead(t *testing.T) {
	s := newSpace(t)
	s.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		o.Execute = func(ctx context.Context, _ *ticketclient.Execution) (*ticketclient.Report, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	execute, payload := s.approve("INC-1")
	s.send("net", ticketclient.Answer(&execute, ticket.TypeResult, "orchestrator", "", map[string]any{
		"execute_id": execute.ID, "plan_hash": payload.PlanHash, "slice_id": "s1", "outcome": "success", "steps": []string{}, "changed": []string{},
		"verification": map[string]any{"passed": true, "checks": []string{}}, "started_at": "2026-02-30T00:00:00Z", "ended_at": "2026-03-01T00:00:00Z",
	}))
	s.open("INC-2")
	told, decided := 0, map[string]bool{}
	o, err := ticketclient.NewOrchestrator(s.c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"), DryRun: true, OnError: func(error) { told++ },
		Decide: func(t *ticketclient.Ticket, _ time.Time) ([]ticketclient.Move, time.Time) {
			decided[t.ID] = true
			return nil, time.Time{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Run(t.Context()); err != nil || told != 1 || !decided["INC-1"] || !decided["INC-2"] {
		t.Errorf("it decided about %v, told of %d errors, and ended with %v", decided, told, err)
	}
}
