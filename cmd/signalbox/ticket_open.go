// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

// openFlags are what an intake says of a ticket.
type openFlags struct {
	source, title, body, requester string
	priority                       int
}

func (f *openFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.source, "source-ref", "", "where the ticket comes from, by which a policy finds its rule, such as siem:attack/web-7")
	fl.StringVar(&f.title, "title", "", "what it is about, in a line")
	fl.StringVar(&f.body, "body-ref", "", "where the rest of it stands; source-ref if nothing is said")
	fl.StringVar(&f.requester, "requester", "", "who asks for it, and so does not approve it; the agent in --as if nothing is said")
	fl.IntVar(&f.priority, "priority", 3, "1, the highest, to 5")
}

func (f *openFlags) check() error {
	if f.priority < 1 || f.priority > 5 {
		return usagef("--priority %d is none of 1, the highest, to 5", f.priority)
	}
	return nil
}

// intakeExample registers the intake that the examples speak as.
func intakeExample(name string) string {
	return "  signalbox agent keygen " + name + ".key\n" +
		"  signalbox agent add " + name + " --role intake --key " + name + ".key\n"
}

func (a *app) ticketOpenCommand() *cobra.Command {
	var f openFlags
	cmd := &cobra.Command{
		Use:   "open TICKET",
		Short: "Open a ticket",
		Long: "Open a ticket, as an agent with the role intake. The same command again opens no second one. What becomes of it is\n" +
			"the orchestrator's: follow it with signalbox ticket follow.",
		Example: intakeExample("in-1") +
			"  signalbox ticket open INC-81 --source-ref siem:attack/web-7 --title 'Somebody tries passwords on web-7' --priority 1 --as in-1 --agent-key in-1.key",
		Args: oneTicket,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.source == "" || f.title == "" {
				return usagef("say with --source-ref where the ticket comes from, and with --title what it is about")
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.sayOpen(cmd.Context(), "open", args[0], named("trace-", strings.ToLower(args[0])), named("open/", args[0]), &f)
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) ticketAmendCommand() *cobra.Command {
	var f openFlags
	cmd := &cobra.Command{
		Use:   "amend TICKET",
		Short: "Say what a ticket is about instead",
		Long: "Amend a ticket, as an agent with the role intake. A plan that was made before is not carried out any more; the ticket\n" +
			"is planned again, or goes to the gate if work on it has begun.",
		Example: intakeExample("in-2") +
			"  signalbox ticket open INC-82 --source-ref siem:attack/web-7 --title 'It is web-7' --as in-2 --agent-key in-2.key\n" +
			"  signalbox ticket amend INC-82 --source-ref siem:attack/web-8 --title 'It is web-8' --as in-2 --agent-key in-2.key",
		Args: oneTicket,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.source == "" || f.title == "" {
				return usagef("say with --source-ref and --title what the ticket is now")
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.sayAgain(cmd.Context(), "amend", args[0], &f)
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) ticketCancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel TICKET",
		Short: "Cancel a ticket",
		Long: "Cancel a ticket, as an agent with the role intake. Before anything is executed that is the end of it. Later nothing\n" +
			"more is begun, and what took effect is undone.",
		Example: intakeExample("in-3") +
			"  signalbox ticket open INC-83 --source-ref change:db-1 --title 'A larger disk' --as in-3 --agent-key in-3.key\n" +
			"  signalbox ticket cancel INC-83 --reason 'not needed any more' --as in-3 --agent-key in-3.key",
		Args: oneTicket,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.sayAgain(cmd.Context(), "cancel", args[0], &openFlags{
				source: "ticket:" + args[0], title: cmp.Or(reason, "cancelled"), priority: 3,
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// oneTicket checks the one argument of a command about a ticket, before what is made of it
// is found wrong.
func oneTicket(cmd *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(cmd, args); err != nil {
		return err
	}
	if err := ticket.CheckTicket(args[0]); err != nil {
		return usagef("%s", event.AsError(err).Message)
	}
	return nil
}

// named is what is named after a ticket. Where that is too long, the hash of its name
// stands for it.
func named(prefix, id string) string {
	if len(prefix)+len(id) > 128 {
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:])
	}
	return prefix + id
}

// sayAgain says something of a ticket that there is, whose trace it asks for. It is
// another thing each time, so it has no key of its own.
func (a *app) sayAgain(ctx context.Context, op, id string, f *openFlags) error {
	if _, _, err := a.identity(); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	t, err := c.Ticket(ctx, id)
	if err != nil {
		return err
	}
	return a.sayOpen(ctx, op, id, t.Trace, "", f)
}

func (a *app) sayOpen(ctx context.Context, op, id, trace, key string, f *openFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	name, private, err := a.identity()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	receipt, err := ticketclient.NewSender(c, name, private).Send(ctx, ticket.Draft{
		Header: ticket.Header{Type: ticket.TypeOpen, TicketID: id, TraceID: trace, To: ticket.RoleOrchestrator, IdempotencyKey: key},
		Payload: &ticketclient.Open{
			Op: op, SourceRef: f.source, Title: f.title, BodyRef: cmp.Or(f.body, f.source), Requester: cmp.Or(f.requester, name), Priority: f.priority,
		},
	})
	if op == "open" && refusedWith(err, event.CodeIdempotencyConflict, event.CodeTicketExists) {
		return exitError{exitUsage, "the ticket " + id + " was opened before, and something else was said of it; signalbox ticket show says what, and signalbox ticket amend says what it is about instead"}
	}
	if err != nil {
		return inOpenFlags(err)
	}
	return a.saidOpen(&receipt, op, text)
}

// inOpenFlags says of a refusal of a payload by which flag it has what is wrong in it.
func inOpenFlags(err error) error {
	e := (*event.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	flag := strings.ReplaceAll(strings.TrimPrefix(e.Field, "payload/"), "_", "-")
	if !slices.Contains([]string{"source-ref", "title", "body-ref", "requester", "priority"}, flag) {
		return err
	}
	switch e.Code {
	case event.CodePayloadInvalid:
		_, what, _ := strings.Cut(e.Message, `" `) // behind the name that the message has for it
		return usagef("what is given with --%s %s", flag, what)
	case event.CodeSecretRefused:
		return usagef("what is given with --%s looks like a secret, which the log would keep for good; name a lease or a reference instead", flag)
	}
	return err
}

func (a *app) saidOpen(r *client.MessageReceipt, op string, text bool) error {
	if !text {
		return writeJSON(a.out, r)
	}
	_, err := fmt.Fprintf(a.out, "%s of %s: %s, as the message %s at %s\n", op, r.TicketID, r.Outcome, cmp.Or(r.First, r.ID), r.Cursor)
	return err
}
