// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/ticket"
)

// The payloads of the twelve types. Times are to be in UTC. api/ticket/schema.json
// has what each member may be.
type (
	// Open begins, amends or cancels a ticket.
	Open struct {
		Op        string    `json:"op"` // open, amend or cancel
		SourceRef string    `json:"source_ref"`
		Title     string    `json:"title"`
		BodyRef   string    `json:"body_ref"`
		Requester string    `json:"requester"`
		Priority  int       `json:"priority"` // 1, the highest, to 5
		AckBy     time.Time `json:"ack_by,omitzero"`
	}

	// PlanRequest asks a domain for a proposal.
	PlanRequest struct {
		SliceID     string    `json:"slice_id"`
		Revision    int       `json:"revision"`
		Objective   string    `json:"objective"`
		Targets     []string  `json:"targets"`
		Constraints []string  `json:"constraints"`
		Deadline    time.Time `json:"deadline,omitzero"`
	}

	// Step is one step of a slice. What is not set of it is left out. One of a proposal
	// has both checks; whether it is reversible follows, where nothing is said, from
	// there being a rollback: of one that changes nothing, say so. A step of a rollback
	// has no checks.
	Step struct {
		N          int            `json:"n,omitzero"`
		Verb       string         `json:"action"`
		Target     string         `json:"target"`
		Params     jsontext.Value `json:"params"` // a JSON object; nil is an empty one
		Reversible *bool          `json:"reversible,omitzero"`
		Precheck   string         `json:"precheck,omitzero"`
		Postcheck  string         `json:"postcheck,omitzero"`
	}

	// Risk is what could go wrong, in words, of which none is left out.
	Risk struct {
		BlastRadius   string `json:"blast_radius"`
		Reversibility string `json:"reversibility"`
		DataClass     string `json:"data_class"`
	}

	// Proposal is how a domain would do its part.
	Proposal struct {
		SliceID    string    `json:"slice_id"`
		Revision   int       `json:"revision"`
		Steps      []Step    `json:"steps"`
		Rollback   []Step    `json:"rollback"`
		Risk       Risk      `json:"risk"`
		Tier       int       `json:"suggested_tier"`
		Needs      []string  `json:"cross_domain_needs"`
		ValidUntil time.Time `json:"valid_until,omitzero"`
		SliceHash  string    `json:"slice_hash"`
	}

	// FrozenSlice is a slice as it was planned.
	FrozenSlice struct {
		ID       string `json:"slice_id"`
		Steps    []Step `json:"steps"`
		Rollback []Step `json:"rollback"`
	}

	// Window is when a plan may be carried out.
	Window struct {
		Start time.Time `json:"start"`
		End   time.Time `json:"end"`
	}

	// Plan tells one domain its frozen slice, and the hashes of all.
	Plan struct {
		PlanID        string             `json:"plan_id"`
		Revision      int                `json:"revision"`
		PlanHash      string             `json:"plan_hash"`
		PolicyVersion string             `json:"policy_version"`
		Slices        []ticket.PlanSlice `json:"slices"`
		Tier          int                `json:"tier"`
		TierReason    string             `json:"tier_reason"`
		Slice         FrozenSlice        `json:"slice"`
		DependsOn     []string           `json:"depends_on"`
		Window        Window             `json:"window"`
		ValidUntil    time.Time          `json:"valid_until,omitzero"`
	}

	// ApprovalRequest asks people for a decision.
	ApprovalRequest struct {
		Kind              string    `json:"kind"` // plan, breaker_reset, accept_partial or escalation
		PlanID            string    `json:"plan_id,omitzero"`
		Revision          int       `json:"revision,omitzero"`
		PlanHash          string    `json:"plan_hash,omitzero"`
		Tier              *int      `json:"tier,omitzero"`
		Summary           string    `json:"summary"`
		PlanRef           string    `json:"plan_ref,omitzero"`
		RollbackRef       string    `json:"rollback_ref,omitzero"`
		Risk              Risk      `json:"risk"`
		ApproversRequired int       `json:"approvers_required"`
		Target            string    `json:"target,omitzero"`
		Options           []string  `json:"options,omitzero"`
		ExpiresAt         time.Time `json:"expires_at,omitzero"`
	}

	// ApprovalGrant is a person's yes to one request.
	ApprovalGrant struct {
		RequestID string    `json:"request_id"`
		PlanID    string    `json:"plan_id,omitzero"`
		PlanHash  string    `json:"plan_hash,omitzero"`
		Approver  string    `json:"approver"`
		Choice    string    `json:"choice,omitzero"`
		DecidedAt time.Time `json:"decided_at"`
		ExpiresAt time.Time `json:"expires_at,omitzero"`
		SingleUse bool      `json:"single_use"`
	}

	// ApprovalDeny is a person's no.
	ApprovalDeny struct {
		RequestID  string `json:"request_id"`
		PlanHash   string `json:"plan_hash,omitzero"`
		Approver   string `json:"approver"`
		ReasonCode string `json:"reason_code"`
		Reason     string `json:"reason"`
	}

	// LeaseScope is what a lease is for.
	LeaseScope struct {
		Plan   string `json:"plan"`
		Target string `json:"target"`
	}

	// Execute tells a domain to carry out a slice of a plan, to undo or to verify it.
	Execute struct {
		PlanID      string     `json:"plan_id"`
		PlanHash    string     `json:"plan_hash"`
		SliceID     string     `json:"slice_id"`
		Mode        string     `json:"mode"` // see ModeApply
		Steps       []Step     `json:"steps"`
		ApprovalIDs []string   `json:"approval_ids"`
		LeaseID     string     `json:"lease_id"`
		LeaseScope  LeaseScope `json:"lease_scope"`
		DeliverBy   time.Time  `json:"deliver_by,omitzero"`
		CompleteBy  time.Time  `json:"complete_by,omitzero"`
	}

	// StepStatus is what became of a step.
	StepStatus struct {
		N           int    `json:"n"`
		Status      string `json:"status"`       // done, failed, skipped, undone or not_started
		EvidenceRef string `json:"evidence_ref"` // an agent says "none" where its [Report] has ""
	}

	// Verification is whether what was done has the effect that was wanted.
	Verification struct {
		Passed bool     `json:"passed"`
		Checks []string `json:"checks"`
	}

	// Result accounts for an execute.
	Result struct {
		ExecuteID    string       `json:"execute_id"`
		PlanHash     string       `json:"plan_hash"`
		SliceID      string       `json:"slice_id"`
		Outcome      string       `json:"outcome"` // see OutcomeSuccess
		Steps        []StepStatus `json:"steps"`
		Verification Verification `json:"verification"`
		Changed      []string     `json:"changed"`
		StartedAt    time.Time    `json:"started_at"`
		EndedAt      time.Time    `json:"ended_at"`
	}

	// Escalation says that its sender has stopped and somebody else has to decide.
	Escalation struct {
		ReasonCode string    `json:"reason_code"`
		Severity   string    `json:"severity"` // info, warning or critical
		Refs       []string  `json:"refs"`
		ContextRef string    `json:"context_ref"`
		Asks       []string  `json:"asks"`
		AckBy      time.Time `json:"ack_by,omitzero"`
	}

	// Inflight is an execute that is under way.
	Inflight struct {
		ExecuteID string  `json:"execute_id"`
		Progress  float64 `json:"progress"`
		Note      string  `json:"note,omitzero"`
	}

	// Heartbeat says that an agent is there, and what it is at.
	Heartbeat struct {
		Agent        string     `json:"agent"`
		Accepts      string     `json:"accepts"`
		Domains      []string   `json:"domains"`
		Capabilities []string   `json:"capabilities"`
		Inflight     []Inflight `json:"inflight"`
		Capacity     int        `json:"capacity"`
		Seq          int64      `json:"seq"`
	}

	// SliceState is where a slice is.
	SliceState struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}

	// State moves a ticket.
	State struct {
		From       string       `json:"from"`
		To         string       `json:"to"`
		ReasonCode string       `json:"reason_code"`
		Cause      []string     `json:"cause"` // ids of the messages by which it may move
		Slices     []SliceState `json:"slices"`
		Tier       *int         `json:"tier"`
		Breaker    *Breaker     `json:"breaker,omitzero"`
		Resolution string       `json:"resolution,omitzero"`
	}

	// Breaker says that the breaker of a target was opened or closed.
	Breaker struct {
		Target string `json:"target"`
		Action string `json:"action"` // open or close
	}
)

// The modes of an execute.
const (
	ModeApply    = "apply"
	ModeRollback = "rollback"
	ModeVerify   = "verify"
)

// The outcomes of a result.
const (
	OutcomeSuccess        = "success"
	OutcomePartial        = "partial"
	OutcomeFailed         = "failed"
	OutcomeRolledBack     = "rolled_back"
	OutcomeRollbackFailed = "rollback_failed"
	OutcomeRefused        = "refused"
)

// newPayload returns a pointer to the payload of a type, nil for one that is not
// known here.
func newPayload(kind string) any {
	switch kind {
	case ticket.TypeOpen:
		return &Open{}
	case ticket.TypePlanRequest:
		return &PlanRequest{}
	case ticket.TypeProposal:
		return &Proposal{}
	case ticket.TypePlan:
		return &Plan{}
	case ticket.TypeApprovalRequest:
		return &ApprovalRequest{}
	case ticket.TypeApprovalGrant:
		return &ApprovalGrant{}
	case ticket.TypeApprovalDeny:
		return &ApprovalDeny{}
	case ticket.TypeExecute:
		return &Execute{}
	case ticket.TypeResult:
		return &Result{}
	case ticket.TypeEscalation:
		return &Escalation{}
	case ticket.TypeHeartbeat:
		return &Heartbeat{}
	case ticket.TypeState:
		return &State{}
	}
	return nil
}

// Message is a message of a ticket that was read from a broker.
type Message struct {
	ticket.Header
	// Payload is a pointer to the payload of the message's type, such as *[Proposal].
	// Members that this version does not know are passed over.
	Payload any
	// Envelope is the message as it was signed.
	Envelope *ticket.Message
}

// Due is when a deadline of the message is, by its number among those of its type.
func (m *Message) Due(n int) (time.Time, error) {
	t, ok := ticket.TypeOf(m.Type)
	if !ok || n >= len(t.Deadlines) {
		return time.Time{}, event.Errorf(event.CodeMessageInvalid, "A message of type %s has no such deadline.", m.Type).With("type")
	}
	return m.Envelope.Due(&t.Deadlines[n])
}

// DecodeMessage decodes an envelope that came from a broker.
func DecodeMessage(envelope []byte) (*Message, error) {
	m, err := ticket.Parse(envelope)
	if err != nil {
		return nil, err
	}
	out := &Message{Header: m.Header(), Payload: newPayload(m.Header().Type), Envelope: m}
	payload, err := ticket.Canonical(m.Payload()) // 1.0 is a whole number to the schema, and none to Go
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(payload, out.Payload); err != nil {
		return nil, event.Errorf(event.CodePayloadInvalid, "The payload of the message %s cannot be read: %v.", out.ID, err).With("payload")
	}
	return out, nil
}

// actions are what steps do, without what is said about them.
func actions(steps []Step) []ticket.Action {
	out := make([]ticket.Action, len(steps))
	for i, s := range steps {
		out[i] = ticket.Action{Verb: s.Verb, Target: s.Target, Params: s.Params}
	}
	return out
}

// Slice returns what hashes and tiers are over.
func (f *FrozenSlice) Slice() ticket.Slice {
	return ticket.Slice{Steps: actions(f.Steps), Rollback: actions(f.Rollback)}
}

// Slice returns what hashes and tiers are over.
func (p *Proposal) Slice() ticket.Slice {
	return ticket.Slice{Steps: actions(p.Steps), Rollback: actions(p.Rollback)}
}

// Freeze returns the slice of a proposal as a plan has it.
func (p *Proposal) Freeze() FrozenSlice {
	return FrozenSlice{ID: p.SliceID, Steps: bare(p.Steps), Rollback: bare(p.Rollback)}
}

// bare numbers steps, and leaves out what is said about them.
func bare(steps []Step) []Step {
	out := make([]Step, len(steps))
	for i, s := range steps {
		out[i] = Step{N: i + 1, Verb: s.Verb, Target: s.Target, Params: params(s.Params)}
	}
	return out
}

func params(p jsontext.Value) jsontext.Value {
	if len(p) == 0 {
		return jsontext.Value("{}")
	}
	return p
}
