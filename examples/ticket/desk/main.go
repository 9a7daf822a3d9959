// SPDX-License-Identifier: Apache-2.0

// Command desk is an example: it joins a ticketing system to the ticket protocol, by
// webhooks in both directions. What is opened there becomes a ticket here, and what
// becomes of it here is written back there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:8080", "the broker")
	as := flag.String("as", "desk", "the intake, as it is registered")
	keyFile := flag.String("agent-key", "", "file with its key")
	listen := flag.String("listen", "127.0.0.1:9100", "where both sides send their webhooks")
	system := flag.String("system", "", "where the ticketing system takes notes: POST <system>/tickets/<number>/notes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url, *as, *keyFile, *listen, *system, os.Getenv("DESK_SECRET")); err != nil {
		fmt.Fprintln(os.Stderr, "desk:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, as, keyFile, listen, system, secret string) error {
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	key, err := ticket.DecodePrivateKey(text)
	if err != nil {
		return err
	}
	if secret == "" {
		return errors.New("DESK_SECRET is the secret that the ticketing system signs its webhooks with, and is empty")
	}
	c, err := client.New(url)
	if err != nil {
		return err
	}
	d := &desk{sender: ticketclient.NewSender(c, as, key), secret: []byte(secret), system: system, http: &http.Client{Timeout: 10 * time.Second}}
	handler, err := d.handler(ctx, c)
	if err != nil {
		return err
	}
	c = c.With(client.WithToken(ticketclient.Tokens(c, as, key))) // which reads what intake may read
	if err := subscribe(ctx, c, "http://"+listen+"/signalbox"); err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// subscribe has the broker send every move of a ticket to a URL, unless it does so
// already.
func subscribe(ctx context.Context, c *client.Client, sink string) error {
	registry, err := c.Agents(ctx)
	if err != nil {
		return err
	}
	all, err := c.Subscriptions(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Sink == sink {
			return nil
		}
	}
	document := client.NewSubscription(event.KindWebhook, ticket.TopicRoot+"."+registry.Space+".ticket.intake")
	document.Sink = sink
	_, err = c.CreateSubscription(ctx, document)
	return err
}
