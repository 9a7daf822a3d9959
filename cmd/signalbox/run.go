// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"signalbox/client"
	"signalbox/event"
)

const (
	exitFailure     = 1
	exitUsage       = 2
	exitUnavailable = 75  // EX_TEMPFAIL: the same command may succeed later
	exitInterrupted = 130 // what a shell reports for a command that SIGINT ended
)

// compactedExample begins those examples that need a topic which keeps a state.
const compactedExample = "  signalbox topic set fleet.tasks --cleanup-policy compact\n"

// stdio is where a command reads and writes.
type stdio struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// app is what all subcommands share: the streams and the flags of the root.
type app struct {
	stdio
	url    string
	ca     string
	format string
	json   bool
	// as and agentKey are who calls, and the file of its key.
	as       string
	agentKey string
	// started is set once a command's own work began.
	started bool
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args []string, std stdio) int {
	a := &app{stdio: std}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if !a.started {
		err = usageError{err}
	}
	line, code := explain(err, cmd.CommandPath())
	fmt.Fprintln(a.err, "signalbox: "+oneLine(line))
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "signalbox",
		Short: "A broker through which independent software agents coordinate",
		Long: "Signalbox keeps one ordered, durable log of CloudEvents. Agents publish to topics, follow them, read the\n" +
			"current state of every key, and are up to date again in one request after any absence.\n\n" +
			"Start a broker with \"signalbox serve\", or watch a story of two agents with \"signalbox demo\".\n\n" +
			"Exit status: 0 done; 1 failed; 2 the command is wrong or the broker refuses it; 3 damaged data, 4 data in use,\n" +
			"5 data of another format; 75 no answer or no room just now, the same command may succeed later; 130 interrupted.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	f := root.PersistentFlags()
	f.StringVar(&a.url, "url", envOr("SIGNALBOX_URL", "http://127.0.0.1:8080"), "the broker's `URL`; the environment variable SIGNALBOX_URL sets the default")
	f.StringVar(&a.ca, "ca", os.Getenv("SIGNALBOX_CA"), "`file` of certificates (PEM) to trust for an https URL in place of the system's; the environment variable SIGNALBOX_CA sets the default")
	f.StringVar(&a.as, "as", os.Getenv("SIGNALBOX_AGENT"), "read as this `agent` of the ticket protocol, whose key is in --agent-key; the environment variable SIGNALBOX_AGENT sets the default")
	f.StringVar(&a.agentKey, "agent-key", os.Getenv("SIGNALBOX_AGENT_KEY"), "`file` with the key of the agent in --as; the environment variable SIGNALBOX_AGENT_KEY sets the default")
	f.StringVar(&a.format, "format", "auto", "output as `text` or json; auto is text on a terminal and json elsewhere")
	f.BoolVar(&a.json, "json", false, "the same as --format json: one JSON object per line")
	for _, c := range []*cobra.Command{
		a.serveCommand(), a.demoCommand(), a.publishCommand(), a.followCommand(), a.stateCommand(), a.digestCommand(),
		a.filterCommand(), a.topicCommand(), a.subscriptionCommand(), a.webhookCommand(), a.presenceCommand(), a.agentCommand(), a.ticketCommand(), a.orchestratorCommand(), a.gateCommand(), a.topCommand(), a.auditCommand(), a.verifyCommand(), a.backupCommand(), a.restoreCommand(), a.compactCommand(), a.doctorCommand(), a.healthCommand(), a.configCommand(), a.benchCommand(), a.versionCommand(),
	} {
		root.AddCommand(c)
	}
	a.noteStart(root)
	return root
}

// noteStart marks where a command's own work begins. Every error before that is cobra's and about the command line:
// unknown commands and flags, counts of arguments, flags that exclude each other.
func (a *app) noteStart(c *cobra.Command) {
	if work := c.RunE; work != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return work(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		a.noteStart(sub)
	}
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// noneEmpty refuses flags that were given with nothing in them, as a script does whose variable is empty: a precondition
// or a place that falls away would not be noticed.
func noneEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usagef("--%s is empty; leave it out if there is none", name)
		}
	}
	return nil
}

// exitError ends a command with a status of its own; its text has been printed already when it is empty.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

// explain says in one line what went wrong and what to do, and gives the exit status.
func explain(err error, command string) (string, int) {
	if e := (exitError{}); errors.As(err, &e) {
		return e.text, e.code
	}
	if v := (*tls.CertificateVerificationError)(nil); errors.As(err, &v) {
		return err.Error() + certificateAdvice(v), exitFailure
	}
	if u := (*client.UnreachableError)(nil); errors.As(err, &u) {
		return u.Error() + `; start a broker with "signalbox serve", or name another with --url`, exitUnavailable
	}
	if e := (*event.Error)(nil); errors.As(err, &e) {
		return string(e.Code) + ": " + advise(e), e.Code.Class().Exit
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted", exitInterrupted
	}
	if u := (usageError{}); errors.As(err, &u) {
		return fmt.Sprintf("%s; see %q", strings.TrimRight(firstLine(err.Error()), "."), command+" --help"), exitUsage
	}
	return err.Error(), exitFailure
}

// certificateAdvice says what to do about a certificate, where that is known. Trusting somebody else helps only where
// nobody who is trusted vouches for it: who vouches cannot make up for its time or for its names.
func certificateAdvice(err error) string {
	if errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.SystemRootsError)) {
		return "; name who vouches for the broker's certificate with --ca"
	}
	if errors.As(err, new(x509.HostnameError)) {
		return "; give the broker in --url a name that its certificate is for"
	}
	if c := (x509.CertificateInvalidError{}); errors.As(err, &c) && c.Reason == x509.Expired {
		return "; renew the broker's certificate, or set this machine's clock if that is wrong"
	}
	return ""
}

// advise says what is wrong and what to do. A message of one plain clause says only the former; the code has the rest.
func advise(e *event.Error) string {
	message := strings.TrimSuffix(strings.TrimSpace(inFlags(e.Message)), ".")
	if strings.Contains(message, ": ") || strings.Contains(message, "; ") || strings.Contains(message, ". ") {
		return message + "."
	}
	return message + ". " + e.Code.Class().Action
}

// inFlags says what the broker says of its HTTP interface as the commands call it.
func inFlags(message string) string {
	return strings.ReplaceAll(message, "`on_reset=earliest`", "--on-reset oldest")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// client returns a client of the broker that the flags name. A person waits in front of a command, so it gives up after
// a second; stamping is the broker's, because a command reads nothing that its events could be ordered after.
func (a *app) client(opts ...client.Option) (*client.Client, error) {
	tokens, err := a.tokens()
	if err != nil {
		return nil, err
	}
	return a.newClient(append(opts, client.WithToken(tokens))...)
}

func (a *app) newClient(opts ...client.Option) (*client.Client, error) {
	roots, err := a.roots()
	if err != nil {
		return nil, err
	}
	return client.New(a.url, append([]client.Option{
		client.WithRootCAs(roots),
		client.WithClock(nil),
		client.WithRetry(client.Retry{Attempts: 4}),
		client.WithUserAgent("signalbox-cli"),
	}, opts...)...)
}

// roots are the authorities that --ca names; nil for those of the system.
func (a *app) roots() (*x509.CertPool, error) {
	if a.ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(a.ca)
	if err != nil {
		return nil, usagef("--ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usagef("--ca: %s has no certificate in PEM form", a.ca)
	}
	return pool, nil
}

// text reports whether to write for people rather than for programs.
func (a *app) text() (bool, error) {
	switch {
	case a.json || a.format == "json":
		return false, nil
	case a.format == "text":
		return true, nil
	case a.format == "auto":
		return isTerminal(a.out), nil
	}
	return false, usagef("--format is text, json or auto, not %q", a.format)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}
