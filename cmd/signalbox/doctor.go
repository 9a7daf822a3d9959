// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	f, quick, strict := &configFlags{}, false, false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine this machine and a data directory, and say what to do",
		Long: "Examine the machine (file system, free space, how long a sync takes, limits, memory, clock, port, kernel) and the\n" +
			"data directory (who has it open, damage and where, whether it is a copy, what takes the room). Each finding says\n" +
			"what it means and what to do. Nothing is changed; a small file is written and removed to measure syncs. While a\n" +
			"broker runs its data are not read.\n\n" +
			"Exit status: 0 if nothing needs doing at once; 3 if data are damaged; 1 if something else is critical, or with\n" +
			"--strict deserves a warning.",
		Example: "  signalbox doctor\n" +
			"  signalbox doctor --data ./other-data --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), f, quick, strict) },
	}
	f.register(cmd, "data", "listen", "min_free")
	cmd.Flags().BoolVar(&quick, "quick", false, "do not read all data, which can take minutes")
	cmd.Flags().BoolVar(&strict, "strict", false, "a warning gives the status 1, too")
	return cmd
}

func (a *app) doctor(ctx context.Context, f *configFlags, quick, strict bool) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := f.resolve()
	if err != nil {
		return err
	}
	m := a.meter()
	report, err := doctor.Examine(ctx, doctor.Options{Dir: c.Data, Listen: c.Listen, MinFree: uint64(c.MinFree), Quick: quick, Progress: m.checking()})
	m.clear()
	if err != nil {
		return err
	}
	if !text {
		err = writeJSON(a.out, report)
	} else {
		a.writeFindings(report)
	}
	worst := report.Worst()
	switch {
	case err != nil:
		return err
	case report.Damaged:
		return exitError{code: event.CodeStoreDamaged.Class().Exit, text: fmt.Sprintf("%s: %s is damaged. Follow the advice that is given with each finding.", event.CodeStoreDamaged, c.Data)}
	case worst == doctor.Critical, strict && worst == doctor.Warning:
		return exitError{code: exitFailure, text: "something needs doing; the findings say what"}
	}
	return nil
}

func (a *app) writeFindings(r doctor.Report) {
	fmt.Fprintf(a.out, "This machine, and %s\n", oneLine(r.Dir))
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "\n%-8s  %s: %s\n", f.Severity, f.Check, oneLine(f.What))
		if f.Meaning != "" {
			fmt.Fprintf(a.out, "          %s\n", oneLine(f.Meaning))
		}
		if f.Action != "" {
			fmt.Fprintf(a.out, "          What to do: %s\n", oneLine(f.Action))
		}
	}
}
