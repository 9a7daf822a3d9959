// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"crypto/ed25519"
	"strconv"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/ticket"
)

// TestForgedChangesDoNotReachApply: whoever has not the administrator key makes no
// more entries than refusals are limited to, however many changes come at once.
func TestForgedChangesDoNotReachApply(t *testing.T) {
	key := func(n byte) ed25519.PrivateKey {
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = n
		return ed25519.NewKeyFromSeed(seed)
	}
	public := func(n byte) ed25519.PublicKey { return key(n).Public().(ed25519.PublicKey) }
	x := newBox(t, broker.Options{Found: func() (string, ed25519.PublicKey, error) { return "main", public(1), nil }})
	defer x.close()
	change := ticket.Change{
		Space: "main", Revision: 1, At: time.Unix(1_800_000_000, 0).UTC(), Op: ticket.ChangeAdd, Agent: "a",
		Roles: []string{ticket.RoleAuditor}, Key: ticket.EncodeKey(public(2)),
	}
	send := func(signer ed25519.PrivateKey) error {
		signed, err := change.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = x.ChangeAgents(context.Background(), anonymous(), signed.Bytes())
		return err
	}
	entries := func() int {
		n, err := strconv.ParseFloat(x.metric("signalbox_audit_entries"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	before := entries()
	const forged = 400
	for range forged {
		if err := send(key(2)); event.AsError(err).Code != event.CodeSignatureInvalid {
			t.Fatal(err)
		}
	}
	if made := entries() - before; made > forged/2 {
		t.Errorf("%d forged changes made %d entries", forged, made)
	}
	if err := send(key(1)); err != nil {
		t.Error(err)
	}
}
