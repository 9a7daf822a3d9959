// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"strconv"
	"strings"

	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// domainOf is the domain of a slice in the scripts: dns of s2 and network of others.
func domainOf(slice string) string {
	if slice == "s2" {
		return "dns"
	}
	return "network"
}

func targetOf(slice string) string {
	return map[string]string{"network": "fw/1", "dns": "dns/1"}[domainOf(slice)]
}

// agentOf is the agent of a domain.
func agentOf(domain string) string {
	return map[string]string{"network": "net", "dns": "dns"}[domain]
}

// fill sets what a message says, by the arguments of the command and by what the
// ticket has.
func (s *tale) fill(m *eventlog.Message) {
	t := ticketRow(s.rig, m.Ticket)
	switch m.Type {
	case ticket.TypeOpen:
		m.From, m.Op, m.Requester = s.or("from", "desk"), s.or("op", "open"), s.or("requester", "u1")
	case ticket.TypePlanRequest, ticket.TypeProposal, ticket.TypePlan:
		s.fillPlanning(m, &t)
	case ticket.TypeApprovalRequest, ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		s.fillApproval(m, &t)
	case ticket.TypeExecute:
		s.fillExecute(m, &t)
	case ticket.TypeResult:
		s.fillResult(m)
	case ticket.TypeEscalation:
		m.From = s.or("from", "net")
	case ticket.TypeState:
		s.fillState(m, &t)
	}
}

// plan is the id, the hash and the tier of the plan that a message is about.
func (s *tale) plan(t *store.TicketRow) (id, hash string, tier int) {
	id, tier = fmt.Sprint("p", t.Revision), 1
	if t.Plan != nil {
		id, tier = t.Plan.ID, t.Plan.Tier
	}
	id = s.or("plan", id)
	return id, s.or("hash", "plan:"+id), s.num("tier", tier)
}

// until is a moment so much after now.
func (s *tale) until(key string, otherwise int64) int64 {
	after := otherwise
	if s.data.HasArg(key) {
		after = s.duration(key, 0)
	}
	return s.projector.Space().LogMillis + after
}

func (s *tale) fillPlanning(m *eventlog.Message, t *store.TicketRow) {
	slice := s.or("slice", "s1")
	m.To = s.or("to", domainOf(slice))
	switch m.Type {
	case ticket.TypePlanRequest:
		m.Asked = &eventlog.Asked{Slice: slice, Revision: s.num("revision", max(1, t.Revision)), DueMillis: s.until("due", hour/2)}
	case ticket.TypeProposal:
		m.From = s.or("from", agentOf(m.To))
		m.Proposed = &eventlog.Proposed{
			Slice: slice, Revision: s.num("revision", t.Revision), Hash: sliceHash(slice), Steps: stepsHash(slice), Rollback: rollbackHash(slice), Tier: s.num("tier", 1),
			Targets: []string{targetOf(slice)}, ValidMillis: s.until("valid", 24*hour),
		}
		for n := range s.num("targets", 1) {
			m.Proposed.Targets = append(m.Proposed.Targets, fmt.Sprint(targetOf(slice), "/", n))
		}
	case ticket.TypePlan:
		id, hash, tier := s.plan(t)
		m.Planned = &eventlog.Planned{Plan: id, Hash: hash, Revision: s.num("revision", t.Revision), Tier: tier, Frozen: slice, ValidMillis: s.until("valid", 24*hour)}
		given := s.list("slices")
		for i := 0; given == nil && i < len(t.Slices); i++ {
			m.Planned.Slices = append(m.Planned.Slices, eventlog.PlannedSlice{ID: t.Slices[i].ID, Hash: sliceHash(t.Slices[i].ID)})
		}
		for _, name := range given {
			m.Planned.Slices = append(m.Planned.Slices, eventlog.PlannedSlice{ID: name, Hash: sliceHash(name)})
		}
	}
}

func (s *tale) fillApproval(m *eventlog.Message, t *store.TicketRow) {
	if m.Type == ticket.TypeApprovalRequest {
		m.To = s.or("to", "gate")
		m.Approval = &eventlog.Approval{
			Kind: s.or("kind", "plan"), Revision: s.num("revision", t.Revision), Approvers: s.num("approvers", 1), Target: s.text("target"), Options: s.list("options"), ExpiresMillis: s.until("expires", hour),
		}
		if kind := m.Approval.Kind; kind == "plan" || kind == "accept_partial" {
			m.Approval.Plan, m.Approval.Hash, m.Approval.Tier = s.plan(t)
		}
		return
	}
	m.From = s.or("from", "alice")
	m.Approval = &eventlog.Approval{Request: s.id(s.or("request", "ask")), Choice: s.text("choice"), ExpiresMillis: s.until("expires", hour)}
	for _, r := range t.Requests {
		if r.ID == m.Approval.Request {
			m.Approval.Hash = r.Hash
		}
	}
	m.Approval.Hash, m.Approval.Plan = s.or("hash", m.Approval.Hash), s.text("plan")
}

func (s *tale) fillExecute(m *eventlog.Message, t *store.TicketRow) {
	slice, mode := s.or("slice", "s1"), s.or("mode", "apply")
	id, hash, _ := s.plan(t)
	steps := stepsHash(slice)
	if mode == "rollback" {
		steps = rollbackHash(slice)
	}
	m.To = s.or("to", domainOf(slice))
	m.Executed = &eventlog.Executed{
		Plan: id, Hash: hash, Slice: slice, Mode: mode, Steps: s.or("steps", steps), Numbers: s.numbers(s.or("n", "1")), Targets: []string{targetOf(slice)},
		DeliverMillis: s.until("deliver", 60_000), CompleteMillis: s.until("complete", hour/2),
	}
	for _, name := range s.list("approvals") {
		m.Executed.Approvals = append(m.Executed.Approvals, s.id(name))
	}
}

func (s *tale) fillResult(m *eventlog.Message) {
	m.Execute = s.id(s.or("execute", "x"))
	m.Cause = m.Execute
	var x store.ExecutionRow
	view := s.store.View(func() {})
	defer view.Close()
	if _, err := view.Message(store.MessageExecution, m.Execute, &x); err != nil {
		s.t.Fatal(err)
	}
	m.From = s.or("from", agentOf(domainOf(x.Slice)))
	m.Resulted = &eventlog.Resulted{
		Hash: s.or("hash", x.Plan), Slice: s.or("slice", x.Slice), Outcome: s.or("outcome", "success"), Passed: s.or("passed", "yes") == "yes", Numbers: x.Numbers, Unfinished: s.data.HasArg("unfinished"),
	}
	if s.data.HasArg("n") {
		m.Resulted.Numbers = s.numbers(s.text("n"))
	}
}

// numbers are the n of some steps, as in 1+2; "none": there are none.
func (s *tale) numbers(text string) (all []int) {
	if text == "none" {
		return nil
	}
	for n := range strings.SplitSeq(text, "+") {
		number, err := strconv.Atoi(n)
		if err != nil {
			s.t.Fatalf("%s: %v", s.data.Pos, err)
		}
		all = append(all, number)
	}
	return all
}

func (s *tale) fillState(m *eventlog.Message, t *store.TicketRow) {
	m.To = "intake"
	m.Moved = &eventlog.Moved{From: s.or("was", t.State), To: s.text("to"), Target: s.text("target"), Action: s.text("breaker")}
	for _, name := range s.list("causes") {
		m.Moved.Causes = append(m.Moved.Causes, s.id(name))
	}
	if m.Moved.Causes == nil {
		m.Moved.Causes = []string{m.Cause}
	}
	for _, claim := range s.list("slices") {
		id, state, _ := strings.Cut(claim, ":")
		m.Moved.Slices = append(m.Moved.Slices, eventlog.MovedSlice{ID: id, State: state})
	}
	if s.data.HasArg("tier") {
		claimed := s.num("tier", 0)
		m.Moved.Tier = &claimed
	}
}
