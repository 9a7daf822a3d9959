// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"bytes"
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// messageWindowMillis is how far the ts of a message may be from its admission.
// What was recorded is refused for its age alone after that.
const messageWindowMillis = 2 * 60 * 1000

// TicketTopic reports whether a topic takes ticket messages, and nothing else.
func TicketTopic(topic string) bool { return strings.HasPrefix(topic, ticket.TopicRoot+".") }

var ticketTopics = TicketTopics()

// TicketTopics matches them all. It panics if the pattern is none, which is a constant.
func TicketTopics() event.Pattern {
	patterns, err := event.ParsePatterns(ticket.TopicRoot + ".>")
	if err != nil {
		panic(err)
	}
	return patterns[0]
}

// messagePolicy is that of a topic of messages when its first one comes.
func messagePolicy() event.Policy {
	policy := event.DefaultPolicy()
	policy.Retention = nil
	return policy
}

// Answered is what a repetition is told of the message that it repeats.
type Answered struct {
	ID       string // of the first one
	Result   string // id of the result, if it is an execute and has one
	Progress []byte // else JSON, what the latest heartbeat says of it
}

// message applies a ticket message. The order of the checks is a part of the
// protocol: the key, the id, the age, the nonce, the idempotency key, whether the message
// belongs where it says, and whether its ticket's rules let it be.
func (p *Projector) message(proposal *eventlog.Proposal) (Result, error) {
	answer, refused, err := p.repeated(proposal)
	var t store.TicketRow
	if err == nil && answer == nil && refused == nil {
		refused, err = p.belongs(proposal, &t)
	}
	var j *judged
	if err == nil && answer == nil && refused == nil {
		j, refused, err = p.judge(proposal, &t)
	}
	var verdict store.Verdict
	if err == nil && answer == nil && refused == nil {
		verdict, refused, err = p.event(proposal, 0)
	}
	switch {
	case err != nil:
		return Result{}, err
	case refused != nil:
		p.refusalEntry(proposal, proposal.Topic, string(refused.Code))
		return Result{Err: refused}, nil
	case answer != nil:
		e := &proposal.Entries[0]
		first := answer.Verdicts[0]
		p.chain(audit.Entry{Kind: audit.KindEvent, Position: first.Position, HLC: first.HLC, Flags: Duplicate, Topic: proposal.Topic, Digest: e.Body})
		p.concern(audit.KindEvent, proposal.Message.Ticket)
		return *answer, nil
	}
	p.concern(audit.KindEvent, proposal.Message.Ticket)
	j.write()
	return Result{Verdicts: []store.Verdict{verdict}}, p.keepMessage(proposal, j, verdict)
}

// repeated settles whether a message is one that was here before. With an answer it
// is, and has no effect.
func (p *Projector) repeated(proposal *eventlog.Proposal) (*Result, *event.Error, error) {
	m, e := proposal.Message, &proposal.Entries[0]
	agent := p.registry.agents[m.From]
	if agent == nil || agent.InUse() == nil || agent.InUse().Key != m.Key {
		return nil, event.Errorf(event.CodeSignatureInvalid, "The key of %q is no longer the one that the message was signed with.", m.From).With("sig"), nil
	}
	var seen store.MessageRow
	if ok, err := p.messageRow(store.MessageID, e.ID, &seen); err != nil || ok {
		if err == nil && seen.Content != e.Content {
			return nil, event.Errorf(event.CodeIDReused, "Another message has the id %s. Give every message an id of its own.", e.ID).With("id"), nil
		}
		return &Result{Verdicts: []store.Verdict{duplicateOf(&seen)}}, nil, err
	}
	if m.From == ticket.RoleBus {
		return nil, nil, nil // its message is of when it came to be owed, and everything else in it follows from that
	}
	if drift := m.SentMillis - proposal.AdmittedMillis; drift > messageWindowMillis || drift < -messageWindowMillis {
		return nil, event.Errorf(event.CodeMessageStale, "The ts is %s off the broker's clock, and %s are allowed.", millis(max(drift, -drift)), millis(messageWindowMillis)).
			With("ts").Fact("drift_ms", drift), nil
	}
	var other string
	if ok, err := p.messageRow(store.MessageNonce, joined(m.From, m.Nonce), &other); err != nil || ok {
		return nil, event.Errorf(event.CodeNonceReused, "The nonce was used for the message %s. Draw one for each message.", other).With("nonce"), err
	}
	var first store.IdempotencyRow
	ok, err := p.messageRow(store.MessageIdempotency, joined(m.From, m.Type, m.Idempotency), &first)
	if err != nil || !ok {
		return nil, nil, err
	}
	if first.Payload != m.Payload {
		return nil, anotherRequest(first.ID, "another payload"), nil
	}
	if _, err := p.messageRow(store.MessageID, first.ID, &seen); err != nil {
		return nil, nil, err
	}
	if seen.Ticket != m.Ticket || seen.To != m.To { // its answer would be taken for that of this one
		return nil, anotherRequest(first.ID, "is of another ticket, or to another receiver"), nil
	}
	answer, err := p.answerOf(first.ID, m.Type)
	return answer, nil, err
}

// anotherRequest refuses a message whose key is that of another request.
func anotherRequest(first, what string) *event.Error {
	return event.Errorf(event.CodeIdempotencyConflict, "The message %s has this idempotency_key and %s. Use a fresh key for another request.", first, what).
		With("idempotency_key").Fact("first", first)
}

func duplicateOf(row *store.MessageRow) store.Verdict {
	return store.Verdict{Outcome: Duplicate, Position: row.Position, HLC: event.HLC(row.HLC)}
}

// answerOf is what the repetition of a message is answered with.
func (p *Projector) answerOf(id, kind string) (*Result, error) {
	var row store.MessageRow
	if _, err := p.messageRow(store.MessageID, id, &row); err != nil {
		return nil, err
	}
	answer := &Result{Verdicts: []store.Verdict{duplicateOf(&row)}, Answered: &Answered{ID: id}}
	if kind != ticket.TypeExecute {
		return answer, nil
	}
	var x store.ExecutionRow
	_, err := p.messageRow(store.MessageExecution, id, &x)
	answer.Answered.Result, answer.Answered.Progress = x.Result, x.Progress
	return answer, err
}

// belongs checks that the sender may say this, and that the message belongs to its
// ticket, whose row it reads into t.
func (p *Projector) belongs(proposal *eventlog.Proposal, t *store.TicketRow) (*event.Error, error) {
	m := proposal.Message
	agent := p.registry.agents[m.From]
	kind, ok := ticket.TypeOf(m.Type)
	if !ok || !kind.MaySend(agent.Roles, agent.Domains, m.To) {
		return event.Errorf(event.CodeNotPermitted, "The agent %q (%s) may not send %s to %q. What it may do is shown by signalbox agent explain.", m.From, strings.Join(agent.Roles, ", "), m.Type, m.To).With("type"), nil
	}
	if m.Verbs != p.registry.Verbs.Version {
		return event.Errorf(event.CodePolicyChanged, "The catalogue of verbs changed while the message was on its way. Send it again."), nil
	}
	if m.From == ticket.RoleBus {
		return p.owed(m, proposal.Entries[0].ID)
	}
	if m.Beat != nil || m.Type == ticket.TypeHeartbeat {
		return nil, nil
	}
	known, err := p.messageRow(store.MessageTicket, m.Ticket, t)
	if err != nil {
		return nil, err
	}
	opens := m.Type == ticket.TypeOpen && m.Op == "open"
	switch {
	case opens && known:
		return event.Errorf(event.CodeTicketExists, "The ticket %q was opened by the message %s. Use op amend, or another ticket_id.", m.Ticket, t.Open).With("ticket_id"), nil
	case opens && m.Cause != ticket.None:
		return notCorrelated("causation_id", "A ticket is opened by a message that answers none."), nil
	case opens:
		return nil, nil
	case !known:
		return event.Errorf(event.CodeTicketUnknown, "There is no ticket %q.", m.Ticket).With("ticket_id"), nil
	case t.Trace != m.Trace:
		return notCorrelated("trace_id", "The ticket has the trace_id %q, which every message of it has.", t.Trace), nil
	}
	return p.answers(m)
}

// answers checks what a message says that it answers.
func (p *Projector) answers(m *eventlog.Message) (*event.Error, error) {
	if m.Cause == ticket.None {
		if m.Type != ticket.TypeOpen && m.Type != ticket.TypeEscalation {
			return notCorrelated("causation_id", "A message of type %s answers another one.", m.Type), nil
		}
	} else if _, refused, err := p.cited(m, "causation_id", m.Cause); refused != nil || err != nil {
		return refused, err
	}
	if m.Type != ticket.TypeResult {
		return nil, nil
	}
	executed, refused, err := p.cited(m, "payload/execute_id", m.Execute)
	if refused != nil || err != nil {
		return refused, err
	}
	if executed.Type != ticket.TypeExecute || !slices.Contains(p.registry.agents[m.From].Domains, executed.To) {
		return notCorrelated("payload/execute_id", "The message %s is no execute for a domain of %q.", m.Execute, m.From), nil
	}
	var x store.ExecutionRow
	if _, err := p.messageRow(store.MessageExecution, m.Execute, &x); err != nil {
		return nil, err
	}
	if x.Result != "" {
		return event.Errorf(event.CodeAlreadyAnswered, "The execute %s has the result %s, and what was reported does not change.", m.Execute, x.Result).With("payload/execute_id"), nil
	}
	return nil, nil
}

// cited finds a message of the same ticket.
func (p *Projector) cited(m *eventlog.Message, field, id string) (row store.MessageRow, refused *event.Error, err error) {
	ok, err := p.messageRow(store.MessageID, id, &row)
	if err == nil && (!ok || row.Ticket != m.Ticket) {
		refused = notCorrelated(field, "The ticket %q has no message %s.", m.Ticket, id)
	}
	return row, refused, err
}

func notCorrelated(field, format string, args ...any) *event.Error {
	return event.Errorf(event.CodeCorrelationInvalid, format, args...).With(field)
}

// keepMessage stores what later messages are checked against.
func (p *Projector) keepMessage(proposal *eventlog.Proposal, j *judged, v store.Verdict) error {
	m, e := proposal.Message, &proposal.Entries[0]
	row := store.MessageRow{
		Content: e.Content, Type: m.Type, Ticket: m.Ticket, From: m.From, To: m.To, Topic: proposal.Topic, Position: v.Position, HLC: uint64(v.HLC),
	}
	p.setMessageRow(store.MessageID, e.ID, row)
	p.keepOfTicket(e.ID, &row)
	p.placeMessage(m.Ticket, v.Position)
	if m.Type == ticket.TypeOpen {
		p.setMessageRow(store.MessageTrace, joined(m.Trace, m.Ticket), e.ID)
	}
	if err := p.keepDue(proposal, j, v); err != nil {
		return err
	}
	p.setMessageRow(store.MessageNonce, joined(m.From, m.Nonce), e.ID)
	p.setMessageRow(store.MessageIdempotency, joined(m.From, m.Type, m.Idempotency), store.IdempotencyRow{Payload: m.Payload, ID: e.ID})
	if m.Type == ticket.TypeHeartbeat {
		return p.progress(m)
	}
	return nil
}

// progress notes what a heartbeat says of what its agent executes. What it says of
// anything else, or of what has a result, is passed over.
func (p *Projector) progress(m *eventlog.Message) error {
	for _, inflight := range m.Inflight {
		var executed store.MessageRow
		ok, err := p.messageRow(store.MessageID, inflight.Execute, &executed)
		if err != nil {
			return err
		}
		if !ok || executed.Type != ticket.TypeExecute || !slices.Contains(p.registry.agents[m.From].Domains, executed.To) {
			continue
		}
		var x store.ExecutionRow
		if _, err := p.messageRow(store.MessageExecution, inflight.Execute, &x); err != nil {
			return err
		}
		if x.Result == "" {
			x.Progress = inflight.Progress
			p.setMessageRow(store.MessageExecution, inflight.Execute, x)
		}
	}
	return nil
}

// lookAhead looks up what the messages of a group will be checked against. In the order
// of their keys most look-ups are for neighbours of the last one, and those cost next to
// nothing: ids, keys and tickets that are new follow all others.
func (p *Projector) lookAhead(group []*eventlog.Proposal) error {
	if len(p.ahead) > overlayKept {
		p.ahead = map[string][]byte{}
	}
	clear(p.ahead)
	p.places = p.places[:0]
	for _, proposal := range group {
		if m := proposal.Message; m != nil && proposal.Kind == eventlog.KindEvents {
			p.places = append(p.places, string(store.MessageID)+proposal.Entries[0].ID, string(store.MessageNonce)+joined(m.From, m.Nonce),
				string(store.MessageIdempotency)+joined(m.From, m.Type, m.Idempotency), string(store.MessageTicket)+m.Ticket)
		}
	}
	slices.Sort(p.places)
	for _, place := range p.places {
		if _, done := p.ahead[place]; done {
			continue
		}
		value, err := p.lookup.Message(store.MessageKind(place[0]), place[1:])
		if err != nil {
			return err
		}
		p.ahead[place] = bytes.Clone(value) // nil stays nil: there is none
	}
	return nil
}

// joined makes one key of several texts, none of which has a zero byte in it.
func joined(parts ...string) string { return strings.Join(parts, "\x00") }

// messageRow reads a row about messages as the group so far has left it.
func (p *Projector) messageRow(kind store.MessageKind, key string, into any) (bool, error) {
	place := string(kind) + key
	value, ok := p.overlay.messages.get(place)
	if ok && value == nil {
		return false, nil // it was dropped
	}
	if !ok {
		if value, ok = p.ahead[place]; ok && value == nil {
			return false, nil
		}
	}
	if !ok {
		var err error
		if value, err = p.lookup.Message(kind, key); err != nil || value == nil {
			return false, err
		}
	}
	return true, store.DecodeMessage(kind, value, into)
}

func (p *Projector) setMessageRow(kind store.MessageKind, key string, row any) {
	value := encoded(row)
	p.batch.SetMessage(kind, key, value)
	p.overlay.messages.put(string(kind)+key, value)
}
