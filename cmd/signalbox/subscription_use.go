// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

func jsonOf(v any) ([]byte, error) { return json.Marshal(v) }

func (a *app) subscriptionFetchCommand() *cobra.Command {
	var o client.FetchOptions
	var ack bool
	cmd := &cobra.Command{
		Use:   "fetch ID",
		Short: "Take events of a pull subscription",
		Long: "Take events of a pull subscription. Each comes with a token, by which \"subscription ack\", \"nack\", \"extend\" and\n" +
			"\"reject\" know it; without a word by the deadline it is handed out again. With --ack they are acknowledged once\n" +
			"they are printed.",
		Example: "  signalbox publish hello --data '\"world\"'\n" +
			"  signalbox subscription fetch " + newID + " --max 10 --ack",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().IntVar(&o.Max, "max", 1, "events at the most")
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "how long to wait for the first event, up to 5m")
	cmd.Flags().DurationVar(&o.Visibility, "visibility", 0, "how long the events are kept from others (default as the subscription says)")
	cmd.Flags().BoolVar(&ack, "ack", false, "acknowledge the events once they are printed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withTopics(func(c *client.Client, text bool) error {
			handed, err := c.Fetch(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			for _, h := range handed {
				if err := a.writeHanded(h, text); err != nil {
					return err
				}
				if ack {
					if err := c.Ack(cmd.Context(), args[0], h.Token); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return cmd
}

func (a *app) writeHanded(h client.Handed, text bool) error {
	if !text {
		return writeJSON(a.out, struct {
			Token    string          `json:"token"`
			Attempt  int             `json:"attempt"`
			Deadline time.Time       `json:"deadline"`
			Event    json.RawMessage `json:"event"`
		}{h.Token, h.Attempt, h.Deadline, h.Event.AppendJSON(nil)})
	}
	_, err := fmt.Fprintf(a.out, "%s  attempt %d  %s  %s  %s  %s\n", h.Token, h.Attempt, oneLine(h.Event.Topic()), oneLine(h.Event.Type()),
		oneLine(h.Event.Subject()), oneLine(string(h.Event.Data())))
	return err
}

// subscriptionSettleCommand makes one of the commands that say what became of
// an event.
func (a *app) subscriptionSettleCommand(verb string) *cobra.Command {
	texts := map[string][2]string{
		"ack":    {"Say that an event is done with", "Say that an event is done with."},
		"nack":   {"Have an event handed out again", "Have an event handed out again, after --delay."},
		"extend": {"Keep an event for longer", "Keep an event for longer: --visibility from now."},
		"reject": {"Make a dead letter of an event", "Make a dead letter of an event that no worker will ever take."},
	}
	var delay, visibility time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   verb + " ID TOKEN",
		Short: texts[verb][0],
		Long: texts[verb][1] + " The token is that of the hand-out; one of an\n" +
			"earlier hand-out has no effect, and the command fails.",
		Example: "  signalbox publish hello --data '\"" + verb + "\"'\n" +
			"  id=" + newID + " && signalbox subscription " + verb + " $id $(signalbox subscription fetch $id --json | sed 's/.*\"token\":\"\\([0-9.]*\\)\".*/\\1/')",
		Args: cobra.ExactArgs(2),
	}
	switch verb {
	case "nack":
		cmd.Flags().DurationVar(&delay, "delay", 0, "hand it out again after this time")
		cmd.Flags().StringVar(&reason, "reason", "", "`text` that the status shows as the last error")
	case "extend":
		cmd.Flags().DurationVar(&visibility, "visibility", 30*time.Second, "how long from now")
	case "reject":
		cmd.Flags().StringVar(&reason, "reason", "", "`text` that the dead letter has")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withTopics(func(c *client.Client, _ bool) error {
			switch verb {
			case "nack":
				return c.Nack(cmd.Context(), args[0], args[1], delay, reason)
			case "extend":
				return c.Extend(cmd.Context(), args[0], args[1], visibility)
			case "reject":
				return c.Reject(cmd.Context(), args[0], args[1], reason)
			}
			return c.Ack(cmd.Context(), args[0], args[1])
		})
	}
	return cmd
}

func (a *app) lettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, redrive and discard dead letters",
		Long: "An event that was rejected, was handed out too often, or kills its consumers is a dead letter of its subscription.\n" +
			"Redriven it is delivered again, to this subscription only; discarded it is gone, and the reason is logged.",
		Example: "  signalbox subscription dlq list " + newID,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.lettersListCommand(), a.lettersRedriveCommand(), a.lettersDiscardCommand())
	return cmd
}

// letterFlags select dead letters.
type letterFlags struct {
	filter client.LetterFilter
	at     []string
}

func (f *letterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.filter.Cause, "cause", "", "only those with this `cause`: attempts, rejected, quarantined or undelivered")
	cmd.Flags().StringVar(&f.filter.Topic, "topic", "", "only those from this `topic` or pattern")
	cmd.Flags().StringVar(&f.filter.Type, "type", "", "only events of this `type`")
	cmd.Flags().StringVar(&f.filter.Filter, "filter", "", "only events that pass this `expression` in CESQL")
}

func (f *letterFlags) parse() error {
	for _, text := range f.at {
		c, err := event.ParseCursor(text)
		if err != nil {
			return err
		}
		f.filter.Positions = append(f.filter.Positions, c)
	}
	return nil
}

func (a *app) lettersListCommand() *cobra.Command {
	f := &letterFlags{}
	cmd := &cobra.Command{
		Use:     "list ID",
		Short:   "List the dead letters of a subscription",
		Long:    "List the dead letters of a subscription, oldest first, with the cause and the event.",
		Example: "  signalbox subscription dlq list " + newID + " --cause quarantined",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				letters, err := c.DeadLetters(cmd.Context(), args[0], f.filter)
				if err != nil {
					return err
				}
				return a.writeLetters(letters, text)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) writeLetters(letters []client.SubscriptionLetter, text bool) error {
	if !text {
		for _, l := range letters {
			if err := writeJSON(a.out, l); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POSITION\tCAUSE\tATTEMPTS\tREDRIVES\tSTATE\tTOPIC\tID\tERROR")
	for _, l := range letters {
		id, _ := event.LookupJSON(l.Event, "id")
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", l.Position, l.Cause, l.Attempts, l.Redrives, l.State, oneLine(l.Topic), oneLine(id), oneLine(l.Error))
	}
	return w.Flush()
}

// movedSoFar tells a person how far a long call is.
func (a *app) movedSoFar(what string, text bool) func(int) {
	if !text {
		return nil
	}
	return func(moved int) { fmt.Fprintf(a.err, "%s %d\n", what, moved) }
}

func (a *app) lettersRedriveCommand() *cobra.Command {
	f := &letterFlags{}
	cmd := &cobra.Command{
		Use:   "redrive ID",
		Short: "Deliver dead letters again",
		Long: "Deliver dead letters again, to this subscription only, with the same ids: those at the positions given with --at, or\n" +
			"all that the other flags select. Quarantined ones go only if they are named or asked for. If as many events are pending\n" +
			"as may be, those that are left stay dead letters, and the exit status is 75.",
		Example: "  signalbox subscription dlq redrive " + newID + " --cause attempts",
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.at, "at", nil, "`positions` as listed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withTopics(func(c *client.Client, text bool) error {
			if err := f.parse(); err != nil {
				return err
			}
			moved, full, err := c.Redrive(cmd.Context(), args[0], f.filter, a.movedSoFar("redriven", text))
			if err != nil {
				return err
			}
			return a.writeMoved("redriven", moved, full, text)
		})
	}
	return cmd
}

func (a *app) lettersDiscardCommand() *cobra.Command {
	f := &letterFlags{}
	var reason string
	cmd := &cobra.Command{
		Use:   "discard ID",
		Short: "Remove dead letters for good",
		Long: "Remove dead letters for good: those at the positions given with --at, or all that the other flags select. The reason\n" +
			"is logged in the topic $subscriptions, with what was discarded.",
		Example: "  signalbox subscription dlq discard " + newID + " --cause rejected --reason 'sent by mistake'",
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.at, "at", nil, "`positions` as listed")
	cmd.Flags().StringVar(&reason, "reason", "", "`why`")
	_ = cmd.MarkFlagRequired("reason") // it exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withTopics(func(c *client.Client, text bool) error {
			if err := f.parse(); err != nil {
				return err
			}
			moved, err := c.Discard(cmd.Context(), args[0], f.filter, reason, a.movedSoFar("discarded", text))
			if err != nil {
				return err
			}
			return a.writeMoved("discarded", moved, false, text)
		})
	}
	return cmd
}

func (a *app) writeMoved(what string, moved int, full, text bool) error {
	err := error(nil)
	if text {
		_, err = fmt.Fprintf(a.out, "%d %s\n", moved, what)
	} else {
		err = writeJSON(a.out, map[string]any{what: moved, "full": full})
	}
	if full && err == nil {
		return exitError{code: exitUnavailable, text: "as many events are pending as may be; settle some and go on"}
	}
	return err
}
