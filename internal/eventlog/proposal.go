// SPDX-License-Identifier: Apache-2.0

// Package eventlog orders proposals: what callers submitted, before anything
// is decided about it. Its sequence numbers are private; the positions that
// the world sees are assigned by the projector.
//
// The log in this package is embedded: proposals become durable with the
// projector's own commit, so that one write-ahead log and one sync carry both.
// A log that keeps proposals elsewhere hands them to the same apply loop in
// the encoding of [Proposal.AppendBinary].
//
// It imports event only.
package eventlog

import (
	"signalbox/event"
)

// Kind says what a proposal asks for.
type Kind uint8

// The kinds of proposals. Their numbers are part of the log's format.
const (
	KindEvents  Kind = 1 // one event, or an atomic batch
	KindControl Kind = 2 // a change of a topic or of the settings
	KindTick    Kind = 3 // log time moves to AdmittedMillis
	KindRefusal Kind = 4 // something was refused before it was proposed
	KindProbe   Kind = 5 // nothing: proves that the write path works

	KindSubscription Kind = 6 // a change of a durable subscription
	KindReading      Kind = 7 // nothing: what a reader without a subscription was given, for the audit trail
)

// Proposal is what one caller submitted.
type Proposal struct {
	// Node and Sequence identify the proposal; apply drops one that it has
	// seen. Both are set by the log.
	Node     uint32
	Sequence uint64

	Kind           Kind
	AdmittedMillis int64 // admission time: Unix ms on the log's clock
	Principal      string

	// Of KindEvents. All entries go to one topic; with more than one, or with
	// Batch set, either all of them take effect or none.
	Topic       string
	Batch       bool
	Entries     []Entry
	Idempotency Idempotency
	Condition   Condition
	Schema      SchemaCheck
	Message     *Message // of one entry that is a ticket message

	// Of KindControl.
	Control Control

	// Of KindSubscription. What it adds to topics of the broker is in Entries.
	Subscription *Subscription

	// Of KindReading.
	Reading *Reading

	// Of KindRefusal: the code, and how many refusals this entry stands for. Message
	// says what a refused message was about: as it claims, unless it has the Key under
	// which its signature was verified.
	RefusedCode  string
	RefusedCount uint64

	// Local is what the submitting broker attached to be answered; it is
	// never encoded, and nil on a proposal that came from elsewhere.
	Local any
}

// Entry is one admitted event: everything that does not depend on order is
// computed already.
type Entry struct {
	ID, Source   string
	Key          string // of the attributes; key_from is resolved in apply
	HasKey       bool
	HLC          event.HLC // 0: to be stamped in apply
	ExpiryMillis int64     // Unix ms; 0: never
	Flags        EntryFlags
	WireBytes    uint32 // the size that limits apply to, see event.WireBytes
	Identity     IdentityHash
	Content      [16]byte // truncated content hash, see event.ContentHash
	Salt         [16]byte
	Body         [32]byte // SHA-256(Salt ‖ Members)
	Members      []byte   // JSON members after the broker's own, with the closing brace
	DataOffset   uint32   // of the data member's value in Members
	DataLength   uint32   // 0: no data
}

// IdentityHash identifies an event within a topic: the truncated SHA-256 of
// its id, and of its source. The id comes first so that a search by id alone
// is a prefix scan.
type IdentityHash struct {
	ID     [16]byte
	Source [8]byte
}

// EntryFlags are facts about an entry.
type EntryFlags uint8

// The flags of an entry. Their bits are part of the log's format.
const (
	FlagBare EntryFlags = 1 << iota // neither data nor dataref: a tombstone where the topic is compacted
	FlagFold                        // Members contains CR or LF
	FlagJSON                        // data is a JSON value, not a string or base64
)

// Idempotency scopes a request so that its repetition is answered, not done again.
type Idempotency struct {
	Set     bool
	Scope   [16]byte // of principal, topic and key
	Request [16]byte // of the content of all events
}

// Condition is a precondition on the state of an entry's key.
type Condition struct {
	IfMatch     []uint64 // positions of which one must be the winner's
	IfMatchAny  bool     // there must be a winner
	IfNoneMatch bool     // there must be no winner
}

// Empty reports whether there is nothing to check.
func (c Condition) Empty() bool { return !c.IfMatchAny && !c.IfNoneMatch && c.IfMatch == nil }

// SchemaCheck says which JSON Schema the data of a request was checked against at
// admission, and what breaks it. Whether that is the topic's schema is decided in
// apply.
type SchemaCheck struct {
	Hash   [16]byte      // see event.SchemaHash; zero: nothing was checked
	Faults []SchemaFault // at most one for each entry, in their order
}

// SchemaFault is how the data of an entry breaks a schema.
type SchemaFault struct {
	Entry   int    // index in the request
	Pointer string // into data, a JSON Pointer
	Keyword string // of the schema; "": it cannot be checked
	Text    string // what is wrong, to be read after "The data at …"
}

// Reading says which ticket messages a reader without a subscription was given.
// One stands for whatever it was given within some time.
type Reading struct {
	Door      string `json:"door"`
	Topics    string `json:"topics,omitempty"`    // the patterns that it reads; "": several readers' together
	Positions string `json:"positions,omitempty"` // of the messages, such as 5-9,12; "": more than are listed
	Messages  uint64 `json:"messages"`
	From      uint64 `json:"from"` // the cursor before the first of them
	To        uint64 `json:"to"`   // and that after the last
}

// Control is a logged change of what apply consults.
type Control struct {
	Op       string        `json:"op"` // configure, put_topic, delete_topic, retire, compact, found, agent, verbs, bus
	Topic    string        `json:"topic,omitempty"`
	Policy   *event.Policy `json:"policy,omitempty"`
	RetireTo uint64        `json:"retire_to,omitempty,string"`
	Settings *Settings     `json:"settings,omitempty"`
	Founding *Founding     `json:"founding,omitempty"`
	Change   string        `json:"change,omitempty"` // of agents, as its signer sent it
	Verbs    string        `json:"verbs,omitempty"`  // the catalogue, as JSON
	Key      string        `json:"key,omitempty"`    // of bus: the public key
}

// Founding gives a space its name and its first catalogue of verbs, and says who
// changes its registry of agents.
type Founding struct {
	Space         string `json:"space"`
	Administrator string `json:"administrator"` // public key
	Verbs         string `json:"verbs,omitempty"`
	Bus           string `json:"bus,omitempty"` // public key of the broker's own messages
}

// The control operations.
const (
	OpConfigure   = "configure"
	OpPutTopic    = "put_topic"
	OpDeleteTopic = "delete_topic"
	OpRetire      = "retire"  // retention: everything up to RetireTo goes
	OpCompact     = "compact" // history: what is superseded goes, up to RetireTo
	OpFound       = "found"   // the space gets its name and its administrator
	OpAgent       = "agent"   // a signed change of the registry of agents
	OpVerbs       = "verbs"   // a catalogue of verbs comes into force
	OpBus         = "bus"     // the broker signs its own messages with another key
)

// Settings are the space-wide values that apply consults. Configuration files
// only propose them.
type Settings struct {
	FeatureLevel    int    `json:"feature_level"`
	MaxDriftMillis  int64  `json:"max_drift_ms"`
	DedupMillis     int64  `json:"dedup_window_ms"`
	TopicsMax       int    `json:"topics_max"`
	TimersPerTick   int    `json:"timers_per_tick"`
	IncarnationName string `json:"incarnation"`

	SubscriptionsMax int `json:"subscriptions_max,omitempty"`
	// How long beyond its retention, and how many bytes of it, an event is kept
	// for a subscription that has not read it.
	HoldMillis int64  `json:"hold_max_ms,omitempty"`
	HoldBytes  uint64 `json:"hold_max_bytes,omitempty"`
	// WebhookKeys are the keys with which webhooks are signed, the newest first,
	// with spaces between them. Behind an @ is until when, Unix ms, one is used.
	WebhookKeys string `json:"webhook_keys,omitempty"`
}
