// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/validjson"
	"signalbox/ticket"
)

// noteTicket notes what a payload says that decides about its ticket. The payload
// has passed Check. Each type is read into the members that it has: a later minor
// version may add a name that another type has for something else.
func noteTicket(note *eventlog.Message, m *ticket.Message, due dues, verbs *ticket.Catalogue) error {
	switch note.Type {
	case ticket.TypeOpen:
		note.Op, _ = validjson.LookupText(m.Payload(), "op")
		note.Requester, _ = validjson.LookupText(m.Payload(), "requester")
	case ticket.TypePlanRequest:
		return noteAsked(note, m, due)
	case ticket.TypeProposal:
		return noteProposed(note, m, due, verbs)
	case ticket.TypePlan:
		return notePlanned(note, m, due)
	case ticket.TypeApprovalRequest, ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		return noteApproval(note, m, due)
	case ticket.TypeExecute:
		return noteExecuted(note, m, due)
	case ticket.TypeResult:
		return noteResulted(note, m)
	case ticket.TypeHeartbeat:
		return noteInflight(note, m)
	case ticket.TypeState:
		return noteMoved(note, m)
	}
	return nil
}

// read reads the members of a payload that into has.
func read(m *ticket.Message, into any) error {
	if err := json.Unmarshal(m.Payload(), into); err != nil {
		return event.Errorf(event.CodePayloadInvalid, "The payload of a message of type %s cannot be read.", m.Header().Type).With("payload")
	}
	return nil
}

// dues are when the deadlines of a message are, by their names.
type dues map[string]int64

func duesOf(m *ticket.Message) (dues, error) {
	t, _ := ticket.TypeOf(m.Header().Type) // Parse took only types that there are
	at := make(dues, len(t.Deadlines))
	for i := range t.Deadlines {
		due, err := m.Due(&t.Deadlines[i])
		if err != nil {
			return nil, err
		}
		at[t.Deadlines[i].Member] = due.UnixMilli()
	}
	return at, nil
}

func noteAsked(note *eventlog.Message, m *ticket.Message, due dues) error {
	var p struct {
		Slice    string `json:"slice_id"`
		Revision int    `json:"revision"`
	}
	err := read(m, &p)
	note.Asked = &eventlog.Asked{Slice: p.Slice, Revision: p.Revision, DueMillis: due["deadline"]}
	return err
}

func noteProposed(note *eventlog.Message, m *ticket.Message, due dues, verbs *ticket.Catalogue) error {
	var p struct {
		Slice     string          `json:"slice_id"`
		Revision  int             `json:"revision"`
		Hash      string          `json:"slice_hash"`
		Suggested int             `json:"suggested_tier"`
		Rollback  []ticket.Action `json:"rollback"`
		Steps     []struct {
			ticket.Action
			Reversible bool `json:"reversible"`
		} `json:"steps"`
	}
	if err := read(m, &p); err != nil {
		return err
	}
	proposed := ticket.Proposed{Domain: note.To, Slice: ticket.Slice{Rollback: p.Rollback}, Suggested: p.Suggested}
	for _, s := range p.Steps {
		proposed.Steps = append(proposed.Steps, s.Action)
		proposed.Irreversible = proposed.Irreversible || !s.Reversible
	}
	tier, _ := verbs.Tier([]ticket.Proposed{proposed})
	steps, err := ticket.Slice{Steps: proposed.Steps}.Hash()
	if err != nil {
		return err
	}
	rollback, err := ticket.Slice{Steps: p.Rollback}.Hash()
	note.Proposed = &eventlog.Proposed{
		Slice: p.Slice, Revision: p.Revision, Hash: p.Hash, Steps: steps, Rollback: rollback, Tier: tier,
		Targets: targets(proposed.Steps, p.Rollback), ValidMillis: due["valid_until"],
	}
	return err
}

func notePlanned(note *eventlog.Message, m *ticket.Message, due dues) error {
	var p planPayload
	err := read(m, &p)
	note.Planned = &eventlog.Planned{Plan: p.PlanID, Hash: p.Claimed, Revision: p.Revision, Tier: p.Tier, Frozen: p.Slice.ID, ValidMillis: due["valid_until"]}
	for _, s := range p.Slices {
		note.Planned.Slices = append(note.Planned.Slices, eventlog.PlannedSlice{ID: s.ID, Hash: s.Hash})
	}
	return err
}

func noteApproval(note *eventlog.Message, m *ticket.Message, due dues) error {
	var p struct {
		Request   string   `json:"request_id"`
		Kind      string   `json:"kind"`
		Plan      string   `json:"plan_id"`
		Hash      string   `json:"plan_hash"`
		Revision  int      `json:"revision"`
		Tier      int      `json:"tier"`
		Approvers int      `json:"approvers_required"`
		Target    string   `json:"target"`
		Options   []string `json:"options"`
		Choice    string   `json:"choice"`
	}
	err := read(m, &p)
	note.Approval = &eventlog.Approval{
		Request: p.Request, Kind: p.Kind, Revision: p.Revision, Tier: p.Tier, Approvers: p.Approvers, Target: strings.ToLower(p.Target),
		Options: p.Options, Plan: p.Plan, Hash: p.Hash, Choice: p.Choice, ExpiresMillis: due["expires_at"],
	}
	return err
}

func noteExecuted(note *eventlog.Message, m *ticket.Message, due dues) error {
	var p struct {
		Plan  string `json:"plan_id"`
		Hash  string `json:"plan_hash"`
		Slice string `json:"slice_id"`
		Mode  string `json:"mode"`
		Steps []struct {
			ticket.Action
			numbered
		} `json:"steps"`
		Approvals []string `json:"approval_ids"`
	}
	if err := read(m, &p); err != nil {
		return err
	}
	steps, numbers := make([]ticket.Action, len(p.Steps)), make([]int, len(p.Steps))
	for i := range p.Steps {
		steps[i], numbers[i] = p.Steps[i].Action, int(p.Steps[i].N)
	}
	slices.Sort(numbers)
	hash, err := ticket.Slice{Steps: steps}.Hash()
	note.Executed = &eventlog.Executed{
		Plan: p.Plan, Hash: p.Hash, Slice: p.Slice, Mode: p.Mode, Steps: hash, Numbers: numbers, Approvals: p.Approvals, Targets: targets(steps),
		DeliverMillis: due["deliver_by"], CompleteMillis: due["complete_by"],
	}
	return err
}

func noteResulted(note *eventlog.Message, m *ticket.Message) error {
	var p struct {
		Execute string `json:"execute_id"`
		Hash    string `json:"plan_hash"`
		Slice   string `json:"slice_id"`
		Outcome string `json:"outcome"`
		Steps   []struct {
			numbered
			Status string `json:"status"`
		} `json:"steps"`
		Verification struct {
			Passed bool `json:"passed"`
		} `json:"verification"`
	}
	err := read(m, &p)
	note.Execute = p.Execute
	r := &eventlog.Resulted{Hash: p.Hash, Slice: p.Slice, Outcome: p.Outcome, Passed: p.Verification.Passed}
	for _, s := range p.Steps {
		r.Numbers = append(r.Numbers, int(s.N))
		r.Unfinished = r.Unfinished || s.Status == "failed" || s.Status == "not_started"
	}
	slices.Sort(r.Numbers)
	note.Resulted = r
	return err
}

// numbered is a step's n. The schema takes a whole number in every form, as 1.0.
type numbered struct {
	N float64 `json:"n"`
}

func noteInflight(note *eventlog.Message, m *ticket.Message) error {
	var p struct {
		Inflight []jsontext.Value `json:"inflight"`
	}
	err := read(m, &p)
	for _, entry := range p.Inflight {
		id, _ := event.LookupJSON(entry, "execute_id")
		note.Inflight = append(note.Inflight, eventlog.Inflight{Execute: id, Progress: entry})
	}
	return err
}

func noteMoved(note *eventlog.Message, m *ticket.Message) error {
	var p struct {
		From    string                `json:"from"`
		To      string                `json:"to"`
		Cause   []string              `json:"cause"`
		Slices  []eventlog.MovedSlice `json:"slices"`
		Tier    *int                  `json:"tier"`
		Breaker struct {
			Target string `json:"target"`
			Action string `json:"action"`
		} `json:"breaker"`
	}
	err := read(m, &p)
	note.Moved = &eventlog.Moved{From: p.From, To: p.To, Causes: p.Cause, Slices: p.Slices, Tier: p.Tier, Target: strings.ToLower(p.Breaker.Target), Action: p.Breaker.Action}
	return err
}

// targets returns the targets of steps, as they are counted: without regard to case.
func targets(lists ...[]ticket.Action) []string {
	var all []string
	for _, list := range lists {
		for _, a := range list {
			all = append(all, strings.ToLower(a.Target))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
