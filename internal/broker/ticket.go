// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"signalbox/event"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// TicketInfo is a ticket as its messages have made it. It is read from the rows of
// the projection, and can always be rebuilt from the log.
type TicketInfo struct {
	ID         string           `json:"ticket_id"`
	Trace      string           `json:"trace_id"`
	State      string           `json:"state"`
	Terminal   bool             `json:"terminal"`
	ResumeTo   string           `json:"resume_to,omitempty"` // of a ticket that is ESCALATED
	Open       string           `json:"opened_by"`           // id of the ticket.open
	Opened     time.Time        `json:"opened"`              // log time
	Moved      string           `json:"moved_by"`            // id of the message that moved it last
	MovedAt    time.Time        `json:"moved"`               // log time
	Requesters []string         `json:"requesters"`          // none of them approves
	Revision   int              `json:"revision"`            // of the slices; 0: nothing was asked for
	Tier       *int             `json:"tier"`                // of the plan in force
	Plan       *TicketPlan      `json:"plan"`                // in force; null: none
	Slices     []TicketSlice    `json:"slices"`
	Approvals  []TicketApproval `json:"approvals"` // requests, and what became of them
	Breakers   []TicketBreaker  `json:"breakers"`  // open ones of the targets of the revision
	Deadlines  []TicketDeadline `json:"deadlines"` // that nothing has met yet
	Amended    string           `json:"amended_by,omitempty"`
	Cancelled  string           `json:"cancelled_by,omitempty"`
	Missed     string           `json:"missed,omitempty"` // a deadline, since which nothing is executed
}

// TicketPlan is the plan in force.
type TicketPlan struct {
	ID         string    `json:"plan_id"`
	Hash       string    `json:"plan_hash"`
	Tier       int       `json:"tier"`
	Message    string    `json:"message"` // id of its first message
	ValidUntil time.Time `json:"valid_until"`
	Policy     string    `json:"policy_version"`
}

// TicketSlice is a slice of the revision. Its rollback has a state of its own: the
// slice's does not change once it is terminal.
type TicketSlice struct {
	ID              string     `json:"slice_id"`
	Domain          string     `json:"domain"`
	State           string     `json:"state"`
	Tier            *int       `json:"tier"` // null: not proposed
	Hash            string     `json:"slice_hash,omitempty"`
	Request         string     `json:"plan_request,omitempty"` // ids of messages, as the next ones
	Proposal        string     `json:"proposal,omitempty"`
	Execute         string     `json:"execute,omitempty"`
	Due             time.Time  `json:"deadline,omitzero"`
	CompleteBy      *time.Time `json:"complete_by,omitempty"`
	Rollback        string     `json:"rollback,omitempty"` // its state
	RollbackExecute string     `json:"rollback_execute,omitempty"`
	Verified        string     `json:"verified,omitempty"` // passed or failed
}

// TicketApproval is a request for approval.
type TicketApproval struct {
	ID        string        `json:"request_id"`
	Kind      string        `json:"kind"`
	PlanHash  string        `json:"plan_hash,omitempty"`
	Target    string        `json:"target,omitempty"`
	Options   []string      `json:"options,omitempty"`
	Approvers int           `json:"approvers_required"`
	Missing   int           `json:"missing"` // how many more have to grant it; 0: it waits for nobody
	Expires   time.Time     `json:"expires_at"`
	Denied    string        `json:"denied_by,omitempty"` // id of the approval.deny
	Void      string        `json:"void_by,omitempty"`   // id of the message since which nothing comes of it
	Grants    []TicketGrant `json:"grants"`
}

// TicketGrant is a grant. One of a plan is bound by the first execute that names it;
// others are used by the ticket.state that they allow.
type TicketGrant struct {
	ID       string    `json:"id"`
	Approver string    `json:"approver"`
	Choice   string    `json:"choice,omitempty"`
	Expires  time.Time `json:"expires_at"`
	Bound    string    `json:"bound_by,omitempty"` // id of the message that bound or used it
	Counts   bool      `json:"counts"`             // as its time is not over, and its approver does not ask for the ticket
}

// TicketBreaker is an open breaker.
type TicketBreaker struct {
	Target string    `json:"target"`
	Opened time.Time `json:"opened"`
}

// Ticket returns a ticket, or code ticket_unknown.
func (b *Broker) Ticket(id string) (TicketInfo, error) {
	view := b.store.View(func() {})
	defer view.Close()
	var t store.TicketRow
	ok, err := view.Message(store.MessageTicket, id, &t)
	if err != nil {
		return TicketInfo{}, event.AsError(err)
	}
	if !ok {
		return TicketInfo{}, event.Errorf(event.CodeTicketUnknown, "There is no ticket %.128q.", id).With("ticket_id")
	}
	info := ticketInfo(id, &t)
	info.Approvals = ticketApprovals(&t, b.clock.Millis())
	for _, target := range t.Targets {
		var row store.BreakerRow
		if _, err := view.Message(store.MessageBreaker, target, &row); err != nil {
			return TicketInfo{}, event.AsError(err)
		}
		if row.OpenedMillis != 0 {
			info.Breakers = append(info.Breakers, TicketBreaker{target, moment(row.OpenedMillis)})
		}
	}
	if info.Deadlines, err = ticketDeadlines(view, id); err != nil {
		return TicketInfo{}, event.AsError(err)
	}
	return info, nil
}

func moment(millis int64) time.Time { return time.UnixMilli(millis).UTC() }

func ticketInfo(id string, t *store.TicketRow) TicketInfo {
	info := TicketInfo{
		ID: id, Trace: t.Trace, State: t.State, Terminal: ticket.Terminal(t.State), ResumeTo: t.ResumeTo, Open: t.Open, Opened: moment(t.OpenedMillis),
		Moved: t.Moved, MovedAt: moment(t.MovedMillis), Requesters: append([]string{}, t.Requesters...), Revision: t.Revision,
		Slices: []TicketSlice{}, Breakers: []TicketBreaker{},
		Amended: t.Amended, Cancelled: t.Cancelled, Missed: t.Missed,
	}
	if t.State == "" { // see store.TicketRow
		info.State, info.Moved = ticket.StateOpen, t.Open
	}
	if p := t.Plan; p != nil {
		info.Tier = &p.Tier
		info.Plan = &TicketPlan{p.ID, p.Hash, p.Tier, p.Message, moment(p.ValidMillis), p.Policy}
	}
	for i := range t.Slices {
		info.Slices = append(info.Slices, ticketSlice(&t.Slices[i]))
	}
	return info
}

// ticketApprovals are the requests of a ticket, with what counts of them at a time.
func ticketApprovals(t *store.TicketRow, now int64) []TicketApproval {
	all := []TicketApproval{}
	for i := range t.Requests {
		r := &t.Requests[i]
		a := TicketApproval{
			ID: r.ID, Kind: r.Kind, PlanHash: r.Hash, Target: r.Target, Options: r.Options, Approvers: r.Approvers, Missing: projector.Missing(t, r, now),
			Expires: moment(r.ExpiresMillis), Denied: r.Denied, Void: r.Void, Grants: []TicketGrant{},
		}
		for k := range r.Grants {
			g := &r.Grants[k]
			a.Grants = append(a.Grants, TicketGrant{g.ID, g.Approver, g.Choice, moment(g.ExpiresMillis), g.Bound, projector.Counts(t, r, g, now)})
		}
		all = append(all, a)
	}
	return all
}

func ticketSlice(s *store.SliceRow) TicketSlice {
	info := TicketSlice{
		ID: s.ID, Domain: s.Domain, State: s.State, Hash: s.Hash, Request: s.Request, Proposal: s.Proposal, Execute: s.Execute, Due: moment(s.DueMillis),
		Rollback: s.Undo, RollbackExecute: s.UndoExecute, Verified: s.Verified,
	}
	if s.Proposal != "" {
		info.Tier = &s.Tier
	}
	if s.Execute != "" {
		by := moment(s.CompleteMillis)
		info.CompleteBy = &by
	}
	return info
}
