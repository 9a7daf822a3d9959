// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

func (a *app) ticketVerbsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verbs",
		Short: "Show what steps of tickets may do",
		Long: "Show the catalogue of verbs that the broker has in force: for which domains, of which tier at least, with which\n" +
			"parameters, and what is denied. As JSON it is the catalogue itself: change it, give it another version, and start the\n" +
			"broker with serve --ticket-verbs.",
		Example: "  signalbox ticket verbs --format text\n" +
			"  signalbox ticket verbs --json > verbs.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				raw, err := c.Verbs(cmd.Context())
				if err != nil {
					return err
				}
				if !text {
					_, err := a.out.Write(raw)
					return err
				}
				catalogue, err := ticket.ParseCatalogue(raw)
				if err != nil {
					return err
				}
				return a.writeVerbs(catalogue)
			})
		},
	}
}

func (a *app) writeVerbs(c *ticket.Catalogue) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERB\tDOMAINS\tTIER\tPARAMETERS\tDENIED")
	for i := range c.Verbs {
		v := &c.Verbs[i]
		tier := fmt.Sprint(v.Tier)
		if v.Irreversible {
			tier += ", cannot be undone"
		}
		var given []string
		for _, name := range slices.Sorted(maps.Keys(v.Params)) {
			if !v.Params[name].Required {
				name = "[" + name + "]"
			}
			given = append(given, name)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(v.Name), oneLine(listed(v.Domains)), tier, oneLine(strings.Join(given, " ")), oneLine(denials(v)))
	}
	failures, within := c.Breaker()
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "\nversion %s; more than %d targets are tier 3; %d failed verifications of a target within %s open its breaker\n", c.Version, c.TargetsMax, failures, event.Duration(within))
	return err
}

// denials says when a verb is denied.
func denials(v *ticket.Verb) string {
	var all []string
	for _, d := range v.Deny {
		why := strings.TrimSuffix(d.Why, ".")
		if !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	if len(all) > 0 && slices.ContainsFunc(v.Deny, func(d ticket.Deny) bool { return d.Param == "" && d.Target == "" && d.TargetsOver == 0 }) {
		return "always: " + strings.Join(all, "; ")
	}
	return strings.Join(all, "; ")
}
