// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"maps"
	"slices"
	"strings"

	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// view is where a ticket is, as its messages say.
type view struct {
	t    *ticketclient.Ticket
	me   string // the orchestrator
	rule *Rule
	star string // what the * of the rule stands for

	state    string
	resumeTo string
	moves    int                   // how many ticket.state there were
	last     *ticketclient.Message // the last that moved the ticket

	open    *ticketclient.Message // the one that opened it
	content *ticketclient.Open    // what it is now, after amendments
	amended *ticketclient.Message // an amendment that nothing has answered
	cancel  *ticketclient.Message

	unplanned bool // it was amended, and nothing was asked for since that considers it
	revision  int
	begun     int      // the last revision that something was asked for
	slices    []*slice // of the revision, in the order of the rule
	done      []string // slices of earlier revisions that have succeeded

	request  *ticketclient.Message              // for approval of the plan
	denied   bool                               // the plan was, before it was asked about again
	requests int                                // how many there were about the plan of the revision
	asks     map[string]*question               // by what the gate is asked for, see [aboutEscalation]
	asked    int                                // how many of these there were
	posed    map[string]bool                    // requests that were one of these, also of an earlier plan
	grants   map[string][]*ticketclient.Message // by request
	bound    map[string]bool                    // grants that an execute has named
	denies   map[string]*ticketclient.Message
	lapses   map[string]*ticketclient.Message // by request: the bus says that nobody answered it

	stops []*ticketclient.Message // escalations that no move has taken up
}

// slice is one slice of the revision.
type slice struct {
	rule     SliceRule
	request  *ticketclient.Message
	proposal *ticketclient.Message
	plan     *ticketclient.Message
	runs     map[string]*run // the last by mode
	tries    map[string]int  // how many there were
}

// question is what the gate is asked beside the approval of a plan.
type question struct {
	request *ticketclient.Message // the last one
	times   int
}

// What a question is about, in view.asks. That of a breaker has the target behind it.
const (
	aboutEscalation = "escalation"
	aboutPartial    = "accept_partial"
	aboutBreaker    = "breaker_reset/"
)

// run is an execute and its result.
type run struct {
	execute *ticketclient.Message
	result  *ticketclient.Message
	dead    bool // it was not delivered in time
}

// look folds the messages of a ticket.
func look(p *Policy, me string, t *ticketclient.Ticket) *view {
	v := &view{
		t: t, me: me, asks: map[string]*question{}, posed: map[string]bool{}, grants: map[string][]*ticketclient.Message{},
		bound: map[string]bool{}, denies: map[string]*ticketclient.Message{}, lapses: map[string]*ticketclient.Message{},
	}
	for _, m := range t.Messages {
		v.take(p, m)
	}
	return v
}

func (v *view) take(p *Policy, m *ticketclient.Message) {
	v.answered(m)
	switch payload := m.Payload.(type) {
	case *ticketclient.Open:
		v.opened(p, m, payload)
	case *ticketclient.PlanRequest:
		s := v.slice(payload.SliceID)
		v.unplanned = v.unplanned && payload.Revision <= v.begun
		s.request, s.rule.Domain, v.begun = m, m.To, max(v.begun, payload.Revision)
		if v.state == "OPEN" {
			v.move("PLANNING", m)
		}
	case *ticketclient.Proposal:
		if payload.Revision == v.revision {
			v.slice(payload.SliceID).proposal = m
		}
	case *ticketclient.Plan:
		v.slice(payload.Slice.ID).plan = m
		if v.state == "PLANNING" {
			// The plan says which slices there are. One that the policy has got since then
			// is for the next revision.
			v.slices = slices.DeleteFunc(v.slices, func(s *slice) bool { return s.proposal == nil })
			v.move("PLANNED", m)
		}
	case *ticketclient.ApprovalRequest:
		v.asking(m, payload)
	case *ticketclient.ApprovalGrant:
		v.grants[payload.RequestID] = append(v.grants[payload.RequestID], m)
		if q := v.asks[aboutEscalation]; q != nil && q.request.ID == payload.RequestID {
			v.stops = nil // the gate has seen what was said until then
		}
	case *ticketclient.ApprovalDeny:
		v.denies[payload.RequestID] = m
	case *ticketclient.Execute:
		s := v.slice(payload.SliceID)
		s.runs[payload.Mode], s.tries[payload.Mode] = &run{execute: m}, s.tries[payload.Mode]+1
		for _, id := range payload.ApprovalIDs {
			v.bound[id] = true
		}
		if v.state == "APPROVED" {
			v.move("EXECUTING", m)
		}
	case *ticketclient.Result:
		if r := v.run(payload.ExecuteID); r != nil {
			r.result = m
		}
	case *ticketclient.Escalation:
		v.escalated(m, payload)
	case *ticketclient.State:
		v.moved(p, m, payload)
	}
}

// answered notes that something has said something about an amendment.
func (v *view) answered(m *ticketclient.Message) {
	if v.amended != nil && m.From == v.me && m.CausationID == v.amended.ID {
		v.amended = nil
	}
}

func (v *view) opened(p *Policy, m *ticketclient.Message, payload *ticketclient.Open) {
	switch payload.Op {
	case "open":
		v.open, v.content, v.revision = m, payload, 1
		v.match(p)
		v.move("OPEN", m)
	case "amend":
		v.content, v.amended, v.unplanned = payload, m, true
	case "cancel":
		v.cancel = m
	}
}

// match finds the rule of the ticket as it is now, and the slices that it has and
// that have not succeeded.
func (v *view) match(p *Policy) {
	v.slices = nil
	if v.rule, v.star = p.Match(v.content.SourceRef, v.content.Priority); v.rule == nil {
		return
	}
	for _, s := range v.rule.Slices {
		if !slices.Contains(v.done, s.ID) {
			v.slices = append(v.slices, &slice{rule: s, runs: map[string]*run{}, tries: map[string]int{}})
		}
	}
}

// slice returns a slice of the revision. One that the rule does not have, since the
// policy was changed meanwhile, is one of the ticket all the same.
func (v *view) slice(id string) *slice {
	for _, s := range v.slices {
		if s.rule.ID == id {
			return s
		}
	}
	s := &slice{rule: SliceRule{ID: id}, runs: map[string]*run{}, tries: map[string]int{}}
	v.slices = append(v.slices, s)
	return s
}

func (v *view) run(execute string) *run {
	for _, s := range v.slices {
		for _, r := range s.runs {
			if r.execute.ID == execute {
				return r
			}
		}
	}
	return nil
}

func (v *view) asking(m *ticketclient.Message, payload *ticketclient.ApprovalRequest) {
	if m.To != ticket.RoleGate {
		return // an agent asks the orchestrator, who has no say in it
	}
	about := aboutEscalation
	switch payload.Kind {
	case "plan":
		v.request = m
		v.requests++
		if v.state == "PLANNED" {
			v.move("AWAITING_APPROVAL", m)
		}
		return
	case "accept_partial":
		v.requests++
		about = aboutPartial
	case "breaker_reset":
		about = aboutBreaker + payload.Target
	}
	q := v.asks[about]
	if q == nil {
		q = &question{}
		v.asks[about] = q
	}
	q.request, v.posed[m.ID] = m, true
	q.times++
	v.asked++
}

// escalated notes what stops the ticket. Three things do not. A page about an execute
// that was not delivered: the slice is dead, and the others go on. That the gate has
// not answered a question: what follows is the policy's to say. And what is said here
// to platform-ops about that.
func (v *view) escalated(m *ticketclient.Message, payload *ticketclient.Escalation) {
	r := v.run(m.CausationID)
	if m.From == ticket.RoleBus && payload.ReasonCode == reasonUnanswered {
		v.lapses[m.CausationID] = m
	}
	switch {
	case r != nil && m.From == ticket.RoleBus && payload.ReasonCode == reasonUndelivered:
		r.dead = true
	case v.lapses[m.CausationID] == m && v.posed[m.CausationID]:
	case payload.Severity == "info", m.From == v.me && m.To == ticket.RolePlatformOps:
	default:
		v.stops = append(v.stops, m)
	}
}

func (v *view) moved(p *Policy, m *ticketclient.Message, payload *ticketclient.State) {
	v.moves++
	v.stops = slices.DeleteFunc(v.stops, func(stop *ticketclient.Message) bool { return slices.Contains(payload.Cause, stop.ID) })
	if payload.To == "ESCALATED" {
		v.resumeTo = payload.From
		v.stops = nil // one decision is about all of them
	}
	if payload.To != payload.From && payload.To != "ESCALATED" { // what is not answered by now is not asked any more
		delete(v.asks, aboutEscalation)
		delete(v.asks, aboutPartial)
	}
	if payload.Breaker != nil {
		delete(v.asks, aboutBreaker+payload.Breaker.Target) // if it opens again, it is another question
	}
	v.move(payload.To, m)
	switch {
	case payload.ReasonCode == reasonResumed:
		v.retry()
		if v.refusal() != nil && payload.To != "AWAITING_APPROVAL" && payload.To != "DENIED" {
			v.request, v.denied = nil, true // the gate has seen that, and what was granted before counts no more
		}
	case payload.To == "PLANNING" || payload.To == "OPEN":
		v.again(p)
	}
}

// retry forgets the rollbacks that have failed, and the verifications that came to
// nothing: the gate wants them tried again.
func (v *view) retry() {
	for _, s := range v.slices {
		if r := s.runs[ticketclient.ModeVerify]; r != nil && r.result == nil {
			delete(s.runs, ticketclient.ModeVerify)
		}
		if r := s.runs[ticketclient.ModeRollback]; r != nil && (r.dead || r.result != nil) && s.state() != "ROLLED_BACK" {
			delete(s.runs, ticketclient.ModeRollback)
		}
	}
}

// again begins another revision, of what has not succeeded.
func (v *view) again(p *Policy) {
	for _, s := range v.slices {
		if s.state() == "SUCCEEDED" {
			v.done = append(v.done, s.rule.ID)
		}
	}
	v.revision = v.begun + 1
	v.request, v.denied, v.amended, v.requests = nil, false, nil, 0
	maps.DeleteFunc(v.asks, func(about string, _ *question) bool { return strings.HasPrefix(about, aboutBreaker) })
	v.match(p)
}

func (v *view) move(to string, by *ticketclient.Message) { v.state, v.last = to, by }

// state is that of the slice, as the messages say it.
func (s *slice) state() string {
	for _, mode := range []string{ticketclient.ModeRollback, ticketclient.ModeApply} {
		r := s.runs[mode]
		switch {
		case r == nil:
			continue
		case r.dead:
			return "DEAD_LETTERED"
		case r.result == nil:
			return "DISPATCHED"
		}
		outcome := r.result.Payload.(*ticketclient.Result).Outcome
		if mode == ticketclient.ModeRollback {
			return undone(outcome)
		}
		return carriedOut(outcome)
	}
	switch {
	case s.plan != nil:
		return "FROZEN"
	case s.proposal != nil:
		return "PROPOSED"
	}
	return "REQUESTED"
}

// carriedOut is the state of a slice after the outcome of its execution, and undone
// that after its rollback.
func carriedOut(outcome string) string {
	switch outcome {
	case ticketclient.OutcomeSuccess:
		return "SUCCEEDED"
	case ticketclient.OutcomePartial:
		return "PARTIAL"
	case ticketclient.OutcomeRolledBack:
		return "ROLLED_BACK"
	case ticketclient.OutcomeRollbackFailed:
		return "ROLLBACK_FAILED"
	case ticketclient.OutcomeRefused:
		return "REFUSED"
	}
	return "FAILED"
}

func undone(outcome string) string {
	switch outcome {
	case ticketclient.OutcomeSuccess, ticketclient.OutcomeRolledBack:
		return "ROLLED_BACK"
	case ticketclient.OutcomeRefused:
		return "REFUSED"
	}
	return "ROLLBACK_FAILED"
}

// result returns the result of a mode, nil if there is none.
func (s *slice) result(mode string) *ticketclient.Result {
	if r := s.runs[mode]; r != nil && r.result != nil {
		return r.result.Payload.(*ticketclient.Result)
	}
	return nil
}

// applied reports whether something of the slice took effect and was not undone.
func (s *slice) applied() bool {
	r := s.result(ticketclient.ModeApply)
	if r == nil || s.state() == "ROLLED_BACK" {
		return false
	}
	was := carriedOut(r.Outcome)
	return was == "SUCCEEDED" || was == "PARTIAL" || was == "ROLLBACK_FAILED"
}
