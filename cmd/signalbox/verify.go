// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
)

func (a *app) verifyCommand() *cobra.Command {
	var data, key string
	var checkpoints []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check a data directory for damage",
		Long: "Check a data directory that no broker has open: the checksums of its files, that every row can be read, and that\n" +
			"events, states, counts and the audit chain agree with each other. Nothing is changed.\n\n" +
			"With --checkpoint, the audit trail is also held against checkpoints that were kept elsewhere (see \"signalbox audit\"):\n" +
			"only they show that the end of the log was cut off, or that all of it was replaced.\n\n" +
			"What is wrong is printed with where it is and what to do; the status is then 3.",
		Example: "  signalbox verify\n" +
			"  signalbox verify --data ./other-data --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.verify(cmd.Context(), data, key, checkpoints) },
	}
	cmd.Flags().StringVar(&data, "data", envOr("SIGNALBOX_DATA", "./signalbox-data"), "data `directory`; the environment variable SIGNALBOX_DATA sets the default")
	cmd.Flags().StringVar(&key, "key", "", "public `key` of the checkpoints, or a file that has one or more")
	cmd.Flags().StringArrayVar(&checkpoints, "checkpoint", nil, "`file` of checkpoints that were kept; may be repeated")
	cmd.MarkFlagsRequiredTogether("key", "checkpoint")
	return cmd
}

func (a *app) verify(ctx context.Context, data, key string, checkpoints []string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if err := existingDir(data); err != nil {
		return err
	}
	var kept []audit.Checkpoint
	if len(checkpoints) > 0 {
		keys, err := readKeys(key)
		if err != nil {
			return err
		}
		if kept, err = readCheckpoints(checkpoints, keys); err != nil {
			return err
		}
	}
	m := a.meter()
	report, err := broker.VerifyAgainst(ctx, data, nil, kept, m.checking())
	m.clear()
	if err != nil {
		return err
	}
	if !text {
		err = writeJSON(a.out, report)
	} else {
		a.writeReport(report)
	}
	if err == nil && report.Total > 0 {
		err = exitError{code: event.CodeStoreDamaged.Class().Exit,
			text: fmt.Sprintf("%s: %s has damage in %s. Follow the advice that is given with each, or restore a backup.", event.CodeStoreDamaged, data, many(report.Total, "place", "places"))}
	}
	return err
}

// checking returns a function that says now and then how far a verification is.
func (m *meter) checking() func(broker.VerifyProgress) {
	return func(p broker.VerifyProgress) {
		of := ""
		if p.Total > 0 {
			of = fmt.Sprintf(" of %d", p.Total)
		}
		m.say("checking %s: %d%s", p.Step, p.Done, of)
	}
}

// writeReport prints a report for people.
func (a *app) writeReport(r broker.VerifyReport) {
	var counts []string
	for _, c := range r.Counts {
		counts = append(counts, fmt.Sprintf("%d %s", c.N, c.What))
	}
	fmt.Fprintf(a.out, "%s: checked %s\n", r.Dir, strings.Join(counts, ", "))
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "\n%s%s\n  %s\n  What to do: %s\n", oneLine(f.What), where(f), oneLine(f.Explanation), oneLine(f.Action))
	}
	switch {
	case r.Total > len(r.Findings):
		fmt.Fprintf(a.out, "\nNot listed: %s.\n", many(r.Total-len(r.Findings), "more finding", "more findings"))
	case r.Total == 0:
		fmt.Fprintf(a.out, "No damage. The log ends at %s, the audit chain at %s.\n", r.Cursor, r.Chain)
	}
}

// where says what a finding is about.
func where(f broker.VerifyFinding) string {
	var b strings.Builder
	if f.File != "" {
		fmt.Fprintf(&b, ", file %s", oneLine(f.File))
	}
	if f.Topic != "" {
		fmt.Fprintf(&b, ", topic %s", oneLine(f.Topic))
	}
	if f.Position != 0 {
		fmt.Fprintf(&b, ", position %d", f.Position)
	}
	if f.Key != "" {
		fmt.Fprintf(&b, ", key %s", oneLine(f.Key))
	}
	if f.Leaf != nil {
		fmt.Fprintf(&b, ", leaf %d", *f.Leaf)
	}
	return b.String()
}
