// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// due gives a message the deadlines of its type, so many ms after epoch.
func due(s said, millis ...int64) said {
	kind, _ := ticket.TypeOf(s.Type)
	for i, at := range millis {
		s.Deadlines = append(s.Deadlines, eventlog.Deadline{Member: kind.Deadlines[i].Member, Millis: epoch + at})
	}
	return s
}

func beat(id int, from string, millis int64, accepts string) said {
	return said{id: id, at: millis, Message: eventlog.Message{
		Type: ticket.TypeHeartbeat, Ticket: ticket.None, From: from, To: "platform-ops", Payload: "p", Beat: &eventlog.Beat{Accepts: accepts, Seq: int64(id)},
	}}
}

// bussed is the log of a space whose bus has a key.
func bussed(t fataler) *rig {
	r := staffedRig(t)
	r.do(&eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpBus, Key: agentPublic(ticket.RoleBus)}})
	r.do(tick(epoch))
	return r
}

func (r *rig) obligations() (ids []string, rows map[string]store.ObligationRow) {
	r.t.Helper()
	rows = map[string]store.ObligationRow{}
	err := r.store.MessagesOfKind(store.MessageObligation, "", func(id string, value []byte) (bool, error) {
		var o store.ObligationRow
		err := store.DecodeMessage(store.MessageObligation, value, &o)
		ids, rows[id] = append(ids, id), o
		return true, err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(ids) != r.projector.Bus().Owed {
		r.t.Fatalf("%d messages are owed, and %d are counted", len(ids), r.projector.Bus().Owed)
	}
	return ids, rows
}

// says is what the bus says to discharge an obligation.
func (r *rig) says(id string, o store.ObligationRow) *eventlog.Proposal {
	ackBy := o.AckBy
	if ackBy == 0 {
		ackBy = o.Millis + 600_000
	}
	s := said{Message: eventlog.Message{
		Type: ticket.TypeEscalation, Ticket: o.Ticket, Trace: o.Trace, Cause: o.Cause, From: ticket.RoleBus, To: o.To, Nonce: id, Idempotency: id, Payload: "p",
		SentMillis: o.Millis - epoch, Deadlines: []eventlog.Deadline{{Member: "ack_by", Millis: ackBy}},
	}}
	p := s.proposal(r.t)
	ev, err := event.Draft{ID: id, Source: ticket.RoleBus, Type: ticket.EventType + s.Type, Data: []byte("1")}.Event()
	if err != nil {
		r.t.Fatal(err)
	}
	p.Entries[0] = entry(ev)
	p.AdmittedMillis = r.projector.Space().LogMillis
	return p
}

// owing is what there is to say, as text, and then says it.
func (r *rig) owing() string {
	r.t.Helper()
	ids, rows := r.obligations()
	var lines []string
	for _, id := range ids {
		o := rows[id]
		line := fmt.Sprintf("%s %s to %s about %s of %s", o.Reason, o.Severity, o.To, strings.TrimLeft(strings.TrimPrefix(o.Cause, "msg_"), "0"), o.Ticket)
		if o.Letter != "" {
			line += " dead"
		}
		lines = append(lines, line)
		if result := r.do(r.says(id, o)); result.Err != nil || result.Verdicts[0].Outcome != projector.Accepted {
			r.t.Fatalf("the bus cannot say %s: %v", line, result.Err)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// proposed is a proposal of a slice.
func proposed(id, cause int, slice string) said {
	return said{id: id, Message: eventlog.Message{Type: ticket.TypeProposal, Ticket: "T1", From: "net", To: "network", Cause: messageID(cause), Payload: "p", Proposed: &eventlog.Proposed{
		Slice: slice, Revision: 1, Hash: sliceHash(slice), Steps: stepsHash(slice), Rollback: rollbackHash(slice), Tier: 1, Targets: []string{"fw/1"}, ValidMillis: epoch + 24*hour,
	}}}
}

func escalated(id, cause int, from, to string) said {
	return said{id: id, Message: eventlog.Message{Type: ticket.TypeEscalation, Ticket: "T1", From: from, To: to, Cause: messageID(cause), Payload: "p"}}
}

// untilPlan is a ticket up to its plan, message 4, of a tier.
func untilPlan(tier int) []said {
	plan := fromOrchestrator(4, 3, ticket.TypePlan, "network")
	plan.Planned = &eventlog.Planned{Plan: somePlan, Hash: somePlanHash, Revision: 1, Tier: tier, Slices: []eventlog.PlannedSlice{{ID: "s1", Hash: sliceHash("s1")}}, Frozen: "s1", ValidMillis: epoch + 24*hour}
	return []said{opened(1), fromOrchestrator(2, 1, ticket.TypePlanRequest, "network"), proposed(3, 2, "s1"), plan}
}

// untilExecute is a ticket up to its execute, message 6, and what follows.
func untilExecute(then ...said) []said {
	out := append(untilPlan(1), fromOrchestrator(5, 4, ticket.TypeState, "intake"), due(fromOrchestrator(6, 4, ticket.TypeExecute, "network"), 1000, 2000))
	return append(out, then...)
}

// untilRequest is a ticket up to its request for approval, message 5, and what follows.
func untilRequest(then ...said) []said {
	request := due(fromOrchestrator(5, 4, ticket.TypeApprovalRequest, "gate"), 2000)
	request.Approval = &eventlog.Approval{Kind: "plan", Revision: 1, Tier: 2, Approvers: 1, Plan: somePlan, Hash: somePlanHash, ExpiresMillis: epoch + 2000}
	return append(append(untilPlan(2), request), then...)
}

func (r *rig) say(all ...said) {
	r.t.Helper()
	for _, s := range all {
		if result := r.do(s.proposal(r.t)); result.Err != nil {
			r.t.Fatal(result.Err)
		}
	}
}

// TestDeadlinesAreMissed goes through the rows of the protocol's table: what meets a
// deadline, and what follows from a missed one.
func TestDeadlinesAreMissed(t *testing.T) {
	asked := func() said { return due(fromOrchestrator(2, 1, ticket.TypePlanRequest, "network"), 2000) }
	other := func() said {
		return with(fromOrchestrator(3, 2, ticket.TypePlanRequest, "network"), func(s *said) { s.Asked = &eventlog.Asked{Slice: "s2", Revision: 1, DueMillis: epoch + 9000} })
	}
	decision := func(kind string) said {
		return said{id: 6, Message: eventlog.Message{Type: kind, Ticket: "T1", From: "alice", To: "orchestrator", Cause: messageID(5), Payload: "p"}}
	}
	cancelled := with(opened(2), func(s *said) { s.Op, s.Cause = "cancel", messageID(1) })
	ended := with(fromOrchestrator(3, 2, ticket.TypeState, "intake"), func(s *said) {
		s.Moved = &eventlog.Moved{From: ticket.StateOpen, To: ticket.StateCancelled, Causes: []string{messageID(2)}}
	})
	for name, c := range map[string]struct {
		said []said
		want string
	}{
		"an opening that nobody acknowledges": {[]said{due(opened(1), 1000)}, "ack_by_missed warning to platform-ops about 1 of T1"},
		"an opening that is acknowledged":     {[]said{due(opened(1), 1000), fromOrchestrator(2, 1, ticket.TypePlanRequest, "network")}, ""},
		"an opening that is amended":          {[]said{due(opened(1), 1000), with(opened(2), func(s *said) { s.Op, s.Cause = "amend", messageID(1) })}, ""},
		"a request without an answer":         {[]said{opened(1), asked()}, "deadline_missed warning to orchestrator about 2 of T1"},
		"a request with a proposal":           {[]said{opened(1), asked(), proposed(3, 2, "s1")}, ""},
		"a request with that of another":      {[]said{opened(1), asked(), other(), proposed(4, 2, "s2")}, "deadline_missed warning to orchestrator about 2 of T1"},
		"a request that is escalated":         {[]said{opened(1), asked(), escalated(3, 2, "net", "orchestrator")}, ""},
		"a request that is only cited":        {[]said{opened(1), asked(), other()}, "deadline_missed warning to orchestrator about 2 of T1"},
		"a request of a ticket that is over":  {[]said{opened(1), due(escalated(4, 1, "net", "gate"), 2000), cancelled, ended}, ""},
		"an approval that nobody decides":     {untilRequest(), "expires_at_missed warning to orchestrator about 5 of T1"},
		"an approval that is granted":         {untilRequest(decision(ticket.TypeApprovalGrant)), ""},
		"an approval that is denied":          {untilRequest(decision(ticket.TypeApprovalDeny)), ""},
		"an execute that nobody takes":        {untilExecute(), "complete_by_missed warning to orchestrator about 6 of T1; deliver_by_missed critical to platform-ops about 6 of T1 dead"},
		"an execute with a result":            {untilExecute(resulted(7, 6)), ""},
		"an escalation to the gate":           {[]said{opened(1), due(escalated(2, 1, "net", "gate"), 1000)}, "ack_by_missed warning to orchestrator about 2 of T1"},
		"an escalation to the top":            {[]said{opened(1), due(escalated(2, 1, "net", "platform-ops"), 1000)}, "ack_by_missed critical to platform-ops about 2 of T1"},
		"an escalation that is read":          {[]said{opened(1), due(escalated(2, 1, "net", "gate"), 1000), escalated(3, 2, "alice", "orchestrator")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := bussed(t)
			defer r.close()
			r.say(c.said...)
			r.do(tick(epoch + 999))
			r.reopen()
			if got := r.owing(); got != "" {
				t.Errorf("%s before anything is due", got)
			}
			checkSound(t, r)
			r.do(tick(epoch + 2000))
			if got := r.owing(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			r.do(tick(epoch + 3000))
			if got := r.owing(); got != "" {
				t.Errorf("%s, once more", got)
			}
			if r.projector.Bus().Open != strings.Count(c.want, "missed") { // those of what the bus has said
				t.Errorf("%d deadlines are open", r.projector.Bus().Open)
			}
			checkSound(t, r)
		})
	}
}

// TestUndeliveredSliceIsDeadLettered: it alone, and the other slices go on.
func TestUndeliveredSliceIsDeadLettered(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.say(untilExecute()...)
	r.do(tick(epoch + 1000))
	if row := ticketRow(r, "T1"); row.Slices[0].State != ticket.SliceDeadLettered || row.Missed != "" {
		t.Errorf("the slice is %s, and %q was missed", row.Slices[0].State, row.Missed)
	}
	r.owing()
	r.do(tick(epoch + 2000))
	if row := ticketRow(r, "T1"); !strings.HasPrefix(row.Missed, "the complete_by of "+messageID(6)) {
		t.Errorf("%q was missed", row.Missed)
	}
	checkSound(t, r)
}

// TestMissedDeadlineIsEscalatedUpToAPage: one level at a time, and a page that nobody
// acknowledges is repeated.
func TestMissedDeadlineIsEscalatedUpToAPage(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.say(opened(1), due(escalated(2, 1, "net", "gate"), 1000))
	now := int64(epoch + 1000)
	for i, want := range []string{"ack_by_missed warning to orchestrator", "ack_by_missed warning to platform-ops", "ack_by_missed critical to platform-ops", "ack_by_missed critical to platform-ops"} {
		r.do(tick(now))
		if got := r.owing(); !strings.HasPrefix(got, want) || strings.Contains(got, ";") {
			t.Errorf("level %d: %q, want %q", i, got, want)
		}
		if now += 600_000; i >= 2 {
			now += (ticket.TTL().Milliseconds())
		}
	}
	checkSound(t, r)
}

// TestMissedDeadlineBlocksExecutesAtOnce: before anybody moves the ticket, and until
// the orchestrator does.
func TestMissedDeadlineBlocksExecutesAtOnce(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.say(append(untilPlan(1), fromOrchestrator(5, 4, ticket.TypeState, "intake"), due(escalated(6, 4, "net", "gate"), 1000))...)
	r.do(tick(epoch + 1000))
	if got := answerTo(r.do(fromOrchestrator(7, 4, ticket.TypeExecute, "network").proposal(t))); got != "deadline_missed" {
		t.Error(got)
	}
	ids, _ := r.obligations()
	moved := with(fromOrchestrator(8, 4, ticket.TypeState, "intake"), func(s *said) {
		s.Moved = &eventlog.Moved{From: ticket.StateApproved, To: ticket.StateEscalated, Causes: ids}
	})
	if got := answerTo(r.do(moved.proposal(t))); got != "correlation_invalid" { // it was not said yet
		t.Error(got)
	}
	r.owing()
	if got := answerTo(r.do(moved.proposal(t))); got != "accepted 8" {
		t.Error(got)
	}
	if row := ticketRow(r, "T1"); row.Missed != "" || row.State != ticket.StateEscalated {
		t.Errorf("the ticket is %s, and %q was missed", row.State, row.Missed)
	}
	checkSound(t, r)
}

// TestBusSaysWhatItOwesOnly: its key allows it nothing else, it says everything once,
// whatever the time, and it approves nothing.
func TestBusSaysWhatItOwesOnly(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.do(due(opened(1), 1000).proposal(t))
	r.do(tick(epoch + 1000))
	ids, rows := r.obligations()
	r.do(tick(epoch + 3_600_000)) // long outside the window of ts
	r.reopen()
	o := rows[ids[0]]
	change := func(how func(o *store.ObligationRow)) *eventlog.Proposal {
		other := o
		how(&other)
		return r.says(ids[0], other)
	}
	grant := r.says(ids[0], o)
	grant.Message.Type, grant.Message.To = ticket.TypeApprovalGrant, "orchestrator"
	signed := r.says(ids[0], o)
	signed.Message.Key = agentPublic("net")
	for i, step := range []struct {
		proposal *eventlog.Proposal
		want     string
	}{
		{r.says(messageID(7), o), "not_permitted"},
		{change(func(o *store.ObligationRow) { o.To = "gate" }), "not_permitted"},
		{change(func(o *store.ObligationRow) { o.Ticket = "T2" }), "not_permitted"},
		{change(func(o *store.ObligationRow) { o.Cause = ticket.None }), "not_permitted"},
		{change(func(o *store.ObligationRow) { o.Millis++ }), "not_permitted"},
		{grant, "not_permitted"},
		{signed, "signature_invalid"},
		{r.says(ids[0], o), "accepted 2"},
		{r.says(ids[0], o), "duplicate 2"},
	} {
		if got := answerTo(r.do(step.proposal)); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	checkSound(t, r)
}

// TestSilenceIsEscalatedOnce: three heartbeats late, and again only after the agent
// was heard.
func TestSilenceIsEscalatedOnce(t *testing.T) {
	r := bussed(t)
	defer r.close()
	id := 0
	heard := func(at int64) {
		id++
		if result := r.do(beat(id, "net", at, ">=1").proposal(t)); result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	for _, step := range []struct {
		at    int64
		heard bool
		want  string
	}{
		{0, true, ""}, {10_000, true, ""}, {30_000, false, ""}, {39_999, false, ""},
		{40_000, false, "heartbeats_missed warning to platform-ops about 2 of -"},
		{70_000, false, ""}, {71_000, true, ""}, {100_999, false, ""},
		{101_000, false, "heartbeats_missed warning to platform-ops about 3 of -"},
		{102_000, true, ""},
		{500_000, false, ""}, // the broker was away itself, or its machine was
		{529_999, false, ""},
		{530_000, false, "heartbeats_missed warning to platform-ops about 4 of -"},
		{531_000, true, ""},
		{1_200_000, false, ""}, // and what was said of a silence that is over is not said again
	} {
		r.do(tick(epoch + step.at))
		if got := r.owing(); got != step.want {
			t.Errorf("at %d: %q, want %q", step.at, got, step.want)
		}
		if step.heard {
			heard(step.at)
		}
		r.reopen()
		checkSound(t, r)
	}
}

// TestNeverHeardIsExpectedFromTheFirstExecute on: each agent of the domain, once, and not
// of who is sent nothing to carry out. It takes nothing from what they read.
func TestNeverHeardIsExpectedFromTheFirstExecute(t *testing.T) {
	r := bussed(t)
	defer r.close()
	other := addAgent(6, "net2", "net2")
	r.do(changeAgent(t, other, "admin"))
	steps := untilExecute()
	steps[5].Deadlines = nil // which are others'
	steps[5].Version = "1.0.0"
	r.say(steps[:5]...)
	r.do(tick(epoch + 60_000))
	if got := r.owing(); got != "" {
		t.Errorf("before the execute %q", got)
	}
	steps[5].at = 60_000
	r.say(steps[5])
	checkSound(t, r)
	r.do(beat(20, "net2", 61_000, ">=1").proposal(t))
	r.reopen()
	r.do(tick(epoch + 89_999))
	if got := r.owing(); got != "" {
		t.Errorf("too early: %q", got)
	}
	r.do(tick(epoch + 90_000))
	if got, want := r.owing(), "heartbeats_missed warning to platform-ops about 6 of -"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.do(tick(epoch + 91_000))
	if got, want := r.owing(), "heartbeats_missed warning to platform-ops about 20 of -"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	again := with(steps[5], func(s *said) { s.id, s.at = 21, 92_000 })
	r.do(again.proposal(t)) // whatever becomes of it
	r.do(tick(epoch + 200_000))
	if got := r.owing(); got != "" {
		t.Errorf("again: %q", got)
	}
	r.do(beat(22, "net", 201_000, ">=1").proposal(t))
	if n := r.projector.Bus().Silent; n != 1 {
		t.Errorf("%d agents are silent", n)
	}
	checkSound(t, r)
}

// TestVersionsThatAReceiverDoesNotReadAreEscalated: its latest heartbeat decides.
func TestVersionsThatAReceiverDoesNotReadAreEscalated(t *testing.T) {
	for _, c := range []struct {
		accepts, version string
		withheld         bool
	}{
		{">=1.0.0 <2.0.0", "1.0.0", false}, {">=1.2 <2", "1.1.0", true}, {">=1.2 <2", "1.9.0", false}, {"1.2", "1.9.0", false}, {">=1.0.0 <2.0.0", "2.0.0", true}, {"2", "1.0.0", true},
	} {
		r := bussed(t)
		r.do(beat(1, "net", 0, "9").proposal(t))
		r.do(beat(2, "net", 0, c.accepts).proposal(t))
		r.do(opened(3).proposal(t))
		r.reopen()
		r.do(with(fromOrchestrator(4, 3, ticket.TypePlanRequest, "network"), func(s *said) { s.Version = c.version }).proposal(t))
		want := ""
		if c.withheld {
			want = "version_unread warning to orchestrator about 4 of T1"
		}
		if got := r.owing(); got != want {
			t.Errorf("%s to %s: %q, want %q", c.version, c.accepts, got, want)
		}
		checkSound(t, r)
		r.close()
	}
}

// TestUnknownTypesAreEscalatedOnce for each ticket, agent and type.
func TestUnknownTypesAreEscalatedOnce(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	refused := func(id int, of, key string) {
		r.do(&eventlog.Proposal{Kind: eventlog.KindRefusal, RefusedCode: string(event.CodeMessageTypeUnknown), RefusedCount: 1, Message: &eventlog.Message{
			Key: agentPublic(key), Type: "ticket.close", Ticket: of, From: "net", To: "orchestrator", Trace: "trace", Cause: messageID(id),
		}})
	}
	refused(2, "T1", "net")
	refused(3, "T1", "net")
	refused(4, "T2", "net")
	refused(5, "T1", "other") // not what admission has verified
	if got, want := r.owing(), "type_unknown warning to orchestrator about 1 of T1; type_unknown warning to platform-ops about - of -"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	checkSound(t, r)
}

// TestEachMissedDeadlineIsSaidOnce: whatever meets deadlines, however the clock jumps,
// the broker dies and the bus repeats itself, each deadline is met or is missed, and
// each missed one gives exactly one message of the bus.
func TestEachMissedDeadlineIsSaidOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := bussed(t)
		defer r.close()
		now, id, messages := int64(0), 0, map[string]int{}
		var accepted []int
		missed := uint64(0)
		send := func(s said, of string) {
			s.Ticket, s.at = of, now
			if result := r.do(due(s, now+rapid.Int64Range(-1000, 5000).Draw(t, "due")).proposal(t)); result.Err == nil && result.Verdicts[0].Outcome == projector.Accepted {
				accepted = append(accepted, id)
			}
		}
		for range rapid.IntRange(3, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				id++
				send(opened(id), fmt.Sprint("T", id))
			case 1, 2:
				if len(accepted) > 0 {
					of := rapid.SampledFrom(accepted).Draw(t, "of")
					id++
					if rapid.Bool().Draw(t, "asked") {
						send(with(fromOrchestrator(id, of, ticket.TypePlanRequest, "network"), func(s *said) {
							s.Asked = &eventlog.Asked{Slice: fmt.Sprint("s", id), Revision: 1, DueMillis: epoch}
						}), ticketOf(r, of))
						continue
					}
					send(escalated(id, of, rapid.SampledFrom([]string{"net", "orch", "alice"}).Draw(t, "from"), rapid.SampledFrom([]string{"gate", "orchestrator", "platform-ops"}).Draw(t, "to")), ticketOf(r, of))
				}
			case 3:
				now += rapid.SampledFrom([]int64{1, 1000, 3000, 100_000_000}).Draw(t, "passes")
				r.do(tick(epoch + now))
			case 4:
				missed += r.projector.Bus().Missed
				r.reopen()
			case 5:
				ids, rows := r.obligations()
				for _, id := range ids {
					for range rapid.IntRange(0, 2).Draw(t, "times") {
						if result := r.do(r.says(id, rows[id])); result.Err != nil {
							t.Fatal(result.Err)
						} else if result.Verdicts[0].Outcome == projector.Accepted {
							messages[rows[id].Reason+rows[id].Cause]++
						}
					}
				}
			}
		}
		missed += r.projector.Bus().Missed
		ids, rows := r.obligations()
		for _, id := range ids {
			messages[rows[id].Reason+rows[id].Cause]++
		}
		for what, n := range messages {
			if n != 1 {
				t.Fatalf("%s was said %d times", what, n)
			}
		}
		if uint64(len(messages)) != missed {
			t.Fatalf("%d deadlines were missed and %d things said", missed, len(messages))
		}
		checkSound(t, r)
	})
}

func ticketOf(r *rig, id int) string {
	view := r.store.View(func() {})
	defer view.Close()
	var row store.MessageRow
	if ok, err := view.Message(store.MessageID, messageID(id), &row); !ok || err != nil {
		r.t.Fatal(ok, err)
	}
	return row.Ticket
}
