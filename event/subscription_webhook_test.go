// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

// knative is a document as those who know only the standard write it.
const knative = `{
	"id": "ignored", "source": "/fleet/drones", "types": ["com.example.task.completed"],
	"filters": [{"exact": {"subject": "T-1"}}, {"cesql": "EXISTS severity"}, {"any": [{"prefix": {"type": "com.example."}}]}],
	"sink": "https://sink.example.com/hook?tenant=1",
	"sinkCredential": {"credentialType": "ACCESSTOKEN", "accessToken": "hush", "accessTokenExpiresUtc": "2030-01-01T00:00:00Z", "accessTokenType": "bearer"},
	"protocol": "HTTP", "protocolSettings": {"method": "POST", "headers": {"X-Tenant": "one"}}
}`

// TestStockDocumentIsAccepted: what a client of the standard sends is a webhook
// with the defaults of one.
func TestStockDocumentIsAccepted(t *testing.T) {
	s, err := event.ParseSubscription([]byte(knative))
	if err != nil {
		t.Fatal(err)
	}
	c := &s.Config
	if c.Kind != event.KindWebhook || c.MaxAttempts != 10 || c.ContentMode != event.ContentStructured || c.Signature != event.SignatureEd25519 || c.DisableAfter != 5*event.Day || c.Handshake {
		t.Errorf("the config is %+v", c)
	}
	h, err := s.SinkHeaders()
	if err != nil || h.Get("X-Tenant") != "one" || len(h) != 1 {
		t.Errorf("headers %v, %v", h, err)
	}
	if scheme, credentials := s.Authorization(time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)); scheme != "Bearer" || credentials != "hush" {
		t.Errorf("%s %s", scheme, credentials)
	}
	var again event.Subscription
	if err := again.UnmarshalJSON(s.AppendJSON(nil, true)); err != nil || !bytes.Equal(again.AppendJSON(nil, true), s.AppendJSON(nil, true)) {
		t.Errorf("it is stored as %s, and read as %s: %v", s.AppendJSON(nil, true), again.AppendJSON(nil, true), err)
	}
}

// TestWebhookSecretsAreWriteOnly: what is shown has none, and what is stored has
// them.
func TestWebhookSecretsAreWriteOnly(t *testing.T) {
	const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	s, err := event.ParseSubscription([]byte(`{"protocol":"HTTP","sink":"https://a.example/","config":{"signature":"v1","secrets":["` + secret + `"],"handshake":true,"content_mode":"binary","disable_after":null,"max_attempts":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if shown := s.AppendJSON(nil, false); bytes.Contains(shown, []byte("whsec_")) {
		t.Errorf("shown as %s", shown)
	}
	stored := s.AppendJSON(nil, true)
	if !bytes.Contains(stored, []byte(secret)) || !bytes.Contains(stored, []byte(`"handshake":true,"disable_after":null`)) {
		t.Errorf("stored as %s", stored)
	}
}

// TestCredentialStaysWithItsServer: a change that names no credential keeps the one
// that there is, but not for another server.
func TestCredentialStaysWithItsServer(t *testing.T) {
	document := func(sink, credential string) event.Subscription {
		s, err := event.ParseSubscription([]byte(`{"protocol":"HTTP","sink":"` + sink + `","sinkcredential":{"credentialtype":"PLAIN"` + credential + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := document("https://sink.example/a", `,"identifier":"me","secret":"hush"`)
	for sink, keeps := range map[string]bool{
		"https://sink.example/a": true, "https://Sink.example/b?c": true,
		"https://other.example/a": false, "https://sink.example:8443/a": false, "http://sink.example/a": false,
	} {
		s := document(sink, "")
		s.KeepSecrets(&before)
		if _, credentials := s.Authorization(time.Now()); (credentials == "me:hush") != keeps || (s.Incomplete() == "") != keeps {
			t.Errorf("%s is sent %q, lacks %q", sink, credentials, s.Incomplete())
		}
	}
}

// TestAccessTokens: one is Bearer by default, and is sent until it expires. One that is
// of no use is refused where it is given, and not where it is stored.
func TestAccessTokens(t *testing.T) {
	now := time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)
	for member, field := range map[string]string{
		`"accesstokenexpiresutc":"2030-01-01T00:00:00Z"`:                            "",
		`"accesstokenexpiresutc":"2030-01-01T00:00:00Z","accesstokentype":"Bearer"`: "",
		`"accesstokenexpiresutc":"2030-01-01T00:00:00Z","accesstokentype":"mac"`:    "sinkcredential.accesstokentype",
		`"accesstokenexpiresutc":"2029-01-01T00:00:00Z"`:                            "sinkcredential.accesstokenexpiresutc",
		`"accesstokenexpiresutc":"2029-01-01T02:00:00+02:00"`:                       "sinkcredential.accesstokenexpiresutc",
		`"accesstokenexpiresutc":"tomorrow"`:                                        "sinkcredential.accesstokenexpiresutc",
	} {
		s, err := event.ParseSubscription([]byte(`{"protocol":"HTTP","sink":"https://a.example/","sinkcredential":{"credentialtype":"ACCESSTOKEN","accesstoken":"hush",` + member + `}}`))
		if err != nil {
			t.Fatalf("%s: %v", member, err)
		}
		err = s.CheckCredential(now)
		if (err == nil) != (field == "") || err != nil && event.AsError(err).Field != field {
			t.Errorf("%s: %v", member, err)
		}
		if err != nil {
			checkRefusal(t, err)
		}
	}
	s, err := event.ParseSubscription([]byte(knative))
	if err != nil {
		t.Fatal(err)
	}
	if scheme, token := s.Authorization(now.AddDate(2, 0, 0)); scheme != "" || token != "" {
		t.Errorf("%s %s is sent after it has expired", scheme, token)
	}
	s, err = event.ParseSubscription([]byte(`{"protocol":"HTTP","sink":"https://a.example/","sinkcredential":{"credentialtype":"PLAIN","identifier":"me","secret":"hush","accesstokenexpiresutc":"2029-01-01T00:00:00Z"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if scheme, _ := s.Authorization(now); scheme != "Basic" || s.TokenExpired(now) {
		t.Errorf("a name and a password, sent as %q, are a token that has expired: %t", scheme, s.TokenExpired(now))
	}
}

// TestRefusedWebhooks: what no endpoint could be sent, or what would let a
// subscriber speak for the broker.
func TestRefusedWebhooks(t *testing.T) {
	for field, document := range map[string]string{
		"sink":                          `{"protocol":"HTTP"}`,
		"config.content_mode":           `{"protocol":"HTTP","sink":"https://a.example/","config":{"content_mode":"xml"}}`,
		"config.signature":              `{"protocol":"HTTP","sink":"https://a.example/","config":{"signature":"v2"}}`,
		"config.disable_after":          `{"protocol":"HTTP","sink":"https://a.example/","config":{"disable_after":"1s"}}`,
		"config.max_attempts":           `{"protocol":"HTTP","sink":"https://a.example/","config":{"max_attempts":0}}`,
		"config.handshake":              `{"protocol":"HTTP","sink":"https://a.example/","config":{"handshake":"perhaps"}}`,
		"config.signature ":             `{"protocol":"SIGNALBOX","config":{"signature":"v1"}}`,
		"config.content_mode ":          `{"protocol":"SIGNALBOX","config":{"content_mode":"binary"}}`,
		"config.handshake ":             `{"protocol":"SIGNALBOX","config":{"handshake":true}}`,
		"config.secrets ":               `{"protocol":"SIGNALBOX","config":{"secrets":["x"]}}`,
		"config.disable_after ":         `{"protocol":"SIGNALBOX","config":{"kind":"stream","disable_after":"1h"}}`,
		"protocolsettings.method":       `{"protocol":"HTTP","sink":"https://a.example/","protocolsettings":{"method":"PUT"}}`,
		"protocolsettings.qos":          `{"protocol":"HTTP","sink":"https://a.example/","protocolsettings":{"qos":1}}`,
		"sinkcredential.credentialtype": `{"protocol":"HTTP","sink":"https://a.example/","sinkcredential":{"credentialtype":"REFRESHTOKEN","accesstoken":"a","accesstokenexpiresutc":"a","accesstokentype":"a","refreshtoken":"a","refreshtokenendpoint":"a"}}`,
		"config.secrets":                `{"protocol":"HTTP","sink":"https://a.example/","config":{"secrets":["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]}}`,
	} {
		if _, err := event.ParseSubscription([]byte(document)); err == nil || event.AsError(err).Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v, field %q", document, err, event.AsError(err).Field)
		}
	}
	for _, secret := range []string{"whsec_AAECAwQFBgc=", "whsec_" + strings.Repeat("A", 88), "whsec_!", "v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="} {
		if _, err := event.ParseSubscription([]byte(`{"protocol":"HTTP","sink":"https://a.example/","config":{"signature":"v1","secrets":["` + secret + `"]}}`)); err == nil || event.AsError(err).Field != "config.secrets" {
			t.Errorf("the secret %s: %v", secret, err)
		}
	}
	for _, header := range []string{"Host", "content-type", "WEBHOOK-ID", "ce-type", "Authorization", "Transfer-Encoding", "a b"} {
		if _, err := event.ParseSubscription([]byte(`{"protocol":"HTTP","sink":"https://a.example/","protocolsettings":{"headers":{"` + header + `":"x"}}}`)); err == nil || event.AsError(err).Field != "protocolsettings.headers" {
			t.Errorf("the header %s: %v", header, err)
		}
	}
}
