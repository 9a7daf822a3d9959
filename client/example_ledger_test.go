// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"signalbox/client"
	"signalbox/event"
)

// An agent ships what is open. It was away while X was created and cancelled, and so it never ships X.
func ExampleLedger() {
	url, stop := exampleBroker()
	defer stop()
	dir := must(os.MkdirTemp("", "signalbox-example-"))
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	c := must(client.New(url))
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	if _, _, err := c.PutTopic(ctx, "orders", policy); err != nil {
		fmt.Println(err)
		return
	}
	for _, o := range [][2]string{{"X", "created"}, {"X", "cancelled"}, {"Z", "created"}} {
		must(c.Publish(ctx, "orders", event.Draft{Source: "/shop", Type: "order." + o[1], Subject: o[0], Data: []byte(`{}`)}))
	}

	file := must(client.OpenLedgerFile(filepath.Join(dir, "ledger")))
	defer func() { _ = file.Close() }()
	ledger := must(client.OpenLedger(ctx, c, client.LedgerOptions{
		Topics: []string{"orders"},
		Store:  file,
		Needs:  func(e client.Entry) bool { return e.Event.Type() == "order.created" },
		OnActive: func(_ context.Context, l *client.Ledger) error {
			fmt.Println("settled:", l.State())
			return nil
		},
		Act: func(ctx context.Context, e client.Effect) error {
			fmt.Println("ship", e.Key)
			// The same id and stamp at every attempt: the broker recognises a repetition.
			_, err := c.Publish(ctx, "orders", e.Draft(event.Draft{Source: "/shipper", Type: "order.shipped", Subject: e.Key, Data: []byte(`{}`)}))
			cancel() // A real agent goes on.
			return err
		},
	}))
	fmt.Println("ended:", ledger.Run(ctx))
	// Output:
	// settled: ACTIVE
	// ship Z
	// ended: context canceled
}
