// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

const (
	// requestersMax bounds the names that cannot approve a ticket.
	requestersMax = 20
	// slicesMax bounds a ticket's row; a plan has no more by the schema.
	slicesMax = 100
)

// judged is a message and what it makes of its ticket. Nothing of it is written
// before the message is accepted, see write.
type judged struct {
	p    *Projector
	m    *eventlog.Message
	id   string
	now  int64            // log time
	t    *store.TicketRow // as the message leaves it; nil: as it was
	was  string           // its state before; "": there was no ticket
	rows []judgedRow

	settled []string            // messages of which no answer is expected any more
	again   []*store.RequestRow // requests that wait for the gate, maybe again
}

type judgedRow struct {
	kind store.MessageKind
	key  string
	row  any
}

// judge decides whether the rules let a message be, as its ticket is, and what
// follows from it. The ticket's row is t, which belongs to judge from here on; it
// is empty for the message that opens a ticket.
func (p *Projector) judge(proposal *eventlog.Proposal, t *store.TicketRow) (*judged, *event.Error, error) {
	m := proposal.Message
	j := &judged{p: p, m: m, id: proposal.Entries[0].ID, now: p.space.LogMillis}
	if m.Ticket == ticket.None || m.Type == ticket.TypeEscalation {
		return j, nil, nil // a heartbeat, or what is always heard and moves nothing itself
	}
	j.t = t
	if !noted(m) {
		return nil, event.Errorf(event.CodePolicyChanged, "The message was admitted by an older version of the broker. Send it again."), nil
	}
	if m.Type == ticket.TypeOpen && m.Op == "open" {
		j.open()
		return j, nil, nil
	}
	t.State = stateOf(t)
	j.was = t.State
	if refused := j.taken(); refused != nil {
		return nil, refused, nil
	}
	refused, err := j.decide()
	if err != nil || refused != nil {
		return nil, refused, err
	}
	return j, nil, nil
}

// noted reports whether admission has noted what a message of its type says.
func noted(m *eventlog.Message) bool {
	switch m.Type {
	case ticket.TypePlanRequest:
		return m.Asked != nil
	case ticket.TypeProposal:
		return m.Proposed != nil
	case ticket.TypePlan:
		return m.Planned != nil
	case ticket.TypeApprovalRequest, ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		return m.Approval != nil
	case ticket.TypeExecute:
		return m.Executed != nil
	case ticket.TypeResult:
		return m.Resulted != nil
	case ticket.TypeState:
		return m.Moved != nil
	}
	return true
}

// kindOf is what tells messages of one type apart in the table of what is taken.
func kindOf(m *eventlog.Message) string {
	switch m.Type {
	case ticket.TypeOpen:
		return m.Op
	case ticket.TypeApprovalRequest:
		if m.To != ticket.RoleGate {
			return "proposed" // of the orchestrator, by a domain agent
		}
		return m.Approval.Kind
	case ticket.TypeExecute:
		return m.Executed.Mode
	}
	return ""
}

// taken refuses what the ticket does not take in its state.
func (j *judged) taken() *event.Error {
	kind := kindOf(j.m)
	for i := range ticket.Takes() {
		if take := &ticket.Takes()[i]; take.Type == j.m.Type && take.Kind == kind && !take.Permits(j.t.State) {
			return j.illegal("type", take.Rule)
		}
	}
	return nil
}

// illegal is the refusal by a rule.
func (j *judged) illegal(field, rule string) *event.Error {
	return event.Errorf(event.CodeTicketMoveIllegal, "The ticket %q is %s. %s", j.m.Ticket, j.t.State, rule).With(field).Fact("state", j.t.State)
}

// decide is what each type does. What moves the ticket itself does so afterwards.
func (j *judged) decide() (refused *event.Error, err error) {
	switch j.m.Type {
	case ticket.TypeOpen:
		refused = j.reopen()
	case ticket.TypePlanRequest:
		refused = j.ask()
	case ticket.TypeProposal:
		refused = j.propose()
	case ticket.TypePlan:
		refused = j.plan()
	case ticket.TypeApprovalRequest:
		refused, err = j.request()
	case ticket.TypeApprovalGrant:
		refused, err = j.grant()
	case ticket.TypeApprovalDeny:
		refused, err = j.deny()
	case ticket.TypeExecute:
		refused, err = j.execute()
	case ticket.TypeResult:
		refused, err = j.result()
	case ticket.TypeState:
		return j.state()
	}
	if refused != nil || err != nil {
		return refused, err
	}
	for i := range ticket.Moves() {
		row := &ticket.Moves()[i]
		if row.Moves && row.Trigger == j.m.Type && row.Leaves(j.t.State) && (j.m.Approval == nil || kindOf(j.m) == requestPlan) {
			j.move(row.To)
			break
		}
	}
	return nil, nil
}

// open makes a ticket.
func (j *judged) open() {
	*j.t = store.TicketRow{Trace: j.m.Trace, Open: j.id, OpenedMillis: j.now}
	j.requestedBy()
	j.move(ticket.StateOpen)
}

// requestedBy notes who asks for the ticket.
func (j *judged) requestedBy() {
	for _, name := range []string{j.m.Requester, j.m.From} {
		if name = strings.ToLower(name); !slices.Contains(j.t.Requesters, name) {
			j.t.Requesters = append(j.t.Requesters, name)
		}
	}
}

// reopen takes an amendment or a cancellation.
func (j *judged) reopen() *event.Error {
	t := j.t
	if j.requestedBy(); len(t.Requesters) > requestersMax {
		return j.illegal("payload/requester", "No more than 20 people and agents ask for one ticket.")
	}
	j.ungrant()
	if j.m.Op == "amend" {
		t.Amended = j.id
		return nil
	}
	t.Cancelled = j.id
	if slices.ContainsFunc(t.Slices, dispatched) {
		j.skip()
	}
	return nil
}

// move puts the ticket into a state.
func (j *judged) move(to string) {
	t := j.t
	switch {
	case to == ticket.StateEscalated && t.State != to:
		t.ResumeTo = t.State
	case to != ticket.StateEscalated:
		t.ResumeTo = ""
	}
	t.State, t.Moved, t.MovedMillis = to, j.id, j.now
	j.void(func(r *store.RequestRow) bool { return !serves(j.t, r) })
}

// settle notes that no answer to a message is expected any more: it has one, or
// nothing would follow from it.
func (j *judged) settle(id string) { j.settled = append(j.settled, id) }

// set is a row to be written with the message.
func (j *judged) set(kind store.MessageKind, key string, row any) {
	j.rows = append(j.rows, judgedRow{kind, key, row})
}

// write writes what the message has changed.
func (j *judged) write() {
	if j.t != nil {
		j.p.setMessageRow(store.MessageTicket, j.m.Ticket, j.t)
		j.p.stand(j.m.Ticket, j.was, j.t)
	}
	for _, r := range j.rows {
		j.p.setMessageRow(r.kind, r.key, r.row)
	}
}
