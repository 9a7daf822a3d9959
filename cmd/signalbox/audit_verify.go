// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/audit"
)

type auditVerifyFlags struct {
	key         string
	checkpoints []string
}

func (a *app) auditVerifyCommand() *cobra.Command {
	f := &auditVerifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check an export of the audit trail, without a broker",
		Long: "Check an export: that every entry gives its leaf and every body its digest, that the chain goes on from leaf to\n" +
			"leaf, and that what was signed is what is there. It needs the public key, and finds a log that was cut or replaced\n" +
			"by the checkpoints that were kept elsewhere.\n\n" +
			"Each finding names the first entry that it is about; the rest is still checked. With findings the status is 3.",
		Example: "  signalbox audit key > audit.pub && signalbox audit export > trail.ndjson\n" +
			"  signalbox audit verify trail.ndjson --key audit.pub\n" +
			"  signalbox audit checkpoint --newest > checkpoints.txt\n" +
			"  signalbox audit verify trail.ndjson --key audit.pub --checkpoint checkpoints.txt",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.auditVerify(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringVar(&f.key, "key", "", "public `key` of the checkpoints, or a file that has one or more")
	cmd.Flags().StringArrayVar(&f.checkpoints, "checkpoint", nil, "`file` of checkpoints that were kept; may be repeated")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func (a *app) auditVerify(ctx context.Context, name string, f *auditVerifyFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	keys, err := readKeys(f.key)
	if err != nil {
		return err
	}
	checkpoints, err := readCheckpoints(f.checkpoints, keys)
	if err != nil {
		return err
	}
	in, done, err := a.open(name)
	if err != nil {
		return err
	}
	defer done()
	m := a.meter()
	report, err := audit.Verify(ctx, in, audit.VerifyOptions{Keys: keys, Checkpoints: checkpoints, Progress: func(entries, bytes uint64) {
		m.say("checking: %d entries, %s", entries, sizeText(int64(bytes)))
	}})
	m.clear()
	if err != nil {
		return err
	}
	if text {
		a.writeAuditReport(name, &report)
	} else if err := writeJSON(a.out, report); err != nil {
		return err
	}
	if report.Total > 0 {
		return exitError{code: event.CodeStoreDamaged.Class().Exit,
			text: fmt.Sprintf("%s: the export does not hold in %s; the first is entry %d. Export again from a broker that you trust, and find out who can write to the data, or to the export.", event.CodeStoreDamaged, many(report.Total, "place", "places"), report.Findings[0].Index)}
	}
	return nil
}

func (a *app) writeAuditReport(name string, r *audit.Report) {
	fmt.Fprintf(a.out, "%s: checked %s from %d on, %d of them with their bodies, against %s\n", oneLine(name), many(r.Size-r.From, "entry", "entries"), r.From, r.Bodies, many(len(r.Compared), "checkpoint", "checkpoints"))
	if r.Unknown > 0 {
		fmt.Fprintf(a.out, "Written before entries were kept, so that only their being there is known: %s\n", many(r.Unknown, "entry", "entries"))
	}
	for _, f := range r.Findings {
		where := ""
		if f.Line > 0 {
			where = fmt.Sprintf(", line %d", f.Line)
		}
		fmt.Fprintf(a.out, "\n%s, entry %d%s\n  %s\n", f.What, f.Index, where, oneLine(f.Explanation))
	}
	switch {
	case r.Total > len(r.Findings):
		fmt.Fprintf(a.out, "\nNot listed: %s.\n", many(r.Total-len(r.Findings), "more finding", "more findings"))
	case r.Total == 0:
		fmt.Fprintf(a.out, "All of it is as it was signed. %s, root %s, chain %s\n", many(r.Size, "entry", "entries"), r.Root, r.Chain)
	}
}

// resumeAt cuts a line that an interruption has left, and returns the index that follows the last entry of an export.
func resumeAt(f *os.File) (next uint64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return 0, err
	}
	for window := int64(64 << 10); ; window *= 2 {
		from := max(0, size-window)
		b := make([]byte, size-from)
		if _, err := f.ReadAt(b, from); err != nil {
			return 0, err
		}
		end := bytes.LastIndexByte(b, '\n') + 1
		lines := bytes.SplitAfter(b[:end], []byte{'\n'})
		if from > 0 {
			lines = lines[1:] // it may have begun before
		}
		for i := len(lines) - 1; i >= 0; i-- {
			var scratch []byte
			line := bytes.TrimSuffix(lines[i], []byte{'\n'})
			l, err := audit.ParseLine(line, &scratch)
			if err == nil {
				next = l.Index + 1
				break
			}
			if strings.HasPrefix(string(line), `{"start":`) {
				return 0, restart(f)
			}
		}
		if next == 0 && from == 0 {
			return 0, restart(f)
		}
		if next == 0 {
			continue
		}
		if err := f.Truncate(from + int64(end)); err != nil {
			return 0, err
		}
		_, err = f.Seek(0, io.SeekEnd)
		return next, err
	}
}

// restart empties a file that has no entry, unless it is something else.
func restart(f *os.File) error {
	head := make([]byte, len(`{"start":`))
	if n, _ := f.ReadAt(head, 0); !strings.HasPrefix(`{"start":`, string(head[:n])) {
		return usagef("%s is no export of an audit trail", f.Name())
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}
