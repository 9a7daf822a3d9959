// SPDX-License-Identifier: Apache-2.0

package store

// TicketRow is what the messages of a ticket have made of it. One without a state
// was written before level 3, when tickets were not judged, and is open.
type TicketRow struct {
	Trace        string   `json:"trace"`
	Open         string   `json:"open"`            // id of the message that opened it
	State        string   `json:"state,omitempty"` // see package ticket
	OpenedMillis int64    `json:"opened_ms,omitempty"`
	Requesters   []string `json:"requesters,omitempty"` // who asks for it, and who sent that; none of them approves
	Moved        string   `json:"moved,omitempty"`      // id of the message that moved it last
	MovedMillis  int64    `json:"moved_ms,omitempty"`
	ResumeTo     string   `json:"resume_to,omitempty"` // where it was when it was escalated
	Amended      string   `json:"amended,omitempty"`   // id of the amendment that no plan has considered
	Cancelled    string   `json:"cancelled,omitempty"` // id of the message that cancels it
	Missed       string   `json:"missed,omitempty"`    // the deadline that nothing is executed after until it is moved

	Revision int          `json:"revision,omitempty"` // of the slices
	Slices   []SliceRow   `json:"slices,omitempty"`   // in the order in which they were asked for
	Targets  []string     `json:"targets,omitempty"`  // of all proposals of the revision; no more than are few, and one
	Plan     *PlanRow     `json:"plan,omitempty"`     // in force
	Requests []RequestRow `json:"requests,omitempty"` // for approval, of this revision
}

// SliceRow is a slice of the revision that is being planned or carried out.
type SliceRow struct {
	ID          string `json:"id"`
	Domain      string `json:"domain"`
	State       string `json:"state"`
	Request     string `json:"request"`            // id of the plan.request
	DueMillis   int64  `json:"due_ms"`             // when it is to be answered
	Proposal    string `json:"proposal,omitempty"` // id of the accepted one, as the rest up to Policy
	Hash        string `json:"hash,omitempty"`
	Steps       string `json:"steps,omitempty"`    // hash of the steps alone
	Rollback    string `json:"rollback,omitempty"` // hash of the rollback, as steps
	Tier        int    `json:"tier,omitempty"`
	ValidMillis int64  `json:"valid_ms,omitempty"`
	Policy      string `json:"policy,omitempty"` // version of the catalogue that it was checked against

	Execute        string `json:"execute,omitempty"` // id of the one that applies it
	DeliverMillis  int64  `json:"deliver_ms,omitempty"`
	CompleteMillis int64  `json:"complete_ms,omitempty"`
	// The latest rollback. Its state is beside that of the slice, which does not
	// change any more when it is rolled back.
	Undo               string `json:"undo,omitempty"` // a state of slices
	UndoExecute        string `json:"undo_execute,omitempty"`
	UndoCompleteMillis int64  `json:"undo_complete_ms,omitempty"`
	// What the latest verification has shown: VerifyPassed, VerifyFailed, or
	// nothing yet.
	Verified string `json:"verified,omitempty"`
}

// What a verification has shown.
const (
	VerifyPassed = "passed"
	VerifyFailed = "failed"
)

// PlanRow is the plan in force.
type PlanRow struct {
	ID          string `json:"id"`
	Hash        string `json:"hash"`
	Tier        int    `json:"tier"`
	Message     string `json:"message"`  // id of the first message of it
	ValidMillis int64  `json:"valid_ms"` // until the first of its proposals or it itself is stale
	Policy      string `json:"policy"`
}

// RequestRow is a request for approval.
type RequestRow struct {
	ID            string     `json:"id"`
	Kind          string     `json:"kind"`
	Hash          string     `json:"hash,omitempty"` // of the plan
	Target        string     `json:"target,omitempty"`
	Options       []string   `json:"options,omitempty"`
	Approvers     int        `json:"approvers"` // how many are needed
	ExpiresMillis int64      `json:"expires_ms"`
	Denied        string     `json:"denied,omitempty"` // id of the denial
	Void          string     `json:"void,omitempty"`   // id of the message since which nothing comes of it, see projector
	Grants        []GrantRow `json:"grants,omitempty"` // those that count each of another approver
}

// GrantRow is a grant. It is bound to the plan of its request, or used for what
// was asked, once.
type GrantRow struct {
	ID            string `json:"id"`
	Approver      string `json:"approver"`
	Choice        string `json:"choice,omitempty"`
	ExpiresMillis int64  `json:"expires_ms"`
	Bound         string `json:"bound,omitempty"` // id of the message that bound or used it
}

// ExecutionRow is an execute, and what became of it.
type ExecutionRow struct {
	Result   string   `json:"result,omitempty"`   // id of its result
	Progress []byte   `json:"progress,omitempty"` // JSON, of the latest heartbeat that names it
	Plan     string   `json:"plan,omitempty"`     // hash
	Slice    string   `json:"slice,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Targets  []string `json:"targets,omitempty"`
	Numbers  []int    `json:"numbers,omitempty"` // n of each of its steps, sorted; none before level 8
}

// BreakerRow is what is known of the verifications of a target.
type BreakerRow struct {
	Failures     []int64 `json:"failures,omitempty"`  // log times of the latest failed ones
	Message      string  `json:"message"`             // id of the message that changed the row last
	OpenedMillis int64   `json:"opened_ms,omitempty"` // 0: it is closed
}
