// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// demoIntakeCommand is the intake of the story, a process of its own.
func (a *app) demoIntakeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "intake TICKET",
		Short:   "Open a ticket, as the intake of the demo",
		Long:    "Open a ticket, as the intake of \"signalbox demo ticket\" does.",
		Example: "  signalbox demo ticket intake --help",
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, key, err := a.identity()
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			receipt, err := ticketclient.NewSender(c, name, key).Send(cmd.Context(), ticket.Draft{
				Header: ticket.Header{Type: ticket.TypeOpen, TicketID: args[0], TraceID: strings.ToLower(args[0]), To: ticket.RoleOrchestrator, IdempotencyKey: "open/" + args[0]},
				Payload: &ticketclient.Open{
					Op: "open", SourceRef: "siem:attack/web-7", Title: "Somebody tries passwords on web-7", BodyRef: "siem:attack/web-7/body", Requester: "soc-desk", Priority: 1,
				},
			})
			if err != nil {
				return err
			}
			return writeJSON(a.out, receipt)
		},
	}
}

// demoAgentCommand is a domain agent of the story. What it does is print a line.
func (a *app) demoAgentCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:     "agent",
		Short:   "Run a domain agent of the demo",
		Long:    "Run a domain agent, as \"signalbox demo ticket\" does. That of compute fails in the middle.",
		Example: "  signalbox demo ticket agent --help",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demoAgent(cmd.Context(), path) },
	}
	cmd.Flags().StringVar(&path, "store", "", "`file` for what it took on and what it answered")
	return cmd
}

// heldFile is in the directory of the story for as long as its agents are to wait with what they do: so somebody is
// killed meanwhile, however busy the machine is.
const heldFile = "held"

func (a *app) demoAgent(ctx context.Context, path string) error {
	name, key, err := a.identity()
	if err != nil {
		return err
	}
	c, err := a.client(client.WithRetry(client.Retry{}))
	if err != nil {
		return err
	}
	store, err := client.OpenLedgerFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	do := ticketclient.Steps(func(ctx context.Context, x *ticketclient.Execution, s ticketclient.Step, step string) (string, error) {
		for _, err := os.Stat(heldFile); err == nil && ctx.Err() == nil; _, err = os.Stat(heldFile) {
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Fprintf(a.out, "%s/%s/%s\n", x.Mode, s.Target, step)
		if x.Mode == ticketclient.ModeApply && s.Target == "web-7/b" {
			return "", errors.New("the instance does not come up")
		}
		return "demo:" + step, nil
	})
	agent, err := ticketclient.OpenAgent(ctx, c, ticketclient.AgentOptions{
		Name: name, Key: key, Store: store, Plan: demoPlan, Execute: do, Rollback: do, Verify: do,
		OnError: func(err error) { fmt.Fprintln(a.err, "signalbox: "+oneLine(err.Error())) },
	})
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// demoPlan is how the two agents of the story would do their parts.
func demoPlan(_ context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
	p := &ticketclient.Proposal{Risk: ticketclient.Risk{BlastRadius: "web-7 and one address", Reversibility: "full", DataClass: "none"}, Tier: ticket.TierReversible}
	add := func(verb, undo, target, params string) {
		p.Steps = append(p.Steps, ticketclient.Step{Verb: verb, Target: target, Params: []byte(params), Precheck: "it is as the inventory says", Postcheck: "it answers"})
		p.Rollback = append([]ticketclient.Step{{Verb: undo, Target: target, Params: []byte(params)}}, p.Rollback...)
	}
	if r.SliceID == "block" {
		add("acl.block", "acl.unblock", r.Targets[0], `{"address":"192.0.2.66"}`)
		return p, nil
	}
	for _, instance := range []string{"a", "b"} {
		add("service.restart", "service.restart", r.Targets[0]+"/"+instance, `{}`)
	}
	return p, nil
}
