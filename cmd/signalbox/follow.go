// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

// followFlags are the flags of follow.
type followFlags struct {
	cursor     string
	afterID    string
	cursorFile string
	view       string
	filter     string
	onReset    string
	untilSync  bool
	count      int
	agent      string
}

func (a *app) followCommand() *cobra.Command {
	f := &followFlags{}
	cmd := &cobra.Command{
		Use:   "follow TOPIC...",
		Short: "Follow topics: first what is there, then what comes",
		Long: "Print the events of topics, or of patterns of topics, first those that exist and then those that come.\n" +
			"In a pattern * stands for one token and a trailing > for all that follow; quote them for the shell.\n\n" +
			"A broken connection is resumed where it broke. With --cursor-file the place survives the command as well: it\n" +
			"is read at the start and written behind every event that was printed.\n\n" +
			"With --filter only those events come that pass an expression in CESQL; data.NAME is a value in JSON data.",
		Example: "  signalbox publish hello --data '{\"greeting\":\"hi\"}'\n" +
			"  signalbox follow hello --until-synced\n" +
			"  signalbox follow 'fleet.>' --until-synced --json\n" +
			"  signalbox follow hello --count 1\n" +
			"  signalbox follow hello --filter \"data.greeting LIKE 'h%'\" --until-synced\n" +
			"  signalbox follow hello --cursor-file hello.cursor --until-synced",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noneEmpty(cmd, "cursor", "after-id", "cursor-file", "view", "filter", "agent"); err != nil {
				return err
			}
			return a.follow(cmd.Context(), args, f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.cursor, "cursor", "", "begin after this `cursor`, at an RFC 3339 time, or \"now\"; default is the oldest event")
	fl.StringVar(&f.afterID, "after-id", "", "begin after the event with this `ID` (one topic only)")
	fl.StringVar(&f.cursorFile, "cursor-file", "", "keep the place in this `file`")
	fl.StringVar(&f.view, "view", "", "`current` or history; default is the topic's own")
	fl.StringVar(&f.filter, "filter", "", "only events that pass this CESQL `expression`")
	fl.StringVar(&f.onReset, "on-reset", "fail", "when events are gone that were not seen yet: `fail`, oldest (go on with what is left) or state (print the state, then go on)")
	fl.BoolVar(&f.untilSync, "until-synced", false, "end once everything that exists is printed")
	fl.IntVar(&f.count, "count", 0, "end after this many events; 0 is never")
	fl.StringVar(&f.agent, "agent", "", "`name` under which others see you with \"signalbox presence\": a URI-reference such as /agents/beta")
	cmd.MarkFlagsMutuallyExclusive("cursor", "after-id")
	return cmd
}

func (a *app) follow(ctx context.Context, topics []string, f *followFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	// Someone who follows waits for as long as it takes, and is told so.
	c, err := a.client(client.WithRetry(client.Retry{}))
	if err != nil {
		return err
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	o.OnRetry = func(err error, wait time.Duration) {
		if err != nil {
			fmt.Fprintf(a.err, "signalbox: %s; trying again in %s\n", oneLine(err.Error()), wait.Round(10*time.Millisecond))
		}
	}
	switch f.onReset {
	case "fail":
	case "oldest":
		o.OnReset = client.ResetToOldest
	case "state":
		o.OnReset = func(ctx context.Context, _ *client.Reset) (event.Cursor, error) {
			return a.printState(ctx, c, topics, f.filter, text)
		}
	default:
		return usagef("--on-reset is fail, oldest or state, not %q", f.onReset)
	}
	seen := 0
	for item, err := range c.Follow(ctx, topics, o) {
		if err != nil {
			// Following has no end of its own: an interrupt is how one leaves it.
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		done, err := a.followed(item, f, text, &seen)
		if err != nil || done {
			return err
		}
	}
	return nil
}

// followed prints one item and then notes it as seen, in this order: an event that was not printed must come again.
func (a *app) followed(item client.Item, f *followFlags, text bool, seen *int) (done bool, err error) {
	switch item.Kind {
	case client.ItemEvent:
		if err := writeEvent(a.out, item.Event, text); err != nil {
			return false, err
		}
		*seen++
		done = f.count > 0 && *seen >= f.count
	case client.ItemSynced:
		if text {
			fmt.Fprintf(a.err, "-- up to date at %s\n", item.Cursor)
		}
		done = f.untilSync
	case client.ItemReset:
		fmt.Fprintf(a.err, "signalbox: %s: %s\n", item.Reset.Code, oneLine(inFlags(item.Reset.Detail)))
		return false, nil
	}
	return done, f.saveCursor(item.Cursor)
}

// options translates the flags.
func (f *followFlags) options() (client.FollowOptions, error) {
	o := client.FollowOptions{View: f.view, Filter: f.filter, EventID: f.afterID, Agent: f.agent}
	if f.count < 0 {
		return o, usagef("--count is from 0")
	}
	start, origin := f.cursor, "--cursor"
	if f.cursorFile != "" {
		b, err := os.ReadFile(f.cursorFile)
		switch {
		case err == nil:
			// The file knows better: the flags say where to begin for the first time.
			start, o.EventID, origin = strings.TrimSpace(string(b)), "", "what is in "+f.cursorFile
			if start == "" { // of a machine that failed, perhaps: beginning anew would not be noticed
				return o, usagef("there is no place in %s: put a cursor there, or remove it to begin as without it", f.cursorFile)
			}
		case !errors.Is(err, fs.ErrNotExist):
			return o, err
		}
	}
	switch {
	case start == "":
	case start == "now":
		o.Now = true
	case strings.HasPrefix(start, "@"):
		cur, err := event.ParseCursor(start)
		if err != nil {
			return o, err
		}
		o.Cursor = cur
	default:
		at, err := time.Parse(time.RFC3339, start)
		if err != nil {
			return o, usagef("%s, %q, is neither a cursor, nor an RFC 3339 time, nor now", origin, start)
		}
		o.Since = at
	}
	return o, nil
}

// saveCursor replaces the cursor file in one step, so that a crash leaves the old place or the new one.
func (f *followFlags) saveCursor(cur event.Cursor) error {
	if f.cursorFile == "" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.cursorFile), filepath.Base(f.cursorFile)+".*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(tmp, cur)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), f.cursorFile)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
