// SPDX-License-Identifier: Apache-2.0

package event

import (
	"slices"
	"strings"
	"time"
)

// The protocols of the CloudEvents Subscriptions API, and the broker's own: the
// subscriber comes and takes its events from the subscription's URL.
const (
	ProtocolHTTP      = "HTTP"
	ProtocolSignalbox = "SIGNALBOX"
)

// The kinds of delivery.
const (
	KindWebhook = "webhook" // the broker sends each event to the sink
	KindStream  = "stream"  // one client follows, and acknowledges by cursor
	KindPull    = "pull"    // workers fetch events and settle each one
)

// The orders of delivery.
const (
	OrderKey       = "key"       // of each topic and key one event at a time
	OrderStrict    = "strict"    // one event at a time
	OrderUnordered = "unordered" // any number at a time
)

// The limits of a subscription. They bound its rows, and the work of one
// request on it.
const (
	// MaxSubscriptionBytes stops documents that would crowd out the rows of others.
	MaxSubscriptionBytes = 64 << 10
	// MaxSubscriptionTypes bounds a list that is compared with each event.
	MaxSubscriptionTypes = 256
	// MaxSelected bounds the members that a shaped event is searched for.
	MaxSelected = 64
	// MaxOutstanding bounds what is handed out and not settled, and so what one
	// look at a deadline has to go through.
	MaxOutstanding = 1000
	// MaxParked bounds the events that wait behind others of their key.
	MaxParked = 10_000
	// MaxAttempts is more than any schedule of retries needs.
	MaxAttempts = 1000
	// MaxVisibility is how long a worker may keep an event to itself without
	// a word; longer work extends its deadline.
	MaxVisibility = Duration(12 * time.Hour)
)

// Subscription is a document of the CloudEvents Subscriptions API (0.1-wip).
type Subscription struct {
	// ID is given by the broker; one that is sent is ignored.
	ID string
	// Source and Types select events by these attributes; empty selects all.
	Source string
	Types  []string
	// Filters is a JSON array of filter expressions, all of which must hold; nil
	// selects all.
	Filters []byte
	Sink    string
	// SinkCredential and ProtocolSettings are JSON objects, nil if absent.
	SinkCredential   []byte
	Protocol         string
	ProtocolSettings []byte
	Config           SubscriptionConfig
}

// SubscriptionConfig is what the standard leaves to the broker.
type SubscriptionConfig struct {
	Kind   string
	Topics []string // patterns
	View   string   // "": that of each topic
	// Start is "now", "earliest", a cursor or an RFC 3339 time. It is read when
	// the subscription is created, and never again.
	Start string
	Order string
	// Select names the attributes and data paths that are delivered; empty is all.
	Select []string
	// ExpiresAfter ends a subscription that nobody has used for so long; 0: never.
	ExpiresAfter Duration
	// MaxAttempts is how often an event is handed out before it is a dead letter;
	// [Subscription.Validate] makes the default of the kind of 0.
	MaxAttempts int
	// QuarantineAfter is after how many attempts without any answer an event is
	// quarantined, if others succeeded meanwhile.
	QuarantineAfter int
	// MaxRedrives is how often a dead letter may come back before it is quarantined.
	MaxRedrives int
	// Visibility is how long an event that is handed out is kept from others.
	Visibility     Duration
	MaxOutstanding int
	MaxParked      int
	// DeadLetterRetention is how long dead letters are kept; 0: without limit.
	DeadLetterRetention Duration

	WebhookConfig
}

// DefaultSubscriptionConfig is the config of a document that has none.
func DefaultSubscriptionConfig() SubscriptionConfig {
	return SubscriptionConfig{
		Topics: []string{">"}, Start: "now", Order: OrderKey,
		MaxAttempts: pullAttempts, QuarantineAfter: 3, MaxRedrives: 5,
		Visibility:     Duration(30 * time.Second),
		MaxOutstanding: MaxOutstanding, MaxParked: MaxParked,
		DeadLetterRetention: 30 * Day,
		WebhookConfig:       defaultWebhookConfig(),
	}
}

// Patterns returns the topics of a config that [Subscription.Validate] passed.
func (c *SubscriptionConfig) Patterns() []Pattern {
	patterns := make([]Pattern, len(c.Topics))
	for i, topic := range c.Topics {
		patterns[i], _ = ParsePattern(topic)
	}
	return patterns
}

// Matches reports whether the topic is one of the subscription's.
func (c *SubscriptionConfig) Matches(topic string) bool {
	for _, pattern := range c.Topics {
		if p, err := ParsePattern(pattern); err == nil && p.Match(topic) {
			return true
		}
	}
	return false
}

// Validate fills what depends on other members, and reports the first member
// that is out of its range.
func (s *Subscription) Validate() error {
	if s.Protocol == "" {
		return subscriptionFault("protocol", "is missing: use SIGNALBOX for the kinds pull and stream")
	}
	c := &s.Config
	if c.Kind == "" {
		c.Kind = KindPull
		if s.Protocol != ProtocolSignalbox {
			c.Kind = KindWebhook
		}
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = pullAttempts
		if c.Kind == KindWebhook {
			c.MaxAttempts = webhookAttempts
		}
	}
	if err := s.checkDelivery(); err != nil {
		return err
	}
	if s.Source != "" && !isURIReference([]byte(s.Source)) {
		return subscriptionFault("source", "is not a URI-reference (RFC 3986)")
	}
	if len(s.Types) > MaxSubscriptionTypes || slices.Contains(s.Types, "") {
		return subscriptionFault("types", "must be at most 256 types that are not empty")
	}
	if len(c.Topics) == 0 || len(c.Topics) > MaxPatterns {
		return subscriptionFault("config.topics", "must have 1 to 64 topic patterns")
	}
	for _, topic := range c.Topics {
		if _, err := ParsePattern(topic); err != nil {
			return AsError(err).With("config.topics")
		}
	}
	if _, err := ParseSelection(c.Select); err != nil {
		return AsError(err).With("config.select")
	}
	return c.checkRanges()
}

// checkDelivery checks that protocol, kind and sink are of one piece.
func (s *Subscription) checkDelivery() error {
	switch s.Config.Kind {
	case KindWebhook, KindStream, KindPull:
	default:
		return subscriptionFault("config.kind", "is not webhook, stream or pull")
	}
	switch s.Protocol {
	case ProtocolSignalbox:
		if s.Config.Kind == KindWebhook {
			return subscriptionFault("config.kind", "is webhook, whose protocol is HTTP")
		}
	case ProtocolHTTP:
		if s.Config.Kind != KindWebhook {
			return subscriptionFault("protocol", "must be SIGNALBOX for the kinds stream and pull")
		}
	case "MQTT3", "MQTT5", "AMQP", "NATS", "KAFKA":
		return Errorf(CodeProtocolUnsupported, "The broker does not deliver by %s. Use HTTP, or the protocol SIGNALBOX with the kind pull or stream.", s.Protocol).With("protocol")
	default:
		return subscriptionFault("protocol", "is not one of the standard's, nor SIGNALBOX")
	}
	if s.Protocol == ProtocolHTTP {
		return s.checkWebhook()
	}
	return s.checkOwn()
}

// checkOwn checks a subscription whose subscriber comes for its events.
func (s *Subscription) checkOwn() error {
	switch {
	case len(s.SinkCredential) > 0 || len(s.ProtocolSettings) > 0:
		return subscriptionFault("protocolsettings", "and sinkcredential are for protocols with a sink: SIGNALBOX has none")
	// What the broker answered may be sent back.
	case s.Sink != "" && !strings.Contains(s.Sink, "/v1/subscriptions"):
		return subscriptionFault("sink", "is the subscription's own URL with the protocol SIGNALBOX: leave it out")
	}
	if name := s.Config.WebhookConfig.given(); name != "" {
		return subscriptionFault("config."+name, "is for webhooks only, whose protocol is HTTP")
	}
	return nil
}

func (c *SubscriptionConfig) checkRanges() error {
	switch c.View {
	case "", "current", "history":
	default:
		return subscriptionFault("config.view", "is not current or history")
	}
	switch c.Order {
	case OrderKey, OrderStrict, OrderUnordered:
	default:
		return subscriptionFault("config.order", "is not key, strict or unordered")
	}
	if c.Start != "now" && c.Start != "earliest" {
		if err := checkStart(c.Start); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name             string
		value, from, end int
	}{
		{"max_attempts", c.MaxAttempts, 1, MaxAttempts},
		{"quarantine_after", c.QuarantineAfter, 1, MaxAttempts},
		{"max_redrives", c.MaxRedrives, 1, MaxAttempts},
		{"max_outstanding", c.MaxOutstanding, 1, MaxOutstanding},
		{"max_parked", c.MaxParked, 0, MaxParked},
	} {
		if f.value < f.from || f.value > f.end {
			return Errorf(CodeSubscriptionInvalid, "The member config.%s must be from %d to %d.", f.name, f.from, f.end).With("config." + f.name)
		}
	}
	switch {
	case c.Visibility < Duration(time.Second) || c.Visibility > MaxVisibility:
		return subscriptionFault("config.visibility", "must be from 1s to 12h")
	case c.ExpiresAfter != 0 && c.ExpiresAfter < Duration(time.Minute):
		return subscriptionFault("config.expires_after", "must be at least 1m; null means never")
	case c.DeadLetterRetention < 0:
		return subscriptionFault("config.dead_letter_retention", "must not be negative")
	}
	return nil
}

func checkStart(start string) error {
	if strings.HasPrefix(start, "@") {
		if _, err := ParseCursor(start); err != nil {
			return AsError(err).With("config.start")
		}
		return nil
	}
	if _, err := time.Parse(time.RFC3339, start); err != nil {
		return subscriptionFault("config.start", "is neither now, earliest, a cursor nor an RFC 3339 time")
	}
	return nil
}

func subscriptionFault(field, fault string) *Error {
	return Errorf(CodeSubscriptionInvalid, "The member %s %s.", field, fault).With(field)
}
