// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
)

func (a *app) gateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Show what waits for an approval, and decide about it",
		Long: "Show what waits for an approval: the plan, how it is undone, the risk, the tier with its reason, and until when it is\n" +
			"asked for. A decision is signed with the approver's own key. Nothing is taken on trust: the hashes are computed\n" +
			"again from the steps that are shown, and what does not match, or has expired, is not approved.\n\n" +
			"On a terminal, or with --format text, gate without a command goes through what waits and asks about each until there\n" +
			"are no more answers. Elsewhere it lists what waits, as gate list does.",
		Example: "  signalbox agent keygen erin.key\n" +
			"  signalbox agent add erin --role gate --key erin.key\n" +
			"  signalbox gate --as erin --agent-key erin.key",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if text, err := a.text(); err == nil && text {
				return a.goThrough(cmd.Context())
			}
			return a.listWaiting(cmd.Context())
		},
	}
	cmd.AddCommand(a.gateListCommand(), a.gateShowCommand(), a.gateApproveCommand(), a.gateDenyCommand())
	return cmd
}

func (a *app) gateListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List what waits for an approval",
		Long: "List what waits for an approval, the oldest first: for what, how many have said yes and how many still have to, and\n" +
			"until when it is asked for. What one of two people has approved stays in the list until the other one has, too.",
		Example: "  signalbox agent keygen erin-2.key\n" +
			"  signalbox agent add erin-2 --role gate --key erin-2.key\n" +
			"  signalbox gate list --as erin-2 --agent-key erin-2.key",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listWaiting(cmd.Context()) },
	}
}

func (a *app) listWaiting(ctx context.Context) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	_, waiting, err := a.waiting(ctx)
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
	if len(waiting) == 0 {
		_, err := fmt.Fprintln(a.out, nothingWaits)
		return err
	}
	out := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "TICKET\tFOR\tTIER\tYES\tMISSING\tEXPIRES\tSUMMARY\tREQUEST")
	for _, w := range waiting {
		l := gateLine(w)
		fmt.Fprintf(out, "%s\t%s\t%s\t%d of %d\t%d\t%s\t%s\t%s\n", l.Ticket, l.Kind, tierText(l.Tier), len(l.Granted), l.Required, l.Missing,
			remaining(l.Expires, time.Now()), oneLine(clipped(l.Summary, 60)), l.Request)
	}
	return out.Flush()
}

// nothingWaits is said where there is nothing to decide.
const nothingWaits = "Nothing waits for an approval."

// gateDocument is what is said of a request in JSON.
type gateDocument struct {
	Request    string    `json:"request"`
	Ticket     string    `json:"ticket"`
	Kind       string    `json:"kind"`
	Tier       *int      `json:"tier,omitempty"`
	Summary    string    `json:"summary"`
	Asked      time.Time `json:"asked_at"`
	Expires    time.Time `json:"expires_at"`
	Required   int       `json:"approvers_required"` // by the broker's rules
	Granted    []string  `json:"granted"`
	Missing    int       `json:"missing"` // how many more have to say yes
	PlanHash   string    `json:"plan_hash,omitempty"`
	Target     string    `json:"target,omitempty"`
	Options    []string  `json:"options,omitempty"`
	Requesters []string  `json:"requesters"`      // none of them approves
	Fault      string    `json:"fault,omitempty"` // why it cannot be approved
	// What follows is in show only.
	Plans     []*ticketclient.Plan     `json:"plans,omitempty"`
	Proposals []*ticketclient.Proposal `json:"proposals,omitempty"`
	Risk      *ticketclient.Risk       `json:"risk,omitempty"`
	Breakers  []client.TicketBreaker   `json:"breakers,omitempty"`
}

func gateLine(w *ticketclient.Waiting) *gateDocument {
	ask := w.Ask()
	d := &gateDocument{
		Request: w.Request.ID, Ticket: w.Request.TicketID, Kind: ask.Kind, Tier: ask.Tier, Summary: ask.Summary, Asked: w.Request.Time.UTC(), Expires: w.Expires,
		Required: w.Needed, Granted: append([]string{}, w.Granted...), Missing: w.Missing(), PlanHash: ask.PlanHash, Target: ask.Target,
		Options: ask.Options, Requesters: append([]string{}, w.Requesters...),
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
		return nil, nil, exitError{exitUsage, named + ": nothing of that name waits for an approval; it was decided, its time is over, or it is spelt differently: signalbox gate list shows what waits"}
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
				showWaiting(a.out, w, time.Now())
				return nil
			}
			return writeJSON(a.out, gateWhole(w))
		},
	}
}

func (a *app) gateApproveCommand() *cobra.Command {
	var choice string
	cmd := &cobra.Command{
		Use:   "approve REQUEST|TICKET",
		Short: "Approve what a request is for",
		Long: "Approve the plan that a request is for, or choose one of its options with --choice. The grant is for the hash of that\n" +
			"plan, and never for another. A ticket names its request where it has only one that waits; look at it with show before.",
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
	switch options := w.Ask().Options; {
	case len(options) > 0 && !slices.Contains(options, choice):
		return usagef("the request has the options %s; say with --choice which one it is", listed(options))
	case len(options) == 0 && choice != "":
		return usagef("the request is for a yes or a no, and has no options to choose from")
	}
	receipt, err := g.Approve(ctx, w, choice, time.Now())
	if err != nil {
		return err
	}
	return a.decided(w, "approved", cmp.Or(receipt.First, receipt.ID), w.MissingAfter(choice))
}

// decided says what was done, and how many still have to agree.
func (a *app) decided(w *ticketclient.Waiting, what, id string, missing int) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if !text {
		return writeJSON(a.out, map[string]any{"decision": what, "message": id, "request": w.Request.ID, "ticket": w.Request.TicketID, "missing": missing})
	}
	more := ""
	if missing > 0 {
		more = fmt.Sprintf("; %d more of the gate has to approve it, too", missing)
	}
	_, err = fmt.Fprintf(a.out, "%s %s of %s by the message %s%s\n", what, w.Request.ID, w.Request.TicketID, id, more)
	return err
}

func (a *app) gateDenyCommand() *cobra.Command {
	var code, reason string
	cmd := &cobra.Command{
		Use:   "deny REQUEST|TICKET",
		Short: "Deny what a request is for",
		Long: "Deny what a request is for, with the reason. One denial is enough, and the reason is kept for ever. Who denies a\n" +
			"question about an escalation leaves the ticket where it is: choose one of its options instead.",
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
			return a.decided(w, "denied", cmp.Or(receipt.First, receipt.ID), 0)
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
		_, err := fmt.Fprintln(a.out, nothingWaits)
		return err
	}
	var failed error
	in := bufio.NewScanner(a.in)
	ended := false
	ask := func(format string, args ...any) string {
		fmt.Fprintf(a.out, format, args...)
		ended = !in.Scan()
		return strings.TrimSpace(in.Text())
	}
	for i, w := range waiting {
		if ended { // nobody answers: the rest waits on
			fmt.Fprintln(a.out)
			break
		}
		fmt.Fprintf(a.out, "--- %d of %d\n", i+1, len(waiting))
		showWaiting(a.out, w, time.Now())
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
				err = a.decided(w, "denied", cmp.Or(receipt.First, receipt.ID), 0)
			}
		}
		if err != nil { // of this one; the others wait still
			line, _ := explain(err, "signalbox gate")
			fmt.Fprintln(a.err, "signalbox: "+oneLine(line))
			failed = exitError{exitFailure, "not all of what waits is decided"}
		}
		err = nil
	}
	return errors.Join(in.Err(), failed)
}
