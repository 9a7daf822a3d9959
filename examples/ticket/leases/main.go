// SPDX-License-Identifier: Apache-2.0

// Command leases is an example: the hook by which a secrets broker redeems the leases
// that executes name. Credentials never ride the bus; an execute has the id and the
// scope of a lease, and its agent comes here, over TLS, for what it stands for.
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
	"signalbox/ticket"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:8080", "the broker")
	as := flag.String("as", "vault", "the auditor, as it is registered: it reads what is executed")
	keyFile := flag.String("agent-key", "", "file with its key")
	listen := flag.String("listen", "127.0.0.1:9200", "where agents redeem leases")
	cert := flag.String("tls-cert", "", "file with the certificate")
	certKey := flag.String("tls-key", "", "file with its key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url, *as, *keyFile, *listen, *cert, *certKey); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "leases:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, as, keyFile, listen, cert, certKey string) error {
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	key, err := ticket.DecodePrivateKey(text)
	if err != nil {
		return err
	}
	c, err := client.New(url)
	if err != nil {
		return err
	}
	v := newVault(c.With(client.WithToken(ticketclient.Tokens(c, as, key))))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(v.watch(ctx)) }()
	server := &http.Server{Addr: listen, Handler: v, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(cert, certKey); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return context.Cause(ctx)
}
