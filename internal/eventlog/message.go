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
	Payload     string `json:"payload"`           // hash of its canonical form
	Version     string `json:"version,omitempty"` // schema_version
	ID          string `json:"id,omitempty"`      // of a refusal, which has no event

	Deadlines []Deadline `json:"deadlines,omitempty"` // that something follows from

	Op       string     `json:"op,omitempty"`      // of ticket.open
	Execute  string     `json:"execute,omitempty"` // of result: the message that it is the result of
	Beat     *Beat      `json:"beat,omitempty"`    // of heartbeat
	Inflight []Inflight `json:"inflight"`          // of heartbeat

	// What else a payload says that decides about its ticket; the one of its type is
	// set. Admission before level 3 of the projector set none.
	Requester string    `json:"requester,omitempty"` // of ticket.open
	Asked     *Asked    `json:"asked,omitempty"`     // of plan.request
	Proposed  *Proposed `json:"proposed,omitempty"`  // of proposal
	Planned   *Planned  `json:"planned,omitempty"`   // of plan
	Approval  *Approval `json:"approval,omitempty"`  // of approval.request, .grant and .deny
	Executed  *Executed `json:"executed,omitempty"`  // of execute
	Resulted  *Resulted `json:"resulted,omitempty"`  // of result
	Moved     *Moved    `json:"moved,omitempty"`     // of ticket.state
}

// Asked is the slice that a plan.request asks for.
type Asked struct {
	Slice     string `json:"slice"`
	Revision  int    `json:"revision"`
	DueMillis int64  `json:"due_ms"`
}

// Proposed is a slice that an agent proposes.
type Proposed struct {
	Slice       string   `json:"slice"`
	Revision    int      `json:"revision"`
	Hash        string   `json:"hash"`     // of steps and rollback
	Steps       string   `json:"steps"`    // hash of the steps alone
	Rollback    string   `json:"rollback"` // hash of the rollback, as steps
	Tier        int      `json:"tier"`     // by the catalogue and the agent
	Targets     []string `json:"targets"`  // in lower case, sorted, each once
	ValidMillis int64    `json:"valid_ms"`
}

// Planned is a plan with the one slice that its message freezes.
type Planned struct {
	Plan        string         `json:"plan"`
	Hash        string         `json:"hash"`
	Revision    int            `json:"revision"`
	Tier        int            `json:"tier"`
	Slices      []PlannedSlice `json:"slices"`
	Frozen      string         `json:"frozen"` // one of Slices
	ValidMillis int64          `json:"valid_ms"`
}

// PlannedSlice is a slice of a plan.
type PlannedSlice struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}

// Approval is what is asked of the gate, or what it decides.
type Approval struct {
	Request       string   `json:"request,omitempty"` // of grant and deny: what they decide
	Kind          string   `json:"kind,omitempty"`    // of a request, as the rest up to Options
	Revision      int      `json:"revision,omitempty"`
	Tier          int      `json:"tier,omitempty"`
	Approvers     int      `json:"approvers,omitempty"`
	Target        string   `json:"target,omitempty"` // in lower case
	Options       []string `json:"options,omitempty"`
	Plan          string   `json:"plan,omitempty"`
	Hash          string   `json:"hash,omitempty"`
	Choice        string   `json:"choice,omitempty"` // of a grant
	ExpiresMillis int64    `json:"expires_ms,omitempty"`
}

// Executed is the slice that is to be carried out, taken back or verified.
type Executed struct {
	Plan           string   `json:"plan"`
	Hash           string   `json:"hash"`
	Slice          string   `json:"slice"`
	Mode           string   `json:"mode"`
	Steps          string   `json:"steps"`             // hash of the steps alone
	Numbers        []int    `json:"numbers,omitempty"` // n of each of them, sorted
	Approvals      []string `json:"approvals"`
	Targets        []string `json:"targets"` // in lower case, sorted, each once
	DeliverMillis  int64    `json:"deliver_ms"`
	CompleteMillis int64    `json:"complete_ms"`
}

// Resulted is what became of an execute.
type Resulted struct {
	Hash       string `json:"hash"`
	Slice      string `json:"slice"`
	Outcome    string `json:"outcome"`
	Passed     bool   `json:"passed"`               // the verification
	Numbers    []int  `json:"numbers,omitempty"`    // n of each step that it accounts for, sorted
	Unfinished bool   `json:"unfinished,omitempty"` // one of these has failed, or was not started
}

// Moved is the move that a ticket.state makes.
type Moved struct {
	From   string       `json:"from"`
	To     string       `json:"to"`
	Causes []string     `json:"causes"`
	Slices []MovedSlice `json:"slices,omitempty"`
	Tier   *int         `json:"tier,omitempty"`   // nil: nothing is said of it
	Target string       `json:"target,omitempty"` // of a breaker, in lower case
	Action string       `json:"action,omitempty"` // open or close
}

// MovedSlice is what a ticket.state says of a slice.
type MovedSlice struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

// Deadline is when the payload of a message wants something done by.
type Deadline struct {
	Member string `json:"member"` // of the payload, and of the type in the registry
	Millis int64  `json:"ms"`     // Unix ms
}

// Beat is what a heartbeat says of its agent.
type Beat struct {
	Accepts string   `json:"accepts"`
	Domains []string `json:"domains,omitempty"`
	Seq     int64    `json:"seq"`
}

// Inflight is what a heartbeat says of something that is being executed.
type Inflight struct {
	Execute  string `json:"execute"`
	Progress []byte `json:"progress"` // JSON, as it was sent
}
