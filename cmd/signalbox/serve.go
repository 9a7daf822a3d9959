// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/transport/web"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	data      string
	listen    string
	minFree   byteSize
	maxDrift  time.Duration
	dedup     time.Duration
	restored  bool
	logFormat string
	logLevel  slog.Level
}

func (a *app) serveCommand() *cobra.Command {
	f := &serveFlags{minFree: 256 << 20}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: "Run a broker until it is told to stop (SIGINT or SIGTERM): it then refuses new events, ends streams in good order\n" +
			"and closes its data directory. A second signal ends it at once; nothing acknowledged is lost even then.\n\n" +
			"While no identity is configured, the broker listens on loopback addresses only.",
		Example: "  signalbox serve\n" +
			"  signalbox serve --data ./other-data --listen 127.0.0.1:0 --log-format json --min-free 1GiB",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", envOr("SIGNALBOX_DATA", "./signalbox-data"), "data `directory`; the environment variable SIGNALBOX_DATA sets the default")
	fl.StringVar(&f.listen, "listen", envOr("SIGNALBOX_LISTEN", "127.0.0.1:8080"), "loopback `address` to listen on, port 0 for any; the environment variable SIGNALBOX_LISTEN sets the default")
	fl.Var(&f.minFree, "min-free", "refuse events while the volume has less than this free; 0 never refuses")
	fl.DurationVar(&f.maxDrift, "hlc-max-drift", 500*time.Millisecond, "refuse events whose clock is further ahead than this")
	fl.DurationVar(&f.dedup, "dedup-window", 24*time.Hour, "how long the id of an event is remembered")
	fl.BoolVar(&f.restored, "restored", false, "for the first start after the data directory was put back from a backup: refuse every cursor given out before, because positions will repeat")
	fl.StringVar(&f.logFormat, "log-format", "text", "`text` or json")
	fl.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	return cmd
}

// gcPercent lets the heap grow to four times what is live. What is live is small and bounded, and collecting at the
// usual twice takes a twentieth of the cost of publishing. GOGC overrides it.
const gcPercent = 300

// tuneRuntime prepares Go for a process in which requests must not wait for compactions, and returns the number of
// processors. Go lets a goroutine that computes run for 10 ms before another gets its turn, at every step of a request;
// with twice as many threads the operating system, which is fairer, decides; what that does is measured in
// docs/decisions/2026-11-29-background-work.md. GOMAXPROCS overrides it.
func tuneRuntime() (processors int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	processors = runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * processors)
	}
	return processors
}

// serve builds the broker in the order in which an event passes through it.
func (a *app) serve(ctx context.Context, f *serveFlags) (err error) {
	logger, err := newLogger(a.err, f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if err := checkLoopback(f.listen); err != nil {
		return err
	}
	if f.maxDrift < time.Millisecond || f.dedup < time.Second {
		return usagef("--hlc-max-drift is at least 1ms and --dedup-window at least 1s")
	}
	processors := tuneRuntime()
	b, err := broker.Open(broker.Options{
		Dir: f.data, MinFree: uint64(f.minFree), MaxDrift: f.maxDrift, DedupWindow: f.dedup, Restored: f.restored, Logger: logger,
		// The state on disk is no longer known. Going on could show what is not durable; the restart looks at it anew.
		Fatal: func(message string) {
			logger.Error("the broker cannot go on and ends; start it again", "reason", message)
			os.Exit(exitFailure)
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	server, err := web.New(web.Options{Broker: b, Logger: logger, Processors: processors})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("%w; another broker may be running there: stop it, or choose another address with --listen", err)
	}
	a.banner("http://"+listener.Addr().String(), f.data)
	logger.Info("listening", "address", listener.Addr().String(), "data", f.data, "head", b.Head().String())
	if err := server.Serve(ctx, listener); err != nil {
		return err
	}
	logger.Info("stopped", "head", b.Head().String())
	return nil
}

// banner says where the broker is and how to talk to it. A test pastes these lines.
func (a *app) banner(url, data string) {
	if abs, err := filepath.Abs(data); err == nil {
		data = abs
	}
	fmt.Fprintf(a.out, `Signalbox is at %[1]s and keeps its data in %[2]s
No identity is configured, so it serves this machine only.

Make a topic that keeps the last event of every key, publish to it, read its state, follow it:
  curl -X PUT %[1]s/v1/topics/hello -H 'Content-Type: application/json' -d '{"cleanup_policy":"compact"}'
  curl %[1]s/v1/topics/hello/events -H 'Content-Type: application/cloudevents+json' -d '{"specversion":"1.0","id":"1","source":"/me","type":"greeting","subject":"world","data":{"text":"hello"}}'
  curl %[1]s/v1/topics/hello/state
  curl -N -H 'Accept: text/event-stream' %[1]s/v1/topics/hello/events

`, url, data)
}

func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, usagef("--log-format is text or json, not %q", format)
}

// checkLoopback refuses to listen where others than this machine could reach the broker: without an identity they could
// read and publish everything.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("--listen %q is not an address such as 127.0.0.1:8080", address)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return event.Errorf(event.CodeParameterInvalid,
		"Listening on %q would let everybody on the network read and publish, because no identity is configured; listen on a loopback address such as 127.0.0.1:8080.", address).With("listen")
}
