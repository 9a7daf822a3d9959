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

// An agent says what it has to say while the broker is away.
func ExampleOutbox() {
	dir := must(os.MkdirTemp("", "signalbox-example-"))
	defer func() { _ = os.RemoveAll(dir) }()
	b := must(newBroker(filepath.Join(dir, "data")))
	b.kill()
	defer b.kill()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	c := must(client.New(b.url))
	outbox := must(client.OpenOutbox(c, filepath.Join(dir, "outbox"), client.OutboxOptions{
		OnReport: func(r client.OutboxReport) { fmt.Println(r.Event.ID(), r.Fate, "at position", r.Receipt.Position) },
	}))
	for _, id := range []string{"one", "two"} {
		must(outbox.Put("greetings", event.Draft{ID: id, Source: "/me", Type: "greeting", Data: []byte(`1`)}))
	}
	fmt.Println(outbox.Status().Waiting, "wait")

	go func() { _ = outbox.Run(ctx) }()
	if err := b.start(); err != nil {
		fmt.Println(err)
		return
	}
	if err := outbox.Flush(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 wait
	// one sent at position 1
	// two sent at position 2
}
