// SPDX-License-Identifier: Apache-2.0

package eventlog

// Message says of a proposal of one event that the event is a ticket message, and
// what apply has to know of it. Admission has verified its signature and checked
// what it says; under which key and against which catalogue stands here, and apply
// decides whether these are in force.
type Message struct {
	Key   string `json:"key"`   // public key that the signature was verified under
	Verbs string `json:"verbs"` // version of the catalogue

	Type        string `json:"type"`
	Ticket      string `json:"ticket"` // "-": none
	Trace       string `json:"trace"`
	Cause       string `json:"cause"` // "-": none
	From        string `json:"from"`
	To          string `json:"to"`
	Nonce       string `json:"nonce"`
	Idempotency string `json:"idempotency"`
	SentMillis  int64  `json:"sent_ms"`
	Payload     string `json:"payload"` // hash of its canonical form

	Op       string     `json:"op,omitempty"`      // of ticket.open
	Execute  string     `json:"execute,omitempty"` // of result: the message that it is the result of
	Inflight []Inflight `json:"inflight"`          // of heartbeat
}

// Inflight is what a heartbeat says of something that is being executed.
type Inflight struct {
	Execute  string `json:"execute"`
	Progress []byte `json:"progress"` // JSON, as it was sent
}
