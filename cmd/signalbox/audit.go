// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/audit"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Prove what is in the log, and check it without the broker",
		Long: "Every decision of the broker has an entry in its audit trail, a hash chain with a Merkle tree over it, of which the\n" +
			"broker signs checkpoints. Keep the public key and some checkpoints where the broker's operator cannot change them:\n" +
			"with these an export of the trail is checked by itself, and a changed, cut or replaced log is found out.",
		Example: "  signalbox audit key > audit.pub\n" +
			"  signalbox audit checkpoint >> checkpoints.txt\n" +
			"  signalbox audit export > trail.ndjson\n" +
			"  signalbox audit verify trail.ndjson --key audit.pub --checkpoint checkpoints.txt",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.auditKeyCommand(), a.auditCheckpointCommand(), a.auditProofCommand(), a.auditEntriesCommand(), a.auditTraceCommand(), a.auditExportCommand(), a.auditVerifyCommand())
	return cmd
}

func (a *app) auditKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key of the broker's checkpoints",
		Long: "Print the public key with which the broker's checkpoints are checked. It is drawn when a data directory is created,\n" +
			"and stays. Fetch it once, by a connection that you trust.",
		Example: "  signalbox audit key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			key, err := c.AuditKey(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, key)
			return err
		},
	}
}

func (a *app) auditCheckpointCommand() *cobra.Command {
	var newest bool
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Print a signed checkpoint",
		Long: "Have the broker sign a checkpoint over all that it has acknowledged so far, and print it: a signed note with the\n" +
			"number of entries, the root of the tree, the head of the chain and the time. Append them to a file to keep them;\n" +
			"an empty line ends each.",
		Example: "  signalbox audit checkpoint\n" +
			"  signalbox audit checkpoint --newest",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			text, err := c.Checkpoint(cmd.Context(), !newest)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&newest, "newest", false, "take the newest that has been signed, and sign no other")
	return cmd
}

type proofFlags struct {
	position, leaf uint64
	since, key     string
}

func (a *app) auditProofCommand() *cobra.Command {
	f := &proofFlags{}
	cmd := &cobra.Command{
		Use:   "proof",
		Short: "Prove that an event is in the trail, or that a checkpoint is its beginning",
		Long: "Print the proof, a JSON document, that the event at a position (or any entry, by its index) is in the audit trail as\n" +
			"it was signed; or, with --since, that the trail of an earlier checkpoint is the beginning of what it is now. With\n" +
			"--key the proof is checked as well, and one that does not hold is an error.",
		Example: "  signalbox publish fleet.notes --id 7 --source /me --type note --no-data\n" +
			"  signalbox audit proof --position 1\n" +
			"  signalbox audit key > audit.pub && signalbox audit checkpoint > earlier.txt\n" +
			"  signalbox audit proof --leaf 0 --key audit.pub\n" +
			"  signalbox audit proof --since earlier.txt --key audit.pub",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.auditProof(cmd, f) },
	}
	fl := cmd.Flags()
	fl.Uint64Var(&f.position, "position", 0, "prove the event at this `position`")
	fl.Uint64Var(&f.leaf, "leaf", 0, "prove the entry with this `index`")
	fl.StringVar(&f.since, "since", "", "prove that the last checkpoint in this `file` is the beginning of the trail")
	fl.StringVar(&f.key, "key", "", "public `key`, or a file that has it, to check the proof with")
	cmd.MarkFlagsOneRequired("position", "leaf", "since")
	cmd.MarkFlagsMutuallyExclusive("position", "leaf", "since")
	return cmd
}

func (a *app) auditProof(cmd *cobra.Command, f *proofFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if f.since != "" {
		return a.proveSince(cmd.Context(), f)
	}
	var text string
	if cmd.Flags().Changed("position") {
		text, err = c.ProvePosition(cmd.Context(), f.position)
	} else {
		text, err = c.ProveEntry(cmd.Context(), f.leaf)
	}
	if err != nil {
		return err
	}
	if f.key != "" {
		keys, err := readKeys(f.key)
		if err != nil {
			return err
		}
		var p audit.Proof
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
		l, _, err := p.Check(keys)
		if err != nil {
			return err
		}
		if asked := f.position; cmd.Flags().Changed("position") && !l.Places(asked) || f.position == 0 && l.Index != f.leaf {
			return fmt.Errorf("the broker proved another entry: %d, of position %d", l.Index, l.Position)
		}
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

func (a *app) proveSince(ctx context.Context, f *proofFlags) error {
	if f.key == "" {
		return usagef("--since needs --key: a checkpoint is worth what its signature is")
	}
	keys, err := readKeys(f.key)
	if err != nil {
		return err
	}
	earlier, err := readCheckpoints([]string{f.since}, keys)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	last := earlier[len(earlier)-1]
	text, err := c.ProveConsistency(ctx, last.Size)
	if err != nil {
		return err
	}
	var p audit.Consistency
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if _, err := p.Check(last, keys); err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

// readKeys takes a public key, or a file that has some.
func readKeys(key string) (audit.Keys, error) {
	if !strings.Contains(key, "+") {
		text, err := os.ReadFile(key)
		if err != nil {
			return audit.Keys{}, usagef("--key: %w", err)
		}
		key = string(text)
	}
	keys, err := audit.ParseKeys(key)
	if err != nil {
		return keys, usagef("--key: %w", err)
	}
	return keys, nil
}

// readCheckpoints reads files of checkpoints. What is not signed by a trusted key is no knowledge.
func readCheckpoints(files []string, keys audit.Keys) (out []audit.Checkpoint, err error) {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usagef("--checkpoint: %w", err)
		}
		notes := audit.SplitNotes(text)
		if len(notes) == 0 {
			return nil, usagef("--checkpoint: %s has no checkpoint", name)
		}
		for _, n := range notes {
			c, err := audit.OpenCheckpoint(n, keys)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

func (a *app) auditExportCommand() *cobra.Command {
	var output string
	var resume bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the audit trail to a file",
		Long: "Write every entry of the audit trail as a line of JSON: what it is of, its digest, leaf and chain, and the event\n" +
			"itself where it still exists; behind them the checkpoints. The last line is a checkpoint over all of it.\n\n" +
			"With --resume, go on with a file that an interrupted export has left, or that a later one is to bring up to date.",
		Example: "  signalbox audit export --output export.ndjson\n" +
			"  signalbox audit export --output export.ndjson --resume\n" +
			"  signalbox audit export | tail -n 1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.auditExport(cmd.Context(), output, resume) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "-", "`file` to write; - is the standard output")
	cmd.Flags().BoolVar(&resume, "resume", false, "go on behind the last entry in the file")
	return cmd
}

func (a *app) auditExport(ctx context.Context, output string, resume bool) (err error) {
	if output == "-" {
		if resume {
			return usagef("--resume needs a file: name it with --output")
		}
		return a.writeExport(ctx, a.out, 0)
	}
	mode, from := os.O_RDWR|os.O_CREATE|os.O_EXCL, uint64(0)
	if resume {
		mode = os.O_RDWR | os.O_CREATE
	}
	f, err := os.OpenFile(output, mode, 0o600)
	if err != nil {
		return fmt.Errorf("%w; go on with a file that is there by --resume", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if resume {
		if from, err = resumeAt(f); err != nil {
			return err
		}
	}
	if err := a.writeExport(ctx, f, from); err != nil {
		return err
	}
	return f.Sync()
}

// writeExport writes the trail from an entry on. Behind others it has no first line.
func (a *app) writeExport(ctx context.Context, w io.Writer, from uint64) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	e, err := c.AuditExport(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	m := a.meter()
	defer m.clear()
	if from > 0 {
		if err := skipLine(e); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.MultiWriter(w, tally(m.copying("exporting", 0))), e)
	return err
}

// tally is told of every piece that was written.
type tally func(bytes int)

// Write implements io.Writer.
func (t tally) Write(b []byte) (int, error) {
	t(len(b))
	return len(b), nil
}

func skipLine(r io.Reader) error {
	var b [1]byte
	for b[0] != '\n' {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return err
		}
	}
	return nil
}
