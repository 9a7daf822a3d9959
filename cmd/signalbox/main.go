// SPDX-License-Identifier: Apache-2.0

// Command signalbox is the broker and the tools that speak to one.
//
// Each subcommand is one file. The tools reach a broker through package client alone, so that nothing they do is out of
// reach for another program; only serve, demo and verify import the broker itself, and filter its language.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end. From then on signals have their default effect, so that a second one
	// ends a process that takes too long.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
