// SPDX-License-Identifier: Apache-2.0

// Package tickettest is for tests of what speaks the ticket protocol: a real broker
// in this process, and agents whose keys follow from their names. Nothing that is
// shipped imports it.
package tickettest

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"net"
	"time"

	"signalbox/client"
	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/transport/web"
	"signalbox/internal/transport/webhook"
	"signalbox/ticket"
)

// Patience is how long a test waits for what must come. It decides nothing but when a
// test that fails gives up.
const Patience = time.Minute

// Key returns the key of an agent.
func Key(name string) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	return ed25519.NewKeyFromSeed(seed)
}

// Public returns the public part of a key.
func Public(key ed25519.PrivateKey) ed25519.PublicKey {
	p, _ := key.Public().(ed25519.PublicKey)
	return p
}

// Staff are the agents of a space by default: one of each role, a second gate, and
// domain agents of the network, of compute, of identity and of endpoints.
func Staff() []ticket.Change {
	add := func(name, role string, domains ...string) ticket.Change {
		return ticket.Change{Op: ticket.ChangeAdd, Agent: name, Roles: []string{role}, Domains: domains}
	}
	return []ticket.Change{
		add("desk", ticket.RoleIntake), add("orch", ticket.RoleOrchestrator), add("alice", ticket.RoleGate), add("bob", ticket.RoleGate),
		add("net", ticket.RoleDomainAgent, "network"), add("comp", ticket.RoleDomainAgent, "compute"),
		add("ident", ticket.RoleDomainAgent, "identity"), add("edr", ticket.RoleDomainAgent, "endpoint"),
	}
}

// Serve runs a broker in a directory, with the space main and agents.
func Serve(dir string, staff []ticket.Change) (url string, stop func(), err error) {
	quiet := slog.New(slog.DiscardHandler)
	allowed, err := egress.ParseAllowed([]string{"127.0.0.0/8"}) // webhooks of tests
	if err != nil {
		return "", nil, err
	}
	guard := egress.NewGuard(egress.Options{Allowed: allowed})
	b, err := broker.Open(broker.Options{
		Dir: dir, Logger: quiet, CheckSink: guard.CheckSink, Found: func() (string, ed25519.PublicKey, error) { return "main", Public(Key("admin")), nil },
	})
	if err != nil {
		return "", nil, err
	}
	server, err := web.New(web.Options{Broker: b, Logger: quiet})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	engine, err := webhook.New(webhook.Options{Broker: b, Guard: guard, Logger: quiet, Schedule: []time.Duration{10 * time.Millisecond}})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	sent, served := engine.Start(ctx), make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ctx, l) }()
	stop = func() { cancel(); sent(); <-served; _ = b.Close() }
	url = "http://" + l.Addr().String()
	if err := register(url, staff); err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}

func register(url string, staff []ticket.Change) error {
	c, err := client.New(url)
	if err != nil {
		return err
	}
	for _, change := range staff {
		registry, err := c.Agents(context.Background())
		if err != nil {
			return err
		}
		change.Space, change.Revision, change.At = registry.Space, registry.Revision+1, time.Now().UTC()
		change.Key = ticket.EncodeKey(Public(Key(change.Agent)))
		signed, err := change.Sign(Key("admin"))
		if err != nil {
			return err
		}
		if _, err := c.ChangeAgents(context.Background(), signed.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
