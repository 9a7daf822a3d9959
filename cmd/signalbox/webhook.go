// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
)

func (a *app) webhookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Receive webhooks, and the keys by which they are checked",
		Long: "A webhook is a subscription whose events the broker sends to a URL; \"subscription create --sink URL\" makes one.\n" +
			"These commands are for the other end, and for the keys with which the broker signs.",
		Example: "  signalbox webhook keys",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.webhookListenCommand(), a.webhookKeysCommand(), a.webhookRotateCommand())
	return cmd
}

// listenFlags are the flags of webhook listen.
type listenFlags struct {
	address, origin string
	keys            []string
	rate, count     int
	duration        time.Duration
}

func (a *app) webhookListenCommand() *cobra.Command {
	f := &listenFlags{}
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive webhooks on this machine and print their events",
		Long: "Run a receiver, for development: it checks signatures, answers the handshake, prints each event once and acknowledges\n" +
			"it. Without --key it fetches the public keys of the broker.\n\n" +
			"A broker sends to this machine only if it was started with --webhook-allow 127.0.0.0/8.",
		Example: "  signalbox webhook listen --listen 127.0.0.1:0 --duration 10s\n" +
			"  signalbox webhook listen --listen 127.0.0.1:0 --duration 10s --key whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.webhookListen(cmd.Context(), f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.address, "listen", "127.0.0.1:9000", "`address` to listen on, port 0 for any")
	fl.StringArrayVar(&f.keys, "key", nil, "`key` to check signatures by, in place of the broker's: whsec_… or whpk_…; may be repeated")
	fl.StringVar(&f.origin, "origin", "", "consent to the handshake of this `name` only")
	fl.IntVar(&f.rate, "rate", 0, "requests a minute that the handshake allows; 0 is any number")
	fl.IntVar(&f.count, "count", 0, "end after this many events; 0 is never")
	fl.DurationVar(&f.duration, "duration", 0, "end after this `duration`; 0 is never")
	return cmd
}

func (a *app) webhookListen(ctx context.Context, f *listenFlags) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	if len(f.keys) == 0 {
		c, err := a.client()
		if err != nil {
			return err
		}
		keys, err := c.WebhookKeys(ctx)
		if err != nil {
			return err
		}
		for _, k := range keys {
			f.keys = append(f.keys, k.Public)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.duration > 0 {
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	var mu sync.Mutex // of the output, and of seen
	seen := 0
	receiver, err := client.NewWebhookReceiver(client.WebhookOptions{Keys: f.keys, Origin: f.origin, Rate: f.rate}, func(_ context.Context, ev *event.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if f.count > 0 && seen >= f.count {
			return errors.New("enough") // it comes again to whoever listens next
		}
		if err := writeEvent(a.out, ev, text); err != nil {
			return err
		}
		if seen++; seen == f.count {
			cancel()
		}
		return nil
	})
	if err != nil {
		return usagef("--key: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.address)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	fmt.Fprintf(a.err, "-- listening at http://%s/\n", listener.Addr())
	server := &http.Server{Handler: receiver, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// The answers to what was printed still leave.
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	return server.Shutdown(grace)
}

func (a *app) webhookKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "keys",
		Short:   "Show the public keys of the broker",
		Long:    "Show the public keys by which the signatures (v1a) of the broker are checked, the newest first.",
		Example: "  signalbox webhook keys",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				keys, err := c.WebhookKeys(cmd.Context())
				if err != nil {
					return err
				}
				return a.writeKeys(keys, text)
			})
		},
	}
}

func (a *app) webhookRotateCommand() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Have the broker sign with a new key",
		Long: "Draw a new key. Until the overlap is over, webhooks are signed with the old ones, too, so that receivers have time\n" +
			"to learn of it: they find all keys at /.well-known/webhook-keys.",
		Example: "  signalbox webhook rotate --overlap 48h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTopics(func(c *client.Client, text bool) error {
				keys, err := c.RotateWebhookKey(cmd.Context(), overlap)
				if err != nil {
					return err
				}
				return a.writeKeys(keys, text)
			})
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "`duration` for which the old keys sign, too")
	return cmd
}

func (a *app) writeKeys(keys []client.WebhookKey, text bool) error {
	for _, k := range keys {
		if !text {
			if err := writeJSON(a.out, k); err != nil {
				return err
			}
			continue
		}
		until := ""
		if !k.Until.IsZero() {
			until = "  until " + k.Until.Local().Format(time.RFC3339)
		}
		if _, err := fmt.Fprintln(a.out, k.Public+until); err != nil {
			return err
		}
	}
	return nil
}

// webhookFlags are the members of a document that only webhooks have.
type webhookFlags struct {
	sink, mode, signature, disable string
	secrets                        []string
	handshake                      bool
}

func (f *webhookFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.sink, "sink", "", "send the events to this `URL`, which makes it a webhook")
	fl.StringVar(&f.mode, "content-mode", "", "of a webhook: `mode` structured, binary or batch (default structured)")
	fl.StringVar(&f.signature, "signature", "", "of a webhook: `version` v1a (the broker's key) or v1 (secrets) (default v1a)")
	fl.StringSliceVar(&f.secrets, "secrets", nil, "of a webhook with the signature v1: `secrets`, the new one first, separated by commas")
	fl.BoolVar(&f.handshake, "handshake", false, "of a webhook: send nothing until the endpoint has consented (CloudEvents webhook handshake)")
	fl.StringVar(&f.disable, "disable-after", "", "of a webhook: `duration` of nothing but failures after which it is disabled, or never (default 5d)")
}

// setters set what was given, by the name of the flag.
func (f *webhookFlags) setters(s *event.Subscription) map[string]func() error {
	c := &s.Config
	return map[string]func() error{
		"sink": func() error {
			s.Sink = f.sink
			if c.Kind != event.KindWebhook { // as a webhook has it
				hook := client.NewSubscription(event.KindWebhook)
				c.Kind, s.Protocol, c.MaxAttempts = event.KindWebhook, hook.Protocol, hook.Config.MaxAttempts
			}
			return nil
		},
		"content-mode":  func() error { c.ContentMode = f.mode; return nil },
		"signature":     func() error { c.Signature = f.signature; return nil },
		"secrets":       func() error { c.Secrets = f.secrets; return nil },
		"handshake":     func() error { c.Handshake = f.handshake; return nil },
		"disable-after": func() error { return setDuration(&c.DisableAfter, f.disable) },
	}
}

// endpointRows are what is shown of the endpoint of a webhook.
func endpointRows(s client.Subscription, at func(time.Time) string) (rows [][2]any) {
	e := s.Status.Endpoint
	if e == nil {
		return nil
	}
	rows = [][2]any{{"sink", oneLine(s.Sink)}, {"circuit", e.Circuit}, {"failures in a row", e.Failures}, {"failing since", at(e.FailingSince)}, {"held until", at(e.HeldUntil)}}
	if e.Consent != "" {
		rows = append(rows, [2]any{"consent", e.Consent}, [2]any{"allowed rate", fmt.Sprintf("%d a minute (0: any)", e.AllowedRate)})
	}
	return rows
}
