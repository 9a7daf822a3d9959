// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/ticket"
)

// ticketAgentExample registers the auditor that the examples read as.
func ticketAgentExample(name string) string {
	return "  signalbox agent keygen " + name + ".key\n" +
		"  signalbox agent add " + name + " --role auditor --key " + name + ".key\n"
}

func (a *app) ticketCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ticket",
		Short: "Open, cancel, list, show and follow tickets",
		Long: "Open, amend and cancel tickets, as an intake; show where they are, and what was said about them. What you see is what\n" +
			"the agent in --as may read: an auditor and the orchestrator all of it, a domain agent its own part.",
		Example: ticketAgentExample("ed") + "  signalbox ticket list --as ed --agent-key ed.key",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.ticketOpenCommand(), a.ticketAmendCommand(), a.ticketCancelCommand(), a.ticketVerbsCommand(), a.ticketListCommand(), a.ticketShowCommand(), a.ticketFollowCommand())
	return cmd
}

func (a *app) ticketListCommand() *cobra.Command {
	var q client.TicketQuery
	var updated string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tickets",
		Long:  "List the tickets that have all that is asked for, by name.",
		Example: ticketAgentExample("ed-1") +
			"  signalbox ticket list --as ed-1 --agent-key ed-1.key --state AWAITING_APPROVAL,ESCALATED\n" +
			"  signalbox ticket list --as ed-1 --agent-key ed-1.key --domain network --updated 2026-11-29T00:00:00Z --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if updated != "" {
				var err error
				if q.Updated, err = time.Parse(time.RFC3339, updated); err != nil {
					return usagef("--updated %q is no time such as 2026-11-29T10:00:00Z", updated)
				}
			}
			return a.withTopics(func(c *client.Client, text bool) error { return a.listTickets(cmd.Context(), c, q, text) })
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&q.States, "state", nil, "in this `state`; may be several, joined by commas")
	fl.StringVar(&q.Domain, "domain", "", "with a slice of this `domain`")
	fl.StringVar(&q.Agent, "agent", "", "of which this `agent` has sent a message")
	fl.StringVar(&updated, "updated", "", "whose last message came at this `time` or later")
	return cmd
}

func (a *app) listTickets(ctx context.Context, c *client.Client, q client.TicketQuery, text bool) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if text {
		fmt.Fprintln(w, "TICKET\tSTATE\tTIER\tDOMAINS\tOPENED\tUPDATED")
	}
	for {
		list, next, err := c.Tickets(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			t := &list[i]
			if !text {
				if err := writeJSON(a.out, t); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.State, tierText(t.Tier), listed(t.Domains), t.Opened.Format(time.DateTime), t.Updated.Format(time.DateTime))
		}
		if q.After = next; next == "" {
			return w.Flush()
		}
	}
}

func (a *app) ticketShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show TICKET",
		Short: "Show a ticket and what was said about it",
		Long: "Show the state of a ticket, its plan, slices, approvals and open deadlines, and then its messages in order, a line for\n" +
			"each. With --json all of it is one object, with every message as its sender signed it.",
		Example: ticketAgentExample("ed-2") +
			"  signalbox ticket show INC-1 --as ed-2 --agent-key ed-2.key || echo 'there is none yet'",
		Args: oneTicket,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				t, err := c.Ticket(cmd.Context(), args[0])
				switch {
				case err != nil:
					return err
				case !text:
					return writeJSON(a.out, t)
				}
				return a.writeTicket(&t)
			})
		},
	}
}

// approvalText says where a request for approval has come to.
func approvalText(p *client.TicketApproval) string {
	granted := 0
	for _, g := range p.Grants {
		if g.Counts || g.Bound != "" {
			granted++
		}
	}
	text := fmt.Sprintf("%d of %d", granted, p.Approvers)
	switch {
	case p.Denied != "":
		return "denied"
	case p.Void != "":
		return text + ", void"
	case p.Missing > 0:
		return fmt.Sprintf("%s, %d missing", text, p.Missing)
	}
	return text
}

func (a *app) writeTicket(t *client.Ticket) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	state := t.State
	if t.ResumeTo != "" {
		state += ", was " + t.ResumeTo
	}
	fmt.Fprintf(w, "ticket\t%s\nstate\t%s, since %s\ntrace\t%s\nrequesters\t%s\n", t.ID, state, t.Moved.Format(time.DateTime), t.Trace, listed(t.Requesters))
	if p := t.Plan; p != nil {
		fmt.Fprintf(w, "plan\t%s, tier %d, valid until %s\n", p.ID, p.Tier, p.ValidUntil.Format(time.DateTime))
	}
	for i := range t.Slices {
		s := &t.Slices[i]
		fmt.Fprintf(w, "slice\t%s of %s: %s%s%s\n", s.ID, s.Domain, s.State, labelled(", rollback ", s.Rollback), labelled(", verification ", s.Verified))
	}
	for i := range t.Approvals {
		p := &t.Approvals[i]
		fmt.Fprintf(w, "approval\t%s: %s, until %s\n", p.Kind, approvalText(p), p.Expires.Format(time.DateTime))
	}
	for _, b := range t.Breakers {
		fmt.Fprintf(w, "breaker\t%s, open since %s\n", b.Target, b.Opened.Format(time.DateTime))
	}
	for _, d := range t.Deadlines {
		fmt.Fprintf(w, "deadline\t%s %s, of %s\n", d.Member, d.Due.Format(time.DateTime), d.Message)
	}
	if t.Missed != "" {
		fmt.Fprintf(w, "missed\t%s\n", t.Missed)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	for i := range t.Messages {
		m := &t.Messages[i]
		line := "a message that is not stored any more"
		if m.Message != nil {
			line = messageLine(m.Message)
		}
		if _, err := fmt.Fprintf(a.out, "%s  @%-6d  %s\n", m.Time.Format("2006-01-02 15:04:05.000"), m.Cursor.Position, oneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

func labelled(label, value string) string {
	if value == "" {
		return ""
	}
	return label + value
}

func (a *app) ticketFollowCommand() *cobra.Command {
	var cursor string
	var until bool
	cmd := &cobra.Command{
		Use:   "follow TICKET",
		Short: "Follow a ticket from its first message on",
		Long:  "Print the messages of a ticket, first those that there are and then what comes: a line for each, or each as it was signed.",
		Example: ticketAgentExample("ed-3") +
			"  signalbox ticket follow INC-1 --until-synced --as ed-3 --agent-key ed-3.key || echo 'there is none yet'",
		Args: oneTicket,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := followFlags{cursor: cursor}
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.followTicket(cmd.Context(), args[0], o, until)
		},
	}
	cmd.Flags().StringVar(&cursor, "cursor", "", "begin after this `cursor`, at a time, or now")
	cmd.Flags().BoolVar(&until, "until-synced", false, "end once everything that exists is printed")
	return cmd
}

func (a *app) followTicket(ctx context.Context, id string, o client.FollowOptions, until bool) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.client(client.WithRetry(client.Retry{}))
	if err != nil {
		return err
	}
	for item, err := range c.FollowTicket(ctx, id, o) {
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return err
		case item.Kind == client.ItemSynced && until:
			return nil
		case item.Kind != client.ItemEvent:
			continue
		}
		raw := item.Event.Data()
		if !text {
			if _, err := fmt.Fprintln(a.out, strings.ReplaceAll(string(raw), "\n", " ")); err != nil {
				return err
			}
			continue
		}
		if err := writeMessageLine(a.out, item.Cursor.Position, raw); err != nil {
			return err
		}
	}
	return nil
}

func writeMessageLine(w io.Writer, position uint64, raw []byte) error {
	at := ""
	if m, err := ticket.Parse(raw); err == nil {
		at = m.Header().Time.Format("2006-01-02 15:04:05.000")
	}
	_, err := fmt.Fprintf(w, "%s  @%-6d  %s\n", at, position, oneLine(messageLine(raw)))
	return err
}
