// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

// publishFlags are the flags of publish.
type publishFlags struct {
	draft       event.Draft
	key         string
	data        string
	dataFile    string
	noData      bool
	ext         []string
	ttl         time.Duration
	hlc         string
	ifMatch     string
	ifAbsent    bool
	idempotency string
	eventsFile  string
	batch       int
}

func (a *app) publishCommand() *cobra.Command {
	f := &publishFlags{}
	cmd := &cobra.Command{
		Use:   "publish TOPIC",
		Short: "Publish an event, or a file of events",
		Long: "Publish one event and print its receipt once the event is durable.\n\n" +
			"The data comes from --data or --data-file (- is the standard input); data that is JSON is declared as such.\n" +
			"An event without data must be asked for with --no-data, because in a compacted topic it deletes its key.\n\n" +
			"With --events, publish a file that holds one CloudEvent in JSON per line, as follow and state write them; the\n" +
			"attributes that the broker added are left out. Every --batch lines are one atomic batch.",
		Example: "  signalbox publish hello --data '{\"greeting\":\"hi\"}'\n" +
			"  echo 'plain text' | signalbox publish hello --content-type text/plain --data-file -\n" +
			compactedExample +
			"  signalbox publish fleet.tasks --type task.completed --key T-998 --source /beta --data '{\"status\":\"COMPLETED\"}'\n" +
			"  signalbox publish fleet.tasks --key T-998 --no-data",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noneEmpty(cmd, "id", "source", "type", "subject", "key", "data-file", "content-type", "hlc", "if-match", "idempotency-key", "events"); err != nil {
				return err
			}
			if cmd.Flags().Changed("ttl") && (f.ttl < time.Second || f.ttl%time.Second != 0) {
				return usagef("--ttl is in whole seconds, from 1s")
			}
			return a.publish(cmd.Context(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.draft.ID, "id", "", "event `ID`; drawn at random when absent")
	fl.StringVar(&f.draft.Source, "source", "/signalbox-cli", "event source, a `URI` reference")
	fl.StringVar(&f.draft.Type, "type", "message", "event `type`")
	fl.StringVar(&f.draft.Subject, "subject", "", "event `subject`")
	fl.StringVar(&f.key, "key", "", "`key` of the entity the event is about (partitionkey)")
	fl.StringVar(&f.data, "data", "", "the data itself, as `text`")
	fl.StringVar(&f.dataFile, "data-file", "", "`file` that holds the data; - is the standard input")
	fl.BoolVar(&f.noData, "no-data", false, "publish no data; in a compacted topic this deletes the key")
	fl.StringVar(&f.draft.DataContentType, "content-type", "", "media `type` of the data")
	fl.StringArrayVar(&f.ext, "ext", nil, "extension attribute as `name=value`; may be repeated")
	fl.DurationVar(&f.ttl, "ttl", 0, "`duration` after which the event expires")
	fl.StringVar(&f.hlc, "hlc", "", "hybrid logical clock `stamp`; the broker stamps when absent")
	fl.StringVar(&f.ifMatch, "if-match", "", "publish only while this `cursor` is the key's state; * is any state")
	fl.BoolVar(&f.ifAbsent, "if-absent", false, "publish only while the key has no state")
	fl.StringVar(&f.idempotency, "idempotency-key", "", "name of the request: a repeat gets the first answer")
	fl.StringVar(&f.eventsFile, "events", "", "`file` of events, one per line; - is the standard input")
	fl.IntVar(&f.batch, "batch", 100, "lines per atomic batch with --events")
	cmd.MarkFlagsMutuallyExclusive("if-match", "if-absent")
	cmd.MarkFlagsMutuallyExclusive("data", "data-file", "no-data", "events")
	cmd.MarkFlagsOneRequired("data", "data-file", "no-data", "events")
	// What is said of one event would be ignored for a file of them; and a name of a request, a second batch could not have.
	for _, name := range []string{"id", "source", "type", "subject", "key", "content-type", "ext", "ttl", "hlc", "if-match", "if-absent", "idempotency-key"} {
		cmd.MarkFlagsMutuallyExclusive("events", name)
	}
	return cmd
}

func (a *app) publish(ctx context.Context, topic string, f *publishFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	if f.eventsFile != "" {
		return a.publishFile(ctx, c, topic, f, text)
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	if err := a.completeDraft(f); err != nil {
		return err
	}
	r, err := c.Publish(ctx, topic, f.draft, opts...)
	if err != nil {
		return err
	}
	return a.writeReceipt(r, text)
}

func (f *publishFlags) options() ([]client.PublishOption, error) {
	var opts []client.PublishOption
	if f.idempotency != "" {
		opts = append(opts, client.IdempotencyKey(f.idempotency))
	}
	switch {
	case f.ifAbsent:
		opts = append(opts, client.IfAbsent())
	case f.ifMatch == "*":
		opts = append(opts, client.IfPresent())
	case f.ifMatch != "":
		cur, err := event.ParseCursor(f.ifMatch)
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.IfPosition(cur.Position))
	}
	return opts, nil
}

// completeDraft reads the data and the extensions into the draft.
func (a *app) completeDraft(f *publishFlags) error {
	f.draft.Extensions = make(map[string]any, len(f.ext)+3)
	for _, e := range f.ext {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			return usagef("--ext %q is not name=value", e)
		}
		if _, twice := f.draft.Extensions[name]; twice {
			return usagef("--ext %s is there twice", name)
		}
		f.draft.Extensions[name] = value
	}
	if f.key != "" {
		f.draft.Extensions["partitionkey"] = f.key
	}
	if f.hlc != "" {
		f.draft.Extensions["hlc"] = f.hlc
	}
	if f.ttl != 0 {
		f.draft.Extensions["expiry"] = int64(f.ttl / time.Second)
	}
	switch {
	case f.noData:
	case f.dataFile != "":
		in, done, err := a.open(f.dataFile)
		if err != nil {
			return err
		}
		defer done()
		b, err := io.ReadAll(io.LimitReader(in, event.MaxMaxEventBytes+1))
		if err != nil {
			return fmt.Errorf("read the data: %w", err)
		}
		f.draft.Data = append([]byte{}, b...) // Empty data is data: nil would be none.
	default:
		f.draft.Data = append([]byte{}, f.data...)
	}
	return nil
}

// open opens a file, or the standard input for "-".
func (a *app) open(name string) (io.Reader, func(), error) {
	if name == "-" {
		return a.in, func() {}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return file, func() { _ = file.Close() }, nil
}

// publishFile publishes a file of events in atomic batches.
func (a *app) publishFile(ctx context.Context, c *client.Client, topic string, f *publishFlags, text bool) error {
	if f.batch < 1 || f.batch > event.MaxBatch {
		return usagef("--batch is from 1 to %d", event.MaxBatch)
	}
	in, done, err := a.open(f.eventsFile)
	if err != nil {
		return err
	}
	defer done()
	var batch []*event.Event
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		rs, err := c.PublishBatch(ctx, topic, batch)
		if err != nil {
			return err
		}
		batch = batch[:0]
		for _, r := range rs {
			if err := a.writeReceipt(r, text); err != nil {
				return err
			}
		}
		return nil
	}
	err = eachEvent(in, f.eventsFile, func(ev *event.Event) error {
		if batch = append(batch, ev); len(batch) == f.batch {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// eachEvent reads one CloudEvent in JSON per line. Blank lines are passed over.
func eachEvent(in io.Reader, name string, each func(*event.Event) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, event.MaxMaxEventBytes+1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		ev, err := event.DecodeDelivered(lines.Bytes())
		if err != nil {
			e := *event.AsError(err)
			e.Message = fmt.Sprintf("%s line %d: %s", name, n, e.Message)
			return &e
		}
		if err := each(ev); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (a *app) writeReceipt(r event.Receipt, text bool) error {
	if !text {
		return writeJSON(a.out, r)
	}
	at := "-" // on an ephemeral topic
	if r.Position != 0 {
		at = r.Cursor.String()
	}
	_, err := fmt.Fprintf(a.out, "%s  %s  %s  id %s\n", r.Outcome, at, oneLine(r.Topic), oneLine(r.ID))
	return err
}
