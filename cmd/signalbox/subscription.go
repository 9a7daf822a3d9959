// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

// newID is how the examples get the id of a subscription.
const newID = "$(signalbox subscription create --topics hello --start earliest --id-only)"

func (a *app) subscriptionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "subscription",
		Short: "Create, use and end durable subscriptions",
		Long: "A subscription is a reader whose place the broker keeps. Of a pull subscription any number of workers fetch events\n" +
			"and say what became of each; a stream subscription has one reader, who acknowledges a cursor; of a webhook the broker\n" +
			"sends the events to a URL.",
		Example: "  signalbox subscription list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.subscriptionCreateCommand(), a.subscriptionListCommand(), a.subscriptionShowCommand(), a.subscriptionUpdateCommand(),
		a.subscriptionDeleteCommand(), a.subscriptionPauseCommand(), a.subscriptionResumeCommand(), a.subscriptionSeekCommand(),
		a.subscriptionFetchCommand(), a.subscriptionSettleCommand("ack"), a.subscriptionSettleCommand("nack"),
		a.subscriptionSettleCommand("extend"), a.subscriptionSettleCommand("reject"), a.lettersCommand(),
	)
	return cmd
}

// subscriptionFlags are the members of a document as flags.
type subscriptionFlags struct {
	document                                 string
	kind, view, start, order, source, filter string
	topics, types, fields                    []string
	visibility, expires, kept                string
	attempts, quarantine, redrives           int
	idOnly                                   bool
	webhook                                  webhookFlags
}

func (f *subscriptionFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.document, "document", "", "take the document in this `file`, in JSON, and change in it what other flags say; - is the standard input")
	fl.StringSliceVar(&f.topics, "topics", nil, "topic `names` and patterns, separated by commas (default \">\", every topic but the broker's own)")
	fl.StringVar(&f.view, "view", "", "`view`: current or history (default that of the topic)")
	fl.StringVar(&f.order, "order", "", "`order`: key (one event of each key at a time), strict (one at a time) or unordered")
	fl.StringVar(&f.source, "source", "", "only events with this `source`")
	fl.StringSliceVar(&f.types, "types", nil, "only events of these `types`")
	fl.StringVar(&f.filter, "filter", "", "only events for which this CESQL `expression` holds")
	fl.StringSliceVar(&f.fields, "select", nil, "deliver only these `attributes` and paths such as data.order.id")
	fl.StringVar(&f.visibility, "visibility", "", "`duration` for which a worker has an event to itself (default 30s)")
	fl.StringVar(&f.expires, "expires-after", "", "end the subscription if nobody uses it for this `duration`; \"never\" is the default")
	fl.StringVar(&f.kept, "dead-letter-retention", "", "`duration` for which dead letters are kept (default 30d)")
	fl.IntVar(&f.attempts, "max-attempts", 0, "hand-outs before an event is a dead letter (default 5, of a webhook 10)")
	fl.IntVar(&f.quarantine, "quarantine-after", 0, "hand-outs without any answer, while others succeed, before an event is quarantined (default 3)")
	fl.IntVar(&f.redrives, "max-redrives", 0, "times that a dead letter may come back (default 5)")
	f.webhook.add(cmd)
}

// parseSubscription reads the document in the file that was given.
func (a *app) parseSubscription(f *subscriptionFlags) (event.Subscription, error) {
	b, err := a.readInput(f.document)
	if err != nil {
		return event.Subscription{}, err
	}
	return event.ParseSubscription(b)
}

// apply sets what was given.
func (f *subscriptionFlags) apply(cmd *cobra.Command, s *event.Subscription) error {
	given := cmd.Flags().Changed
	c := &s.Config
	setters := map[string]func() error{
		"topics":                func() error { c.Topics = f.topics; return nil },
		"view":                  func() error { c.View = f.view; return nil },
		"order":                 func() error { c.Order = f.order; return nil },
		"source":                func() error { s.Source = f.source; return nil },
		"types":                 func() error { s.Types = f.types; return nil },
		"select":                func() error { c.Select = f.fields; return nil },
		"filter":                func() (err error) { s.Filters, err = sqlFilter(f.filter); return err },
		"visibility":            func() error { return setDuration(&c.Visibility, f.visibility) },
		"expires-after":         func() error { return setDuration(&c.ExpiresAfter, f.expires) },
		"dead-letter-retention": func() error { return setDuration(&c.DeadLetterRetention, f.kept) },
		"max-attempts":          func() error { c.MaxAttempts = f.attempts; return nil },
		"quarantine-after":      func() error { c.QuarantineAfter = f.quarantine; return nil },
		"max-redrives":          func() error { c.MaxRedrives = f.redrives; return nil },
	}
	if given("sink") { // first, since it says what the defaults are
		if err := f.webhook.setters(s)["sink"](); err != nil {
			return err
		}
	}
	maps.Copy(setters, f.webhook.setters(s))
	for name, set := range setters {
		if given(name) && name != "sink" {
			if err := set(); err != nil {
				return err
			}
		}
	}
	return s.Validate()
}

func sqlFilter(expression string) ([]byte, error) {
	if expression == "" {
		return nil, nil
	}
	return jsonOf([]map[string]string{{"sql": expression}})
}

func setDuration(d *event.Duration, text string) error {
	if text == "never" {
		*d = 0
		return nil
	}
	parsed, err := event.ParseDuration(text)
	*d = parsed
	return err
}

func (a *app) subscriptionCreateCommand() *cobra.Command {
	f := &subscriptionFlags{}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a subscription",
		Long: "Create a subscription. The broker gives it the id by which all other commands know it.\n\n" +
			"It begins now, or at --start: earliest, a cursor, or an RFC 3339 time. With --sink the broker sends its events to a URL.\n" +
			"What no flag says, such as filters in the dialects, headers and credentials of a sink, is said by a --document, which is\n" +
			"that of the CloudEvents Subscriptions API.",
		Example: "  signalbox subscription create --topics 'fleet.>' --max-attempts 3\n" +
			"  signalbox subscription create --kind stream --topics hello --start earliest --filter \"type = 'message'\"\n" +
			"  echo '{\"protocol\":\"SIGNALBOX\",\"filters\":[{\"prefix\":{\"type\":\"system.\"}}]}' | signalbox subscription create --document - --topics hello",
		Args: cobra.NoArgs,
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.kind, "kind", event.KindPull, "`kind`: pull (workers fetch and settle events) or stream (one reader acknowledges a cursor)")
	cmd.Flags().StringVar(&f.start, "start", "now", "where to begin: `place` now, earliest, a cursor or a time")
	cmd.Flags().BoolVar(&f.idOnly, "id-only", false, "print the id and nothing else")
	cmd.MarkFlagsMutuallyExclusive("document", "kind")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("sink") && cmd.Flags().Changed("kind") && f.kind != event.KindWebhook {
			return exitError{code: exitUsage, text: "--sink makes a webhook, which is another kind than " + f.kind + ": leave one of them out"}
		}
		return a.withTopics(func(c *client.Client, text bool) error {
			document, err := client.NewSubscription(f.kind), error(nil)
			if f.document != "" {
				document, err = a.parseSubscription(f)
			}
			if err != nil {
				return err
			}
			if f.document == "" || cmd.Flags().Changed("start") {
				document.Config.Start = f.start
			}
			if err := f.apply(cmd, &document); err != nil {
				return err
			}
			s, err := c.CreateSubscription(cmd.Context(), document)
			if err != nil {
				return err
			}
			if f.idOnly {
				_, err = fmt.Fprintln(a.out, s.ID)
				return err
			}
			return a.writeSubscription(s, text)
		})
	}
	return cmd
}

func (a *app) subscriptionUpdateCommand() *cobra.Command {
	f := &subscriptionFlags{}
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change a subscription",
		Long: "Change a subscription. Fields that are not named keep their value, unless there is a --document, which replaces all of\n" +
			"them but secrets. The cursor does not move; see \"subscription seek\". The kind cannot change.",
		Example: "  signalbox subscription update " + newID + " --max-attempts 10 --expires-after 7d",
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withTopics(func(c *client.Client, text bool) error {
			s, err := c.Subscription(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if f.document != "" {
				if s.Subscription, err = a.parseSubscription(f); err != nil {
					return err
				}
			}
			if err := f.apply(cmd, &s.Subscription); err != nil {
				return err
			}
			if s, err = c.PutSubscription(cmd.Context(), args[0], s.Subscription); err != nil {
				return err
			}
			return a.writeSubscription(s, text)
		})
	}
	return cmd
}

func (a *app) subscriptionListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the subscriptions",
		Long:    "List the subscriptions in the order in which they were created.",
		Example: "  signalbox subscription list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				all, err := c.Subscriptions(cmd.Context())
				if err != nil {
					return err
				}
				return a.writeSubscriptions(all, text)
			})
		},
	}
}

// subscriptionOne makes a command on one subscription that shows it afterwards.
func (a *app) subscriptionOne(cmd *cobra.Command, do func(cmd *cobra.Command, c *client.Client, id string) (client.Subscription, error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withTopics(func(c *client.Client, text bool) error {
			s, err := do(cmd, c, args[0])
			if err != nil {
				return err
			}
			return a.writeSubscription(s, text)
		})
	}
	return cmd
}

func (a *app) subscriptionShowCommand() *cobra.Command {
	return a.subscriptionOne(&cobra.Command{
		Use:     "show ID",
		Short:   "Show a subscription and how far it is",
		Long:    "Show a subscription: its document, its cursor, its lag, and what became of its events.",
		Example: "  signalbox subscription show " + newID,
	}, func(cmd *cobra.Command, c *client.Client, id string) (client.Subscription, error) {
		return c.Subscription(cmd.Context(), id)
	})
}

func (a *app) subscriptionPauseCommand() *cobra.Command {
	return a.subscriptionOne(&cobra.Command{
		Use:     "pause ID",
		Short:   "Stop the deliveries of a subscription",
		Long:    "Stop the deliveries of a subscription. What is handed out may be settled; retention waits as before.",
		Example: "  signalbox subscription pause " + newID,
	}, func(cmd *cobra.Command, c *client.Client, id string) (client.Subscription, error) {
		return c.PauseSubscription(cmd.Context(), id)
	})
}

func (a *app) subscriptionResumeCommand() *cobra.Command {
	return a.subscriptionOne(&cobra.Command{
		Use:     "resume ID",
		Short:   "Let the deliveries of a subscription go on",
		Long:    "Let the deliveries of a subscription go on where they were paused.",
		Example: "  signalbox subscription resume " + newID,
	}, func(cmd *cobra.Command, c *client.Client, id string) (client.Subscription, error) {
		return c.ResumeSubscription(cmd.Context(), id)
	})
}

func (a *app) subscriptionSeekCommand() *cobra.Command {
	var to string
	cmd := a.subscriptionOne(&cobra.Command{
		Use:   "seek ID",
		Short: "Move the cursor of a subscription",
		Long: "Move the cursor of a subscription, forward or back. What is handed out, waits or is redriven is forgotten: it comes\n" +
			"again if it is behind the new cursor.",
		Example: "  signalbox subscription seek " + newID + " --to now",
	}, func(cmd *cobra.Command, c *client.Client, id string) (client.Subscription, error) {
		return c.SeekSubscription(cmd.Context(), id, to)
	})
	cmd.Flags().StringVar(&to, "to", "", "`place`: now, earliest, a cursor or an RFC 3339 time")
	_ = cmd.MarkFlagRequired("to") // it exists
	return cmd
}

func (a *app) subscriptionDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete ID",
		Short:   "End a subscription, its dead letters included",
		Long:    "End a subscription. Its dead letters go with it, since nobody could redrive them.",
		Example: "  signalbox subscription delete " + newID,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTopics(func(c *client.Client, _ bool) error { return c.DeleteSubscription(cmd.Context(), args[0]) })
		},
	}
}

func (a *app) writeSubscriptions(all []client.Subscription, text bool) error {
	if !text {
		for _, s := range all {
			if err := writeJSON(a.out, s); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tKIND\tSTATE\tCURSOR\tOUTSTANDING\tPARKED\tDEAD LETTERS\tTOPICS")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", s.ID, s.Config.Kind, s.Status.State, s.Status.Cursor, s.Status.Outstanding, s.Status.Parked,
			s.Status.DeadLetters, oneLine(fmt.Sprint(s.Config.Topics)))
	}
	return w.Flush()
}

func (a *app) writeSubscription(s client.Subscription, text bool) error {
	if !text {
		return writeJSON(a.out, s)
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Local().Format(time.RFC3339)
	}
	st := s.Status
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	rows := [][2]any{
		{"subscription", s.ID}, {"kind", s.Config.Kind}, {"state", st.State}, {"topics", oneLine(fmt.Sprint(s.Config.Topics))}, {"order", s.Config.Order},
		{"filters", oneLine(orDash(plain(s.Filters)))}, {"cursor", st.Cursor}, {"lag", fmt.Sprintf("%s, %.0f s", many(st.LagEvents, "event", "events"), st.LagSeconds)},
		{"matched", st.Matched}, {"dropped", fmt.Sprintf("%d, of these %d by filters that failed", st.Dropped, st.Errors)},
		{"outstanding", fmt.Sprintf("%d, of these %d to be handed out again", st.Outstanding, st.Retrying)}, {"parked", st.Parked},
		{"acknowledged", st.Acked}, {"failed", fmt.Sprintf("%d, of these %d without an answer", st.Failed, st.TimedOut)},
		{"dead letters", st.DeadLetters}, {"quarantined", st.Quarantined}, {"gaps", st.Gaps},
		{"next attempt", at(st.NextAttempt)}, {"last error", oneLine(orDash(st.LastError))}, {"last used", at(st.LastUsed)},
	}
	for _, row := range append(rows, endpointRows(s, at)...) {
		fmt.Fprintf(w, "%v\t%v\n", row[0], row[1])
	}
	return w.Flush()
}

// plain is JSON as people would write it: with > and not \u003e. An escaped
// backslash stays one.
func plain(raw []byte) string {
	return strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(raw))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
