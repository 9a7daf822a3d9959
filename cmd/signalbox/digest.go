// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

// exitDiffers is what digest --compare returns, as diff and cmp do.
const exitDiffers = 1

func (a *app) digestCommand() *cobra.Command {
	var compare string
	cmd := &cobra.Command{
		Use:   "digest TOPIC",
		Short: "Print the digest of a topic's state, or compare a ledger with it",
		Long: "Print the digest of a compacted topic's state: a sum, the number of keys and the cursor at which it is exact;\n" +
			"with --json all 256 buckets.\n\n" +
			"With --compare, read a file of events (one per line, as state --json writes them) and say whether it adds up to the\n" +
			"same state. Where it does not, list the keys of the file in the buckets that differ and end with status 1.",
		Example: compactedExample +
			"  signalbox digest fleet.tasks\n" +
			"  signalbox state fleet.tasks --json > ledger.ndjson && signalbox digest fleet.tasks --compare ledger.ndjson",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.digest(cmd.Context(), args[0], compare) },
	}
	cmd.Flags().StringVar(&compare, "compare", "", "`file` of events to compare with; - is the standard input")
	return cmd
}

func (a *app) digest(ctx context.Context, topic, compare string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	d, err := c.Digest(ctx, topic)
	if err != nil {
		return err
	}
	if compare != "" {
		return a.compareDigest(ctx, c, d, compare)
	}
	if !text {
		return writeJSON(a.out, d)
	}
	_, err = fmt.Fprintf(a.out, "%s  %x  %s at %s\n", oneLine(d.Topic), d.Sum(), many(d.Keys, "key", "keys"), d.Cursor)
	return err
}

// compareDigest compares a file of events with the broker's digest.
func (a *app) compareDigest(ctx context.Context, c *client.Client, d *client.Digest, name string) error {
	t, err := c.Topic(ctx, d.Topic)
	if err != nil {
		return err
	}
	in, done, err := a.open(name)
	if err != nil {
		return err
	}
	defer done()
	var events []*event.Event
	if err := eachEvent(in, name, func(ev *event.Event) error { events = append(events, ev); return nil }); err != nil {
		return err
	}
	local := client.DigestOf(slices.Values(events), client.DigestOptions{KeyFrom: t.Policy.KeyFrom, At: d.LogTime})
	diff := local.Diff(d)
	if len(diff) == 0 {
		_, err := fmt.Fprintf(a.out, "equal: %s at %s\n", many(d.Keys, "key", "keys"), d.Cursor)
		return err
	}
	differs := [256]bool{}
	for _, b := range diff {
		differs[b] = true
	}
	fmt.Fprintf(a.out, "different: %d of 256 buckets; %s here, %d at the broker\n", len(diff), many(local.Keys, "key", "keys"), d.Keys)
	listed := make(map[string]bool)
	for _, ev := range events {
		key, ok := client.KeyOf(ev, t.Policy.KeyFrom)
		if ok && differs[client.Bucket(key)] && !listed[key] {
			listed[key] = true
			fmt.Fprintf(a.out, "look at key %s\n", oneLine(key))
		}
	}
	return exitError{code: exitDiffers, text: "the states differ; read the state of the topic again, or the keys above one by one"}
}
