// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
)

func (a *app) presenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "presence",
		Short: "Show who is connected",
		Long: "Show who follows at the moment, by which door, since when, and what they say of themselves. An agent that gave no\n" +
			"name is shown by its connection. To watch them come and go, follow the topic $presence.",
		Example: "  signalbox follow 'fleet.>' --agent /agents/beta --until-synced\n" +
			"  signalbox presence\n" +
			"  signalbox follow '$presence' --until-synced",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := a.text()
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			if text {
				fmt.Fprintln(w, "WHO\tSTREAMS\tDOOR\tSINCE\tTOPICS\tSTATUS")
			}
			for p, err := range c.Present(cmd.Context()) {
				if err != nil {
					return err
				}
				if !text {
					if err := writeJSON(a.out, p); err != nil {
						return err
					}
					continue
				}
				writePresence(w, &p)
			}
			return w.Flush()
		},
	}
}

func writePresence(w *tabwriter.Writer, p *client.Presence) {
	doors, topics, since := []string{}, []string{}, "-"
	for _, s := range p.Streams {
		doors, topics = addOnce(doors, s.Door), addOnce(topics, s.Topics...)
	}
	if !p.Since.IsZero() {
		since = p.Since.Local().Format(time.DateTime)
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", oneLine(p.Key), p.Connections, listed(doors), since, listed(topics), oneLine(string(p.Status)))
}

func addOnce(list []string, more ...string) []string {
	for _, s := range more {
		if s = oneLine(s); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// listed joins a list; an empty one is shown as such.
func listed(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}
