// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// ticketPatience bounds the story of the ticket, which takes some ten seconds where
// nothing is broken.
const ticketPatience = 10 * time.Minute

func (a *app) demoTicketCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ticket",
		Short: "Play the story of a ticket with a fleet of processes, and check every claim",
		Long: "Start a broker in a temporary directory, and beside it, each a process of its own, an intake, the reference\n" +
			"orchestrator, two domain agents and a gate. A ticket that needs an approval is planned, approved and executed; one\n" +
			"part of it fails half way and everything is rolled back; the orchestrator is killed in the middle and started again.\n" +
			"Then somebody replays a message, uses a grant for another plan, and proposes what is never done. Last, the audit\n" +
			"trail is verified without the broker. The command fails if anything does not hold.",
		Example: "  signalbox demo ticket",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demoTicket(cmd.Context()) },
	}
	cmd.AddCommand(a.demoIntakeCommand(), a.demoAgentCommand())
	return cmd
}

func (a *app) demoTicket(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ticketPatience, fmt.Errorf("the demo did not end within %s", ticketPatience))
	defer cancel()
	dir, err := os.MkdirTemp("", "signalbox-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	clock := newDemoClock()
	s := &ticketStory{
		narrator: &narrator{out: a.out, clock: clock, began: clock.Wall(), real: true}, dir: dir,
		messages: make(chan *ticketclient.Message, 1), keys: map[string]ed25519.PrivateKey{}, running: map[string]*child{},
	}
	defer s.killAll()
	for _, scene := range []func(context.Context) error{
		s.found, s.open, s.approve, s.die, s.undo, s.replay, s.misuse, s.forbidden, s.prove,
	} {
		if err := scene(ctx); err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return errors.Join(err, s.complaints())
		}
	}
	return s.verdict()
}

// ticketStory is the play of a ticket. Its scenes are in this file, its stage in
// demo_ticket_stage.go, and who plays in demo_ticket_cast.go.
type ticketStory struct {
	*narrator
	dir, url string
	c        *client.Client
	keys     map[string]ed25519.PrivateKey
	running  map[string]*child

	messages chan *ticketclient.Message // what is said, in the order of the log
	seen     []*ticketclient.Message
	grant    *ticketclient.Message // of the first ticket
}

const (
	firstTicket  = "INC-4711"
	secondTicket = "INC-4712"
)

// found starts the broker, registers everybody and starts who works.
func (s *ticketStory) found(ctx context.Context) error {
	s.scene("A broker and a fleet: each is a process of its own")
	if err := s.startBroker(ctx); err != nil {
		return err
	}
	s.says("broker", "serves %s, and has drawn the administrator key of the space", s.url)
	for _, who := range []struct{ name, role, domain string }{
		{"desk", ticket.RoleIntake, ""}, {"orch", ticket.RoleOrchestrator, ""}, {"net", ticket.RoleDomainAgent, "network"},
		{"comp", ticket.RoleDomainAgent, "compute"}, {"alice", ticket.RoleGate, ""}, {"audit", ticket.RoleAuditor, ""},
	} {
		if err := s.register(ctx, who.name, who.role, who.domain); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "tickets.yaml"), examplePolicy, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, heldFile), nil, 0o600); err != nil {
		return err
	}
	s.follow(ctx)
	if err := s.startOrchestrator(); err != nil {
		return err
	}
	for _, name := range []string{"net", "comp"} {
		if err := s.start(name, name, "demo", "ticket", "agent", "--store", filepath.Join(s.dir, name+".book")); err != nil {
			return err
		}
	}
	return nil
}

func (s *ticketStory) startOrchestrator() error {
	return s.start("orch", "orch", "orchestrator", "--policy", filepath.Join(s.dir, "tickets.yaml"))
}

// open has the intake open a ticket, and the fleet plan it.
func (s *ticketStory) open(ctx context.Context) error {
	s.scene("A ticket comes in, and is planned")
	if _, err := s.run(ctx, "desk", "demo", "ticket", "intake", firstTicket); err != nil {
		return err
	}
	request, err := s.await(ctx, firstTicket, "orch", ticket.TypeApprovalRequest)
	if err != nil {
		return err
	}
	ask := request.Payload.(*ticketclient.ApprovalRequest)
	s.claim(ask.Tier != nil && *ask.Tier == ticket.TierMaterial && ask.ApproversRequired == 1, "two domains make it tier 2, which one person has to approve")
	s.claim(s.count(firstTicket, "orch", ticket.TypeExecute) == 0, "nothing is executed before that")
	return nil
}

// approve has a person look at the plan and approve it.
func (s *ticketStory) approve(ctx context.Context) (err error) {
	s.scene("A person looks at it, and approves")
	shown, err := s.run(ctx, "alice", "gate", "show", firstTicket, "--format", "text")
	if err != nil {
		return err
	}
	s.quote(shown)
	s.claim(containsAll(shown, "acl.block fw/edge", "undoes", "which is that of the steps above"), "the gate shows the plan and its rollback, and has computed the hash again")
	if _, err := s.run(ctx, "alice", "gate", "approve", firstTicket); err != nil {
		return err
	}
	s.grant, err = s.await(ctx, firstTicket, "alice", ticket.TypeApprovalGrant)
	return err
}

// die kills the orchestrator when it has said the first execute.
func (s *ticketStory) die(ctx context.Context) error {
	s.scene("The orchestrator is killed in the middle")
	if _, err := s.await(ctx, firstTicket, "orch", ticket.TypeExecute); err != nil {
		return err
	}
	s.kill("orch")
	s.says("orch", "is dead (SIGKILL)")
	if err := os.Remove(filepath.Join(s.dir, heldFile)); err != nil {
		return err
	}
	if _, err := s.await(ctx, firstTicket, "net", ticket.TypeResult); err != nil {
		return err
	}
	s.claim(s.count(firstTicket, "orch", ticket.TypeExecute) == 1, "the agent of the network ends its work without it, and nobody else begins")
	s.says("orch", "is started again; it has no file of its own")
	return s.startOrchestrator()
}

// undo follows the ticket to its end.
func (s *ticketStory) undo(ctx context.Context) error {
	s.scene("One part fails half way, and all of it is rolled back")
	for {
		m, err := s.await(ctx, firstTicket, "orch", ticket.TypeState)
		if err != nil {
			return err
		}
		if to := m.Payload.(*ticketclient.State).To; to == "CLOSED" || to == "ESCALATED" {
			break
		}
	}
	states, outcomes := s.told(firstTicket)
	s.claim(slices.Equal(states, []string{"APPROVED", "PARTIAL", "ROLLING_BACK", "ROLLED_BACK", "CLOSED"}), "the ticket went through %v", states)
	s.claim(slices.Equal(outcomes, []string{"success", "partial", "rolled_back", "rolled_back"}), "the results are %v", outcomes)
	acts, repeated := s.acts("net", "comp")
	s.claim(acts == 6 && repeated == "", "6 steps were carried out, none of them twice %s", repeated)
	s.claim(s.count(firstTicket, "orch", ticket.TypeExecute) == 4, "the two lives of the orchestrator have said each execute once")
	return nil
}

// complaints says what the processes have complained about, for whoever has to find
// out why the story stopped.
func (s *ticketStory) complaints() error {
	var all error
	for _, name := range []string{"broker", "orch", "net", "comp"} {
		if text, err := os.ReadFile(filepath.Join(s.dir, name+".err")); err == nil && len(text) > 0 {
			all = errors.Join(all, fmt.Errorf("%s: %s", name, shorten(oneLine(string(text)), 2000)))
		}
	}
	return all
}
