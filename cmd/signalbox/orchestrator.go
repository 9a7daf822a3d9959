// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/orchestrator"
	"signalbox/ticket"
)

// examplePolicy is parsed by a test, and shown by --example.
//
//go:embed orchestrator.yaml
var examplePolicy []byte

func (a *app) orchestratorCommand() *cobra.Command {
	var path, source string
	var priority int
	var example, dry, check bool
	cmd := &cobra.Command{
		Use:   "orchestrator",
		Short: "Bring tickets through plan, approval, execution and verification",
		Long: "Run the reference orchestrator of the ticket protocol. A policy file says which domains are asked about which tickets,\n" +
			"when plans may be carried out, how many people approve, and what follows if a plan is denied, fails, or takes effect\n" +
			"in part. What is decided follows from the messages of the ticket and from nothing else: end it at any point, even\n" +
			"with kill -9, start it again, and it goes on without saying anything twice.\n\n" +
			"--example prints a policy to begin with, with every key explained. --check reads a policy and says what it comes to: with\n" +
			"a broker at hand, also whether its verbs are in force there and somebody is registered for its domains; with --source-ref\n" +
			"which rule a ticket has. --dry-run says what it would do next about each open ticket. Neither changes anything.",
		Example: "  signalbox orchestrator --example > tickets.yaml\n" +
			"  signalbox orchestrator --policy tickets.yaml --check\n" +
			"  signalbox orchestrator --policy tickets.yaml --check --source-ref siem:attack/web-7 --priority 1\n" +
			"  signalbox agent keygen orch.key\n" +
			"  signalbox agent add orch --role orchestrator --key orch.key\n" +
			"  signalbox orchestrator --policy tickets.yaml --as orch --agent-key orch.key --dry-run",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case example:
				_, err := a.out.Write(examplePolicy)
				return err
			case check:
				return a.checkPolicy(cmd.Context(), path, source, priority)
			case source != "":
				return usagef("--source-ref belongs to --check")
			}
			return a.orchestrate(cmd.Context(), path, dry)
		},
	}
	cmd.Flags().StringVar(&path, "policy", "", "policy `file`, in YAML or JSON")
	cmd.Flags().BoolVar(&check, "check", false, "read the policy, say what it comes to, and end")
	cmd.Flags().StringVar(&source, "source-ref", "", "with --check: say which rule a ticket with this source_ref has")
	cmd.Flags().IntVar(&priority, "priority", 3, "with --source-ref: of this priority, 1 to 5")
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
	policy, err := readPolicy(path)
	if err != nil {
		return err
	}
	name, key, err := a.identity()
	if err != nil {
		return err
	}
	// It is more patient than a command that somebody stands in front of.
	c, err := a.client(client.WithRetry(client.Retry{}))
	if err != nil {
		return err
	}
	if me, err := c.Agent(ctx, name); err != nil {
		return err
	} else if !slices.Contains(me.Roles, ticket.RoleOrchestrator) {
		return usagef("--as %s: the roles of that agent are %s, and an orchestrator has the role orchestrator", name, listed(me.Roles))
	}
	say := func(line string) { fmt.Fprintln(a.err, "signalbox: "+oneLine(line)) }
	decides := &fitting{policy: policy, name: name, say: say}
	o, err := ticketclient.NewOrchestrator(c, ticketclient.OrchestratorOptions{
		Name: name, Key: key, DryRun: dry,
		Decide: decides.decide,
		OnMove: func(t *ticketclient.Ticket, m ticketclient.Move, err error) { a.moved(t, m, err, text) },
		OnReady: func(open int) {
			say(fmt.Sprintf("%s decides about tickets at %s by %s; %d were open", name, a.url, path, open))
		},
		OnError: func(err error) {
			line, _ := explain(err, "signalbox orchestrator")
			say(line)
		},
	})
	if err != nil {
		return err
	}
	return o.Run(ctx)
}

// fitting decides by a policy, and says so once when the policy does not fit the
// catalogue of verbs that is in force, which a broker of another version may change.
type fitting struct {
	policy *orchestrator.Policy
	name   string
	say    func(string)
	judged string // the version of the catalogue that was looked at
}

func (f *fitting) decide(t *ticketclient.Ticket, now time.Time) ([]ticketclient.Move, time.Time) {
	if f.judged != t.Verbs.Version {
		f.judged = t.Verbs.Version
		if err := f.policy.Fits(t.Verbs); err != nil {
			f.say(err.Error())
		}
	}
	return f.policy.Decide(f.name, t, now)
}

// moved says that a move was made, or would be.
func (a *app) moved(t *ticketclient.Ticket, m ticketclient.Move, err error, text bool) {
	line := struct {
		Ticket  string `json:"ticket"`
		Type    string `json:"type"`
		To      string `json:"to"`
		Name    string `json:"name"`
		Left    string `json:"left,omitempty"` // the state, of a ticket.state
		Entered string `json:"entered,omitempty"`
		Reason  string `json:"reason,omitempty"`
		Refused string `json:"refused,omitempty"`
	}{Ticket: t.ID, Type: m.Type, To: m.To, Name: m.Key}
	what := m.Type + " to " + m.To
	switch p := m.Payload.(type) {
	case *ticketclient.State:
		line.Left, line.Entered, line.Reason = p.From, p.To, p.ReasonCode
		what = fmt.Sprintf("%s → %s (%s)", p.From, p.To, p.ReasonCode)
	case *ticketclient.Escalation:
		line.Reason = p.ReasonCode
		what += " (" + p.ReasonCode + ")"
	}
	if err != nil {
		line.Refused = err.Error()
	}
	if !text {
		_ = writeJSON(a.out, line) // a pipe that went away; the log has it all
		return
	}
	if err != nil {
		what += ", which is refused: " + line.Refused
	}
	fmt.Fprintln(a.out, oneLine(fmt.Sprintf("%s  %s", t.ID, what)))
}
