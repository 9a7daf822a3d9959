// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

func (a *app) topicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "List, show, set and delete topics",
		Long: "Topics come into being on first use, with the default policy: events are kept for seven days. \"topic set\" gives\n" +
			"a topic another policy, for example one that keeps the last event of every key.",
		Example: "  signalbox topic list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.topicListCommand(), a.topicGetCommand(), a.topicSetCommand(), a.topicDeleteCommand())
	return cmd
}

func (a *app) topicListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the topics",
		Long:    "List the topics by name, with how they keep their events and figures.",
		Example: "  signalbox topic list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				ts, err := c.Topics(cmd.Context())
				if err != nil {
					return err
				}
				return a.writeTopics(ts, text)
			})
		},
	}
}

func (a *app) topicGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get TOPIC",
		Short:   "Show one topic",
		Long:    "Show the policy and the figures of one topic.",
		Example: compactedExample + "  signalbox topic get fleet.tasks",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				t, err := c.Topic(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.writeTopic(t, text)
			})
		},
	}
}

func (a *app) topicDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete a topic with its events and its state",
		Long: "Delete a topic with its events and its state. Readers that had not seen everything are told so. If the topic is\n" +
			"created again, what was older than the deleted state stays refused.",
		Example: "  signalbox publish scratch --data 1\n" +
			"  signalbox topic delete scratch",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTopics(func(c *client.Client, _ bool) error { return c.DeleteTopic(cmd.Context(), args[0]) })
		},
	}
}

// topicSetFlags are the policy fields as flags.
type topicSetFlags struct {
	durability, cleanup, retention, retentionBytes, lag, deleteRetention, keyFrom, schema string
	requireHLC                                                                            bool
	maxEventBytes                                                                         byteSize
}

func (a *app) topicSetCommand() *cobra.Command {
	f := &topicSetFlags{}
	cmd := &cobra.Command{
		Use:   "set TOPIC",
		Short: "Set the policy of a topic, and create the topic if need be",
		Long: "Set the policy of a topic, and create the topic if need be. Fields that are not named keep their value.\n" +
			"Durations are such as 90s, 15m, 24h or 7d. Whether a topic is compacted or ephemeral, and where its keys come\n" +
			"from, can only be changed while it is empty.\n\n" +
			"An ephemeral topic is for presence, progress and telemetry: its events are never written, go to whoever is connected,\n" +
			"and the last of each key is kept in memory until its expiry or the retention is over.",
		Example: compactedExample + "  signalbox topic set hello --retention 30d --retention-bytes 10GiB\n" +
			"  signalbox topic set fleet.load --durability ephemeral --retention 10m",
		Args: cobra.ExactArgs(1),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.durability, "durability", "", "`durable` or ephemeral (in memory only)")
	fl.StringVar(&f.cleanup, "cleanup-policy", "", "`policy`: delete (keep by age and size), compact (keep the last event per key) or compact,delete")
	fl.StringVar(&f.retention, "retention", "", "keep events for this `duration`; \"unlimited\" keeps them for ever")
	fl.StringVar(&f.retentionBytes, "retention-bytes", "", "keep this `size` of the newest events, such as 10GiB; \"unlimited\" keeps them all")
	fl.StringVar(&f.lag, "min-compaction-lag", "", "keep what is superseded in the history of a compacted topic for this `duration`")
	fl.StringVar(&f.deleteRetention, "delete-retention", "", "`duration` for which the deletion of a key stays visible")
	fl.StringVar(&f.keyFrom, "key-from", "", "`path` into the data, such as items[0].id, that gives the key of events whose attributes give none")
	fl.BoolVar(&f.requireHLC, "require-hlc", false, "refuse events that their producer did not stamp")
	fl.StringVar(&f.schema, "schema", "", "`file` with a JSON Schema (2020-12) that the data must keep to; \"none\" removes it")
	fl.Var(&f.maxEventBytes, "max-event-bytes", "largest event that is accepted, such as 256KiB")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.topicSet(cmd, args[0], f) }
	return cmd
}

func (a *app) topicSet(cmd *cobra.Command, name string, f *topicSetFlags) error {
	return a.withTopics(func(c *client.Client, text bool) error {
		p, err := currentPolicy(cmd.Context(), c, name)
		if err != nil {
			return err
		}
		if err := f.apply(cmd, &p); err != nil {
			return err
		}
		t, _, err := c.PutTopic(cmd.Context(), name, p)
		if err != nil {
			return err
		}
		return a.writeTopic(t, text)
	})
}

// currentPolicy is what the fields that are not named keep.
func currentPolicy(ctx context.Context, c *client.Client, name string) (event.Policy, error) {
	t, err := c.Topic(ctx, name)
	if e := (*event.Error)(nil); errors.As(err, &e) && e.Code == event.CodeTopicUnknown {
		return event.DefaultPolicy(), nil
	}
	return t.Policy, err
}

// apply sets the fields whose flags were given.
func (f *topicSetFlags) apply(cmd *cobra.Command, p *event.Policy) error {
	given := cmd.Flags().Changed
	if given("durability") {
		p.Durability = f.durability
	}
	if given("cleanup-policy") {
		p.CleanupPolicy = f.cleanup
	}
	if given("retention") {
		p.Retention = nil
		if f.retention != "unlimited" {
			d, err := event.ParseDuration(f.retention)
			if err != nil {
				return err
			}
			p.Retention = &d
		}
	}
	if given("retention-bytes") {
		n := byteSize(0)
		if f.retentionBytes != "unlimited" {
			if err := n.Set(f.retentionBytes); err != nil || n == 0 {
				return usagef("--retention-bytes is a size such as 10GiB, or unlimited, not %q", f.retentionBytes)
			}
		}
		p.RetentionBytes = int64(n)
	}
	if given("min-compaction-lag") {
		d, err := event.ParseDuration(f.lag)
		if err != nil {
			return err
		}
		p.MinCompactionLag = d
	}
	if given("delete-retention") {
		d, err := event.ParseDuration(f.deleteRetention)
		if err != nil {
			return err
		}
		p.DeleteRetention = d
	}
	if given("key-from") {
		p.KeyFrom = f.keyFrom
	}
	if given("require-hlc") {
		p.RequireHLC = f.requireHLC
	}
	if given("schema") {
		p.Schema = ""
		if f.schema != "none" {
			text, err := os.ReadFile(f.schema)
			if err != nil {
				return usagef("--schema: %w", err)
			}
			p.Schema = string(text)
		}
	}
	if given("max-event-bytes") {
		p.MaxEventBytes = int(min(uint64(f.maxEventBytes), event.MaxMaxEventBytes+1))
	}
	return p.Validate()
}

// withTopics gives do what every topic command needs.
func (a *app) withTopics(do func(c *client.Client, text bool) error) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	return do(c, text)
}

func (a *app) writeTopics(ts []client.TopicInfo, text bool) error {
	if !text {
		for _, t := range ts {
			if err := writeJSON(a.out, t); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tKEEPS\tEVENTS\tKEYS\tBYTES\tHEAD")
	for _, t := range ts {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", oneLine(t.Name), keeps(&t.Policy), t.Events, t.Keys, t.Bytes, t.Head)
	}
	return w.Flush()
}

// keeps is how a topic keeps its events, in a word.
func keeps(p *event.Policy) string {
	if p.Ephemeral() {
		return p.Durability
	}
	return p.CleanupPolicy
}

func (a *app) writeTopic(t client.TopicInfo, text bool) error {
	if !text {
		return writeJSON(a.out, t)
	}
	p := t.Policy
	retention := "unlimited"
	if p.Retention != nil {
		retention = p.Retention.String()
	}
	most, size := byteSize(p.RetentionBytes), byteSize(p.MaxEventBytes)
	retentionBytes := "unlimited"
	if most > 0 {
		retentionBytes = most.String()
	}
	floor := "-"
	if t.Floor != 0 {
		floor = t.Floor.String()
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]any{
		{"topic", oneLine(t.Name)},
		{"durability", p.Durability},
		{"cleanup policy", p.CleanupPolicy},
		{"retention", retention},
		{"retention bytes", retentionBytes},
		{"min compaction lag", p.MinCompactionLag},
		{"delete retention", p.DeleteRetention},
		{"key from", cmp.Or(oneLine(p.KeyFrom), "-")},
		{"require hlc", p.RequireHLC},
		{"schema", cmp.Or(oneLine(p.Schema), "-")},
		{"max event bytes", size.String()},
		{"events", t.Events},
		{"bytes", t.Bytes},
		{"keys", t.Keys},
		{"tombstones", t.Tombstones},
		{"oldest cursor", t.Oldest},
		{"head", t.Head},
		{"floor", floor},
	} {
		fmt.Fprintf(w, "%v\t%v\n", row[0], row[1])
	}
	return w.Flush()
}
