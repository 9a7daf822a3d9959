// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"sync"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
)

// fleet stands for the system that isolates hosts. Like a good one it takes a name
// for each order, and does nothing about a name that it has seen.
type fleet struct {
	mu       sync.Mutex
	orders   map[string]bool // guarded by mu; by name
	isolated map[string]bool // guarded by mu
}

func (f *fleet) set(name, host string, isolated bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.orders == nil {
		f.orders, f.isolated = map[string]bool{}, map[string]bool{}
	}
	if !f.orders[name] {
		f.orders[name], f.isolated[host] = true, isolated
	}
}

func (f *fleet) isIsolated(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isolated[host]
}

// endpoints is the agent of the endpoints. Verify looks at what is, and not at what
// was ordered.
func endpoints(name string, key ed25519.PrivateKey, store client.LedgerStore, f *fleet) ticketclient.AgentOptions {
	do := func(_ context.Context, _ *ticketclient.Execution, s ticketclient.Step, name string) (string, error) {
		f.set(name, s.Target, s.Verb == "host.isolate")
		return "edr:order/" + name, nil
	}
	look := func(_ context.Context, _ *ticketclient.Execution, s ticketclient.Step, _ string) (string, error) {
		if !f.isIsolated(s.Target) {
			return "", fmt.Errorf("%s can still be reached", s.Target)
		}
		return "edr:state/" + s.Target, nil
	}
	return ticketclient.AgentOptions{
		Name: name, Key: key, Store: store, Capabilities: []string{"host.isolate", "host.release"},
		Plan: plan, Execute: ticketclient.Steps(do), Rollback: ticketclient.Steps(do), Verify: ticketclient.Steps(look),
	}
}

// plan isolates every host that it is asked about.
func plan(_ context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
	p := &ticketclient.Proposal{Risk: ticketclient.Risk{BlastRadius: "whoever works on the host", Reversibility: "full, within a minute", DataClass: "none"}}
	for _, host := range r.Targets {
		p.Steps = append(p.Steps, ticketclient.Step{Verb: "host.isolate", Target: host, Precheck: "the host answers", Postcheck: "nothing but the EDR reaches it"})
		p.Rollback = append(p.Rollback, ticketclient.Step{Verb: "host.release", Target: host})
	}
	return p, nil
}
