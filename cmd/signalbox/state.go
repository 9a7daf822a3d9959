// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

func (a *app) stateCommand() *cobra.Command {
	var key, filter string
	cmd := &cobra.Command{
		Use:   "state TOPIC...",
		Short: "Print the current state of compacted topics",
		Long: "Print, for every key of one or several compacted topics, the event that is its state, all exact at one cursor.\n" +
			"The cursor goes to the standard error output; \"signalbox follow --cursor\" continues from it without a gap.",
		Example: compactedExample +
			"  signalbox publish fleet.tasks --key T-998 --data '{\"status\":\"COMPLETED\"}'\n" +
			"  signalbox state fleet.tasks\n" +
			"  signalbox state fleet.tasks --key T-998\n" +
			"  signalbox state fleet.tasks --filter \"data.status = 'COMPLETED'\"\n" +
			"  signalbox state fleet.tasks --json > ledger.ndjson",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noneEmpty(cmd, "key", "filter"); err != nil {
				return err
			}
			return a.state(cmd.Context(), args, key, filter)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "only this `key`; fails with key_unknown when it has no state")
	cmd.Flags().StringVar(&filter, "filter", "", "only events that pass this CESQL `expression`")
	cmd.MarkFlagsMutuallyExclusive("key", "filter")
	return cmd
}

func (a *app) state(ctx context.Context, topics []string, key, filter string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if key != "" {
		if len(topics) != 1 {
			return usagef("--key is about one topic")
		}
		ev, err := c.Key(ctx, topics[0], key)
		if err != nil {
			return err
		}
		return writeEvent(a.out, ev, text)
	}
	cur, err := a.printState(ctx, c, topics, filter, text)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "-- exact at %s\n", cur)
	return nil
}

// printState prints the state of topics and returns the cursor to follow from.
func (a *app) printState(ctx context.Context, c *client.Client, topics []string, filter string, text bool) (event.Cursor, error) {
	s, err := c.FilteredState(ctx, filter, topics...)
	if err != nil {
		return event.Cursor{}, err
	}
	for ev, err := range s.Events() {
		if err != nil {
			return event.Cursor{}, err
		}
		if err := writeEvent(a.out, ev, text); err != nil {
			return event.Cursor{}, err
		}
	}
	return s.Cursor(), nil
}
