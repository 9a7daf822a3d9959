// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

// arm is what an agent moves: it remembers which moves it made, as good machines do.
type arm struct{ made map[string]bool }

func (a *arm) Made(id string) bool { return a.made[id] }

func (a *arm) Move(_ context.Context, id, order string) error {
	a.made[id] = true
	fmt.Println("moved", order)
	return nil
}

// runAgent is the agent of docs/agents.md; a test holds the page against it.
func runAgent(ctx context.Context, url, dir string, arm *arm, ready func(*client.Ledger, *client.Outbox)) error {
	c, err := client.New(url)
	if err != nil {
		return err
	}
	outbox, err := client.OpenOutbox(c, filepath.Join(dir, "outbox"), client.OutboxOptions{
		OnReport: func(r client.OutboxReport) {
			if r.Fate == client.OutboxRefused {
				fmt.Println("not said:", r.Event.ID(), r.Err)
			}
		},
	})
	if err != nil {
		return err
	}
	store, err := client.OpenLedgerFile(filepath.Join(dir, "ledger"))
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()

	act := func(ctx context.Context, e client.Effect) error {
		if !e.Uncertain || !arm.Made(e.ID()) {
			if err := arm.Move(ctx, e.ID(), e.Key); err != nil {
				return err
			}
		}
		_, err := outbox.Put("orders", e.Draft(event.Draft{
			Source: "/shipper", Type: "order.shipped", Subject: e.Key, Data: []byte(`{}`),
		}))
		return err
	}
	ledger, err := client.OpenLedger(ctx, c, client.LedgerOptions{
		Topics: []string{"orders"},
		Store:  store,
		Needs:  func(e client.Entry) bool { return e.Event.Type() == "order.created" },
		Act:    act,
	})
	if err != nil {
		return err
	}
	go ready(ledger, outbox)

	var sending sync.WaitGroup
	sending.Go(func() { _ = outbox.Run(ctx) })
	err = ledger.Run(ctx)
	sending.Wait()
	_ = outbox.Close()
	return err
}

// The agent of docs/agents.md, whose broker is not even running when it starts.
func Example_agent() {
	dir := must(os.MkdirTemp("", "signalbox-example-"))
	defer func() { _ = os.RemoveAll(dir) }()
	b := must(newBroker(filepath.Join(dir, "data")))
	defer b.kill()
	c := must(client.New(b.url))
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	if _, _, err := c.PutTopic(context.Background(), "orders", policy); err != nil {
		fmt.Println(err)
	}
	must(c.Publish(context.Background(), "orders", event.Draft{Source: "/shop", Type: "order.created", Subject: "Z", Data: []byte(`{}`)}))
	b.kill()

	ctx, stop := context.WithCancel(context.Background())
	err := runAgent(ctx, b.url, dir, &arm{made: map[string]bool{}}, func(l *client.Ledger, o *client.Outbox) {
		fmt.Println("without a broker:", l.State())
		if err := b.start(); err != nil {
			fmt.Println(err)
		}
		for item, err := range c.Follow(ctx, []string{"orders"}, client.FollowOptions{}) {
			if err == nil && item.Kind == client.ItemEvent && item.Event.Type() == "order.shipped" {
				break
			}
		}
		_ = o.Flush(ctx)
		verdict, _ := l.Check(ctx, "orders")
		fmt.Println("agrees with the broker:", verdict.Agrees)
		stop()
	})
	fmt.Println(err)
	// Output:
	// without a broker: SYNCHRONIZING
	// moved Z
	// agrees with the broker: true
	// context canceled
}

// The code of the guide is code that runs.
func TestAgentsPageIsTheExample(t *testing.T) {
	page, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_agent_test.go")
	if err != nil {
		t.Fatal(err)
	}
	fold := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("the page has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(fold(string(example)), fold(code)) {
			t.Errorf("example_agent_test.go does not have, in one piece,\n%s", code)
		}
	}
}
