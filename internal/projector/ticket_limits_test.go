// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// TestRowOfATicketIsBounded: what each list of it is refused with once it is full,
// and how many it took.
func TestRowOfATicketIsBounded(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	id := 1
	say := func(s said) *event.Error {
		id++
		s.id, s.Payload = id, fmt.Sprint(id)
		return r.do(s.proposal(t)).Err
	}
	full := func(what string, want int, code event.Code, next func(n int) said) {
		t.Helper()
		n := 0
		refused := say(next(n))
		for ; refused == nil && n <= want; n++ {
			refused = say(next(n + 1))
		}
		if n != want || refused == nil || refused.Code != code {
			t.Errorf("%s: %d were taken, then %v", what, n, refused)
		}
	}
	full("requesters", 18, event.CodeTicketMoveIllegal, func(n int) said {
		s := taken(0, ticket.TypeOpen, "amend")
		s.Requester = fmt.Sprint("somebody", n)
		return s
	})
	full("slices", 100, event.CodePlanConflict, func(n int) said {
		s := taken(0, ticket.TypePlanRequest, "")
		s.Asked = &eventlog.Asked{Slice: fmt.Sprint("s", n), Revision: 1, DueMillis: epoch + hour}
		return s
	})
	stood(t, r, ticket.StateEscalated)
	request := func(n int) said {
		if n > 0 { // the one before is granted, or this one would take its place
			grant := taken(0, ticket.TypeApprovalGrant, "")
			grant.Approval = &eventlog.Approval{Request: messageID(id), Choice: "resume", ExpiresMillis: epoch + hour}
			if refused := say(grant); refused != nil {
				t.Fatal(refused)
			}
		}
		return taken(0, ticket.TypeApprovalRequest, "escalation")
	}
	full("requests", 20, event.CodeTicketMoveIllegal, request)
	// What nothing can come of makes room.
	r.do(tick(epoch + hour))
	late := request(0)
	late.at, late.Approval.ExpiresMillis = hour, epoch+2*hour
	if refused := say(late); refused != nil {
		t.Error(refused)
	}
	checkSound(t, r)
}

// TestMessageOfAnOlderAdmissionIsSentAgain: without what decides about the ticket it
// is not guessed at.
func TestMessageOfAnOlderAdmissionIsSentAgain(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	for i, kind := range []string{
		ticket.TypePlanRequest, ticket.TypeProposal, ticket.TypePlan, ticket.TypeApprovalRequest, ticket.TypeApprovalGrant, ticket.TypeApprovalDeny, ticket.TypeExecute, ticket.TypeState,
	} {
		p := taken(2+i, kind, "").proposal(t)
		m := p.Message
		m.Asked, m.Proposed, m.Planned, m.Approval, m.Executed, m.Moved = nil, nil, nil, nil, nil, nil
		if got := answerTo(r.do(p)); got != "policy_changed" {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

// TestTicketOfAnOlderLevelIsOpen: it was not judged, and is judged from now on.
func TestTicketOfAnOlderLevelIsOpen(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	stood(t, r, "")
	if got := answerTo(r.do(taken(2, ticket.TypeExecute, "apply").proposal(t))); got != "ticket_move_illegal" {
		t.Error(got)
	}
	s := taken(3, ticket.TypePlanRequest, "")
	s.Asked.Revision = 2
	if got := answerTo(r.do(s.proposal(t))); got != "accepted 2" || ticketRow(r, "T1").State != ticket.StatePlanning {
		t.Error(got, ticketRow(r, "T1"))
	}
}

// TestVerifyFindsBrokenTickets: a row that apply cannot have left.
func TestVerifyFindsBrokenTickets(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	sound := ticketRow(r, "T1")
	for name, breakIt := range map[string]func(*store.TicketRow){
		"a state that there is not":  func(row *store.TicketRow) { row.State = "DONE" },
		"escalated from nowhere":     func(row *store.TicketRow) { row.State = ticket.StateEscalated },
		"not escalated, and back to": func(row *store.TicketRow) { row.ResumeTo = ticket.StateOpen },
		"a slice in no state": func(row *store.TicketRow) {
			row.Slices = []store.SliceRow{{ID: "s1", State: "X", Request: messageID(1)}}
		},
		"a slice under way without a plan": func(row *store.TicketRow) {
			row.Slices = []store.SliceRow{{ID: "s1", State: ticket.SliceRunning, Request: messageID(1)}}
		},
		"a request for another plan": func(row *store.TicketRow) {
			row.Requests = []store.RequestRow{{ID: messageID(1), Kind: "plan", Hash: "x"}}
		},
		"a grant that is no message": func(row *store.TicketRow) {
			row.Requests = []store.RequestRow{{ID: messageID(1), Kind: "escalation", Grants: []store.GrantRow{{ID: messageID(9)}}}}
		},
		"moved by nothing":                    func(row *store.TicketRow) { row.Moved = messageID(9) },
		"a plan of a message that is nowhere": func(row *store.TicketRow) { row.Plan = &store.PlanRow{Message: messageID(9)} },
	} {
		row := sound
		breakIt(&row)
		value, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		b := r.store.NewBatch()
		b.SetMessage(store.MessageTicket, "T1", value)
		if err := r.store.Commit(b, func() {}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if found := inspect(t, r); len(found) == 0 || found[0].What != "ticket" {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// TestKeysAreOfOneSenderAndType: the same idempotency_key from somebody else, or on a
// message of another type, is another request; a repetition is answered although the
// ticket has moved on, and moves nothing.
func TestKeysAreOfOneSenderAndType(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	keyed := func(s said) said { s.Idempotency = "k"; return s }
	ask := keyed(taken(2, ticket.TypePlanRequest, ""))
	for i, step := range []struct {
		said said
		want string
	}{
		{keyed(opened(1)), "accepted 1"},
		{ask, "accepted 2"},
		{keyed(taken(3, ticket.TypeProposal, "")), "accepted 3"},
		{keyed(taken(4, ticket.TypePlan, "")), "accepted 4"},
		{with(ask, func(s *said) { s.id = 5 }), "duplicate 2 as " + messageID(2)},
		{with(ask, func(s *said) { s.id, s.To = 5, "compute" }), "idempotency_conflict"},
		{with(keyed(opened(6)), func(s *said) { s.Op, s.Payload = "amend", "another" }), "idempotency_conflict"},
		{with(taken(7, ticket.TypePlanRequest, ""), func(s *said) { s.Idempotency, s.Payload = "other", "7" }), "ticket_move_illegal"},
	} {
		if got := answerTo(r.do(step.said.proposal(t))); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if row := ticketRow(r, "T1"); row.State != ticket.StatePlanned || len(row.Slices) != 1 {
		t.Errorf("%+v", row)
	}
}
