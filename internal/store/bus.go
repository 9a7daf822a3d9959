// SPDX-License-Identifier: Apache-2.0

package store

// DeadlineRow is what a message of a ticket wants done by a time, and what nothing
// has done yet.
type DeadlineRow struct {
	Type     string `json:"type"` // of the message
	From     string `json:"from"`
	To       string `json:"to"`
	Trace    string `json:"trace"`
	Slice    string `json:"slice,omitempty"` // of a plan.request
	Topic    string `json:"topic"`
	Position uint64 `json:"position,string"`
	Index    uint32 `json:"index"` // among the deadlines of the type
	Due      int64  `json:"due_ms"`
}

// ObligationRow is what the bus has to say, and has not said yet. The message follows
// from it alone, its id, ts and nonce too.
type ObligationRow struct {
	Reason   string   `json:"reason"`
	Severity string   `json:"severity"`
	Ticket   string   `json:"ticket"`
	Trace    string   `json:"trace"`
	Cause    string   `json:"cause"`
	To       string   `json:"to"`
	Refs     []string `json:"refs"`
	Context  string   `json:"context"`
	Asks     []string `json:"asks,omitempty"`
	Millis   int64    `json:"ms"`                        // log time at which it arose
	AckBy    int64    `json:"ack_by_ms,omitempty"`       // Unix ms; 0: the type's default
	Letter   string   `json:"letter,omitempty"`          // topic of a message that becomes a dead letter
	Position uint64   `json:"position,string,omitempty"` // of that message
	Buried   []uint32 `json:"buried,omitempty"`          // subscriptions that have the dead letter
}

// BeatRow is the latest heartbeat of an agent; of one that was never heard, which has no
// Accepts, the first execute that was sent to it.
type BeatRow struct {
	ID      string   `json:"id"`
	Trace   string   `json:"trace"`
	Accepts string   `json:"accepts"`
	Domains []string `json:"domains,omitempty"`
	Seq     int64    `json:"seq"`
	Millis  int64    `json:"ms"`                     // log time from which on its silence counts
	Timer   int64    `json:"timer_ms,omitempty"`     // when it is looked at again; 0: not before it is heard of
	Armed   uint64   `json:"armed,string,omitempty"` // the position in the key of its timer
	Index   uint32   `json:"index,omitempty"`        // and the number there that tells agents of one position apart
	Silent  string   `json:"silent,omitempty"`       // id of the escalation of its silence
}
