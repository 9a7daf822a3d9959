// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed" // for the example below
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/egress"
	"signalbox/internal/outside"
	"signalbox/ticket"
)

// Config is what a file, the environment and flags can set of a broker. Each field is one setting under one name: key
// is its name in the file, with dashes it is the flag, in capitals behind SIGNALBOX_ the variable. The comment of a
// field is its entry in docs/configuration.md and in signalbox.yaml; run "go test ./cmd/signalbox -run Config -update"
// after a change.
type Config struct {
	// The directory that holds the log and everything made from it. It is created if it does not exist. One broker at a
	// time uses it; it must be on a local file system whose syncs reach the disk.
	Data string `key:"data" value:"directory" default:"./signalbox-data" help:"data directory"`

	// The name of the space that the log is, which is in the topics of the ticket protocol: bus.<space>.… A new log is
	// main if nothing is said; one that has a name keeps it, and a start with another is refused.
	Space string `key:"space" value:"name" default:"" help:"name of the space, main for a new one"`

	// The file with the catalogue of verbs of the ticket protocol that is put in force: JSON, as GET /v1/verbs gives it.
	// What it does not have, no ticket does; what it does not deny can be approved, so begin with the one that there is. Every change of
	// it has another version, and plans of the one before are made anew. Empty is the catalogue of this version of the broker.
	TicketVerbs string `key:"ticket_verbs" value:"file" default:"" help:"catalogue of verbs of the ticket protocol (JSON), in place of the built-in one"`

	// The loopback address and port to listen on; port 0 takes any that is free. Without an identity configured, other
	// addresses are refused, because everybody on the network could read and publish.
	Listen string `key:"listen" value:"address" default:"127.0.0.1:8080" help:"loopback address to listen on, port 0 for any"`

	// The origins whose pages may change things and open a WebSocket, such as https://console.example, separated by
	// commas. They are compared letter for letter, port included. Pages of the broker's own origin and programs always may.
	// But for a WebSocket such a page sends only what browsers send without asking first, such as a POST of a plain media type,
	// and reads no answer: the broker sends no CORS headers.
	AllowOrigin origins `key:"allow_origin" value:"origins" default:"" help:"origins, separated by commas, whose pages may change things and open a WebSocket beside the broker's own"`

	// The file with the broker's certificate in PEM form, with those of its issuers behind it. With it and tls_key the
	// broker speaks https and HTTP/2, so that a browser is not held to six streams. Both files are read again when they
	// change, at the next connection; while they do not fit each other the old pair stays in use.
	TLSCert string `key:"tls_cert" value:"file" default:"" help:"certificate (PEM); with tls_key the broker speaks https"`

	// The file with the key of tls_cert, in PEM form.
	TLSKey string `key:"tls_key" value:"file" default:"" help:"key of the certificate (PEM)"`

	// Events are refused (disk_full) while the volume of the data directory has less than this free; reading, deleting
	// and reclaiming go on. The reserve must hold what has been accepted and is still to be written out, so less than
	// 128MiB does not protect. 0 never refuses.
	MinFree byteSize `key:"min_free" value:"size" default:"256MiB" help:"refuse events while the volume has less than this free; 0 never refuses"`

	// An event whose clock is further ahead than this is refused (hlc_drift), so that one wrong clock cannot win over
	// everybody else's events. At least 1ms.
	HLCMaxDrift time.Duration `key:"hlc_max_drift" value:"duration" default:"500ms" help:"refuse events whose clock is further ahead than this"`

	// How long the id of an event is remembered, so that a repetition has no effect. At least 1s.
	DedupWindow time.Duration `key:"dedup_window" value:"duration" default:"24h" help:"how long the id of an event is remembered"`

	// For how long beyond a topic's retention events are kept for a subscription that has not read them. Past that it is
	// told of a gap. At least 1s.
	HoldMax time.Duration `key:"hold_max" value:"duration" default:"168h" help:"keep events for subscriptions for this long beyond their retention"`

	// How many bytes of a topic are kept beyond its retention for a subscription that has not read them. At least 1KiB.
	HoldMaxBytes byteSize `key:"hold_max_bytes" value:"size" default:"1GiB" help:"keep at most this much of a topic for subscriptions beyond its retention"`

	// How often a checkpoint of the audit trail is signed, while something is added to it. 0 signs only when somebody
	// asks for one.
	AuditInterval time.Duration `key:"audit_interval" value:"duration" default:"1m" help:"sign a checkpoint of the audit trail this often; 0 only when asked"`

	// A file to which every checkpoint is appended, on another volume than the data or on one that can only be appended
	// to. At the start the log is held against the last one in it, and a log that was cut or replaced is not served.
	AuditFile string `key:"audit_file" value:"file" default:"" help:"append checkpoints of the audit trail to this file, and refuse to start with a log that is not what the last one says"`

	// An https URL to which every checkpoint is posted as text/plain; http is for this machine only. What is not
	// answered with 2xx is sent again.
	AuditURL auditURL `key:"audit_url" value:"url" default:"" help:"post checkpoints of the audit trail to this https URL"`

	// The https URL of a bucket of an S3-compatible object store, with a prefix if it is not for this broker alone, below
	// which every checkpoint is put: https://bucket.s3.eu-central-1.amazonaws.com/signalbox. The credentials are in the
	// variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if there is one. They need to put
	// objects and to read them, and not to list, replace or delete them.
	AuditStore auditURL `key:"audit_store" value:"url" default:"" help:"put checkpoints of the audit trail below this URL of an S3-compatible object store"`

	// The region of audit_store, which is part of what is signed.
	AuditStoreRegion string `key:"audit_store_region" value:"region" default:"us-east-1" help:"region of audit_store"`

	// What is brought to audit_file, audit_url and audit_store: checkpoints, or with sync the entries of the audit trail
	// as well, without the events themselves. A ticket message is then delivered, and its sender given a receipt, once all
	// of these places have acknowledged the entries up to it. Other topics do not wait. The entries go to the name of
	// audit_file with .entries behind it, and below entries/ of the URLs.
	AuditExternal auditExternal `key:"audit_external" value:"checkpoints|sync" default:"checkpoints" help:"checkpoints, or sync: bring the entries of the audit trail outside, too, before ticket messages are delivered"`

	// The hosts, addresses and ranges that webhooks may be sent to beyond the public internet, and without TLS, separated
	// by commas: sink.internal, 10.1.2.3, 10.1.0.0/16. A host is allowed whatever its address is. The broker's own
	// listener never is.
	WebhookAllow hostList `key:"webhook_allow" value:"hosts" default:"" help:"hosts, addresses and ranges, separated by commas, that webhooks may be sent to beyond the public internet"`

	// What the broker calls itself in the handshake of webhooks (WebHook-Request-Origin): a DNS name.
	WebhookOrigin string `key:"webhook_origin" value:"name" default:"localhost" help:"what the broker calls itself in the handshake of webhooks"`

	// The URL at which endpoints reach the broker. With it they may consent to the handshake of webhooks later, by a
	// callback. Empty offers them none.
	PublicURL string `key:"public_url" value:"URL" default:"" help:"URL at which endpoints of webhooks reach the broker, to consent later"`

	// The form of the broker's own logs, which go to standard error: text or json.
	LogFormat logFormat `key:"log_format" value:"format" default:"text" help:"text or json"`

	Reloadable
}

// Reloadable are the settings that a running broker takes over when it gets SIGHUP. Flags and variables keep their
// precedence then, so what they set stays.
type Reloadable struct {
	// How much the broker logs about itself: debug, info, warn or error.
	LogLevel slog.Level `key:"log_level" value:"level" default:"info" help:"debug, info, warn or error"`
}

// exampleConfig has every setting with its default and its explanation.
//
//go:embed signalbox.yaml
var exampleConfig []byte

// validate refuses values that no broker could run with.
func (c *Config) validate() error {
	switch {
	case c.Data == "":
		return usagef("data names no directory")
	case c.Space != "" && ticket.CheckName(c.Space) != nil:
		return usageError{ticket.CheckName(c.Space)}
	case c.HLCMaxDrift < time.Millisecond:
		return usagef("hlc_max_drift is %s and must be at least 1ms", c.HLCMaxDrift)
	case c.DedupWindow < time.Second:
		return usagef("dedup_window is %s and must be at least 1s", c.DedupWindow)
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return usagef("tls_cert and tls_key belong together: give both or neither")
	case c.AuditInterval != 0 && c.AuditInterval < time.Second:
		return usagef("audit_interval is %s and must be 0 or at least 1s", c.AuditInterval)
	case c.AuditExternal == externalSync && c.AuditFile == "" && c.AuditURL == "" && c.AuditStore == "":
		return usagef("audit_external is sync, and neither audit_file, audit_url nor audit_store names a place")
	case c.HoldMax < time.Second:
		return usagef("hold_max is %s and must be at least 1s", c.HoldMax)
	case c.PublicURL != "" && !strings.HasPrefix(c.PublicURL, "https://") && !strings.HasPrefix(c.PublicURL, "http://"):
		return usagef("public_url %q is not a URL such as https://broker.example", c.PublicURL)
	case c.WebhookOrigin == "" || strings.ContainsAny(c.WebhookOrigin, " /:,"):
		return usagef("webhook_origin %q is not a DNS name such as broker.example", c.WebhookOrigin)
	case c.HoldMaxBytes < 1<<10:
		return usagef("hold_max_bytes is %s and must be at least 1KiB", c.HoldMaxBytes.String())
	}
	return checkLoopback(c.Listen)
}

// auditInterval is the interval as the broker takes it.
func (c *Config) auditInterval() time.Duration {
	if c.AuditInterval == 0 {
		return -1
	}
	return c.AuditInterval
}

// origins are those of web pages, as browsers write them in the Origin header, with commas between them.
type origins string

func (o origins) list() []string {
	if o == "" {
		return nil
	}
	return strings.Split(string(o), ",")
}

// UnmarshalText reads a setting.
func (o *origins) UnmarshalText(text []byte) error {
	*o = origins(text)
	for _, origin := range o.list() {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != u.Scheme+"://"+strings.ToLower(u.Host) {
			return usagef("%q is not an origin such as https://console.example", origin)
		}
	}
	return nil
}

// storeCredentials are those of audit_store, which are no settings, for they would be seen
// where settings are shown.
func (c *Config) storeCredentials(env func(string) string) (*outside.Credentials, error) {
	if c.AuditStore == "" {
		return nil, nil
	}
	keys := &outside.Credentials{AccessKey: env("AWS_ACCESS_KEY_ID"), SecretKey: env("AWS_SECRET_ACCESS_KEY"), SessionToken: env("AWS_SESSION_TOKEN"), Region: c.AuditStoreRegion}
	if keys.AccessKey == "" || keys.SecretKey == "" {
		return nil, usagef("audit_store needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return keys, nil
}

// auditExternal says what is brought to the places outside.
type auditExternal string

const (
	externalCheckpoints auditExternal = "checkpoints"
	externalSync        auditExternal = "sync"
)

// UnmarshalText reads a setting.
func (a *auditExternal) UnmarshalText(text []byte) error {
	if *a = auditExternal(text); *a != externalCheckpoints && *a != externalSync {
		return usagef("%q is neither checkpoints nor sync", text)
	}
	return nil
}

// auditURL is where checkpoints are brought to.
type auditURL string

// UnmarshalText reads a setting.
func (a *auditURL) UnmarshalText(text []byte) error {
	*a = auditURL(text)
	if *a == "" {
		return nil
	}
	u, err := url.Parse(string(text))
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || checkLoopback(net.JoinHostPort(u.Hostname(), "80")) != nil) {
		return usagef("%q is not an https URL", text)
	}
	return nil
}

// hostList are hosts, addresses and ranges with commas between them.
type hostList string

func (h hostList) list() []string {
	if h == "" {
		return nil
	}
	return strings.Split(string(h), ",")
}

// UnmarshalText reads a setting.
func (h *hostList) UnmarshalText(text []byte) error {
	*h = hostList(text)
	_, err := egress.ParseAllowed(h.list())
	return err
}

// logFormat is text or json.
type logFormat string

// UnmarshalText reads a setting.
func (f *logFormat) UnmarshalText(text []byte) error {
	if *f = logFormat(text); *f != "text" && *f != "json" {
		return usagef("%q is neither text nor json", text)
	}
	return nil
}
