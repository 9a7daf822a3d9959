// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/broker"
)

// progressEvery is how often verify says how far it is.
const progressEvery = 500 * time.Millisecond

func (a *app) verifyCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check a data directory for damage",
		Long: "Check a data directory that no broker has open: the checksums of its files, that every row can be read, and that\n" +
			"events, states, counts and the audit chain agree with each other. Nothing is changed.\n\n" +
			"What is wrong is printed with where it is and what to do; the status is then 3.",
		Example: "  signalbox verify\n" +
			"  signalbox verify --data ./other-data --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.verify(cmd.Context(), data) },
	}
	cmd.Flags().StringVar(&data, "data", envOr("SIGNALBOX_DATA", "./signalbox-data"), "data `directory`; the environment variable SIGNALBOX_DATA sets the default")
	return cmd
}

func (a *app) verify(ctx context.Context, data string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	// A directory that does not exist has no damage; to say so would hide a misspelt name.
	if info, err := os.Stat(data); err != nil {
		return fmt.Errorf("%w; name the data directory with --data", err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; name the data directory with --data", data)
	}
	report, err := broker.Verify(ctx, data, nil, a.progress())
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
			text: fmt.Sprintf("%s: %s has damage in %d places. Follow the advice that is given with each, or restore a backup.", event.CodeStoreDamaged, data, report.Total)}
	}
	return err
}

// progress returns a function that says now and then how far a verification is: on a terminal, over the same line.
func (a *app) progress() func(broker.VerifyProgress) {
	var (
		mu   sync.Mutex
		last = time.Now()
	)
	start, end := "", "\n"
	if isTerminal(a.err) {
		start, end = "\r\x1b[K", ""
	}
	return func(p broker.VerifyProgress) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		of := ""
		if p.Total > 0 {
			of = fmt.Sprintf(" of %d", p.Total)
		}
		fmt.Fprintf(a.err, "%schecking %s: %d%s%s", start, p.Step, p.Done, of, end)
	}
}

// writeReport prints a report for people.
func (a *app) writeReport(r broker.VerifyReport) {
	if isTerminal(a.err) {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
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
		fmt.Fprintf(a.out, "\n%d more findings are not listed.\n", r.Total-len(r.Findings))
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
