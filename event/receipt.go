// SPDX-License-Identifier: Apache-2.0

package event

import (
	"encoding/json"
	"strconv"
)

// Outcome is what the broker decided about a published event.
type Outcome string

// The outcomes.
const (
	OutcomeAccepted   Outcome = "accepted"
	OutcomeSuperseded Outcome = "superseded" // stored, but a newer HLC had already won the key
	OutcomeDuplicate  Outcome = "duplicate"  // the same event was accepted before; the receipt is that one's
	OutcomeConflict   Outcome = "conflict"   // the precondition did not hold; nothing is stored
)

// Receipt is the durable answer to a published event. Position, Cursor and HLC
// are zero, and left out of JSON, where the outcome stored nothing.
type Receipt struct {
	Outcome  Outcome
	Topic    string
	Source   string
	ID       string
	Position uint64
	Cursor   Cursor
	HLC      HLC
}

// AppendJSON appends the receipt as a JSON object. The position is a string,
// because many readers of JSON lose precision above 2^53.
func (r Receipt) AppendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"outcome":`...), string(r.Outcome))
	dst = appendString(append(dst, `,"topic":`...), r.Topic)
	dst = appendString(append(dst, `,"source":`...), r.Source)
	dst = appendString(append(dst, `,"id":`...), r.ID)
	if r.Position != 0 {
		dst = append(strconv.AppendUint(append(dst, `,"position":"`...), r.Position, 10), '"')
		dst = append(r.Cursor.AppendTo(append(dst, `,"cursor":"`...)), '"')
	}
	if r.HLC != 0 {
		dst = append(r.HLC.AppendTo(append(dst, `,"hlc":"`...)), '"')
	}
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (r Receipt) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler]. Members it does not know are
// ignored, so that an old client understands a newer broker.
func (r *Receipt) UnmarshalJSON(b []byte) error {
	var w struct {
		Outcome  Outcome `json:"outcome"`
		Topic    string  `json:"topic"`
		Source   string  `json:"source"`
		ID       string  `json:"id"`
		Position uint64  `json:"position,string"`
		Cursor   *Cursor `json:"cursor"`
		HLC      HLC     `json:"hlc"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return Errorf(CodeJSONInvalid, "The receipt cannot be read: %w", err)
	}
	*r = Receipt{Outcome: w.Outcome, Topic: w.Topic, Source: w.Source, ID: w.ID, Position: w.Position, HLC: w.HLC}
	if w.Cursor != nil {
		r.Cursor = *w.Cursor
	}
	return nil
}
