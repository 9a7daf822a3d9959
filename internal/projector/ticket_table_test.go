// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// stood is a ticket T1 that was opened and stands in a state, as its row says.
func stood(t *testing.T, r *rig, state string) {
	t.Helper()
	row := store.TicketRow{Trace: "trace", Open: messageID(1), State: state, Revision: 1}
	if state == ticket.StateEscalated {
		row.ResumeTo = ticket.StateOpen
	}
	value, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	b := r.store.NewBatch()
	defer b.Close()
	was := ticketRow(r, "T1").State
	b.DeleteMessage(store.MessageStanding, store.StandingKey(was, "T1"))
	b.SetMessage(store.MessageTicket, "T1", value)
	b.SetMessage(store.MessageStanding, store.StandingKey(state, "T1"), []byte(`"`+messageID(1)+`"`))
	if err := r.store.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
}

// taken is a message of a type and kind, in the form that admission gives it.
func taken(id int, kind, of string) said {
	m := eventlog.Message{Type: kind, Ticket: "T1", From: "orch", To: "network", Cause: messageID(1), Payload: fmt.Sprint(id)}
	switch kind {
	case ticket.TypeOpen:
		m.From, m.To, m.Op = "desk", "orchestrator", of
	case ticket.TypeProposal:
		m.From = "net"
	case ticket.TypeApprovalRequest:
		m.To = "gate"
		if of == "proposed" {
			m.From, m.To = "net", "orchestrator"
		}
		m.Approval = &eventlog.Approval{Kind: of, ExpiresMillis: epoch + hour, Target: "fw/1", Options: []string{"resume"}}
	case ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		m.From, m.To = "alice", "orchestrator"
	case ticket.TypeState:
		m.To = "intake"
	}
	s := said{id: id, Message: m}
	fillNotes(&s.Message)
	if kind == ticket.TypeExecute {
		s.Executed.Mode = of
	}
	return s
}

// TestEveryTypeInEveryState: what the table does not have is refused with its
// sentence, and what it has is not.
func TestEveryTypeInEveryState(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	id := 1
	for _, take := range ticket.Takes() {
		for _, state := range ticket.States() {
			id++
			stood(t, r, state.Name)
			result := r.do(taken(id, take.Type, take.Kind).proposal(t))
			refused := result.Err != nil && result.Err.Code == event.CodeTicketMoveIllegal && strings.HasSuffix(result.Err.Message, take.Rule)
			if refused == take.Permits(state.Name) {
				t.Errorf("%s %s in %s: %v", take.Type, take.Kind, state.Name, result.Err)
			}
		}
	}
	for _, kind := range []string{ticket.TypePlanRequest, ticket.TypeProposal, ticket.TypePlan, ticket.TypeApprovalGrant, ticket.TypeApprovalDeny, ticket.TypeExecute, ticket.TypeState} {
		if !slices.ContainsFunc(ticket.Takes(), func(take ticket.Take) bool { return take.Type == kind }) {
			t.Errorf("nothing is said of %s", kind)
		}
	}
}

// TestNoMoveBesideTheTable: from every state to every other, by a ticket.state that
// names a message which triggers nothing.
func TestNoMoveBesideTheTable(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	id := 1
	for _, from := range ticket.States() {
		for _, to := range ticket.States() {
			id++
			stood(t, r, from.Name)
			s := taken(id, ticket.TypeState, "")
			s.Moved = &eventlog.Moved{From: from.Name, To: to.Name, Causes: []string{messageID(1)}}
			result := r.do(s.proposal(t))
			// Moves that a message allows which has no other part in them.
			open := slices.ContainsFunc(ticket.Moves(), func(m ticket.Move) bool {
				return !m.Moves && m.Leaves(from.Name) && m.To == to.Name && m.Trigger == ticket.Any && (m.Guard == "" || m.Guard == "not_cancelled" || m.Guard == "settled" || m.Guard == "stale" || m.Guard == "nothing_applied")
			})
			if open != (result.Err == nil) {
				t.Errorf("from %s to %s: %v", from.Name, to.Name, result.Err)
			}
			if !open && result.Err.Code != event.CodeTicketMoveIllegal {
				t.Errorf("from %s to %s: refused with %s", from.Name, to.Name, result.Err.Code)
			}
			if got := ticketRow(r, "T1").State; !open && got != from.Name {
				t.Errorf("what was refused moved the ticket from %s to %s", from.Name, got)
			}
		}
	}
}

// movesMade notes which rows of the table the scripts have moved by.
type movesMade map[int]bool

// made notes the row of an accepted message.
func (made movesMade) made(s *tale, m *eventlog.Message, before, after *store.TicketRow) {
	from := before.State
	if from == "" {
		from = ticket.None
	}
	for i := range ticket.Moves() {
		row := &ticket.Moves()[i]
		if !row.Leaves(from) || row.Moves != (m.Type != ticket.TypeState) {
			continue
		}
		if row.Moves {
			if row.Trigger == m.Type && row.To == after.State && from != after.State {
				made[i] = true
				return
			}
			continue
		}
		to := map[string]string{ticket.ResumeTo: before.ResumeTo, ticket.Same: before.State}[row.To]
		if to == "" {
			to = row.To
		}
		if to == after.State && (row.To == ticket.Same) == (m.Moved.Action != "" && m.Moved.To == m.Moved.From) && s.triggers(row, m, before) {
			made[i] = true
			return
		}
	}
}

// triggers reports whether a cause of a ticket.state is the trigger of a row.
func (s *tale) triggers(row *ticket.Move, m *eventlog.Message, t *store.TicketRow) bool {
	return slices.ContainsFunc(m.Moved.Causes, func(id string) bool {
		var cause store.MessageRow
		rowOf(s.rig, store.MessageID, id, &cause)
		if row.Trigger != ticket.Any && row.Trigger != cause.Type {
			return false
		}
		return row.Choice == "" || slices.ContainsFunc(t.Requests, func(r store.RequestRow) bool {
			return slices.ContainsFunc(r.Grants, func(g store.GrantRow) bool { return g.ID == id && g.Choice == row.Choice })
		})
	})
}

// check demands that every row was moved by.
func (made movesMade) check(t *testing.T) {
	for i, row := range ticket.Moves() {
		if !made[i] {
			t.Errorf("no script moves by the row from %v by %s (%s) to %s", row.From, row.Trigger, row.Guard, row.To)
		}
	}
}
