// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/identity"
	"signalbox/ticket"
)

var (
	netKey   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("n", ed25519.SeedSize)))
	otherKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", ed25519.SeedSize)))
	now      = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

func verify(text string) (identity.Principal, time.Time, error) {
	t := identity.Token{Text: text, Audience: "main", LifeMax: ticket.TokenLife, Now: now, Key: func(agent string) (ed25519.PublicKey, string) {
		if agent == "net" {
			return netKey.Public().(ed25519.PublicKey), "k1"
		}
		return nil, ""
	}}
	return t.Verify()
}

// signed is a token of any header and claims.
func signed(header, claims string, key ed25519.PrivateKey) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

func claims(iss, sub, aud string, iat, exp time.Duration) string {
	return fmt.Sprintf(`{"iss":%q,"sub":%q,"aud":%s,"iat":%d,"exp":%d}`, iss, sub, aud, now.Add(iat).Unix(), now.Add(exp).Unix())
}

const eddsa = `{"alg":"EdDSA","typ":"JWT"}`

// TestTokensOfAgents: what package ticket makes is taken, and so are clocks that
// differ a little.
func TestTokensOfAgents(t *testing.T) {
	tokens, err := ticket.NewTokens("net", "main", netKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"of package ticket":           tokens.Token(now),
		"again":                       tokens.Token(now.Add(time.Minute)),
		"one of several":              signed(eddsa, claims("net", "net", `["other","main"]`, 0, time.Minute), netKey),
		"20 s ahead":                  signed(eddsa, claims("net", "net", `"main"`, 20*time.Second, time.Minute), netKey),
		"20 s over":                   signed(eddsa, claims("net", "net", `"main"`, -time.Minute, -20*time.Second), netKey),
		"with a key id of no meaning": signed(`{"alg":"EdDSA","kid":"../../k"}`, claims("net", "net", `"main"`, 0, time.Minute), netKey),
	} {
		p, until, err := verify(text)
		if err != nil || p.Subject() != "net" || p.Credential() != "k1" || until.Before(now) || until.After(now.Add(ticket.TokenLife+identity.TokenLeeway)) {
			t.Errorf("%s: %v until %s, %v", name, p, until, err)
		}
	}
	if tokens.Token(now) != tokens.Token(now.Add(time.Minute)) || tokens.Token(now) == tokens.Token(now.Add(ticket.TokenLife)) {
		t.Error("a token is not used again while it lasts, or for longer than it lasts")
	}
}

// TestTokensThatDoNotCount (RFC 8725, sections 2 and 3).
func TestTokensThatDoNotCount(t *testing.T) {
	good := claims("net", "net", `"main"`, 0, time.Minute)
	valid := signed(eddsa, good, netKey)
	part := strings.Split(valid, ".")
	hs := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + part[1]
	mac := hmac.New(sha256.New, netKey.Public().(ed25519.PublicKey))
	mac.Write([]byte(hs))
	for name, text := range map[string]string{
		"nothing":                       "",
		"no token":                      "abc",
		"long":                          valid + strings.Repeat("A", 8<<10),
		"none":                          base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + part[1] + ".",
		"without a signature":           part[0] + "." + part[1] + ".",
		"the public key as a secret":    hs + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"another algorithm":             signed(`{"alg":"ES256"}`, good, netKey),
		"an extension that is critical": signed(`{"alg":"EdDSA","crit":["exp"]}`, good, netKey),
		"another's key":                 signed(eddsa, good, otherKey),
		"an unknown agent":              signed(eddsa, claims("dns", "dns", `"main"`, 0, time.Minute), netKey),
		"another's name":                signed(eddsa, claims("net", "dns", `"main"`, 0, time.Minute), netKey),
		"no subject":                    signed(eddsa, claims("net", "", `"main"`, 0, time.Minute), netKey),
		"another space":                 signed(eddsa, claims("net", "net", `"other"`, 0, time.Minute), netKey),
		"no audience":                   signed(eddsa, claims("net", "net", `[]`, 0, time.Minute), netKey),
		"over":                          signed(eddsa, claims("net", "net", `"main"`, -5*time.Minute, -time.Minute), netKey),
		"not yet":                       signed(eddsa, claims("net", "net", `"main"`, 10*time.Minute, 15*time.Minute), netKey),
		"not before":                    signed(eddsa, fmt.Sprintf(`{"iss":"net","sub":"net","aud":"main","nbf":%d,`, now.Add(10*time.Minute).Unix())+good[len(`{"iss":"net","sub":"net","aud":"main",`):], netKey),
		"for an hour":                   signed(eddsa, claims("net", "net", `"main"`, 0, time.Hour), netKey),
		"without an end":                signed(eddsa, fmt.Sprintf(`{"iss":"net","sub":"net","aud":"main","iat":%d}`, now.Unix()), netKey),
		"without a beginning":           signed(eddsa, fmt.Sprintf(`{"iss":"net","sub":"net","aud":"main","exp":%d}`, now.Add(time.Minute).Unix()), netKey),
		"claims of no object":           signed(eddsa, `"net"`, netKey),
		"changed":                       part[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(good, "main", "mian", 1))) + "." + part[2],
	} {
		if p, _, err := verify(text); event.AsError(err) == nil || event.AsError(err).Code != event.CodeTokenInvalid || p != identity.Anonymous() {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(signed(eddsa, claims("net", "net", `"main"`, 0, time.Minute), netKey))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		if p, _, err := verify(text); err == nil && p.Subject() != "net" {
			t.Errorf("%q is taken for %q", text, p.Subject())
		}
	})
}
