// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/internal/broker"
	"signalbox/internal/store"
)

func (a *app) compactCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Reclaim disk now",
		Long: "Have a running broker reclaim at once what is gone: what retention and the deletion of topics have removed, values\n" +
			"that were superseded or have expired, ids that need not be remembered any more. It does so by itself in time; this\n" +
			"is for a disk that is needed now. Publishing and reading go on, more slowly. Interrupting it loses nothing.\n\n" +
			"With --data, compact the directory of a broker that is stopped instead.",
		Example: "  signalbox compact",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.compact(cmd.Context(), data) },
	}
	cmd.Flags().StringVar(&data, "data", "", "compact this `directory`, which no broker uses, in place of asking a broker")
	return cmd
}

// compactReport is what compact prints.
type compactReport struct {
	Before uint64 `json:"before_bytes"`
	After  uint64 `json:"after_bytes"`
}

func (a *app) compact(ctx context.Context, data string) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	m := a.meter()
	said := func(step, steps int, bytes uint64) {
		m.say("compacting: step %d of %d, %s on disk", step, steps, sizeText(int64(bytes)))
	}
	var r compactReport
	if data == "" {
		c, err := a.client()
		if err != nil {
			return err
		}
		done, err := c.Compact(ctx, func(at client.Compaction) { said(at.Step, at.Steps, at.Bytes) })
		if err != nil {
			return err
		}
		r = compactReport{done.Before, done.After}
	} else if r, err = compactStopped(ctx, data, said); err != nil {
		return err
	}
	m.clear()
	if !text {
		return writeJSON(a.out, r)
	}
	_, err = fmt.Fprintf(a.out, "Compacted: %s on disk before, %s now.\n", sizeText(int64(r.Before)), sizeText(int64(r.After)))
	return err
}

func compactStopped(ctx context.Context, data string, said func(step, steps int, bytes uint64)) (r compactReport, err error) {
	if err := existingData(data); err != nil {
		return r, err
	}
	b, err := broker.Open(broker.Options{Dir: data, KeepSettings: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r.Before, r.After, err = b.Compact(ctx, func(p broker.CompactProgress) { said(p.Step, p.Steps, p.Bytes) })
	return r, err
}

// existingData refuses a directory that holds no log, in which opening a broker would begin one.
func existingData(dir string) error {
	if err := existingDir(dir); err != nil {
		return err
	}
	names, err := store.DataFiles(nil, dir)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no Signalbox data in %s; name the data directory with --data", dir)
	}
	return err
}
