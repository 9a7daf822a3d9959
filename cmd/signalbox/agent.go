// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "List, register and revoke the agents of the ticket protocol",
		Long: "The registry says which agents take part in the ticket protocol, with which roles and domains, and which keys\n" +
			"their messages are signed with. Every change of it is signed with the administrator key, which the first start of a\n" +
			"broker writes into its data directory. Keep that file elsewhere, and give it with --administrator.",
		Example: "  signalbox agent list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.agentListCommand(), a.agentExplainCommand(), a.agentKeygenCommand(),
		a.agentAddCommand(), a.agentSetCommand(), a.agentRotateCommand(), a.agentRevokeCommand())
	return cmd
}

func (a *app) agentListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the agents",
		Long:    "List the agents by name, those whose keys were revoked included.",
		Example: "  signalbox agent list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				r, err := c.Agents(cmd.Context())
				if err != nil {
					return err
				}
				if !text {
					return writeJSON(a.out, r)
				}
				w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "AGENT\tROLES\tDOMAINS\tKEY")
				for i := range r.Agents {
					agent := &r.Agents[i]
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", agent.Name, listed(agent.Roles), listed(agent.Domains), keyInUse(agent))
				}
				return w.Flush()
			})
		},
	}
}

func keyInUse(a *client.Agent) string {
	if !a.Active || len(a.Keys) == 0 {
		return "revoked"
	}
	return a.Keys[len(a.Keys)-1].Key
}

func (a *app) agentExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain AGENT",
		Short: "Show what an agent may send and read",
		Long: "Show which types of messages an agent may send to which topics, and which topics it may read. All of this follows\n" +
			"from its roles and domains.",
		Example: "  signalbox agent keygen explained.key\n" +
			"  signalbox agent add explained --role domain-agent --domain network --key explained.key\n" +
			"  signalbox agent explain explained",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				agent, err := c.Agent(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.writeAgent(&agent, text)
			})
		},
	}
}

func (a *app) writeAgent(agent *client.Agent, text bool) error {
	if !text {
		return writeJSON(a.out, agent)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "agent\t%s\nroles\t%s\ndomains\t%s\nkey\t%s\n", agent.Name, listed(agent.Roles), listed(agent.Domains), keyInUse(agent))
	for _, right := range agent.MaySend {
		fmt.Fprintf(w, "may send\t%s to %s\n", right.Type, strings.Join(right.Topics, ", "))
	}
	for _, pattern := range agent.MayRead {
		fmt.Fprintf(w, "may read\t%s\n", pattern)
	}
	return w.Flush()
}

func (a *app) agentKeygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Draw a key for an agent",
		Long: "Draw an Ed25519 key, write the private part to a new file in PEM form (PKCS #8) that only its owner can read, and\n" +
			"print the public part. The private part never leaves the agent; the broker has no need of it. Draw one key for each\n" +
			"space: a message does not name its space, so what a key has signed for one counts in any other that knows the key.",
		Example: "  signalbox agent keygen net.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.text()
			if err != nil {
				return err
			}
			key, err := drawKey(args[0])
			if err != nil {
				return err
			}
			public := ticket.EncodeKey(publicKey(key))
			if text {
				_, err = fmt.Fprintln(a.out, public)
				return err
			}
			return writeJSON(a.out, map[string]string{"key": public})
		},
	}
}

// agentFlags are those of the commands that change the registry.
type agentFlags struct {
	administrator, key, reason string
	roles, domains             []string
}

// check reports what an operation needs and was not given.
func (f *agentFlags) check(op string) error {
	switch {
	case (op == ticket.ChangeAdd || op == ticket.ChangeSet) && len(f.roles) == 0:
		return usagef("say with --role what the agent is to be: intake, orchestrator, domain-agent, gate, platform-ops or auditor")
	case (op == ticket.ChangeAdd || op == ticket.ChangeRotate) && f.key == "":
		return usagef("say with --key what the agent signs with: the file that signalbox agent keygen has written, or the public key, ed25519:…")
	}
	return nil
}

// changeCommand is a command that changes one agent.
func (a *app) changeCommand(op string, f *agentFlags, cmd *cobra.Command) *cobra.Command {
	cmd.Use, cmd.Args = op+" AGENT", cobra.ExactArgs(1)
	fl := cmd.Flags()
	fl.StringVar(&f.administrator, "administrator", envOr("SIGNALBOX_ADMINISTRATOR", "signalbox-data/"+administratorFile),
		"`file` with the administrator key; the environment variable SIGNALBOX_ADMINISTRATOR sets the default")
	fl.StringVar(&f.reason, "reason", "", "why, for the record")
	if op == ticket.ChangeAdd || op == ticket.ChangeSet {
		fl.StringSliceVar(&f.roles, "role", nil, "`role` of the agent: intake, orchestrator, domain-agent, gate, platform-ops or auditor; may be given more than once")
		fl.StringSliceVar(&f.domains, "domain", nil, "`domain` of a domain-agent, such as network; may be given more than once")
	}
	if op == ticket.ChangeAdd || op == ticket.ChangeRotate {
		fl.StringVar(&f.key, "key", "", "public `key` of the agent (ed25519:…), or the file of its key")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.changeAgent(cmd.Context(), op, args[0], f) }
	return cmd
}

func (a *app) agentAddCommand() *cobra.Command {
	return a.changeCommand(ticket.ChangeAdd, &agentFlags{}, &cobra.Command{
		Short: "Register an agent, or one again whose keys were revoked",
		Long: "Register an agent with its roles and its public key. An agent is at most one of orchestrator, domain-agent and gate:\n" +
			"who proposes does not decide, and who decides does not approve.",
		Example: "  signalbox agent keygen net-1.key\n" +
			"  signalbox agent add net-1 --role domain-agent --domain network --key net-1.key\n" +
			"  signalbox agent keygen alice.key\n" +
			"  signalbox agent add alice --role gate --key alice.key --reason 'head of operations'",
	})
}

func (a *app) agentSetCommand() *cobra.Command {
	return a.changeCommand(ticket.ChangeSet, &agentFlags{}, &cobra.Command{
		Short: "Set the roles and domains of an agent",
		Long:  "Set the roles and domains of an agent, in place of those it has. Its key stays.",
		Example: "  signalbox agent keygen store-1.key\n" +
			"  signalbox agent add store-1 --role domain-agent --domain storage --key store-1.key\n" +
			"  signalbox agent set store-1 --role domain-agent --domain storage,backup",
	})
}

func (a *app) agentRotateCommand() *cobra.Command {
	return a.changeCommand(ticket.ChangeRotate, &agentFlags{}, &cobra.Command{
		Short: "Give an agent another key",
		Long: "Give an agent another key. The one before counts for nothing that comes after this change, and still for what came\n" +
			"before it. A key that was ever used is not used again, by anybody.",
		Example: "  signalbox agent keygen desk-1.key\n" +
			"  signalbox agent add desk-1 --role intake --key desk-1.key\n" +
			"  signalbox agent keygen desk-1-new.key\n" +
			"  signalbox agent rotate desk-1 --key desk-1-new.key --reason 'once a year'",
	})
}

func (a *app) agentRevokeCommand() *cobra.Command {
	return a.changeCommand(ticket.ChangeRevoke, &agentFlags{}, &cobra.Command{
		Short: "Revoke the key of an agent",
		Long: "Revoke the key of an agent: what it signs is refused from this change on, and it may do nothing any more. Its row\n" +
			"stays, for what it signed before is still checked.",
		Example: "  signalbox agent keygen desk-2.key\n" +
			"  signalbox agent add desk-2 --role intake --key desk-2.key\n" +
			"  signalbox agent revoke desk-2 --reason 'the laptop was stolen'",
	})
}

// changeAgent signs a change for the revision of the registry that follows, and has
// it applied. If somebody else was faster it is refused, and not tried again: what
// they changed may matter.
func (a *app) changeAgent(ctx context.Context, op, agent string, f *agentFlags) error {
	if err := f.check(op); err != nil {
		return err
	}
	administrator, err := readKey(f.administrator)
	if err != nil {
		return usagef("the administrator key cannot be read: %w; say with --administrator where it is", err)
	}
	key, err := publicKeyOf(f.key)
	if err != nil {
		return err
	}
	return a.withTopics(func(c *client.Client, text bool) error {
		r, err := c.Space(ctx)
		if err != nil {
			return err
		}
		change := ticket.Change{
			Space: r.Space, Revision: r.Revision + 1, At: time.Now().UTC(), Op: op, Agent: agent,
			Roles: f.roles, Domains: f.domains, Key: key, Reason: f.reason,
		}
		signed, err := change.Sign(administrator)
		if refusedWith(err, event.CodeAgentInvalid) {
			e := event.AsError(err) // of what the flags say, before anybody was asked
			return exitError{exitUsage, fmt.Sprintf("%s: %s; see %q", e.Code, strings.TrimSuffix(e.Message, "."), "signalbox agent "+op+" --help")}
		}
		if err != nil {
			return err
		}
		changed, err := c.ChangeAgents(ctx, signed.Bytes())
		if err != nil {
			return err
		}
		return a.writeAgent(&changed, text)
	})
}
