// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/tracing"
	"signalbox/internal/transport/web"
	"signalbox/internal/transport/webhook"
	"signalbox/ticket"
)

func (a *app) serveCommand() *cobra.Command {
	f, restored := &configFlags{}, false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: "Run a broker until it is told to stop (SIGINT or SIGTERM): it then refuses new events, ends streams in good order\n" +
			"and closes its data directory. A second signal ends it at once; nothing acknowledged is lost even then.\n\n" +
			"While no identity is configured, the broker listens on loopback addresses only.\n\n" +
			"Every setting can be given as a flag, as an environment variable (--min-free is SIGNALBOX_MIN_FREE), or in a file\n" +
			"(--config, where it is min_free), and in this order the first decides; see \"signalbox config\". On SIGHUP the\n" +
			"broker reads the file again and takes over log_level.",
		Example: "  signalbox serve\n" +
			"  signalbox serve --data ./other-data --listen 127.0.0.1:0 --log-format json --min-free 1GiB",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f, restored) },
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&restored, "restored", false, "for the first start after the data directory was put back from a backup: refuse every cursor given out before, because positions will repeat")
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
func (a *app) serve(ctx context.Context, f *configFlags, restored bool) (err error) {
	c, err := f.resolve()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	logger := newLogger(a.err, c.LogFormat, level)
	defer f.reloadOnHangup(level, logger)()
	tracer, err := tracing.Open(ctx, logger)
	if err != nil {
		return err
	}
	defer tracer.Close()
	processors := tuneRuntime()
	allowed, err := egress.ParseAllowed(c.WebhookAllow.list())
	if err != nil {
		return err
	}
	guard := egress.NewGuard(egress.Options{Allowed: allowed})
	options, err := c.brokerOptions(guard, logger)
	if err != nil {
		return err
	}
	options.Restored = restored
	b, err := broker.OpenUntil(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if space := b.Registry().Space; c.Space != "" && c.Space != space {
		return usagef("the log in %s is that of the space %s, and a space keeps its name; leave out --space, or use another data directory for %s", c.Data, space, c.Space)
	}
	secure, err := serverTLS(c.TLSCert, c.TLSKey, logger)
	if err != nil {
		return err
	}
	server, err := web.New(web.Options{Broker: b, Logger: logger, Tracer: tracer, Processors: processors, Origins: c.AllowOrigin.list(), TLS: secure})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; another broker may be running there: stop it, or choose another address with --listen", err)
		}
		return err
	}
	guard.Own(listener.Addr())
	engine, err := webhook.New(webhook.Options{Broker: b, Guard: guard, Logger: logger, Origin: c.WebhookOrigin, PublicURL: c.PublicURL})
	if err != nil {
		return err
	}
	scheme := "http://"
	if secure != nil {
		scheme = "https://"
	}
	a.banner(scheme+listener.Addr().String(), c.Data)
	logger.Info("listening", "address", listener.Addr().String(), "data", c.Data, "head", b.Head().String())
	notify("READY=1", logger)
	stopping := sync.OnceFunc(func() { notify("STOPPING=1", logger) })
	defer stopping() // what ctx calls may come too late
	defer context.AfterFunc(ctx, stopping)()
	defer engine.Start(ctx)()
	if err := server.Serve(ctx, listener); err != nil {
		return err
	}
	logger.Info("stopped", "head", b.Head().String())
	return nil
}

// brokerOptions are what the configuration says of the broker itself.
func (c *Config) brokerOptions(guard *egress.Guard, logger *slog.Logger) (broker.Options, error) {
	credentials, err := c.storeCredentials(os.Getenv)
	if err != nil {
		return broker.Options{}, err
	}
	var verbs []byte
	if c.TicketVerbs != "" {
		if verbs, err = os.ReadFile(c.TicketVerbs); err == nil {
			_, err = ticket.WholeCatalogue(verbs)
		}
		if err != nil {
			return broker.Options{}, usagef("ticket_verbs: %w", err)
		}
	}
	return broker.Options{
		Dir: c.Data, MinFree: uint64(c.MinFree), MaxDrift: c.HLCMaxDrift, DedupWindow: c.DedupWindow, HoldMax: c.HoldMax, HoldBytes: uint64(c.HoldMaxBytes), Logger: logger, CheckSink: guard.CheckSink,
		Found:         founder(cmp.Or(c.Space, "main"), c.Data),
		Verbs:         verbs,
		AuditInterval: c.auditInterval(), AuditFile: c.AuditFile, AuditURL: string(c.AuditURL),
		AuditStore: string(c.AuditStore), AuditStoreCredentials: credentials, AuditSync: c.AuditExternal == externalSync,
		// The state on disk is no longer known. Going on could show what is not durable; the restart looks at it anew.
		Fatal: func(message string) {
			logger.Error("the broker cannot go on and ends", "reason", message,
				"todo", "start it again: it checks what the disk holds; if it ends again, look at the disk and run signalbox verify")
			os.Exit(exitFailure)
		},
	}, nil
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

func newLogger(w io.Writer, format logFormat, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(limitLines(slog.NewJSONHandler(w, o)))
	}
	return slog.New(limitLines(slog.NewTextHandler(w, o)))
}

// reloadOnHangup reads the configuration again whenever the process gets SIGHUP, and takes over what is reloadable. A
// configuration with faults changes nothing. The function that it returns ends that.
func (f *configFlags) reloadOnHangup(level *slog.LevelVar, logger *slog.Logger) (end func()) {
	hangups, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer close(done)
		for range hangups {
			c, err := f.resolve()
			if err != nil {
				logger.Error("the configuration was not read again, and the old one stays", "err", err, "todo", "signalbox config check names the faults")
				continue
			}
			level.Set(c.LogLevel)
			logger.Info("the configuration was read again", "log_level", c.LogLevel)
		}
	}()
	return func() { signal.Stop(hangups); close(hangups); <-done }
}

// checkLoopback refuses to listen where others than this machine could reach the broker: without an identity they could
// read and publish everything.
func checkLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usagef("listen %q is not an address such as 127.0.0.1:8080", address)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return event.Errorf(event.CodeParameterInvalid,
		"Listening on %q would let everybody on the network read and publish, because no identity is configured; listen on a loopback address such as 127.0.0.1:8080.", address).With("listen")
}
