// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
	"signalbox/internal/filter"
)

// filterInputMax bounds what is read of a filter's or an event's file: more than the largest event, which is larger than
// the largest filter.
const filterInputMax = event.MaxMaxEventBytes + 64<<10

// filterFlags are the flags of the filter commands.
type filterFlags struct {
	file     string
	document string
	strict   bool
	topics   []string
	last     int
	event    string
	at       string
}

func (a *app) filterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "Check, explain and try filters",
		Long: "A filter says which events concern a reader, in CESQL or in the dialects of the CloudEvents Subscriptions API.\n" +
			"\"filter check\" parses one, \"filter run\" tries it on the events that the broker has, and \"filter explain\" says why\n" +
			"an event passes or does not. The language is described in docs/filters.md.",
		Example: "  signalbox filter check \"type = 'system.alert' AND data.severity >= 4\"",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.filterCheckCommand(), a.filterExplainCommand(), a.filterRunCommand())
	return cmd
}

// define defines the flags that all filter commands have.
func (f *filterFlags) define(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.file, "file", "", "read the expression from this `file`; - is the standard input")
	fl.StringVar(&f.document, "document", "", "read an array of filters in the dialects from this `file`; - is the standard input")
	fl.BoolVar(&f.strict, "strict", false, "refuse what is not in the standard, such as paths into data")
	cmd.MarkFlagsMutuallyExclusive("file", "document")
}

func (f *filterFlags) defineTopics(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.topics, "topics", nil, "only events of these topics or `patterns`; default is all but the broker's own")
}

func (a *app) filterCheckCommand() *cobra.Command {
	f := &filterFlags{}
	cmd := &cobra.Command{
		Use:   "check [TEXT]",
		Short: "Parse a filter and print it in one spelling",
		Long: "Parse a filter, without a broker, and print its canonical form: filters that have the same one select the same\n" +
			"events. A fault is shown with a caret under its place, and the exit status is 2.",
		Example: "  signalbox filter check \"type = 'system.alert' AND data.severity >= 4\"\n" +
			"  echo '[{\"prefix\":{\"type\":\"system.\"}},{\"sql\":\"EXISTS severity\"}]' | signalbox filter check --document -\n" +
			"  signalbox filter check --strict \"type LIKE 'system.%'\"",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.filterCheck(args, f) },
	}
	f.define(cmd)
	return cmd
}

func (a *app) filterExplainCommand() *cobra.Command {
	f := &filterFlags{}
	cmd := &cobra.Command{
		Use:   "explain [TEXT]",
		Short: "Say why an event passes a filter or does not",
		Long: "Evaluate a filter on one event, part by part: which hold, which do not, what the attributes are, where there was an\n" +
			"error, and what was not reached because the parts before it had decided.\n\n" +
			"The event is that in a file (--event, without a broker), that at a position in the broker's log (--at), or else the\n" +
			"latest one of the topics.",
		Example: "  signalbox publish hello --data '{\"greeting\":\"hi\"}'\n" +
			"  signalbox filter explain \"data.greeting = 'ho' AND EXISTS severity\" --topics hello\n" +
			"  signalbox follow hello --count 1 --json | signalbox filter explain \"severity > 3\" --event -",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.filterExplain(cmd.Context(), args, f) },
	}
	f.define(cmd)
	f.defineTopics(cmd)
	cmd.Flags().StringVar(&f.event, "event", "", "the event is in this `file`, in JSON; - is the standard input")
	cmd.Flags().StringVar(&f.at, "at", "", "the event is the one at this `cursor`, such as @105")
	cmd.MarkFlagsMutuallyExclusive("event", "at")
	cmd.MarkFlagsMutuallyExclusive("event", "topics")
	return cmd
}

func (a *app) filterRunCommand() *cobra.Command {
	f := &filterFlags{}
	cmd := &cobra.Command{
		Use:   "run [TEXT]",
		Short: "Try a filter on the latest events",
		Long: "Try a filter on the latest events that the broker retains: how many match, the latest of these, on how many there was\n" +
			"an error, and which clauses kept the others from matching. Nothing is changed.",
		Example: "  signalbox publish hello --data '{\"greeting\":\"hi\"}'\n" +
			"  signalbox filter run \"data.greeting LIKE 'h%'\" --topics hello\n" +
			"  signalbox filter run \"type = 'system.alert' AND severity > 3\" --last 5000 --format text",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.filterRun(cmd.Context(), args, f) },
	}
	f.define(cmd)
	f.defineTopics(cmd)
	cmd.Flags().IntVar(&f.last, "last", 1000, "look at this many of the latest events, at most 10,000")
	return cmd
}

// dryRun reads the filter, and says what the flags ask for.
func (a *app) dryRun(args []string, f *filterFlags) (d client.DryRun, err error) {
	given := len(args)
	for _, file := range []string{f.file, f.document} {
		if file != "" {
			given++
		}
	}
	if given != 1 {
		return d, usagef("give one filter: an expression, or --file, or --document")
	}
	d = client.DryRun{Strict: f.strict, Topics: f.topics, Last: f.last}
	var b []byte
	switch {
	case f.file != "":
		b, err = a.readInput(f.file)
		d.Filter = strings.TrimRight(string(b), "\r\n")
	case f.document != "":
		b, err = a.readInput(f.document)
		d.Filters = b
	default:
		d.Filter = args[0]
	}
	return d, err
}

// readInput reads a file, or the standard input.
func (a *app) readInput(name string) ([]byte, error) {
	in := a.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	b, err := io.ReadAll(io.LimitReader(in, filterInputMax+1))
	if err == nil && len(b) > filterInputMax {
		err = fmt.Errorf("%s is larger than %d bytes", name, filterInputMax)
	}
	return b, err
}

// parseHere parses a filter without a broker.
func parseHere(d client.DryRun) (*filter.Filter, error) {
	o := filter.Options{Strict: d.Strict}
	if d.Filters != nil {
		return o.ParseDocument(d.Filters)
	}
	return o.ParseText(d.Filter)
}

// showCaret shows where in its text a filter is at fault, and returns the error.
func (a *app) showCaret(err error) error {
	if e := (*event.Error)(nil); errors.As(err, &e) {
		if caret, ok := e.Facts["caret"].(string); ok {
			for line := range strings.SplitSeq(caret, "\n") {
				fmt.Fprintln(a.err, oneLine(line))
			}
		}
	}
	return err
}

func (a *app) filterCheck(args []string, flags *filterFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	d, err := a.dryRun(args, flags)
	if err != nil {
		return err
	}
	f, err := parseHere(d)
	if err != nil {
		return a.showCaret(err)
	}
	if !text {
		return writeJSON(a.out, map[string]string{"canonical": f.Text()})
	}
	_, err = fmt.Fprintln(a.out, oneLine(f.Text()))
	return err
}

// verdict is what becomes of one event.
type verdict struct {
	client.DryRunVerdict
	Explanation filter.Explanation `json:"explanation"` // in place of the client's, which cannot be rendered
}

func (a *app) filterExplain(ctx context.Context, args []string, flags *filterFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if flags.event == "-" && (flags.file == "-" || flags.document == "-") {
		return usagef("the standard input cannot be both the filter and the event")
	}
	d, err := a.dryRun(args, flags)
	if err != nil {
		return err
	}
	var v verdict
	if flags.event != "" {
		v, err = a.explainHere(d, flags.event)
	} else {
		v, err = a.explainThere(ctx, d, flags.at)
	}
	if err != nil {
		return a.showCaret(err)
	}
	if !text {
		return writeJSON(a.out, v)
	}
	if _, err := io.WriteString(a.out, v.Explanation.String()); err != nil {
		return err
	}
	place := ""
	if v.Cursor != nil {
		place = v.Cursor.String() + " "
	}
	fmt.Fprintf(a.err, "-- event %s%s of %s %s\n", place, oneLine(v.ID), oneLine(v.Source), v.says())
	return nil
}

func (v *verdict) says() string {
	switch {
	case !v.Passes:
		return "does not pass"
	case v.Explanation.Passes:
		return "passes"
	}
	return "passes: it removes a key, and the filter looks into data, which it does not have"
}

// explainHere evaluates the filter on an event of a file.
func (a *app) explainHere(d client.DryRun, file string) (v verdict, err error) {
	f, err := parseHere(d)
	if err != nil {
		return v, err
	}
	b, err := a.readInput(file)
	if err != nil {
		return v, err
	}
	e, err := event.DecodeDelivered(b)
	if err != nil {
		return v, err
	}
	var r filter.Record
	var m filter.Machine
	r.FillFrom(e)
	v.Explanation = m.Explain(f, r.Event())
	v.Source, v.ID, v.Passes = e.Source(), e.ID(), v.Explanation.Passes
	return v, nil
}

// explainThere has the broker evaluate the filter on an event that it has.
func (a *app) explainThere(ctx context.Context, d client.DryRun, at string) (v verdict, err error) {
	d.Last, d.Latest = 1, at == ""
	if at != "" {
		if d.Cursor, err = event.ParseCursor(at); err != nil {
			return v, err
		}
	}
	c, err := a.client()
	if err != nil {
		return v, err
	}
	r, err := c.DryRun(ctx, d)
	switch {
	case err != nil:
		return v, err
	case r.Explained == nil && !r.Complete:
		return v, errors.New("the broker had no time to find the event; try again, or name fewer topics")
	case r.Explained == nil:
		return v, errors.New("the topics have no event that could be explained; publish one, or give one with --event")
	}
	return verdict{DryRunVerdict: *r.Explained, Explanation: renderable(r.Explained.Explanation)}, nil
}

// renderable is an explanation that a broker sent, as the package knows it that renders explanations.
func renderable(x client.Explanation) filter.Explanation {
	out := filter.Explanation{Clause: x.Clause, Passes: x.Passes, Reached: x.Reached, Value: x.Value, Errors: x.Errors}
	for _, part := range x.Parts {
		out.Parts = append(out.Parts, renderable(part))
	}
	return out
}

func (a *app) filterRun(ctx context.Context, args []string, flags *filterFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if flags.last < 1 {
		return usagef("--last is a number of events from 1 on, not %d", flags.last)
	}
	d, err := a.dryRun(args, flags)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	r, err := c.DryRun(ctx, d)
	if err != nil {
		return a.showCaret(err)
	}
	if !text {
		return writeJSON(a.out, r)
	}
	return a.writeDryRun(&r)
}

func (a *app) writeDryRun(r *client.DryRunReport) error {
	fmt.Fprintf(a.out, "%s\n%d of the latest %d events match", oneLine(r.Canonical), r.Matched, r.Events)
	if r.Errors > 0 {
		fmt.Fprintf(a.out, "; on %d there was an error", r.Errors)
	}
	fmt.Fprintln(a.out)
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if len(r.Matches) > 0 {
		fmt.Fprintln(w, "\nMATCH\tTOPIC\tID\tSOURCE")
		for _, m := range r.Matches {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Cursor, oneLine(m.Topic), oneLine(m.ID), oneLine(m.Source))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(r.Failures) > 0 {
		fmt.Fprintln(w, "\nEVENTS\tFAILED AT")
		for _, f := range r.Failures {
			met := ""
			if len(f.Errors) > 0 {
				met = ": " + oneLine(strings.Join(f.Errors, ", "))
			}
			fmt.Fprintf(w, "%d\t%s%s\n", f.Events, oneLine(f.Clause), met)
		}
	}
	if !r.Complete {
		fmt.Fprintln(a.err, "-- the time was up before all events were looked at")
	}
	return w.Flush()
}
