// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"signalbox/api"
	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/orchestrator"
)

// examplePolicy is parsed by a test, and shown by --example.
//
//go:embed orchestrator.yaml
var examplePolicy []byte

func (a *app) orchestratorCommand() *cobra.Command {
	var path string
	var example, dry bool
	cmd := &cobra.Command{
		Use:   "orchestrator",
		Short: "Bring tickets through plan, approval, execution and verification",
		Long: "Run the reference orchestrator of the ticket protocol. A policy file says which domains are asked about which tickets,\n" +
			"when plans may be carried out, how many people approve, and what follows if a plan is denied, fails, or takes effect\n" +
			"in part. What is decided follows from the messages of the ticket and from nothing else: end it at any point, even\n" +
			"with kill -9, start it again, and it goes on without saying anything twice.\n\n" +
			"--dry-run says what it would do next about each open ticket, and does nothing. --example prints a policy to begin with.",
		Example: "  signalbox agent keygen orch.key\n" +
			"  signalbox agent add orch --role orchestrator --key orch.key\n" +
			"  signalbox orchestrator --example > tickets.yaml\n" +
			"  signalbox orchestrator --policy tickets.yaml --as orch --agent-key orch.key --dry-run",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if example {
				_, err := a.out.Write(examplePolicy)
				return err
			}
			return a.orchestrate(cmd.Context(), path, dry)
		},
	}
	cmd.Flags().StringVar(&path, "policy", "", "policy `file`, in YAML or JSON")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done next, and do nothing")
	cmd.Flags().BoolVar(&example, "example", false, "print a policy to begin with")
	return cmd
}

// identity is the agent that acts, and its key.
func (a *app) identity() (string, ed25519.PrivateKey, error) {
	if a.as == "" || a.agentKey == "" {
		return "", nil, usagef("say with --as which agent it is, and with --agent-key where its key is")
	}
	key, err := readKey(a.agentKey)
	if err != nil {
		return "", nil, usagef("--agent-key: %w", err)
	}
	return a.as, key, nil
}

func (a *app) orchestrate(ctx context.Context, path string, dry bool) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if path == "" {
		return usagef("say with --policy where the policy is; --example prints one")
	}
	written, err := os.ReadFile(path)
	if err != nil {
		return usageError{err}
	}
	policy, err := orchestrator.ParsePolicy(written, api.Verbs)
	if err != nil {
		return usagef("%s: %s", path, oneLine(err.Error()))
	}
	name, key, err := a.identity()
	if err != nil {
		return err
	}
	// It waits for a broker as long as it takes: nobody stands in front of it.
	c, err := a.client(client.WithRetry(client.Retry{}))
	if err != nil {
		return err
	}
	o, err := ticketclient.NewOrchestrator(c, ticketclient.OrchestratorOptions{
		Name: name, Key: key, DryRun: dry,
		Decide: func(t *ticketclient.Ticket, now time.Time) ([]ticketclient.Move, time.Time) {
			return policy.Decide(name, t, now)
		},
		OnMove: func(t *ticketclient.Ticket, m ticketclient.Move, err error) { a.moved(t, m, err, text) },
		OnError: func(err error) {
			line, _ := explain(err, "signalbox orchestrator")
			fmt.Fprintln(a.err, "signalbox: "+oneLine(line))
		},
	})
	if err != nil {
		return err
	}
	return o.Run(ctx)
}

// moved says that a move was made, or would be.
func (a *app) moved(t *ticketclient.Ticket, m ticketclient.Move, err error, text bool) {
	line := struct {
		Ticket  string `json:"ticket"`
		Type    string `json:"type"`
		To      string `json:"to"`
		Name    string `json:"name"`
		Refused string `json:"refused,omitempty"`
	}{t.ID, m.Type, m.To, m.Key, ""}
	if err != nil {
		line.Refused = err.Error()
	}
	if !text {
		_ = writeJSON(a.out, line) // a pipe that went away; the log has it all
		return
	}
	what := m.Type + " to " + m.To
	if s, ok := m.Payload.(*ticketclient.State); ok {
		what = fmt.Sprintf("%s → %s (%s)", s.From, s.To, s.ReasonCode)
	}
	if err != nil {
		what += ", which is refused: " + line.Refused
	}
	fmt.Fprintln(a.out, oneLine(fmt.Sprintf("%s  %s", t.ID, what)))
}
