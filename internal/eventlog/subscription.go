// SPDX-License-Identifier: Apache-2.0

package eventlog

import "signalbox/event"

// Subscription is a logged change of a durable subscription. Those of its
// document and place are control entries and have an audit leaf. Those of its
// deliveries, which are many, have none. Neither takes a position.
type Subscription struct {
	Op string `json:"op"`
	ID string `json:"id"`

	// Of create and update.
	Document *event.Subscription `json:"document,omitempty"`
	Owner    string              `json:"owner,omitempty"`

	// Where to read from on, of create and seek; with Now, from the head.
	Now   bool   `json:"now,omitempty"`
	Place *Place `json:"place,omitempty"`

	// Of create and update of a webhook: under what its events can be found, see
	// store.Batch.SetTerm.
	Terms [][]byte `json:"terms,omitempty"`

	HandOut  *HandOut  `json:"hand_out,omitempty"`
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	Settle   []Settle  `json:"settle,omitempty"`
	Gap      *Gap      `json:"gap,omitempty"`
	Bury     *Bury     `json:"bury,omitempty"`
	Letters  []uint64  `json:"letters,omitempty"` // of redrive and discard: positions of dead letters
	Counts   *Counts   `json:"counts,omitempty"`  // of acknowledge
	Force    bool      `json:"force,omitempty"`   // of redrive: quarantined ones, too
	Reason   string    `json:"reason,omitempty"`  // of discard, delete and disable
	IfUnused bool      `json:"if_unused,omitempty"`
	// Of disable: do nothing unless the endpoint has failed for as long as its
	// subscriber allows.
	IfFailing bool `json:"if_failing,omitempty"`
	// Of settle, endpoint and disable of a webhook: which endpoint it is about. It may
	// have been replaced by another one since.
	Sink string `json:"sink,omitempty"`
}

// The operations on a subscription.
const (
	SubscriptionCreate      = "create"
	SubscriptionUpdate      = "update"
	SubscriptionDelete      = "delete"
	SubscriptionPause       = "pause"
	SubscriptionResume      = "resume"
	SubscriptionSeek        = "seek"
	SubscriptionRedrive     = "redrive"
	SubscriptionDiscard     = "discard"
	SubscriptionAcknowledge = "acknowledge" // a stream's cursor moves forward
	SubscriptionHandOut     = "hand_out"    // events are given to a consumer
	SubscriptionSettle      = "settle"      // consumers said what became of them
	SubscriptionBury        = "bury"        // an event becomes a dead letter
	SubscriptionGap         = "gap"         // events were removed before they were read
	SubscriptionDisable     = "disable"     // nothing is sent to the endpoint until it is resumed
	SubscriptionEndpoint    = "endpoint"    // what became of the handshake with an endpoint
)

// Place is where a subscription reads from on.
type Place struct {
	Cursor uint64 `json:"cursor,string"`
	Began  uint64 `json:"began,omitempty,string"` // removals up to here took nothing from it
	Since  int64  `json:"since,omitempty"`        // skip what was applied before this log time
}

// HandOut proposes what a consumer may get next. What it does get is decided in
// apply: an event whose key is out is parked.
type HandOut struct {
	Epoch  uint32      `json:"epoch"`           // of the subscription as it was read
	From   Place       `json:"from"`            // the place as it was read
	To     Place       `json:"to"`              // the place behind the candidates
	Again  []uint64    `json:"again,omitempty"` // events that are to be delivered again
	Gone   []uint64    `json:"gone,omitempty"`  // events of these that are not stored any more
	Events []Candidate `json:"events,omitempty"`
	// Rest counts what was passed over behind the last candidate.
	Rest       Counts `json:"rest"`
	Max        int    `json:"max"`
	Visibility int64  `json:"visibility"` // ms
}

// Candidate is an event that a subscription selects.
type Candidate struct {
	Position uint64   `json:"position,string"`
	Topic    string   `json:"topic"`
	Ordered  bool     `json:"ordered,omitempty"` // it waits for others of its Key
	Key      [16]byte `json:"key"`               // hash of topic and key
	Before   Counts   `json:"before"`            // what was passed over before it
}

// Counts are of events that a subscription did not select.
type Counts struct {
	Matched uint64 `json:"matched,omitempty"` // by a stream, which hands nothing out
	Dropped uint64 `json:"dropped,omitempty"` // by its filter
	Errors  uint64 `json:"errors,omitempty"`  // among these: the filter failed
}

// Settle is what a consumer said of an event that it was handed.
type Settle struct {
	Position uint64 `json:"position,string"`
	Token    uint64 `json:"token"`
	Verdict  string `json:"verdict"`
	Delay    int64  `json:"delay,omitempty"` // ms, of nack and extend
	Error    string `json:"error,omitempty"`

	// Of a webhook's nack: there was no answer, and for how many ms the endpoint
	// wants to be left alone.
	Unanswered bool  `json:"unanswered,omitempty"`
	Hold       int64 `json:"hold,omitempty"`
	// With says that the event was in one request with that of the verdict before
	// it, so that both are one attempt.
	With bool `json:"with,omitempty"`
}

// Endpoint is what became of the handshake with an endpoint.
type Endpoint struct {
	Consented bool   `json:"consented,omitempty"`
	Rate      uint32 `json:"rate,omitempty"` // requests a minute that it allows; 0: any number
	Error     string `json:"error,omitempty"`
	Hold      int64  `json:"hold,omitempty"` // ms until it may be asked again
}

// The verdicts of consumers.
const (
	VerdictAck    = "ack"
	VerdictNack   = "nack"
	VerdictExtend = "extend"
	// VerdictReturn is for an event that nobody got: its hand-out is none.
	VerdictReturn = "return"
)

// Gap names what was removed before a subscription read it.
type Gap struct {
	From Place  `json:"from"`
	To   Place  `json:"to"`
	Lost uint64 `json:"lost,string"` // up to which position
}

// Bury makes a dead letter of an event. The proposal's first entry is the dead
// letter, a second one the notice of its quarantine.
type Bury struct {
	Position uint64 `json:"position,string"`
	Token    uint64 `json:"token,omitempty"` // of the hand-out that is rejected; 0: it is spent
	Cause    string `json:"cause"`
	Error    string `json:"error,omitempty"`
	Prefix   uint32 `json:"prefix"` // bytes of the entry's members before those of the event
	// Owed is the id of what the bus has to say about an execute that was not delivered
	// in time; the event need not have been handed out then.
	Owed  string `json:"owed,omitempty"`
	Topic string `json:"topic,omitempty"` // of that execute
}

func (s *Subscription) complete() bool {
	switch s.Op {
	case SubscriptionCreate, SubscriptionUpdate:
		return s.Document != nil
	case SubscriptionSeek, SubscriptionAcknowledge:
		return s.Now || s.Place != nil
	case SubscriptionHandOut:
		return s.HandOut != nil
	case SubscriptionBury:
		return s.Bury != nil
	case SubscriptionGap:
		return s.Gap != nil
	case SubscriptionEndpoint:
		return s.Endpoint != nil
	case SubscriptionDelete, SubscriptionDisable, SubscriptionPause, SubscriptionResume, SubscriptionRedrive, SubscriptionDiscard, SubscriptionSettle:
		return true
	}
	return false
}
