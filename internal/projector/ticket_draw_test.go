// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// player draws what agents say about tickets: mostly what is next, and now and then
// anything else, with repetitions and with messages that were held back. It applies
// what it draws, for what is next depends on it.
type player struct {
	*rapid.T
	r    *rig
	log  []*eventlog.Proposal
	held *eventlog.Proposal // to be sent later
	ids  map[string][]int   // accepted messages of a ticket
	n    int
	now  int64
}

// likely are the types that matter in a state, or a ticket.state. The first and the last of
// a list are drawn most.
var likely = map[string][]string{
	"":                           {ticket.TypeOpen},
	ticket.StateOpen:             {ticket.TypePlanRequest},
	ticket.StatePlanning:         {ticket.TypeProposal, ticket.TypePlan, ticket.TypePlan, ticket.TypePlanRequest},
	ticket.StatePlanned:          {ticket.TypeState, ticket.TypeApprovalRequest, ticket.TypePlan},
	ticket.StateAwaitingApproval: {ticket.TypeApprovalGrant, ticket.TypeState, ticket.TypeApprovalGrant, ticket.TypeOpen, ticket.TypeApprovalDeny, ticket.TypeEscalation, ticket.TypeState},
	ticket.StateApproved:         {ticket.TypeExecute, ticket.TypeExecute, ticket.TypeState},
	ticket.StateExecuting:        {ticket.TypeResult, ticket.TypeState, ticket.TypeExecute},
	ticket.StateVerifying:        {ticket.TypeState, ticket.TypeResult, ticket.TypeExecute},
	ticket.StatePartial:          {ticket.TypeState, ticket.TypeApprovalRequest, ticket.TypeApprovalGrant},
	ticket.StateRollingBack:      {ticket.TypeExecute, ticket.TypeResult, ticket.TypeState},
	ticket.StateEscalated:        {ticket.TypeApprovalRequest, ticket.TypeApprovalGrant, ticket.TypeOpen, ticket.TypeState},
}

// drawTickets draws a log about two tickets.
func drawTickets(t *rapid.T) []*eventlog.Proposal {
	d := &player{T: t, r: emptyRig(t), ids: map[string][]int{}, now: epoch}
	defer d.r.close()
	for _, p := range append([]*eventlog.Proposal{configure(defaultSettings()), tick(epoch)}, staffed(t)...) {
		d.send(p)
	}
	bob := addAgent(6, "bob", "bob")
	bob.Roles, bob.Domains = []string{ticket.RoleGate}, nil
	d.send(changeAgent(t, bob, "admin"))
	for range rapid.IntRange(30, 120).Draw(t, "messages") {
		switch d.under(30, "what") {
		case 28, 29:
			d.now += int64(d.under(3, "later")) * hour / 2
			d.send(tick(d.now))
		case 27:
			again := *d.log[d.under(len(d.log), "again")]
			d.send(&again)
		case 26:
			d.held = d.message()
		case 25:
			if d.held != nil {
				d.send(d.held)
				d.held = nil
			}
		default:
			d.send(d.message())
		}
	}
	return d.log
}

func (d *player) under(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.T, what) }

func one[T any](d *player, what string, of ...T) T { return of[d.under(len(of), what)] }

// rarely is true less than once in ten times. Drawn numbers tend to be small, so what
// is to happen stands first in lists, and what is not has a high number.
func (d *player) rarely(what string) bool { return d.under(12, what) == 11 }

func (d *player) send(p *eventlog.Proposal) {
	p.Sequence = uint64(len(d.log)) + 1
	d.log = append(d.log, p)
	result := d.r.apply([]*eventlog.Proposal{p})[0]
	if m := p.Message; m != nil && result.Err == nil && result.Verdicts[0].Outcome == projector.Accepted {
		n, err := strconv.Atoi(strings.TrimPrefix(p.Entries[0].ID, "msg_"))
		if err != nil {
			d.Fatal(err)
		}
		d.ids[m.Ticket] = append(d.ids[m.Ticket], n)
	}
}

// some is an accepted message of a ticket, mostly a late one.
func (d *player) some(of string) string {
	ids := d.ids[of]
	if len(ids) == 0 {
		return messageID(1)
	}
	return messageID(ids[max(0, len(ids)-1-one(d, "back", 0, 0, 0, 1, 2, 5))])
}

func (d *player) message() *eventlog.Proposal {
	d.n++
	m := eventlog.Message{Ticket: one(d, "ticket", "T1", "T1", "T1", "T1", "T2"), From: "orch", To: "orchestrator", Payload: "p"}
	t := ticketRow(d.r, m.Ticket)
	types := likely[t.State]
	if types == nil { // an end, or almost one
		types = []string{ticket.TypeState, ticket.TypeOpen}
	}
	m.Type = one(d, "type", types...)
	if d.rarely("any") {
		m.Type = one(d, "any type", ticket.Types()[:10]...).Name
	}
	m.Cause = d.some(m.Ticket)
	d.fill(&m, &t)
	fillDeadlines(&m)
	if d.n > 1 && d.rarely("replayed") {
		m.Nonce = fmt.Sprint("n", d.n-1)
	}
	if d.n > 1 && d.rarely("repeated") {
		m.Idempotency = fmt.Sprint("k", d.n-1)
	}
	return said{id: d.n, at: d.now - epoch, Message: m}.proposal(d.T)
}

func (d *player) fill(m *eventlog.Message, t *store.TicketRow) {
	slice := one(d, "slice", "s1", "s2")
	for _, s := range t.Slices { // one that has something before it, mostly
		if !ticket.TerminalSlice(s.State) && !d.rarely("other slice") {
			slice = s.ID
			if d.under(2, "first") == 1 {
				break
			}
		}
	}
	revision, tier := t.Revision, one(d, "tier", 0, 1, 1, 1, 2, 3)
	if d.rarely("revision") {
		revision++
	}
	switch m.Type {
	case ticket.TypeOpen:
		m.From, m.Op, m.Requester = "desk", "open", one(d, "requester", "u1", "alice", "bob", "u1")
		if t.State != "" {
			m.Op = one(d, "op", "amend", "cancel", "amend")
		} else {
			m.Cause = ticket.None
		}
	case ticket.TypePlanRequest:
		if len(t.Slices) == 0 {
			revision = t.Revision + 1
		}
		m.To, m.Asked = domainOf(slice), &eventlog.Asked{Slice: slice, Revision: revision, DueMillis: d.now + hour/2}
	case ticket.TypeProposal:
		m.To = domainOf(slice)
		m.From = agentOf(m.To)
		m.Proposed = &eventlog.Proposed{
			Slice: slice, Revision: revision, Hash: sliceHash(slice), Steps: stepsHash(slice), Rollback: rollbackHash(slice), Tier: tier, Targets: []string{targetOf(slice)}, ValidMillis: d.now + 24*hour,
		}
	case ticket.TypePlan:
		d.fillPlan(m, t, slice, revision)
	case ticket.TypeEscalation:
		m.From = "net"
	case ticket.TypeState:
		d.fillState(m, t)
	default:
		d.fillWork(m, t, slice)
	}
}

func (d *player) fillPlan(m *eventlog.Message, t *store.TicketRow, slice string, revision int) {
	tier := one(d, "plan tier", 1, 2, 2, 3)
	for _, s := range t.Slices {
		if tier = max(tier, s.Tier); s.Domain != t.Slices[0].Domain {
			tier = max(tier, 2)
		}
	}
	if t.Plan != nil {
		tier = t.Plan.Tier
	}
	id := fmt.Sprint("p", revision)
	m.To = domainOf(slice)
	m.Planned = &eventlog.Planned{Plan: id, Hash: fmt.Sprint("plan:", m.Ticket, id, tier), Revision: revision, Tier: tier, Frozen: slice, ValidMillis: d.now + int64(one(d, "valid", 1, 24, 24))*hour}
	for _, s := range t.Slices {
		m.Planned.Slices = append(m.Planned.Slices, eventlog.PlannedSlice{ID: s.ID, Hash: sliceHash(s.ID)})
	}
}

// fillWork fills requests for approval, what is decided of them, executes and results.
func (d *player) fillWork(m *eventlog.Message, t *store.TicketRow, slice string) {
	plan := store.PlanRow{ID: "p1", Hash: "none"}
	if t.Plan != nil {
		plan = *t.Plan
	}
	switch m.Type {
	case ticket.TypeApprovalRequest:
		m.To = "gate"
		kind := map[string]string{ticket.StatePartial: "accept_partial", ticket.StateEscalated: "escalation"}[t.State]
		if kind == "" {
			kind = one(d, "kind", "plan", "plan", "plan", "breaker_reset")
		}
		m.Approval = &eventlog.Approval{
			Kind: kind, Revision: t.Revision, Tier: plan.Tier, Approvers: one(d, "approvers", 1, 1, 2), Plan: plan.ID, Hash: plan.Hash, Target: targetOf(slice),
			Options: []string{"resume", "replan", "cancel", "close"}, ExpiresMillis: d.now + hour,
		}
	case ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		m.From = one(d, "approver", "alice", "bob")
		m.Approval = &eventlog.Approval{Request: m.Cause, Choice: one(d, "choice", "resume", "resume", "replan", "cancel", "close"), ExpiresMillis: d.now + int64(one(d, "expires", 2, 4, 1))*hour/2}
		if len(t.Requests) > 0 && !d.rarely("other request") {
			r := t.Requests[len(t.Requests)-1]
			m.Approval.Request, m.Approval.Hash = r.ID, r.Hash
		}
	case ticket.TypeExecute:
		mode := map[string]string{ticket.StateVerifying: "verify", ticket.StateRollingBack: "rollback"}[t.State]
		if mode == "" {
			mode = one(d, "mode", "apply", "apply", "apply", "rollback", "verify")
		}
		m.To = domainOf(slice)
		m.Executed = &eventlog.Executed{
			Plan: plan.ID, Hash: plan.Hash, Slice: slice, Mode: mode, Steps: stepsHash(slice), Numbers: []int{1, 2}, Targets: []string{targetOf(slice)}, DeliverMillis: d.now + 60_000, CompleteMillis: d.now + hour/2,
		}
		if mode == "rollback" {
			m.Executed.Steps = rollbackHash(slice)
		}
		m.Executed.Approvals = d.approvals(t)
	case ticket.TypeResult:
		for _, s := range t.Slices {
			if s.State == ticket.SliceDispatched {
				m.Cause = s.Execute
			} else if s.Undo == ticket.SliceDispatched {
				m.Cause = s.UndoExecute
			}
		}
		m.Execute = m.Cause
		var x store.ExecutionRow
		rowOf(d.r, store.MessageExecution, m.Execute, &x)
		m.From = agentOf(domainOf(x.Slice))
		m.Resulted = &eventlog.Resulted{
			Hash: x.Plan, Slice: x.Slice, Outcome: one(d, "outcome", "success", "success", "partial", "failed", "rolled_back", "rollback_failed", "refused"), Passed: d.under(3, "passed") < 2,
			Numbers: x.Numbers, Unfinished: d.rarely("unfinished"),
		}
		if d.rarely("unaccounted") {
			m.Resulted.Numbers = []int{one(d, "accounted", 1, 3)}
		}
	}
}

// approvals are the grants that an execute names: those that there are, and now and
// then one of another ticket or plan.
func (d *player) approvals(t *store.TicketRow) (ids []string) {
	for _, r := range t.Requests {
		for _, g := range r.Grants {
			if r.Kind == "plan" && !d.rarely("left out") {
				ids = append(ids, g.ID)
			}
		}
	}
	if d.rarely("of another") {
		for _, p := range d.log {
			if m := p.Message; m != nil && m.Type == ticket.TypeApprovalGrant {
				return append(ids, p.Entries[0].ID)
			}
		}
	}
	return ids
}

func (d *player) fillState(m *eventlog.Message, t *store.TicketRow) {
	m.To = "intake"
	var next []string
	for i := range ticket.Moves() {
		row := &ticket.Moves()[i]
		switch {
		case row.Moves || !row.Leaves(t.State):
		case row.To == ticket.ResumeTo:
			next = append(next, t.ResumeTo)
		case row.To == ticket.Same:
			next = append(next, t.State)
		default:
			next = append(next, row.To)
		}
	}
	if len(next) == 0 || d.under(30, "any state") == 29 {
		next = []string{one(d, "state", ticket.States()...).Name}
	}
	if to := granted(t); to != "" && !d.rarely("as decided") {
		next = []string{to}
	}
	m.Moved = &eventlog.Moved{From: t.State, To: one(d, "to", next...), Causes: []string{d.some(m.Ticket), d.some(m.Ticket), m.Cause}}
	for _, s := range t.Slices {
		if s.Execute != "" {
			m.Moved.Causes = append(m.Moved.Causes, s.Execute)
			var x store.ExecutionRow
			if rowOf(d.r, store.MessageExecution, s.Execute, &x); x.Result != "" {
				m.Moved.Causes = append(m.Moved.Causes, x.Result)
			}
		}
	}
	for _, r := range t.Requests {
		for _, g := range r.Grants {
			m.Moved.Causes = append(m.Moved.Causes, g.ID)
		}
		if r.Denied != "" {
			m.Moved.Causes = append(m.Moved.Causes, r.Denied)
		}
	}
	if m.Moved.To == m.Moved.From {
		m.Moved.Target, m.Moved.Action = one(d, "target", "fw/1", "dns/1"), one(d, "action", "open", "close")
	}
}

// granted is the state that the latest grant of a ticket leads to, "" if there is none.
func granted(t *store.TicketRow) (to string) {
	for _, r := range t.Requests {
		for _, g := range r.Grants {
			switch {
			case t.State == ticket.StateAwaitingApproval && r.Kind == "plan":
				to = ticket.StateApproved
			case t.State == ticket.StatePartial && r.Kind == "accept_partial":
				to = ticket.StateResolved
			case t.State == ticket.StateEscalated && r.Kind == "escalation":
				to = map[string]string{"resume": t.ResumeTo, "replan": ticket.StatePlanning, "cancel": ticket.StateCancelled, "close": ticket.StateClosed}[g.Choice]
			}
		}
	}
	return to
}

// ticketRow is the row of a ticket; without a state: there is none.
func ticketRow(r *rig, id string) (t store.TicketRow) {
	rowOf(r, store.MessageTicket, id, &t)
	return t
}

func rowOf(r *rig, kind store.MessageKind, key string, into any) {
	view := r.store.View(func() {})
	defer view.Close()
	if _, err := view.Message(kind, key, into); err != nil {
		r.t.Fatal(err)
	}
}

// deadlinesOf are the messages of a ticket that have a deadline which is open.
func deadlinesOf(r *rig, id string) (ids []string) {
	view := r.store.View(func() {})
	defer view.Close()
	if err := view.Deadlines(id, func(id, _ string, _ *store.DeadlineRow) { ids = append(ids, id) }); err != nil {
		r.t.Fatal(err)
	}
	return ids
}
