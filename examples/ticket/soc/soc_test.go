// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/internal/tickettest"
)

// TestGraveDetectionIsIsolatedOnceTheCommanderApproves, and what is not grave opens no
// ticket.
func TestGraveDetectionIsIsolatedOnceTheCommanderApproves(t *testing.T) {
	url, stop, err := tickettest.Serve(t.TempDir(), tickettest.Staff())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), tickettest.Patience)
	defer cancel()
	policy, err := os.ReadFile("soc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	orchestrate, ended := tickettest.Orchestrator(t, url, string(policy))
	hosts := &fleet{}
	edr := tickettest.Agent(t, url, endpoints("edr", nil, nil, hosts))
	siem := tickettest.Client(t, url, "desk")
	defer tickettest.Run(ctx, orchestrate, edr, func(ctx context.Context) {
		_ = intake(ctx, siem, ticketclient.NewSender(siem, "desk", tickettest.Key("desk")))
	})()

	for _, d := range []detection{{"Port scan", "laptop-1", 3}, {"Ransomware", "laptop-7", 9}} {
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := siem.Publish(ctx, detections, event.Draft{Source: "/siem", Type: "detection", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	gate := ticketclient.NewGate(tickettest.Client(t, url, "alice"), "alice", tickettest.Key("alice"))
	request := tickettest.Wait(ctx, t, gate)
	if hosts.isIsolated("laptop-7") {
		t.Fatal("the host is isolated before anybody has approved it")
	}
	if _, err := gate.Approve(ctx, request, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	tickettest.Await(ctx, t, ended, request.Request.TicketID)
	if !hosts.isIsolated("laptop-7") || hosts.isIsolated("laptop-1") {
		t.Error("the wrong hosts are isolated")
	}
	if waiting, err := gate.Waiting(ctx); err != nil || len(waiting) > 0 {
		t.Errorf("something waits still: %v, %v", waiting, err)
	}
}
