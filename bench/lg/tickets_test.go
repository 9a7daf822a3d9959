// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"testing"
	"time"
)

// TestOpenTicketIsWhatItsSignatureIsOver, has the size that is asked for, and the next
// one has another id and another nonce.
func TestOpenTicketIsWhatItsSignatureIsOver(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	seen := map[string]bool{}
	for post := range 3 {
		text := openTicket(key, "bench", "k3f9x0ab", post, 1024, time.Unix(1_800_000_000, 0).UTC())
		var envelope struct {
			ID, Nonce, Sig string
		}
		if err := json.Unmarshal(text, &envelope); err != nil || len(text) != 1024 {
			t.Fatalf("%d bytes, %v: %s", len(text), err, text)
		}
		if !regexp.MustCompile(`^msg_[0-7][0-9A-HJKMNP-TV-Z]{25}$`).MatchString(envelope.ID) || seen[envelope.ID] || seen[envelope.Nonce] {
			t.Errorf("the id is %s, the nonce %s", envelope.ID, envelope.Nonce)
		}
		seen[envelope.ID], seen[envelope.Nonce] = true, true
		signature, err := base64.RawURLEncoding.DecodeString(envelope.Sig[len("ed25519:"):])
		without := regexp.MustCompile(`"sig":"[^"]*",`).ReplaceAll(text, nil)
		public, _ := key.Public().(ed25519.PublicKey)
		if err != nil || !ed25519.Verify(public, without, signature) {
			t.Errorf("the signature is not over %s", without)
		}
		// The members are in canonical order: Go sorts those of a map, too.
		var members map[string]any
		if err := json.Unmarshal(without, &members); err != nil {
			t.Fatal(err)
		}
		if canonical, err := json.Marshal(members); err != nil || !bytes.Equal(canonical, without) {
			t.Errorf("%s\nis not canonical, which is\n%s", without, canonical)
		}
	}
}
