// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/signature"
)

// The forms in which webhooks carry events, and how they are signed.
const (
	ContentStructured = "structured" // one event in the body; the signature covers all of it
	ContentBinary     = "binary"     // attributes in headers, which the signature does not cover
	ContentBatch      = "batch"      // an array of events

	SignatureEd25519 = "v1a" // with the broker's key, which anybody can check
	SignatureHMAC    = "v1"  // with secrets that both sides have
)

const (
	// maxSecrets lets a secret overlap with those before it, and bounds the
	// signatures of one request.
	maxSecrets = 4
	// maxSinkHeaders bounds the headers that a subscriber may add.
	maxSinkHeaders     = 32
	maxSinkHeaderBytes = 4096
	// webhookAttempts are those of the Standard Webhooks schedule.
	webhookAttempts = 10
	pullAttempts    = 5
)

// WebhookConfig is the part of a config that only webhooks have.
type WebhookConfig struct {
	ContentMode string // structured, binary or batch
	Signature   string // v1a or v1
	// Secrets are those of v1, each as whsec_ and base64. They are write-only. The
	// first ones to come are the new ones; every request is signed with all of them.
	Secrets []string
	// Handshake says that nothing is delivered until the sink has consented by the
	// CloudEvents webhook handshake.
	Handshake bool
	// DisableAfter is after what time of nothing but failures the broker stops; 0:
	// never.
	DisableAfter Duration
}

func defaultWebhookConfig() WebhookConfig {
	return WebhookConfig{ContentMode: ContentStructured, Signature: SignatureEd25519, DisableAfter: 5 * Day}
}

// given is the first member that is not as it is by default.
func (c *WebhookConfig) given() string {
	d := defaultWebhookConfig()
	switch {
	case c.ContentMode != d.ContentMode:
		return "content_mode"
	case c.Signature != d.Signature:
		return "signature"
	case len(c.Secrets) > 0:
		return "secrets"
	case c.Handshake:
		return "handshake"
	case c.DisableAfter != 0 && c.DisableAfter != d.DisableAfter: // never is true of all others
		return "disable_after"
	}
	return ""
}

// checkWebhook checks what only subscriptions by HTTP have.
func (s *Subscription) checkWebhook() error {
	c := &s.Config
	switch {
	case s.Sink == "":
		return subscriptionFault("sink", "is missing: it is the URL that events are sent to")
	case c.ContentMode != ContentStructured && c.ContentMode != ContentBinary && c.ContentMode != ContentBatch:
		return subscriptionFault("config.content_mode", "is not structured, binary or batch")
	case c.Signature != SignatureEd25519 && c.Signature != SignatureHMAC:
		return subscriptionFault("config.signature", "is not v1a or v1")
	case len(c.Secrets) > 0 && c.Signature != SignatureHMAC:
		return subscriptionFault("config.secrets", "are for the signature v1: v1a is made with the broker's own key")
	case len(c.Secrets) > maxSecrets:
		return subscriptionFault("config.secrets", "must be at most 4: the ones that are used, and those before them")
	case c.DisableAfter != 0 && c.DisableAfter < Duration(60e9):
		return subscriptionFault("config.disable_after", "must be at least 1m; null means never")
	}
	for _, secret := range c.Secrets {
		if key, err := signature.Parse(secret); err != nil || !strings.HasPrefix(secret, "whsec_") || !key.Signs() {
			return subscriptionFault("config.secrets", "must each be whsec_ and 24 to 64 bytes in standard base64")
		}
	}
	if kind, _ := LookupJSON(s.SinkCredential, "credentialtype"); kind == "REFRESHTOKEN" {
		return subscriptionFault("sinkcredential.credentialtype", "REFRESHTOKEN is not supported: use ACCESSTOKEN or PLAIN")
	}
	_, err := s.SinkHeaders()
	return err
}

// ownHeaders are those of a delivery that the broker sets, and those that say how
// the connection is used.
var ownHeaders = []string{
	"Host", "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
	"Content-Length", "Content-Type", "Content-Encoding", "Authorization", "User-Agent", "Origin", "Cookie",
}

// SinkHeaders returns the headers that the subscriber has added to its
// deliveries (protocolsettings.headers).
func (s *Subscription) SinkHeaders() (http.Header, error) {
	h := http.Header{}
	if s.ProtocolSettings == nil {
		return h, nil
	}
	err := eachMember(s.ProtocolSettings, "protocolsettings", func(name string, v jsontext.Value) error {
		switch name {
		case "method":
			if method, ok := jsonString(v); !ok || method != http.MethodPost {
				return subscriptionFault("protocolsettings.method", "must be POST: webhooks have no other (CloudEvents HTTP webhook 2.1)")
			}
			return nil
		case "headers":
			return sinkHeaders(h, v)
		}
		return subscriptionFault("protocolsettings."+clip(name), "is not a setting of the protocol HTTP, which has headers and method")
	})
	return h, err
}

func sinkHeaders(h http.Header, v jsontext.Value) error {
	bytes := 0
	return eachMember(v, "protocolsettings.headers", func(name string, v jsontext.Value) error {
		value, ok := jsonString(v)
		canonical := http.CanonicalHeaderKey(name)
		bytes += len(name) + len(value)
		switch {
		case !ok || !isToken(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return subscriptionFault("protocolsettings.headers", "must have header names, with visible ASCII as their values")
		case len(h) == maxSinkHeaders || bytes > maxSinkHeaderBytes:
			return subscriptionFault("protocolsettings.headers", "must be at most 32, of 4 KiB together")
		}
		for _, own := range ownHeaders {
			if canonical == own {
				return Errorf(CodeSubscriptionInvalid, "The header %s is the broker's to set.", own).With("protocolsettings.headers")
			}
		}
		for _, prefix := range []string{"Webhook-", "Ce-"} {
			if strings.HasPrefix(canonical, prefix) {
				return Errorf(CodeSubscriptionInvalid, "Headers that begin with %s are the broker's to set.", prefix).With("protocolsettings.headers")
			}
		}
		h.Set(canonical, value)
		return nil
	})
}

// setWebhook takes a member of the config that only webhooks have.
func (c *WebhookConfig) setWebhook(name string, v jsontext.Value) (known, ok bool) {
	switch name {
	case "content_mode":
		c.ContentMode, ok = jsonString(v)
	case "signature":
		c.Signature, ok = jsonString(v)
	case "secrets":
		c.Secrets, ok = jsonList(v)
	case "handshake":
		text := strings.Trim(string(v), `"`)
		c.Handshake, ok = text == "true", text == "true" || text == "false"
	default:
		return false, false
	}
	return true, ok
}

// appendJSON appends the members, each behind a comma.
func (c *WebhookConfig) appendJSON(dst []byte, secrets bool) []byte {
	dst = appendString(append(dst, `,"content_mode":`...), c.ContentMode)
	dst = appendString(append(dst, `,"signature":`...), c.Signature)
	if secrets && len(c.Secrets) > 0 {
		dst = appendStrings(append(dst, `,"secrets":`...), c.Secrets)
	}
	if c.Handshake {
		dst = append(dst, `,"handshake":true`...)
	}
	return appendDuration(dst, "disable_after", c.DisableAfter)
}

func appendDuration(dst []byte, name string, d Duration) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	if d == 0 {
		return append(dst, "null"...)
	}
	return appendString(dst, d.String())
}

// credential returns a member of the credential, "" if it is not there.
func (s *Subscription) credential(name string) string {
	text, _ := LookupJSON(s.SinkCredential, name)
	return text
}

// Authorization returns what a delivery says in that header at a time: Basic with a
// name and a password, or Bearer with a token that has not expired; "" for nothing.
func (s *Subscription) Authorization(now time.Time) (scheme, credentials string) {
	if len(bytes.TrimSpace(s.SinkCredential)) == 0 {
		return "", ""
	}
	if s.credential("credentialtype") == "PLAIN" {
		return "Basic", s.credential("identifier") + ":" + s.credential("secret")
	}
	if s.TokenExpired(now) {
		return "", ""
	}
	return "Bearer", s.credential("accesstoken")
}

// TokenExpired reports whether the credential is a token that has expired, so that none
// is sent.
func (s *Subscription) TokenExpired(now time.Time) bool {
	if s.credential("credentialtype") == "PLAIN" {
		return false
	}
	end, err := time.Parse(time.RFC3339, s.credential("accesstokenexpiresutc"))
	return err == nil && !now.Before(end)
}

// CheckCredential reports a credential that is of no use: a token that has expired, or
// is sent in another way than as Bearer (Subscriptions API 3.2.3). What is stored may be one.
func (s *Subscription) CheckCredential(now time.Time) error {
	if s.credential("accesstoken") == "" {
		return nil
	}
	if kind := s.credential("accesstokentype"); kind != "" && !strings.EqualFold(kind, "bearer") {
		return subscriptionFault("sinkcredential.accesstokentype", "is not bearer, the one type that is sent (RFC 6750)")
	}
	end, err := time.Parse(time.RFC3339, s.credential("accesstokenexpiresutc"))
	if err != nil {
		return subscriptionFault("sinkcredential.accesstokenexpiresutc", "is not a time, such as 2030-01-31T12:00:00Z")
	}
	if !now.Before(end) {
		return subscriptionFault("sinkcredential.accesstokenexpiresutc", "is over: the token has expired, so send one that has not")
	}
	return nil
}

// Incomplete reports which member lacks the secrets that it needs: they are
// write-only, so a document that was shown has none.
func (s *Subscription) Incomplete() (field string) {
	if s.Config.Kind == KindWebhook && s.Config.Signature == SignatureHMAC && len(s.Config.Secrets) == 0 {
		return "config.secrets"
	}
	if kind, ok := LookupJSON(s.SinkCredential, "credentialtype"); ok && string(s.SinkCredential) == `{"credentialtype":"`+kind+`"}` {
		return "sinkcredential"
	}
	return ""
}

// KeepSecrets fills in what is incomplete from the document before. A credential is
// kept for the server that it was given for only: whoever can change the sink could
// have it sent to a server of its own.
func (s *Subscription) KeepSecrets(before *Subscription) {
	if s.Config.Kind == KindWebhook && s.Config.Signature == SignatureHMAC && len(s.Config.Secrets) == 0 {
		s.Config.Secrets = before.Config.Secrets
	}
	mine, _ := LookupJSON(s.SinkCredential, "credentialtype")
	theirs, ok := LookupJSON(before.SinkCredential, "credentialtype")
	if ok && mine == theirs && s.Incomplete() == "sinkcredential" && sameServer(s.Sink, before.Sink) {
		s.SinkCredential = before.SinkCredential
	}
}

func sameServer(a, b string) bool {
	left, err := url.Parse(a)
	right, err2 := url.Parse(b)
	return err == nil && err2 == nil && left.Scheme == right.Scheme && strings.EqualFold(left.Host, right.Host)
}
