// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// TestGroupingOfTickets is TestGrouping for tickets: replaying the log gives the same
// states.
func TestGroupingOfTickets(t *testing.T) { checkGrouping(t, drawTickets) }

// TestWhatIsAlwaysTrueOfTickets is that list of the protocol, over drawn logs with
// repetitions and messages that come late.
func TestWhatIsAlwaysTrueOfTickets(t *testing.T) {
	reached := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		r := emptyRig(t)
		defer r.close()
		w := &witness{
			T: t, r: r, grants: map[string]*eventlog.Message{}, requests: map[string]*eventlog.Approval{}, plans: map[string]string{}, stays: map[string]int{}, askedIn: map[string]int{}, denial: map[string]string{},
		}
		for _, p := range drawTickets(t) {
			if p.Message == nil {
				r.apply([]*eventlog.Proposal{p})
				w.waiting()
				continue
			}
			before := ticketRow(r, p.Message.Ticket)
			open := w.open(&before)
			result := r.apply([]*eventlog.Proposal{p})[0]
			after := ticketRow(r, p.Message.Ticket)
			if result.Err != nil || result.Verdicts[0].Outcome != projector.Accepted {
				if !reflect.DeepEqual(before, after) {
					t.Fatalf("%s was not accepted (%v) and changed the ticket\n%+v\n%+v", p.Message.Type, result.Err, before, after)
				}
				continue
			}
			reached[after.State]++
			w.transition(p.Message, &before, &after)
			w.slices(&before, &after)
			w.decided(p.Message, &before, &after, open)
			w.bound(&before, &after)
			w.approval(p, &before, open)
			w.waiting()
		}
		checkSound(t, r)
	})
	// Logs are drawn anew each time: what is rare, as a rollback is, is not in every hundred of them.
	if len(reached) < len(ticket.States())/2 || reached[ticket.StateExecuting] == 0 {
		t.Errorf("the logs had tickets in no more states than these: %v", reached)
	}
}

// witness keeps what it has seen beside the projector, and holds that against it.
type witness struct {
	*rapid.T
	r        *rig
	grants   map[string]*eventlog.Message  // accepted
	requests map[string]*eventlog.Approval // accepted
	denied   []string                      // requests
	denial   map[string]string             // the last one of a plan; ids follow each other
	plans    map[string]string             // the plan that a grant was executed for
	stays    map[string]int                // by ticket: how often it was escalated
	askedIn  map[string]int                // by request about an escalation: which of these it was asked in
}

// decided: a ticket is approved by as many people as its tier needs, and goes on from an
// escalation as the gate has said about that one; none of them has asked for it.
func (w *witness) decided(m *eventlog.Message, before, after *store.TicketRow, open bool) {
	w.Helper()
	if after.State == ticket.StateEscalated && before.State != after.State {
		w.stays[m.Ticket]++
	}
	needed := map[int]int{2: 1, 3: 2}[tierOf(after)]
	if open {
		needed = max(needed, 1)
	}
	kind, choices := "", []string(nil)
	switch {
	case before.State == after.State:
		return
	case before.State == ticket.StateAwaitingApproval && after.State == ticket.StateApproved:
		kind = "plan"
		for _, id := range w.denied {
			if r := w.requests[id]; r.Kind == kind && r.Hash == before.Plan.Hash {
				w.Fatalf("the plan was denied by an answer to %s, and is approved", id)
			}
		}
	case before.State == ticket.StateEscalated:
		kind, needed = "escalation", 1
		for choice, to := range map[string]string{"resume": before.ResumeTo, "replan": ticket.StatePlanning, "cancel": ticket.StateCancelled, "close": ticket.StateClosed} {
			if to == after.State {
				choices = append(choices, choice)
			}
		}
	case before.State == ticket.StatePartial && after.State == ticket.StateResolved:
		kind = "accept_partial"
	default:
		return
	}
	for id, r := range w.requests {
		agreed := map[string]map[string]bool{}
		for _, g := range w.grants {
			live := g.Ticket == m.Ticket && g.Approval.Request == id && g.Approval.ExpiresMillis > w.r.projector.Space().LogMillis && !slices.Contains(before.Requesters, g.From)
			choice := g.Approval.Choice
			if kind == "plan" {
				choice = "" // a plan is taken or left
			}
			if live && (choices == nil || slices.Contains(choices, choice)) {
				if agreed[choice] == nil {
					agreed[choice] = map[string]bool{}
				}
				agreed[choice][g.From] = true
			}
		}
		for _, by := range agreed {
			if r.Kind == kind && len(by) >= max(needed, r.Approvers) && !slices.Contains(w.denied, id) && (kind != "escalation" || w.askedIn[id] == w.stays[m.Ticket]) {
				return
			}
		}
	}
	w.Fatalf("the ticket went from %s to %s, and nobody has decided that", before.State, after.State)
}

func tierOf(t *store.TicketRow) int {
	if t.Plan == nil {
		return 0
	}
	return t.Plan.Tier
}

// bound: what a grant is bound to, or was used for, does not change.
func (w *witness) bound(before, after *store.TicketRow) {
	w.Helper()
	for _, r := range before.Requests {
		for _, g := range r.Grants {
			if g.Bound == "" {
				continue
			}
			for _, now := range after.Requests {
				for _, same := range now.Grants {
					if same.ID == g.ID && same.Bound != g.Bound {
						w.Fatalf("the grant %s was bound by %s and is bound by %s", g.ID, g.Bound, same.Bound)
					}
				}
			}
		}
	}
}

// waiting: a request of which the gate is told that it waits has a deadline, so that it is
// granted, denied or escalated, and never forgotten; and nothing has one that nobody can
// meet any more, so that it does not stop the ticket later.
func (w *witness) waiting() {
	w.Helper()
	for _, id := range []string{"T1", "T2"} {
		t, open := ticketRow(w.r, id), deadlinesOf(w.r, id)
		if ticket.Terminal(t.State) {
			continue // what is missed has no consequences
		}
		known := map[string]bool{}
		for i := range t.Requests {
			r := &t.Requests[i]
			bound := slices.ContainsFunc(r.Grants, func(g store.GrantRow) bool { return g.Bound != "" })
			known[r.ID] = r.Denied == "" && r.Void == "" && !bound
			if n := projector.Missing(&t, r, w.r.projector.Space().LogMillis); n > 0 && !slices.Contains(open, r.ID) {
				w.Fatalf("the request %s of %s waits for %d, and has no deadline", r.ID, t.State, n)
			}
		}
		for _, s := range t.Slices {
			known[s.Request] = s.Proposal == ""
		}
		for _, of := range open {
			var m store.MessageRow
			if rowOf(w.r, store.MessageID, of, &m); (m.Type == ticket.TypePlanRequest || m.Type == ticket.TypeApprovalRequest) && !known[of] {
				w.Fatalf("the %s %s has a deadline in %s, and nobody can meet it", m.Type, of, t.State)
			}
		}
	}
}

// open reports whether a breaker of a target of a ticket is open.
func (w *witness) open(t *store.TicketRow) bool {
	return slices.ContainsFunc(t.Targets, func(target string) bool {
		var row store.BreakerRow
		rowOf(w.r, store.MessageBreaker, target, &row)
		return row.OpenedMillis != 0
	})
}

// transition: no transition without a message of the orchestrator, none that no row
// of the table has, and none out of a terminal state.
func (w *witness) transition(m *eventlog.Message, before, after *store.TicketRow) {
	w.Helper()
	if before.State == after.State {
		return
	}
	from := before.State
	if from == "" {
		from = ticket.None
	}
	if m.From != "orch" && from != ticket.None {
		w.Fatalf("a message of %s moved the ticket from %s to %s", m.From, from, after.State)
	}
	if ticket.Terminal(from) {
		w.Fatalf("the ticket went from %s to %s", from, after.State)
	}
	if !slices.ContainsFunc(ticket.Moves(), func(row ticket.Move) bool {
		return row.Leaves(from) && (row.To == after.State || row.To == ticket.ResumeTo && before.ResumeTo == after.State) && (row.Moves && row.Trigger == m.Type || !row.Moves && m.Type == ticket.TypeState)
	}) {
		w.Fatalf("no row leads from %s to %s by %s", from, after.State, m.Type)
	}
}

// slices: a terminal slice never changes within its plan.
func (w *witness) slices(before, after *store.TicketRow) {
	w.Helper()
	if before.Plan == nil || after.Plan == nil || before.Plan.Hash != after.Plan.Hash {
		return
	}
	for i, s := range before.Slices {
		if now := after.Slices[i]; now.ID != s.ID || ticket.TerminalSlice(s.State) && now.State != s.State {
			w.Fatalf("the slice %s was %s and is %s %s", s.ID, s.State, now.ID, now.State)
		}
	}
}

// approval: no execute at tier 2 and above, under an open breaker, or of a plan that was
// denied without enough live grants for its plan, none of them of a requester, and none
// that a denial has overtaken before it was bound; a grant is for one plan.
func (w *witness) approval(p *eventlog.Proposal, before *store.TicketRow, open bool) {
	w.Helper()
	m, id := p.Message, p.Entries[0].ID
	switch m.Type {
	case ticket.TypeApprovalRequest:
		w.requests[id], w.askedIn[id] = m.Approval, w.stays[m.Ticket]
	case ticket.TypeApprovalDeny:
		w.denied = append(w.denied, m.Approval.Request)
		if r := w.requests[m.Approval.Request]; r.Kind == "plan" {
			w.denial[r.Hash] = id
		}
	case ticket.TypeApprovalGrant:
		w.grants[id] = m
	case ticket.TypeExecute:
		stale := before.Amended != "" || before.Cancelled != "" || before.Plan.ValidMillis <= w.r.projector.Space().LogMillis
		if before.Missed != "" || stale && m.Executed.Mode == "apply" {
			w.Fatalf("the execute %s of a ticket that has missed %q, was amended by %q, cancelled by %q, or whose plan is over", id, before.Missed, before.Amended, before.Cancelled)
		}
		needed := map[int]int{2: 1, 3: 2}[before.Plan.Tier]
		denied := w.denial[m.Executed.Hash]
		if open || denied != "" {
			needed = max(needed, 1)
		}
		approvers := map[string]bool{}
		for _, named := range m.Executed.Approvals {
			g := w.grants[named]
			if g == nil || g.Ticket != m.Ticket || g.Approval.Hash != m.Executed.Hash {
				w.Fatalf("the execute %s of %s names %s, which is no grant of it", id, m.Executed.Hash, named)
			}
			was := w.plans[named]
			if was != "" && was != m.Executed.Hash {
				w.Fatalf("the grant %s counted for %s and counts for %s", named, was, m.Executed.Hash)
			}
			live := g.Approval.ExpiresMillis > w.r.projector.Space().LogMillis && !slices.Contains(w.denied, g.Approval.Request) && w.requests[g.Approval.Request].Kind == "plan"
			if live && (was != "" || g.Approval.Request > denied && !slices.Contains(before.Requesters, g.From)) {
				approvers[g.From] = true
				w.plans[named] = m.Executed.Hash
			}
		}
		if len(approvers) < needed {
			w.Fatalf("the execute %s at tier %d (a breaker is open: %v) has %d approvers", id, before.Plan.Tier, open, len(approvers))
		}
	}
}
