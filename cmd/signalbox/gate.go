// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	ticketclient "signalbox/client/ticket"
)

func (a *app) gateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Show what waits for an approval, and decide about it",
		Long: "Show what waits for an approval: the plan, how it is undone, the risk, the tier with its reason, and until when it is\n" +
			"asked for. A decision is signed with the approver's own key. Nothing is taken on trust: the hashes are computed\n" +
			"again from the steps that are shown, and what does not match, or has expired, is not approved.\n\n" +
			"On a terminal, gate without a command goes through what waits and asks about each.",
		Example: "  signalbox agent keygen erin.key\n" +
			"  signalbox agent add erin --role gate --key erin.key\n" +
			"  signalbox gate --as erin --agent-key erin.key",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.goThrough(cmd.Context()) },
	}
	cmd.AddCommand(a.gateListCommand(), a.gateShowCommand(), a.gateApproveCommand(), a.gateDenyCommand())
	return cmd
}

func (a *app) gateListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what waits for an approval",
		Long:  "List what waits for an approval, the oldest first.",
		Example: "  signalbox agent keygen erin-2.key\n" +
			"  signalbox agent add erin-2 --role gate --key erin-2.key\n" +
			"  signalbox gate list --as erin-2 --agent-key erin-2.key",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := a.text()
			if err != nil {
				return err
			}
			_, waiting, err := a.waiting(cmd.Context())
			if err != nil {
				return err
			}
			if !text {
				for _, w := range waiting {
					if err := writeJSON(a.out, gateLine(w)); err != nil {
						return err
					}
				}
				return nil
			}
			out := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(out, "REQUEST\tTICKET\tFOR\tTIER\tYES\tUNTIL\tSUMMARY")
			for _, w := range waiting {
				l := gateLine(w)
				fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\n", l.Request, l.Ticket, l.Kind, tierText(l.Tier), len(l.Granted), l.Required, l.Expires.Format(time.RFC3339), oneLine(l.Summary))
			}
			return out.Flush()
		},
	}
}

// gateDocument is what is said of a request in JSON.
type gateDocument struct {
	Request  string    `json:"request"`
	Ticket   string    `json:"ticket"`
	Kind     string    `json:"kind"`
	Tier     *int      `json:"tier,omitempty"`
	Summary  string    `json:"summary"`
	Expires  time.Time `json:"expires_at"`
	Required int       `json:"approvers_required"`
	Granted  []string  `json:"granted"`
	PlanHash string    `json:"plan_hash,omitempty"`
	Options  []string  `json:"options,omitempty"`
	Fault    string    `json:"fault,omitempty"` // why it cannot be approved
	// Plans and Risk are in show only.
	Plans []*ticketclient.Plan `json:"plans,omitempty"`
	Risk  *ticketclient.Risk   `json:"risk,omitempty"`
}

func gateLine(w *ticketclient.Waiting) *gateDocument {
	ask := w.Ask()
	d := &gateDocument{
		Request: w.Request.ID, Ticket: w.Request.TicketID, Kind: ask.Kind, Tier: ask.Tier, Summary: ask.Summary, Expires: w.Expires,
		Required: ask.ApproversRequired, Granted: append([]string{}, w.Granted...), PlanHash: ask.PlanHash, Options: ask.Options,
	}
	if w.Fault != nil {
		d.Fault = w.Fault.Error()
	}
	return d
}

func tierText(tier *int) string {
	if tier == nil {
		return "-"
	}
	return fmt.Sprint(*tier)
}

// waiting asks the broker what waits.
func (a *app) waiting(ctx context.Context) (*ticketclient.Gate, []*ticketclient.Waiting, error) {
	name, key, err := a.identity()
	if err != nil {
		return nil, nil, err
	}
	c, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	g := ticketclient.NewGate(c, name, key)
	waiting, err := g.Waiting(ctx)
	return g, waiting, err
}

// pending finds the one request that an argument names: its id, or a ticket with one
// request only.
func (a *app) pending(ctx context.Context, named string) (*ticketclient.Gate, *ticketclient.Waiting, error) {
	g, waiting, err := a.waiting(ctx)
	if err != nil {
		return nil, nil, err
	}
	var found *ticketclient.Waiting
	for _, w := range waiting {
		switch {
		case w.Request.ID == named:
			return g, w, nil
		case w.Request.TicketID == named && found != nil:
			return nil, nil, usagef("the ticket %s waits for several approvals; name the request", named)
		case w.Request.TicketID == named:
			found = w
		}
	}
	if found == nil {
		return nil, nil, exitError{exitUsage, named + ": nothing of that name waits for an approval; it was decided, or its time is over"}
	}
	return g, found, nil
}

func (a *app) gateShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show REQUEST|TICKET",
		Short: "Show what is to be approved",
		Long:  "Show the plan that a request is for, step by step, with its rollback, its risk, and the reason for its tier.",
		Example: "  signalbox agent keygen erin-3.key\n" +
			"  signalbox agent add erin-3 --role gate --key erin-3.key\n" +
			"  signalbox gate show INC-1 --as erin-3 --agent-key erin-3.key || echo 'nothing waits'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.text()
			if err != nil {
				return err
			}
			_, w, err := a.pending(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if text {
				showWaiting(a.out, w)
				return nil
			}
			d := gateLine(w)
			d.Risk = &w.Ask().Risk
			for _, m := range w.Plans {
				d.Plans = append(d.Plans, m.Payload.(*ticketclient.Plan))
			}
			return writeJSON(a.out, d)
		},
	}
}

// showWaiting writes all that a person needs to decide. What agents have written is
// kept from controlling the terminal.
func showWaiting(out io.Writer, w *ticketclient.Waiting) {
	ask := w.Ask()
	say := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	say("request", "%s (%s)", w.Request.ID, ask.Kind)
	say("ticket", "%s", w.Request.TicketID)
	say("summary", "%s", ask.Summary)
	if len(ask.Options) > 0 {
		say("options", "%s", strings.Join(ask.Options, ", "))
	}
	if ask.Target != "" {
		say("target", "%s", ask.Target)
	}
	for i, m := range w.Plans {
		p := m.Payload.(*ticketclient.Plan)
		if i == 0 {
			say("tier", "%d: %s", p.Tier, p.TierReason)
			say("window", "%s to %s", p.Window.Start.Format(time.RFC3339), p.Window.End.Format(time.RFC3339))
		}
		say("slice", "%s in %s", p.Slice.ID, m.To)
		for _, s := range p.Slice.Steps {
			say("  does", "%s %s %s", s.Verb, s.Target, s.Params)
		}
		for _, s := range p.Slice.Rollback {
			say("  undoes", "%s %s %s", s.Verb, s.Target, s.Params)
		}
		if len(p.Slice.Rollback) == 0 {
			say("  undoes", "nothing: there is no rollback")
		}
	}
	say("blast radius", "%s", ask.Risk.BlastRadius)
	say("reversible", "%s", ask.Risk.Reversibility)
	say("data", "%s", ask.Risk.DataClass)
	say("approvals", "%d of %d: %s", len(w.Granted), ask.ApproversRequired, listed(w.Granted))
	say("expires", "%s", w.Expires.Format(time.RFC3339))
	switch {
	case w.Fault != nil:
		say("NOT VALID", "%s", w.Fault)
	case ask.PlanHash != "":
		say("hash", "%s, which is that of the steps above", ask.PlanHash)
	}
}

func (a *app) gateApproveCommand() *cobra.Command {
	var choice string
	cmd := &cobra.Command{
		Use:   "approve REQUEST|TICKET",
		Short: "Approve what a request is for",
		Long: "Approve the plan that a request is for, or choose one of its options with --choice. The grant is for the hash of that\n" +
			"plan, and never for another.",
		Example: "  signalbox agent keygen erin-4.key\n" +
			"  signalbox agent add erin-4 --role gate --key erin-4.key\n" +
			"  signalbox gate approve INC-1 --as erin-4 --agent-key erin-4.key || echo 'nothing waits'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, w, err := a.pending(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.approve(cmd.Context(), g, w, choice)
		},
	}
	cmd.Flags().StringVar(&choice, "choice", "", "the `option` that is chosen, of a request that has options")
	return cmd
}

func (a *app) approve(ctx context.Context, g *ticketclient.Gate, w *ticketclient.Waiting, choice string) error {
	if options := w.Ask().Options; (choice != "") != (len(options) > 0) {
		return usagef("the request has the options %s; say with --choice which one it is", listed(options))
	}
	receipt, err := g.Approve(ctx, w, choice, time.Now())
	if err != nil {
		return err
	}
	return a.decided(w, "approved", receipt.ID)
}

// decided says what was done.
func (a *app) decided(w *ticketclient.Waiting, what, id string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if !text {
		return writeJSON(a.out, map[string]string{"decision": what, "message": id, "request": w.Request.ID, "ticket": w.Request.TicketID})
	}
	_, err = fmt.Fprintf(a.out, "%s %s of %s by the message %s\n", what, w.Request.ID, w.Request.TicketID, id)
	return err
}

func (a *app) gateDenyCommand() *cobra.Command {
	var code, reason string
	cmd := &cobra.Command{
		Use:   "deny REQUEST|TICKET",
		Short: "Deny what a request is for",
		Long:  "Deny what a request is for. One denial is enough, and the reason is kept for ever.",
		Example: "  signalbox agent keygen erin-5.key\n" +
			"  signalbox agent add erin-5 --role gate --key erin-5.key\n" +
			"  signalbox gate deny INC-1 --reason 'not before the weekend' --as erin-5 --agent-key erin-5.key || echo 'nothing waits'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usagef("say with --reason why")
			}
			g, w, err := a.pending(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			receipt, err := g.Deny(cmd.Context(), w, code, reason)
			if err != nil {
				return err
			}
			return a.decided(w, "denied", receipt.ID)
		},
	}
	cmd.Flags().StringVar(&code, "code", "denied", "the reason in a `word`, for programs")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, for people")
	return cmd
}

// goThrough asks about each request that waits. Only what is spelt out counts as yes
// or no.
func (a *app) goThrough(ctx context.Context) error {
	g, waiting, err := a.waiting(ctx)
	if err != nil {
		return err
	}
	if len(waiting) == 0 {
		_, err := fmt.Fprintln(a.out, "Nothing waits for an approval.")
		return err
	}
	in := bufio.NewScanner(a.in)
	ask := func(format string, args ...any) string {
		fmt.Fprintf(a.out, format, args...)
		in.Scan()
		return strings.TrimSpace(in.Text())
	}
	for _, w := range waiting {
		showWaiting(a.out, w)
		switch answer := ask("approve, deny or anything else to leave it: "); answer {
		case "approve":
			choice := ""
			if options := w.Ask().Options; len(options) > 0 {
				choice = ask("which of %s: ", listed(options))
			}
			err = a.approve(ctx, g, w, choice)
		case "deny":
			reason := ask("why: ")
			if reason == "" {
				continue
			}
			receipt, denied := g.Deny(ctx, w, "denied", reason)
			if err = denied; err == nil {
				err = a.decided(w, "denied", receipt.ID)
			}
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}
