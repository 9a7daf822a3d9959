// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
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
			"answers. For health checks of containers and scripts: the status is 0 if so, and 75 if not.",
		Example: "  signalbox health\n" +
			"  signalbox health --live",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.health(cmd.Context(), live) },
	}
	cmd.Flags().BoolVar(&live, "live", false, "only whether the process answers")
	return cmd
}

func (a *app) health(ctx context.Context, live bool) error {
	path := "/readyz"
	if live {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return usagef("--url %q is not the URL of a broker", a.url)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return &client.UnreachableError{URL: a.url, Attempts: 1, Err: err}
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return exitError{code: event.CodeOverloaded.Class().Exit, text: fmt.Sprintf("the broker at %s is not ready: it answers %s", a.url, res.Status)}
	}
	_, err = fmt.Fprintln(a.out, "ok")
	return err
}
