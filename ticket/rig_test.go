// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/ticket"
)

// keyOf is the key of an agent in tests: the seed is its name, repeated.
func keyOf(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name+".", ed25519.SeedSize)[:ed25519.SeedSize]))
}

func publicOf(name string) ed25519.PublicKey { return keyOf(name).Public().(ed25519.PublicKey) }

// epoch is when the messages of tests are sent.
var epoch = time.Date(2026, 1, 1, 12, 0, 0, 500_000_000, time.UTC)

// open is a valid draft.
func open(payload string) ticket.Draft {
	return ticket.Draft{
		Header: ticket.Header{
			ID: "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA", Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-1",
			From: "desk", To: "orchestrator", Nonce: "nonce-0123456789", IdempotencyKey: "open-INC-1", Time: epoch,
		},
		Payload: []byte(payload),
	}
}

const somePayload = `{"op":"open","source_ref":"desk:1","title":"Web is slow","body_ref":"desk:1/body","requester":"u1","priority":2}`

func sign(t testing.TB, d ticket.Draft) *ticket.Message {
	t.Helper()
	m, err := d.Sign(keyOf(d.From))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// code is that of an error; "" for none.
func code(err error) event.Code {
	var e *event.Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return event.CodeInternal
	}
	return ""
}
