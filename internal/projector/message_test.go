// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

const someVerbs = `{"version":"1.0.0","targets_max":10,"verbs":[]}`

func activate(text string) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpVerbs, Verbs: text}}
}

// said is a message as admission hands it on. Its id is a number, its event has
// nothing but what apply looks at.
type said struct {
	id      int
	content byte
	at      int64 // admission, ms after epoch
	eventlog.Message
}

func (s said) proposal(t fataler) *eventlog.Proposal {
	t.Helper()
	m := s.Message
	if m.Key == "" {
		m.Key = agentPublic(m.From)
	}
	if m.Verbs == "" {
		m.Verbs = "1.0.0"
	}
	if m.Trace == "" {
		m.Trace = "trace"
	}
	if m.Nonce == "" {
		m.Nonce = fmt.Sprint("n", s.id)
	}
	if m.Idempotency == "" {
		m.Idempotency = fmt.Sprint("k", s.id)
	}
	if m.Cause == "" {
		m.Cause = ticket.None
	}
	m.SentMillis += epoch + s.at
	fillNotes(&m)
	kind, _ := ticket.TypeOf(m.Type)
	ev, err := event.Draft{ID: messageID(s.id), Source: m.From, Type: ticket.EventType + m.Type, Data: []byte{'0' + s.content%10}}.Event()
	if err != nil {
		t.Fatal(err)
	}
	return &eventlog.Proposal{
		Kind: eventlog.KindEvents, AdmittedMillis: epoch + s.at, Principal: m.From, Topic: "bus.main." + kind.Family + "." + m.To,
		Entries: []eventlog.Entry{entry(ev)}, Message: &m,
	}
}

func messageID(n int) string { return fmt.Sprintf("msg_%026d", n) }

func opened(id int) said {
	return said{id: id, Message: eventlog.Message{Type: ticket.TypeOpen, Op: "open", Ticket: "T1", From: "desk", To: "orchestrator", Payload: "p"}}
}

func fromOrchestrator(id, cause int, kind, to string) said {
	return said{id: id, Message: eventlog.Message{Type: kind, Ticket: "T1", From: "orch", To: to, Cause: messageID(cause), Payload: "p"}}
}

func resulted(id, execute int) said {
	return said{id: id, Message: eventlog.Message{Type: ticket.TypeResult, Ticket: "T1", From: "net", To: "orchestrator", Cause: messageID(execute), Execute: messageID(execute), Payload: "p"}}
}

// staffed is the log of a space that has agents.
func staffed(t fataler) []*eventlog.Proposal {
	log := []*eventlog.Proposal{found("main", "admin"), activate(someVerbs)}
	for i, c := range []ticket.Change{
		addAgent(1, "net", "net"), addAgent(2, "dns", "dns"), addAgent(3, "desk", "desk"), addAgent(4, "orch", "orch"), addAgent(5, "alice", "alice"),
	} {
		switch {
		case i == 1:
			c.Domains = []string{"dns"}
		case i > 1:
			c.Roles, c.Domains = []string{[]string{ticket.RoleIntake, ticket.RoleOrchestrator, ticket.RoleGate}[i-2]}, nil
		}
		log = append(log, changeAgent(t, c, "admin"))
	}
	return log
}

func staffedRig(t fataler) *rig {
	r := newRig(t, defaultSettings())
	for _, p := range staffed(t) {
		if result := r.do(p); result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	return r
}

func with(s said, how func(*said)) said {
	how(&s)
	return s
}

// TestMessagesInTheOrderOfTheProtocol: what each check refuses, and that those
// before it come first.
func TestMessagesInTheOrderOfTheProtocol(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	for i, step := range []struct {
		said said
		want string // the outcome, or a code
	}{
		{fromOrchestrator(1, 9, ticket.TypePlanRequest, "network"), "ticket_unknown"},
		{with(opened(1), func(s *said) { s.Cause = messageID(9) }), "correlation_invalid"},
		{with(opened(1), func(s *said) { s.Verbs = "0.9.0" }), "policy_changed"},
		{with(opened(1), func(s *said) { s.SentMillis = 120_001 }), "message_stale"},
		{with(opened(1), func(s *said) { s.SentMillis = -120_001 }), "message_stale"},
		{with(opened(1), func(s *said) { s.SentMillis = -120_000 }), "accepted 1"},
		{opened(1), "duplicate 1"},
		{with(opened(1), func(s *said) { s.at, s.SentMillis = 999_999, -999_999 }), "duplicate 1"}, // however late
		{with(opened(1), func(s *said) { s.content = 1 }), "id_reused"},
		{with(opened(2), func(s *said) { s.Nonce, s.SentMillis = "n1", 999_999 }), "message_stale"},
		{with(opened(2), func(s *said) { s.Nonce = "n1"; s.Idempotency = "k1" }), "nonce_reused"},
		{with(opened(2), func(s *said) { s.Idempotency = "k1" }), "duplicate 1 as " + messageID(1)},
		{with(opened(2), func(s *said) { s.Idempotency, s.Payload = "k1", "q" }), "idempotency_conflict"},
		{with(opened(2), func(s *said) { s.Idempotency, s.Ticket = "k1", "T2" }), "idempotency_conflict"}, // or nobody would work on T2
		{opened(2), "ticket_exists"},
		{with(opened(2), func(s *said) { s.Op = "amend"; s.Trace = "other" }), "correlation_invalid"},
		{with(opened(2), func(s *said) { s.Op = "amend" }), "accepted 2"},
		{with(fromOrchestrator(3, 1, ticket.TypePlanRequest, "network"), func(s *said) { s.From = "net" }), "not_permitted"},
		{with(fromOrchestrator(3, 1, ticket.TypeApprovalGrant, "orchestrator"), func(s *said) { s.From = "net" }), "not_permitted"},
		{with(resulted(3, 1), func(s *said) { s.From, s.Type, s.To = "net", ticket.TypeProposal, "dns" }), "not_permitted"},
		{with(fromOrchestrator(3, 1, ticket.TypePlanRequest, "network"), func(s *said) { s.Cause = ticket.None }), "correlation_invalid"},
		{fromOrchestrator(3, 8, ticket.TypePlanRequest, "network"), "correlation_invalid"},
		{fromOrchestrator(3, 1, ticket.TypePlanRequest, "network"), "accepted 3"},
		{resulted(4, 3), "correlation_invalid"}, // of what is no execute
		{fromOrchestrator(4, 3, ticket.TypeExecute, "network"), "ticket_move_illegal"},
		{said{id: 20, Message: eventlog.Message{Type: ticket.TypeProposal, Ticket: "T1", From: "net", To: "network", Cause: messageID(3), Payload: "p"}}, "accepted 4"},
		{fromOrchestrator(21, 20, ticket.TypePlan, "network"), "accepted 5"},
		{fromOrchestrator(22, 21, ticket.TypeState, "intake"), "accepted 6"},
		{fromOrchestrator(4, 3, ticket.TypeExecute, "network"), "accepted 7"},
		{with(fromOrchestrator(5, 3, ticket.TypeExecute, "network"), func(s *said) { s.Idempotency = "k4" }), "duplicate 7 as " + messageID(4)},
		{said{id: 6, Message: eventlog.Message{Type: ticket.TypeHeartbeat, Ticket: ticket.None, From: "dns", To: "platform-ops", Payload: "p",
			Inflight: []eventlog.Inflight{{Execute: messageID(4), Progress: []byte(`{"progress":1}`)}}}}, "accepted 8"}, // of another domain: no progress
		{with(fromOrchestrator(5, 3, ticket.TypeExecute, "network"), func(s *said) { s.Idempotency = "k4" }), "duplicate 7 as " + messageID(4)},
		{said{id: 7, Message: eventlog.Message{Type: ticket.TypeHeartbeat, Ticket: ticket.None, From: "net", To: "platform-ops", Payload: "p",
			Inflight: []eventlog.Inflight{{Execute: messageID(4), Progress: []byte(`{"progress":0.5}`)}, {Execute: messageID(99)}}}}, "accepted 9"},
		{with(fromOrchestrator(5, 3, ticket.TypeExecute, "network"), func(s *said) { s.Idempotency = "k4" }), "duplicate 7 as " + messageID(4) + ` {"progress":0.5}`},
		{with(resulted(8, 4), func(s *said) { s.From = "dns" }), "correlation_invalid"}, // another domain's
		{resulted(8, 4), "accepted 10"},
		{resulted(9, 4), "already_answered"},
		{with(fromOrchestrator(5, 3, ticket.TypeExecute, "network"), func(s *said) { s.Idempotency = "k4" }), "duplicate 7 as " + messageID(4) + " " + messageID(8)},
		{with(opened(10), func(s *said) { s.Ticket, s.Key = "T2", agentPublic("net") }), "signature_invalid"},
		{with(opened(10), func(s *said) { s.Ticket, s.From = "T2", "nobody" }), "signature_invalid"},
		{with(opened(10), func(s *said) { s.Ticket = "T2" }), "accepted 11"},
		{with(fromOrchestrator(11, 3, ticket.TypePlanRequest, "network"), func(s *said) { s.Ticket = "T2" }), "correlation_invalid"}, // it is T1's
	} {
		leaves := r.projector.Space().Leaves
		if got := answerTo(r.do(step.said.proposal(t))); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if r.projector.Space().Leaves != leaves+1 {
			t.Errorf("step %d left no leaf in the audit chain", i)
		}
		if i%5 == 0 {
			r.reopen()
		}
	}
	checkSound(t, r)
}

func answerTo(result projector.Result) string {
	if result.Err != nil {
		return string(result.Err.Code)
	}
	v := result.Verdicts[0]
	text := fmt.Sprintf("%s %d", map[uint8]string{projector.Accepted: "accepted", projector.Duplicate: "duplicate"}[v.Outcome], v.Position)
	if a := result.Answered; a != nil {
		text += " as " + a.ID
		if a.Result != "" || a.Progress != nil {
			text += " " + a.Result + string(a.Progress)
		}
	}
	return text
}

// TestKeysRotateAtAPositionOfTheLog: what was admitted under a key that is revoked
// before it is applied is refused.
func TestKeysRotateAtAPositionOfTheLog(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	late := opened(1).proposal(t)
	r.do(changeAgent(t, ticket.Change{Revision: 6, Op: ticket.ChangeRotate, Agent: "desk", Key: agentPublic("desk2")}, "admin"))
	if got := answerTo(r.do(late)); got != "signature_invalid" {
		t.Error(got)
	}
	if got := answerTo(r.do(with(opened(1), func(s *said) { s.Key = agentPublic("desk2") }).proposal(t))); got != "accepted 1" {
		t.Error(got)
	}
}

// TestMessagesOutliveTheirExpiry: an expiry ends the delivery, and nothing else.
func TestMessagesOutliveTheirExpiry(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	p := opened(1).proposal(t)
	p.Entries[0].ExpiryMillis = epoch + 1000
	r.do(p)
	leaves := r.projector.Space().Leaves
	r.do(tick(epoch + (365 * 24 * time.Hour).Milliseconds()))
	if n := r.projector.Space().Leaves; n != leaves+1 {
		t.Errorf("the expiry has left %d entries in the audit trail", n-leaves)
	}
	info, _ := r.topic("bus.main.ticket.orchestrator")
	if stored, err := r.store.Event(info.Number, 1, func(store.EventRow) error { return nil }); !stored || err != nil || info.Policy.Retention != nil {
		t.Errorf("stored %v, %v; retention %v", stored, err, info.Policy.Retention)
	}
	checkSound(t, r)
}

// drawMessages draws a log of messages of few agents, tickets, ids, nonces and keys,
// so that each meets what others left.
func drawMessages(t *rapid.T) []*eventlog.Proposal {
	log := append([]*eventlog.Proposal{configure(defaultSettings()), tick(epoch)}, staffed(t)...)
	kinds := []string{ticket.TypeOpen, ticket.TypeOpen, ticket.TypePlanRequest, ticket.TypeExecute, ticket.TypeExecute, ticket.TypeResult, ticket.TypeResult, ticket.TypeHeartbeat, ticket.TypeEscalation}
	small := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
	revision := int64(5)
	for n := range rapid.IntRange(5, 50).Draw(t, "messages") {
		if rapid.IntRange(0, 15).Draw(t, "revoke") == 0 {
			revision++
			log = append(log, changeAgent(t, ticket.Change{Revision: revision, Op: ticket.ChangeRotate, Agent: "net", Key: agentPublic(fmt.Sprint("net", revision))}, "admin"))
			continue
		}
		s := said{id: max(1, n+1-rapid.SampledFrom([]int{0, 0, 0, 0, 1, 3}).Draw(t, "again")), content: byte(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "content"))}
		s.at = int64(n) * 1000
		m := &s.Message
		m.Type = rapid.SampledFrom(kinds).Draw(t, "type")
		m.Ticket, m.Payload = fmt.Sprint("T", small("ticket", 2)), rapid.SampledFrom([]string{"p", "p", "p", "q"}).Draw(t, "payload")
		m.Op, m.Trace = "open", rapid.SampledFrom([]string{"trace", "trace", "trace", "other"}).Draw(t, "trace")
		m.From = map[string]string{ticket.TypeOpen: "desk", ticket.TypePlanRequest: "orch", ticket.TypeExecute: "orch"}[m.Type]
		if m.From == "" || rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
			m.From = rapid.SampledFrom([]string{"net", "net", "dns", "orch"}).Draw(t, "from")
		}
		if m.From == "net" && revision > 5 && rapid.Bool().Draw(t, "new key") {
			m.Key = agentPublic(fmt.Sprint("net", revision))
		}
		m.To = map[string]string{ticket.TypePlanRequest: "network", ticket.TypeExecute: "network", ticket.TypeHeartbeat: "platform-ops"}[m.Type]
		if m.To == "" {
			m.To = "orchestrator"
		}
		if m.Type != ticket.TypeOpen {
			m.Cause = messageID(small("cause", n+1))
			m.Execute = m.Cause
			m.Inflight = []eventlog.Inflight{{Execute: m.Cause, Progress: []byte(fmt.Sprint(n))}}
		}
		if m.Type == ticket.TypeHeartbeat {
			m.Ticket = ticket.None
		}
		if rapid.IntRange(0, 3).Draw(t, "repeated") == 0 {
			m.Idempotency = fmt.Sprint("k", small("key", 5))
		}
		if rapid.IntRange(0, 7).Draw(t, "replayed") == 0 {
			m.Nonce = fmt.Sprint("n", small("nonce", n+1))
		}
		log = append(log, s.proposal(t))
	}
	for i, p := range log {
		p.Sequence = uint64(i) + 1
	}
	return log
}

// TestGroupingOfMessages is TestGrouping for ticket messages.
func TestGroupingOfMessages(t *testing.T) { checkGrouping(t, drawMessages) }

// TestMessagesHaveNoSecondEffect: in whatever order messages, repetitions and
// replays come, no id, no nonce of an agent and no idempotency key of an agent and
// a type is accepted twice, no execute has two results, and no message is accepted
// of which the ticket does not have the cause.
func TestMessagesHaveNoSecondEffect(t *testing.T) {
	for name, draw := range map[string]func(*rapid.T) []*eventlog.Proposal{"any": drawMessages, "of tickets that go on": drawTickets} {
		t.Run(name, func(t *testing.T) { checkNoSecondEffect(t, draw) })
	}
}

func checkNoSecondEffect(t *testing.T, draw func(*rapid.T) []*eventlog.Proposal) {
	rapid.Check(t, func(t *rapid.T) {
		r := emptyRig(t)
		defer r.close()
		seen, tickets := map[string]bool{}, map[string]string{}
		for _, p := range draw(t) {
			result := r.apply([]*eventlog.Proposal{p})[0]
			m := p.Message
			if m == nil || result.Err != nil || result.Verdicts[0].Outcome != projector.Accepted {
				continue
			}
			once := []string{"id " + p.Entries[0].ID, "nonce " + m.From + m.Nonce, "key " + strings.Join([]string{m.From, m.Type, m.Idempotency}, " ")}
			if m.Type == ticket.TypeResult {
				once = append(once, "result of "+m.Execute)
			}
			for _, what := range once {
				if seen[what] {
					t.Fatalf("%s was accepted twice", what)
				}
				seen[what] = true
			}
			if m.Cause != ticket.None && m.Ticket != ticket.None && tickets[m.Cause] != m.Ticket {
				t.Fatalf("%s of %s answers %s of %s", p.Entries[0].ID, m.Ticket, m.Cause, tickets[m.Cause])
			}
			tickets[p.Entries[0].ID] = m.Ticket
		}
		checkSound(t, r)
	})
}

func TestVerifyFindsBrokenMessages(t *testing.T) {
	for name, row := range map[string]struct {
		kind       store.MessageKind
		key, value string
	}{
		"a nonce of nothing":            {store.MessageNonce, "a\x00b", `"msg_none"`},
		"a key of nothing":              {store.MessageIdempotency, "a\x00b\x00c", `{"payload":"p","id":"msg_none"}`},
		"a ticket of nothing":           {store.MessageTicket, "T9", `{"trace":"t","open":"msg_none"}`},
		"an execution of nothing":       {store.MessageExecution, "msg_none", `{}`},
		"a message without event":       {store.MessageID, "msg_x", `{"topic":"bus.main.ticket.orchestrator","position":"99"}`},
		"a message without topic":       {store.MessageID, "msg_x", `{"topic":"bus.main.none","position":"1"}`},
		"a row that is no JSON":         {store.MessageTicket, "T9", `{`},
		"a ticket's message of nothing": {store.MessageOfTicket, store.OfTicketKey("T1", 9), `{"id":"msg_none"}`},
		"a ticket's message elsewhere":  {store.MessageOfTicket, store.OfTicketKey("T1", 9), `{"id":"` + messageID(1) + `","type":"ticket.open","topic":"bus.main.ticket.orchestrator"}`},
		"a position that is none":       {store.MessageOfTicket, "T1\x009", `{}`},
	} {
		r := staffedRig(t)
		r.do(opened(1).proposal(t))
		checkSound(t, r)
		b := r.store.NewBatch()
		b.SetMessage(row.kind, row.key, []byte(row.value))
		if err := r.store.Commit(b, func() {}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if !slices.ContainsFunc(inspect(t, r), func(f projector.Finding) bool {
			return f.What == "message" || f.What == "ticket" || f.What == "undecodable"
		}) {
			t.Errorf("%s: nothing was found", name)
		}
		r.close()
	}
}
