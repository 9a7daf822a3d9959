// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

// healthTimeout is longer than the broker takes to find out that it is not ready.
const healthTimeout = 8 * time.Second

func (a *app) healthCommand() *cobra.Command {
	live := false
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a broker whether it is ready",
		Long: "Ask a running broker whether it would accept a publish, which it proves by writing; with --live only whether it\n" +
			"answers. For health checks of containers and scripts: the status is 0 if so, and 75 if not or if nothing answers. It is\n" +
			"another one for what waiting does not mend: 1 for a certificate that is not to be trusted, 2 for a wrong command line.",
		Example: "  signalbox health\n" +
			"  signalbox health --live",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.health(cmd.Context(), live, healthTimeout) },
	}
	cmd.Flags().BoolVar(&live, "live", false, "only whether the process answers")
	return cmd
}

func (a *app) health(ctx context.Context, live bool, timeout time.Duration) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	c, err := a.newClient(client.WithRetry(client.Retry{Attempts: 1}), client.WithAttemptTimeout(timeout))
	if err != nil {
		return err
	}
	ask, answer := c.Ready, "ready"
	if live {
		ask, answer = c.Alive, "ok"
	}
	if err := ask(ctx); err != nil {
		if e := (*event.Error)(nil); errors.As(err, &e) {
			return exitError{code: exitUnavailable, text: fmt.Sprintf("the broker at %s is not ready: %s: %s", a.url, e.Code, advise(e))}
		}
		return err
	}
	if text {
		_, err = fmt.Fprintln(a.out, answer)
	} else {
		_, err = fmt.Fprintf(a.out, "{\"status\":%q}\n", answer)
	}
	return err
}
