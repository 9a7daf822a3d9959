// SPDX-License-Identifier: Apache-2.0

// Package signature makes and checks the signatures of Standard Webhooks 1.0.0:
// v1, an HMAC with a secret that both sides have, and v1a, an Ed25519 signature
// that anybody can check. What is signed is the webhook-id, the time of the
// attempt and the bytes of the body as they are sent.
//
// It guarantees that a secret is turned into a key in one way only, so that the
// broker that signs and the receiver of package client that checks cannot
// disagree. It imports nothing of ours.
package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Tolerance is how far the time of an attempt may be from the receiver's clock,
// either way. The public libraries have the same.
const Tolerance = 5 * time.Minute

const (
	secretPrefix  = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"

	// What the specification has for the length of a secret.
	secretBytesMin, secretBytesMax = 24, 64

	// signaturesMax bounds the signatures of one request that are looked at: each
	// costs a comparison for every key.
	signaturesMax = 16
)

// Key signs, or checks signatures. The zero Key does neither.
type Key struct {
	secret  []byte             // of v1
	private ed25519.PrivateKey // of v1a; nil if it only checks
	public  ed25519.PublicKey  // of v1a
}

// Parse reads a key as Standard Webhooks writes it: whsec_ (a secret of 24 to 64
// bytes), whsk_ (a private Ed25519 key) or whpk_ (a public one), followed by
// standard base64. Nothing else is guessed at: a secret whose text was taken for
// its bytes is the most frequent fault of receivers.
func Parse(text string) (Key, error) {
	prefix, rest, ok := strings.Cut(text, "_")
	if !ok {
		return Key{}, errors.New("it does not begin with whsec_, whsk_ or whpk_")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(rest)
	if err != nil {
		return Key{}, errors.New("what follows the prefix is not standard base64 with padding")
	}
	switch prefix + "_" {
	case secretPrefix:
		if len(raw) < secretBytesMin || len(raw) > secretBytesMax {
			return Key{}, fmt.Errorf("the secret has %d bytes and must have %d to %d", len(raw), secretBytesMin, secretBytesMax)
		}
		return Key{secret: raw}, nil
	case privatePrefix:
		if len(raw) != ed25519.PrivateKeySize {
			return Key{}, fmt.Errorf("the private key has %d bytes and must have %d", len(raw), ed25519.PrivateKeySize)
		}
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if string(private) != string(raw) {
			return Key{}, errors.New("the two halves of the private key do not belong together")
		}
		return Key{private: private, public: private.Public().(ed25519.PublicKey)}, nil
	case publicPrefix:
		if len(raw) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("the public key has %d bytes and must have %d", len(raw), ed25519.PublicKeySize)
		}
		return Key{public: raw}, nil
	}
	return Key{}, errors.New("it does not begin with whsec_, whsk_ or whpk_")
}

// NewSecret draws a secret for v1, as text.
func NewSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // it ends the process rather than fail
	return secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

// NewPrivate draws a private key for v1a, as text.
func NewPrivate() string {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // it ends the process rather than fail
	return privatePrefix + base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed))
}

// Public is the text of the public key of v1a, "" for a secret.
func (k Key) Public() string {
	if k.public == nil {
		return ""
	}
	return publicPrefix + base64.StdEncoding.EncodeToString(k.public)
}

// Signs reports whether the key can sign.
func (k Key) Signs() bool { return k.secret != nil || k.private != nil }

// Sign returns the value of webhook-signature: one signature with each key,
// separated by spaces, so that a receiver that has any of them is content.
func Sign(keys []Key, id string, at time.Time, body []byte) string {
	signed := content(id, strconv.FormatInt(at.Unix(), 10), body)
	var b strings.Builder
	for _, k := range keys {
		if !k.Signs() {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(k.sign(signed))
	}
	return b.String()
}

func content(id, timestamp string, body []byte) []byte {
	b := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	b = append(append(b, id...), '.')
	b = append(append(b, timestamp...), '.')
	return append(b, body...)
}

func (k Key) sign(signed []byte) string {
	if k.secret != nil {
		mac := hmac.New(sha256.New, k.secret)
		_, _ = mac.Write(signed) // a hash takes everything
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, signed))
}

// The reasons for which a request is not what it says.
var (
	ErrHeaders   = errors.New("the webhook headers are missing or malformed")
	ErrTimestamp = errors.New("the time of the attempt is too far from this machine's clock")
	ErrSignature = errors.New("no signature fits")
)

// Verify checks that one of the signatures was made with one of the keys, for
// this id and body, at a time that is near now.
func Verify(keys []Key, id, timestamp, signatures string, body []byte, now time.Time) error {
	if id == "" || timestamp == "" || signatures == "" {
		return ErrHeaders
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != timestamp {
		return ErrHeaders
	}
	if age := now.Unix() - seconds; age > int64(Tolerance.Seconds()) || age < -int64(Tolerance.Seconds()) {
		return ErrTimestamp
	}
	signed := content(id, timestamp, body)
	for i, s := range strings.Fields(signatures) {
		if i == signaturesMax {
			break
		}
		for _, k := range keys {
			if k.verify(signed, s) {
				return nil
			}
		}
	}
	return ErrSignature
}

func (k Key) verify(signed []byte, signature string) bool {
	version, text, _ := strings.Cut(signature, ",")
	got, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil || len(got) == 0:
		return false
	case version == "v1" && k.secret != nil:
		mac := hmac.New(sha256.New, k.secret)
		_, _ = mac.Write(signed) // a hash takes everything
		return hmac.Equal(mac.Sum(nil), got)
	case version == "v1a" && k.public != nil:
		return ed25519.Verify(k.public, signed, got)
	}
	return false
}
