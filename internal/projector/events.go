// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"encoding/binary"
	"strconv"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// events applies an event or an atomic batch: all of it, or none.
func (p *Projector) events(proposal *eventlog.Proposal) (Result, error) {
	if proposal.Idempotency.Set {
		result, found, err := p.answered(proposal)
		if err != nil || found {
			return result, err
		}
	}
	undo := p.begin(proposal)
	result := Result{Verdicts: make([]store.Verdict, 0, len(proposal.Entries))}
	for i := range proposal.Entries {
		verdict, refused, err := p.event(proposal, i)
		if err != nil {
			return Result{}, err
		}
		if refused != nil {
			p.rollback(undo)
			if proposal.Batch && !refused.Code.Class().Retryable { // else the whole batch is to come again, as it is
				refused = Aborted(i, refused)
			}
			p.refusalEntry(proposal, proposal.Topic, string(refused.Code))
			return Result{Err: refused}, nil
		}
		result.Verdicts = append(result.Verdicts, verdict)
	}
	if proposal.Idempotency.Set {
		row := store.AnsweredRow{LogMillis: p.space.LogMillis, Request: proposal.Idempotency.Request, Verdicts: result.Verdicts}
		scope := p.scope(proposal)
		p.batch.SetAnswered(p.space.Generation, scope, &row)
		p.overlay.answered.put(scope, row)
	}
	return result, nil
}

// Aborted is the refusal of a batch because of one of its events.
func Aborted(index int, cause *event.Error) *event.Error {
	e := event.Errorf(event.CodeBatchAborted, "Nothing of the batch was stored, because of the event at index %d: %w", index, cause)
	e = e.With(cause.Field).Fact("index", index).Fact("cause", string(cause.Code))
	for name, value := range cause.Facts {
		e = e.Fact(name, value)
	}
	return e
}

// answered looks an idempotent request up.
func (p *Projector) answered(proposal *eventlog.Proposal) (Result, bool, error) {
	scope := p.scope(proposal)
	row, ok := p.overlay.answered.get(scope)
	for back := uint32(0); !ok && back <= min(1, p.space.Generation); back++ {
		var err error
		row, ok, err = p.lookup.Answered(p.space.Generation-back, scope)
		if err != nil {
			return Result{}, false, err
		}
	}
	if !ok || p.space.LogMillis-row.LogMillis >= p.settings.DedupMillis {
		return Result{}, false, nil
	}
	if row.Request != proposal.Idempotency.Request {
		err := event.Errorf(event.CodeIdempotencyKeyReused, "This Idempotency-Key was used for other events in the last %s. Use a fresh key for a different request.", millis(p.settings.DedupMillis)).With("Idempotency-Key")
		p.refusalEntry(proposal, proposal.Topic, string(err.Code))
		return Result{Err: err}, true, nil
	}
	return Result{Verdicts: row.Verdicts, Replayed: true}, true, nil
}

// scope is that of an idempotency key with the topic's number in it: deleting a
// topic forgets what was answered, or a repetition would be told of events that
// are not there. A topic that has never been has answered nothing.
func (p *Projector) scope(proposal *eventlog.Proposal) [16]byte {
	scope := proposal.Idempotency.Scope
	if t := p.topics[proposal.Topic]; t != nil {
		binary.BigEndian.PutUint32(scope[:], binary.BigEndian.Uint32(scope[:])^t.Number)
	}
	return scope
}

// undo is what rollback needs to take a batch back.
type undo struct {
	batch   store.Mark
	space   store.Space
	leaves  int
	entries int
	applied int
	topic   *topic // nil: it did not exist
	before  store.Topic
}

// begin opens a transaction for a proposal of several events. A single event
// needs none, for all its checks come before its first write.
func (p *Projector) begin(proposal *eventlog.Proposal) *undo {
	if len(proposal.Entries) < 2 {
		return nil
	}
	u := &undo{batch: p.batch.Mark(), space: p.space, leaves: len(p.leaves), entries: len(p.entries), applied: len(p.applied)}
	if t := p.topics[proposal.Topic]; t != nil {
		u.topic, u.before = t, t.Topic
	}
	p.overlay.begin()
	return u
}

func (p *Projector) rollback(u *undo) {
	if u == nil {
		return
	}
	created := p.space.TopicLast > u.space.TopicLast
	p.batch.Cut(u.batch)
	p.space = u.space
	p.leaves, p.entries, p.applied = p.leaves[:u.leaves], p.entries[:u.entries], p.applied[:u.applied]
	p.overlay.rollback()
	switch {
	case u.topic != nil:
		u.topic.Topic = u.before // its figures may be written again, unchanged
	case created:
		last := p.touched[len(p.touched)-1]
		p.touched = p.touched[:len(p.touched)-1]
		delete(p.topics, last.Name)
		delete(p.numbers, last.Number)
	}
}

// event applies one event. The order of the checks is part of the protocol:
// duplicate, policy, precondition, HLC.
func (p *Projector) event(proposal *eventlog.Proposal, i int) (store.Verdict, *event.Error, error) {
	e := &proposal.Entries[i]
	t := p.topics[proposal.Topic]
	if t != nil {
		seen, ok, err := p.seen(t, e.Identity)
		if err != nil {
			return store.Verdict{}, nil, err
		}
		if ok && seen.Content != e.Content {
			return store.Verdict{}, idReused(e, &seen), nil
		}
		if ok {
			p.chain(audit.Entry{Kind: audit.KindEvent, Position: seen.Position, HLC: seen.HLC, Flags: Duplicate, Topic: proposal.Topic, Digest: e.Body})
			return store.Verdict{Outcome: Duplicate, Position: seen.Position, HLC: seen.HLC}, nil, nil
		}
	} else if refused := p.admissible(proposal.Topic); refused != nil {
		return store.Verdict{}, refused, nil
	}
	policy, floor := event.DefaultPolicy(), event.HLC(0)
	if proposal.Message != nil {
		policy = messagePolicy()
	}
	if t != nil {
		floor = t.Floor
		if !t.Deleted {
			policy = t.Policy
		}
	}
	if policy.Ephemeral() { // it was not when the event was admitted
		return store.Verdict{}, event.Errorf(event.CodeTopicEphemeral, "Topic %q has become ephemeral while the event was on its way. Publish it again.", proposal.Topic), nil
	}
	key, refused := CheckPolicy(policy, e)
	if refused == nil && policy.Schema != "" {
		refused = checkSchema(t, proposal, i)
	}
	if refused != nil {
		return store.Verdict{}, refused, nil
	}
	d := decision{entry: e, key: key, policy: policy, floor: floor}
	if t != nil && policy.Compacts() {
		var err error
		if d.winner, d.found, err = p.winner(t, key); err != nil {
			return store.Verdict{}, nil, err
		}
	}
	if refused := p.decide(proposal, &d); refused != nil {
		return store.Verdict{}, refused, nil
	}
	if d.found && !d.superseded {
		var err error
		if d.kept, err = p.young(t, &d.winner); err != nil {
			return store.Verdict{}, nil, err
		}
	}
	return p.accept(p.ensure(proposal.Topic, policy), &d), nil, nil
}

// seen looks an event's identity up within the window.
func (p *Projector) seen(t *topic, identity eventlog.IdentityHash) (row store.SeenRow, ok bool, err error) {
	row, ok = p.overlay.seen.get(seenKey{t.Number, identity})
	for back := uint32(0); !ok && back <= min(1, p.space.Generation); back++ {
		row, ok, err = p.lookup.Seen(p.space.Generation-back, t.Number, identity)
		if err != nil {
			return row, false, err
		}
	}
	return row, ok && p.space.LogMillis-row.LogMillis < p.settings.DedupMillis, nil
}

// winner returns the winner of a key as the group so far has left it.
func (p *Projector) winner(t *topic, key string) (store.WinnerRow, bool, error) {
	if row, ok := p.overlay.winners.get(winnerKey{t.Number, key}); ok {
		return row, row.Position != 0, nil
	}
	return p.lookup.Winner(t.Number, key)
}

func (p *Projector) setWinner(t *topic, key string, row store.WinnerRow) {
	p.batch.SetWinner(t.Number, key, &row)
	p.overlay.winners.put(winnerKey{t.Number, key}, row)
}

// CheckPolicy checks what the topic asks of each event by itself, and finds its
// key where the topic keeps a value of each key.
func CheckPolicy(policy event.Policy, e *eventlog.Entry) (key string, refused *event.Error) {
	if int(e.WireBytes) > policy.MaxEventBytes {
		return "", event.Errorf(event.CodeEventTooLarge, "The event has %d bytes and the topic takes at most %d. Put the payload elsewhere and refer to it with `dataref`, or raise `max_event_bytes`.", e.WireBytes, policy.MaxEventBytes).
			With("data").Fact("bytes", int(e.WireBytes)).Fact("max_event_bytes", policy.MaxEventBytes)
	}
	if policy.RequireHLC && e.HLC == 0 {
		return "", event.Errorf(event.CodeHLCRequired, "The topic takes only events with an `hlc` attribute.").With("hlc")
	}
	if !policy.Compacts() && !policy.Ephemeral() {
		return "", nil
	}
	key, ok := e.Key, e.HasKey
	if !ok && policy.KeyFrom != "" && e.Flags&eventlog.FlagJSON != 0 {
		key, ok = event.LookupJSON(e.Members[e.DataOffset:e.DataOffset+e.DataLength], policy.KeyFrom)
	}
	if !ok || key == "" {
		if policy.Ephemeral() {
			return "", nil
		}
		return "", event.Errorf(event.CodeKeyRequired, "The topic is compacted, so each event needs a key: set `partitionkey` or `subject`, or a value at the topic's `key_from`.").With("partitionkey")
	}
	if err := event.CheckKey(key); err != nil {
		refused := event.AsError(err)
		if !e.HasKey {
			refused = refused.With("data")
		}
		return "", refused
	}
	return key, nil
}

func idReused(e *eventlog.Entry, seen *store.SeenRow) *event.Error {
	return event.Errorf(event.CodeIDReused, "An event with id %q from source %q was published before with other content. Give every event an id of its own.", e.ID, e.Source).
		With("id").Fact("position", strconv.FormatUint(seen.Position, 10))
}

func millis(ms int64) string { return event.Duration(ms * 1e6).String() }
