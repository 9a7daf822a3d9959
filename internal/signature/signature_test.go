// SPDX-License-Identifier: Apache-2.0

package signature_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/signature"
)

// vectors are those of the specification's own libraries, and what they refuse.
type vectors struct {
	ID        string `json:"id"`
	Timestamp int64  `json:"timestamp"`
	Body      string `json:"body"`
	Valid     []struct {
		Scheme, Secret, Public, Signature string
	} `json:"valid"`
	HeaderLists []struct {
		Header string
		OK     bool
	} `json:"header_lists"`
	Clock []struct {
		Now int64
		OK  bool
	} `json:"clock"`
	SecretsRefused []string `json:"secrets_refused"`
}

func load(t *testing.T) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustParse(t *testing.T, text string) signature.Key {
	t.Helper()
	k, err := signature.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return k
}

// TestVectors: the signatures are those that other implementations make, and
// what these accept and refuse is accepted and refused.
func TestVectors(t *testing.T) {
	v := load(t)
	at, body := time.Unix(v.Timestamp, 0), []byte(v.Body)
	stamp := "1614265330"
	for _, c := range v.Valid {
		k := mustParse(t, c.Secret)
		if got := signature.Sign([]signature.Key{k}, v.ID, at, body); got != c.Signature {
			t.Errorf("%s: %s, want %s", c.Scheme, got, c.Signature)
		}
		checks := k
		if c.Public != "" {
			if k.Public() != c.Public {
				t.Errorf("the public key is %s, want %s", k.Public(), c.Public)
			}
			checks = mustParse(t, c.Public)
		}
		for _, now := range v.Clock {
			err := signature.Verify([]signature.Key{checks}, v.ID, stamp, c.Signature, body, time.Unix(now.Now, 0))
			if (err == nil) != now.OK {
				t.Errorf("%s at %d: %v", c.Scheme, now.Now, err)
			}
		}
	}
	secret := []signature.Key{mustParse(t, v.Valid[0].Secret)}
	for _, c := range v.HeaderLists {
		if err := signature.Verify(secret, v.ID, stamp, c.Header, body, at); (err == nil) != c.OK {
			t.Errorf("%q: %v", c.Header, err)
		}
	}
	for _, text := range v.SecretsRefused {
		if _, err := signature.Parse(text); err == nil {
			t.Errorf("the secret %q is accepted", text)
		}
	}
}

// TestSecretIsDecodedBeforeUse: the bytes of a secret are those that its base64
// stands for, and rotation signs with both secrets.
func TestSecretIsDecodedBeforeUse(t *testing.T) {
	first := mustParse(t, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	second := mustParse(t, "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=")
	at, body := time.Unix(1700000000, 0), []byte(`{"a":"<&>"}`)
	const one, two = "v1,ERJXDxn/bsUfSXFyixHc1N0GgpMzMJ+eji32boykNXE=", "v1,LhcgnZptbLkp3NOsyjluhwutEMY8ikcSiRfqLKUQVbA="
	for want, keys := range map[string][]signature.Key{one: {first}, one + " " + two: {first, second}, two: {second}} {
		if got := signature.Sign(keys, "evt_1", at, body); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, text := range []string{
		"whsec_" + strings.Repeat("A", 12), // 9 bytes
		"whsec_" + strings.Repeat("A", 88), // 66 bytes
		"whsec_not base64 at all, is it?", "v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
	} {
		if _, err := signature.Parse(text); err == nil {
			t.Errorf("the secret %q is accepted", text)
		}
	}
}

// TestDrawnKeysWork: what is drawn can be read, signs, and is checked by its
// public half; that of another is not.
func TestDrawnKeysWork(t *testing.T) {
	at, body := time.Now(), []byte("{}")
	for _, text := range []string{signature.NewSecret(), signature.NewPrivate()} {
		k := mustParse(t, text)
		s := signature.Sign([]signature.Key{k}, "msg_1", at, body)
		if k.Public() != "" {
			k = mustParse(t, k.Public())
		}
		if err := signature.Verify([]signature.Key{k}, "msg_1", unix(at), s, body, at); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if err := signature.Verify([]signature.Key{k}, "msg_2", unix(at), s, body, at); err == nil {
			t.Error("another id passes")
		}
		if err := signature.Verify([]signature.Key{mustParse(t, signature.NewSecret())}, "msg_1", unix(at), s, body, at); err == nil {
			t.Error("another key passes")
		}
	}
	if half := mustParse(t, signature.NewPrivate()); half.Public() == "" || !half.Signs() || mustParse(t, half.Public()).Signs() {
		t.Error("a private key signs and has a public half, which does not sign")
	}
}

func unix(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// FuzzVerify: nothing that arrives panics or passes without a signature.
func FuzzVerify(f *testing.F) {
	f.Add("msg_1", "1614265330", "v1,AAAA v1a,BBBB", []byte("{}"))
	f.Add("", "-1", "v1", []byte(nil))
	k, err := signature.Parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		if signature.Verify([]signature.Key{k}, id, timestamp, signatures, body, time.Unix(1614265330, 0)) == nil {
			t.Fatalf("%q passes for %q at %s", signatures, body, timestamp)
		}
	})
}
