// SPDX-License-Identifier: Apache-2.0

// Command soc is an example: the flow of a security operations centre on the ticket
// protocol. A SIEM publishes detections as plain events; the intake makes tickets of
// the grave ones; an agent of the endpoints isolates hosts; the incident commander
// approves at the gate. The orchestrator is that of Signalbox with soc.yaml.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

// detections is the topic of the SIEM.
const detections = "siem.detections"

func main() {
	url := flag.String("url", "http://127.0.0.1:8080", "the broker")
	as := flag.String("as", "", "the agent, as it is registered")
	keyFile := flag.String("agent-key", "", "file with its key")
	store := flag.String("store", "edr.book", "file of the agent of the endpoints")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *url, *as, *keyFile, *store); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "soc:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, part, url, as, keyFile, store string) error {
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
	switch part {
	case "intake":
		return intake(ctx, c, ticketclient.NewSender(c, as, key))
	case "edr":
		book, err := client.OpenLedgerFile(store)
		if err != nil {
			return err
		}
		defer func() { _ = book.Close() }()
		a, err := ticketclient.OpenAgent(ctx, c, endpoints(as, key, book, &fleet{}))
		if err != nil {
			return err
		}
		return a.Run(ctx)
	}
	return fmt.Errorf("say which part it is: intake or edr")
}

// detection is what the SIEM says.
type detection struct {
	Rule     string `json:"rule"`
	Host     string `json:"host"`
	Severity int    `json:"severity"` // 1 to 10
}

// intake opens a ticket for each grave detection. The name of a ticket follows from
// the detection, so one that comes again opens no second one.
func intake(ctx context.Context, c *client.Client, desk *ticketclient.Sender) error {
	document := client.NewSubscription(event.KindPull, detections)
	document.Config.Start = "earliest"
	document.Config.ExpiresAfter = event.Duration(24 * time.Hour) // the next intake has one of its own, and opens nothing twice
	s, err := c.CreateSubscription(ctx, document)
	if err != nil {
		return err
	}
	return c.Work(ctx, s.ID, client.WorkOptions{}, func(ctx context.Context, h client.Handed) error {
		var d detection
		if err := json.Unmarshal(h.Event.Data(), &d); err != nil {
			return &client.RejectError{Reason: "it is no detection"}
		}
		if d.Severity < 7 {
			return nil
		}
		sum := sha256.Sum256([]byte(h.Event.Source() + " " + h.Event.ID()))
		id := "SOC-" + hex.EncodeToString(sum[:6])
		_, err := desk.Send(ctx, ticket.Draft{
			Header: ticket.Header{Type: ticket.TypeOpen, TicketID: id, TraceID: id, To: ticket.RoleOrchestrator, IdempotencyKey: "open/" + id},
			Payload: &ticketclient.Open{
				Op: "open", SourceRef: "siem:host/" + d.Host, Title: d.Rule + " on " + d.Host, BodyRef: "siem:detection/" + h.Event.ID(),
				Requester: "siem", Priority: (13 - d.Severity) / 2,
			},
		})
		return err
	})
}
