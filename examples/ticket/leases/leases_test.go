// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
)

// look is the plan of an agent that looks and changes nothing.
func look(_ context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
	return &ticketclient.Proposal{
		Steps: []ticketclient.Step{{Verb: "host.inspect", Target: r.Targets[0], Reversible: new(true), Precheck: "it answers", Postcheck: "it is known"}},
		Risk:  ticketclient.Risk{BlastRadius: "none", Reversibility: "nothing is changed", DataClass: "none"},
	}, nil
}

// TestLeaseIsGoodWhileItsExecuteIsUnderWay, for its agent and its scope, and for
// nobody else and nothing else.
func TestLeaseIsGoodWhileItsExecuteIsUnderWay(t *testing.T) {
	url, stop, err := tickettest.Serve(t.TempDir(), tickettest.Staff())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), tickettest.Patience)
	defer cancel()
	v := newVault(tickettest.Client(t, url, "orch"))
	server := httptest.NewTLSServer(v)
	defer server.Close()
	get := func(agent string, x *ticketclient.Execution) (*credential, error) {
		return redeem(ctx, server.Client(), server.URL, agent, tickettest.Key(agent), x)
	}
	refused := func(what, want string, agent string, change func(*ticketclient.Execution), x ticketclient.Execution) {
		if change != nil {
			change(&x)
		}
		if given, err := get(agent, &x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", what, given, err)
		}
	}
	executed := make(chan ticketclient.Execution, 1)
	net := tickettest.Agent(t, url, ticketclient.AgentOptions{
		Name: "net", Plan: look,
		Execute: func(ctx context.Context, x *ticketclient.Execution) (*ticketclient.Report, error) {
			given, err := get("net", x)
			for ; err != nil && ctx.Err() == nil; given, err = get("net", x) {
				time.Sleep(20 * time.Millisecond) // the vault hears of the execute by itself
			}
			if err != nil || given.Value == "" || !given.Expires.After(time.Now()) {
				t.Errorf("the lease gives %+v, %v", given, err)
			}
			refused("another agent", "another domain", "comp", nil, *x)
			refused("another scope", "another scope", "net", func(x *ticketclient.Execution) { x.LeaseScope.Target = "fw/2" }, *x)
			refused("another lease", "another lease", "net", func(x *ticketclient.Execution) { x.LeaseID = "lease-0" }, *x)
			refused("another execute", "under way", "net", func(x *ticketclient.Execution) { x.ID = "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA" }, *x)
			executed <- *x
			return &ticketclient.Report{Outcome: ticketclient.OutcomeSuccess, Verification: ticketclient.Verification{Passed: true}}, nil
		},
	})
	orchestrate, ended := tickettest.Orchestrator(t, url, `{"rules":[{"name":"look","source_ref":"desk:*","skip_verify":true,"slices":[{"id":"s","domain":"network","objective":"Look","targets":["fw/1"]}]}]}`)
	defer tickettest.Run(ctx, net, orchestrate, func(ctx context.Context) { _ = v.watch(ctx) })()
	tickettest.Open(ctx, t, url, "INC-1", "desk:1")
	tickettest.Await(ctx, t, ended, "INC-1")
	x := <-executed
	for ctx.Err() == nil {
		if _, err := get("net", &x); err != nil {
			break // with the result, which the vault hears of by itself, the lease is over
		}
		time.Sleep(20 * time.Millisecond)
	}
	refused("after the result", "under way", "net", nil, x)
	if _, err := v.redeem(ctx, []byte(`{"agent":"net"}`), "", time.Now()); err == nil {
		t.Error("a request without a time gets something")
	}
}

// TestReadmesAreThere: an example that nobody can start is none.
func TestReadmesAreThere(t *testing.T) {
	for _, name := range []string{"soc", "desk", "leases"} {
		if text, err := os.ReadFile("../" + name + "/README.md"); err != nil || !strings.Contains(string(text), "go run ./examples/ticket/"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
