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
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/internal/broker"
	"signalbox/internal/transport/web"
)

// demoPatience bounds the whole demo; it takes a few seconds where nothing is broken.
const demoPatience = 5 * time.Minute

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play two stories of agents against a real broker, and check every claim",
		Long: "Start a broker in a temporary directory on a free loopback port and play two stories over real sockets. An agent\n" +
			"assigns a task, is cut off for four hours, and is up to date again with one request. Another ships what is ordered,\n" +
			"is away for two hours, and ships nothing that was cancelled or done meanwhile. What is claimed on the way is\n" +
			"checked; the command fails if anything does not hold. Time is simulated: the hours pass at once.",
		Example: "  signalbox demo",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context()) },
	}
	cmd.AddCommand(a.demoTicketCommand())
	return cmd
}

func (a *app) demo(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("the demo did not end within %s", demoPatience))
	defer cancel()
	dir, err := os.MkdirTemp("", "signalbox-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	clock := newDemoClock()
	b, err := broker.Open(broker.Options{
		Dir: dir, Clock: clock, Logger: slog.New(slog.DiscardHandler), CleanEvery: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	server, err := web.New(web.Options{Broker: b, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	s := newStory(a.out, "http://"+listener.Addr().String(), clock)
	second := &secondStory{story: s, path: filepath.Join(dir, "shipper.ledger")}
	return s.play(ctx, append(s.scenes(), second.scenes()...))
}

// newStory prepares the stage: the narrator, the clock and the two agents.
func newStory(out io.Writer, url string, clock *demoClock) *story {
	return &story{narrator: &narrator{out: out, clock: clock, began: clock.Wall()}, url: url, clock: clock}
}

// agent returns a client whose clock lives in the story's time, as the machine of a real agent lives in real time.
func (s *story) agent(name string) (*client.Client, error) {
	return client.New(s.url, client.WithUserAgent(name), client.WithClock(client.NewClockAt(0, s.clock.Wall)))
}
