// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// The broker's own topics about subscriptions.
const (
	TopicSubscriptions = "$subscriptions" // what happened to them by itself
	TopicQuarantine    = "$quarantine"    // what kills its consumers
	topicLetters       = "$dlq."          // and a subscription's id: its dead letters
)

// LetterTopic is the topic of a subscription's dead letters.
func LetterTopic(id string) string { return topicLetters + id }

// noticeRetention is how long the broker's own topics about subscriptions keep
// what they tell.
const noticeRetention = 30 * 24 * time.Hour

// subscriptionsKept bounds the subscriptions that are kept in memory between
// commits. Any other is read when something concerns it.
const subscriptionsKept = 4096

// subscription is one in memory. Its state is written with the commit that
// changes it.
type subscription struct {
	number uint32
	config store.SubscriptionConfig
	store.SubscriptionState
	counted store.DeliveryCounts // what its counts were when they were reported last
	touched bool
	stirs   bool // whoever waits for it is told of the group
}

func (s *subscription) id() string                          { return s.config.Document.ID }
func (s *subscription) settings() *event.SubscriptionConfig { return &s.config.Document.Config }

// Handed is an event that was handed out.
type Handed struct {
	Position  uint64
	Token     uint64
	Attempt   uint32
	DueMillis int64
}

// Delivery is what apply said about a change of a subscription's deliveries.
type Delivery struct {
	// Stale: the subscription is not as the proposal took it to be. Nothing
	// was done; whoever proposed looks again.
	Stale   bool
	Handed  []Handed
	Settled []bool // of settle: whether the hand-out was still the last one
	Moved   int    // of redrive and discard: how many dead letters
	Full    bool   // of redrive: as many are pending as may be
	Letter  uint64 // of bury: where the dead letter is

	messages []uint64 // of redrive and discard: the positions of the messages that moved
}

// Stirred is a subscription that a commit has changed.
type Stirred struct {
	Number  uint32
	ID      string
	Webhook bool
	// Spent says that an event of it is to become a dead letter, Unused that it
	// has expired, Failing that its endpoint is to be disabled.
	Spent, Unused, Failing bool
}

// subscribed keeps what the current group has changed of subscriptions.
type subscribed struct {
	kept    map[uint32]*subscription
	touched []*subscription
	stirred []Stirred
	ids     map[string]uint32 // 0: it has ended
	pending map[pendingKey]store.Pending
	lists   map[listKey]store.KeyList
	letters map[letterKey]store.Letter
	count   store.Subscriptions
}

type pendingKey struct {
	number, epoch uint32
	position      uint64
	parked        bool
}

type listKey struct {
	number, epoch uint32
	key           [16]byte
}

type letterKey struct {
	number   uint32
	position uint64
}

func newSubscribed(count store.Subscriptions) subscribed {
	return subscribed{
		kept: map[uint32]*subscription{}, ids: map[string]uint32{}, pending: map[pendingKey]store.Pending{},
		lists: map[listKey]store.KeyList{}, letters: map[letterKey]store.Letter{}, count: count,
	}
}

// reset begins a group. Without subscriptions it costs nothing.
func (d *subscribed) reset() {
	if len(d.kept) > subscriptionsKept {
		clear(d.kept)
	}
	if len(d.ids)+len(d.pending)+len(d.lists)+len(d.letters) > 0 {
		clear(d.ids)
		clear(d.pending)
		clear(d.lists)
		clear(d.letters)
	}
	d.touched, d.stirred = nil, nil
}

// finishSubscriptions writes the states that the group has changed, and adds up
// what it has counted.
func (p *Projector) finishSubscriptions(counts *store.DeliveryCounts) []Stirred {
	for _, s := range p.subscribed.touched {
		p.batch.SetSubscriptionState(s.number, &s.SubscriptionState)
		s.touched = false
		is := s.Counts()
		if s.settings().Kind == event.KindStream {
			is.Acked = s.counted.Acked // positions, and not events
		}
		counts.AddSince(s.counted, is)
		s.counted = is
		if s.stirs {
			p.subscribed.stirred = append(p.subscribed.stirred, Stirred{Number: s.number, ID: s.id(), Webhook: s.Webhook})
		}
		s.stirs = false
	}
	return p.subscribed.stirred
}

func (p *Projector) touchSubscription(s *subscription) {
	s.stirs = true
	p.keepSubscription(s)
}

// keepSubscription has a subscription written of which nobody needs to know that it has
// changed.
func (p *Projector) keepSubscription(s *subscription) {
	if !s.touched {
		s.touched = true
		p.subscribed.touched = append(p.subscribed.touched, s)
	}
}

// find returns a subscription by its id.
func (p *Projector) find(id string) (*subscription, error) {
	number, known := p.subscribed.ids[id]
	if !known {
		var err error
		if number, _, err = p.lookup.SubscriptionNumber(id); err != nil {
			return nil, err
		}
	}
	if number == 0 {
		return nil, nil
	}
	return p.numbered(number)
}

// numbered returns a subscription by its number, nil if it has ended.
func (p *Projector) numbered(number uint32) (*subscription, error) {
	if s := p.subscribed.kept[number]; s != nil {
		return s, nil
	}
	config, ok, err := p.lookup.SubscriptionConfig(number)
	if err != nil || !ok {
		return nil, err
	}
	state, ok, err := p.lookup.SubscriptionState(number)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, store.Damagedf("subscription %d has no state", number)
	}
	s := &subscription{number: number, config: config, SubscriptionState: state, counted: state.Counts()}
	p.subscribed.kept[number] = s
	return s, nil
}

// subscription applies a change of a subscription.
func (p *Projector) subscription(proposal *eventlog.Proposal) (Result, error) {
	op := proposal.Subscription
	result := Result{Delivery: &Delivery{}}
	var refused *event.Error
	var s *subscription
	var cursor uint64
	if op.Op == eventlog.SubscriptionCreate {
		refused = p.createSubscription(proposal)
	} else {
		var err error
		if s, err = p.find(op.ID); err != nil {
			return Result{}, err
		}
		if s == nil {
			refused = unknownSubscription(op.ID)
		} else {
			cursor = s.Cursor
			if refused, err = p.changeSubscription(s, proposal, result.Delivery); err != nil {
				return Result{}, err
			}
		}
	}
	if !isControl(op.Op) {
		if refused == nil {
			if err := p.deliveryEntry(s, proposal, result.Delivery, cursor); err != nil {
				return Result{}, err
			}
		}
		result.Err = refused
		return result, nil
	}
	if refused != nil {
		p.refusalEntry(proposal, TopicSubscriptions, string(refused.Code))
		return Result{Err: refused}, nil
	}
	p.chain(audit.Detailed(audit.KindControl, TopicSubscriptions, mustDetail(subscriptionDetail{proposal.Principal, public(op)})))
	return result, p.concernPositions(audit.KindControl, result.Delivery.messages...)
}

// isControl tells changes by which somebody decides something from the many that
// only say how far delivery is. The former have an entry each, and are refused in
// one; of the latter those that did something have one, see deliveryEntry.
func isControl(op string) bool {
	switch op {
	case eventlog.SubscriptionHandOut, eventlog.SubscriptionSettle, eventlog.SubscriptionAcknowledge,
		eventlog.SubscriptionBury, eventlog.SubscriptionGap, eventlog.SubscriptionEndpoint:
		return false
	}
	return true
}

// public is a change without the secrets in it: the audit trail is kept for ever,
// and whoever may read it need not know them.
func public(op *eventlog.Subscription) eventlog.Subscription {
	out := *op
	if op.Document != nil {
		d := *op.Document
		d.SinkCredential, d.Config.Secrets = nil, nil
		out.Document = &d
	}
	return out
}

func unknownSubscription(id string) *event.Error {
	return event.Errorf(event.CodeSubscriptionUnknown, "There is no subscription %q.", id)
}

func (p *Projector) changeSubscription(s *subscription, proposal *eventlog.Proposal, d *Delivery) (*event.Error, error) {
	op := proposal.Subscription
	switch op.Op {
	case eventlog.SubscriptionUpdate:
		return p.updateSubscription(s, op), nil
	case eventlog.SubscriptionDelete:
		return p.deleteSubscription(s, proposal), nil
	case eventlog.SubscriptionPause, eventlog.SubscriptionResume:
		s.Paused = op.Op == eventlog.SubscriptionPause
		if !s.Paused {
			p.enable(s)
		}
		p.use(s)
		return nil, nil
	case eventlog.SubscriptionDisable:
		return p.disable(s, proposal), nil
	case eventlog.SubscriptionEndpoint:
		return p.consentOf(s, proposal), nil
	case eventlog.SubscriptionSeek:
		return p.seek(s, op), nil
	case eventlog.SubscriptionAcknowledge:
		before := s.Cursor
		if refused := p.acknowledge(s, op); refused != nil {
			return refused, nil
		}
		return nil, p.deliveredUpTo(s, before, s.Cursor)
	case eventlog.SubscriptionGap:
		return nil, p.gap(s, proposal, d)
	case eventlog.SubscriptionHandOut:
		return nil, p.handOut(s, proposal, d)
	case eventlog.SubscriptionSettle:
		return nil, p.settleAll(s, proposal, d)
	case eventlog.SubscriptionBury:
		return nil, p.bury(s, proposal, d)
	case eventlog.SubscriptionRedrive:
		return nil, p.redrive(s, op, d)
	case eventlog.SubscriptionDiscard:
		return nil, p.discard(s, proposal, d)
	}
	return nil, fmt.Errorf("a subscription entry of unknown operation %q", op.Op)
}

// createSubscription is called with an id that the proposer has drawn.
func (p *Projector) createSubscription(proposal *eventlog.Proposal) *event.Error {
	op := proposal.Subscription
	count := &p.subscribed.count
	if int(count.Count) >= p.settings.SubscriptionsMax {
		return event.Errorf(event.CodeSubscriptionLimit, "There are %d subscriptions, which is the limit.", count.Count)
	}
	count.Last++
	count.Count++
	s := &subscription{number: count.Last}
	s.config = store.SubscriptionConfig{Document: *op.Document, Owner: op.Owner, CreatedMillis: p.space.LogMillis, UpdatedMillis: p.space.LogMillis}
	s.config.Document.ID = op.ID
	s.Epoch = 1
	s.Webhook = s.settings().Kind == event.KindWebhook
	p.setTerms(s, op.Terms)
	p.place(s, op)
	p.subscribed.kept[s.number] = s
	p.subscribed.ids[op.ID] = s.number
	p.batch.SetSubscriptions(*count)
	p.batch.SetSubscriptionID(op.ID, s.number)
	p.batch.SetSubscriptionConfig(s.number, &s.config)
	p.use(s)
	p.armUnused(s)
	return nil
}

// place sets where a subscription reads from on.
func (p *Projector) place(s *subscription, op *eventlog.Subscription) {
	s.Cursor, s.Began, s.Since = p.space.Position, 0, 0
	if !op.Now {
		s.Cursor, s.Began, s.Since = min(op.Place.Cursor, p.space.Position), op.Place.Began, op.Place.Since
	}
	s.GapFrom, s.GapTo = 0, 0
}

// updateSubscription replaces the document. The cursor stays where it is: who
// wants to read something else from another place says so, with a seek.
func (p *Projector) updateSubscription(s *subscription, op *eventlog.Subscription) *event.Error {
	if s.settings().Kind != op.Document.Config.Kind {
		return event.Errorf(event.CodeSubscriptionConflict, "The subscription's kind is %s and cannot change. Create another subscription.", s.settings().Kind).With("config.kind")
	}
	id := s.id()
	document := *op.Document
	document.KeepSecrets(&s.config.Document)
	if field := document.Incomplete(); field != "" {
		return event.Errorf(event.CodeSubscriptionInvalid, "The member %s lacks its secrets, and the subscription has none to keep for this sink.", field).With(field)
	}
	p.replaceSink(s, &document)
	s.config.Document, s.config.UpdatedMillis = document, p.space.LogMillis
	s.config.Document.ID = id
	p.setTerms(s, op.Terms)
	p.batch.SetSubscriptionConfig(s.number, &s.config)
	if t := p.topics[LetterTopic(id)]; t != nil && !t.Deleted {
		t.Policy = letterPolicy(s.settings())
		p.batch.SetName(&t.Topic)
		p.touch(t)
	}
	p.use(s)
	p.armUnused(s)
	return nil
}

// deleteSubscription ends a subscription, its dead letters included.
func (p *Projector) deleteSubscription(s *subscription, proposal *eventlog.Proposal) *event.Error {
	op, id := proposal.Subscription, s.id()
	if op.IfUnused && (s.settings().ExpiresAfter == 0 || p.unusedAt(s) > p.space.LogMillis) {
		return event.Errorf(event.CodeSubscriptionConflict, "The subscription was used meanwhile.")
	}
	p.setTerms(s, nil)
	p.batch.DeleteSubscription(id, s.number)
	p.subscribed.count.Count--
	p.batch.SetSubscriptions(p.subscribed.count)
	p.subscribed.ids[id] = 0
	delete(p.subscribed.kept, s.number)
	for i, other := range p.subscribed.touched {
		if other == s { // or its state would be written behind the deletion
			p.subscribed.touched = append(p.subscribed.touched[:i:i], p.subscribed.touched[i+1:]...)
			break
		}
	}
	if t := p.topics[LetterTopic(id)]; t != nil && !t.Deleted {
		_ = p.deleteTopic(t.Name) // it is there
	}
	p.subscribed.stirred = append(p.subscribed.stirred, Stirred{Number: s.number, ID: id})
	p.notice(proposal, 0)
	return nil
}

// seek moves the cursor to wherever its owner says. What was handed out or
// waits is forgotten: it was asked for from another place.
func (p *Projector) seek(s *subscription, op *eventlog.Subscription) *event.Error {
	p.batch.DeletePending(s.number, s.Epoch)
	s.Epoch++
	s.Outstanding, s.Ready, s.Parked, s.Timer = 0, 0, 0, 0
	p.place(s, op)
	p.use(s)
	return nil
}

// acknowledge moves a stream's cursor forward. An older one that arrives late
// takes nothing back.
func (p *Projector) acknowledge(s *subscription, op *eventlog.Subscription) *event.Error {
	if s.settings().Kind != event.KindStream {
		return event.Errorf(event.CodeSubscriptionConflict, "The subscription's kind is %s: settle each event by its token, not by a cursor.", s.settings().Kind)
	}
	if op.Place.Cursor > p.space.Position {
		return event.Errorf(event.CodeCursorForeign, "The cursor @%d is beyond the log's head @%d.", op.Place.Cursor, p.space.Position)
	}
	if op.Place.Cursor > s.Cursor {
		s.Acked += op.Place.Cursor - s.Cursor
		s.Cursor, s.Began = op.Place.Cursor, max(s.Began, op.Place.Began)
		s.GapFrom, s.GapTo = 0, 0
	}
	if c := op.Counts; c != nil {
		s.Matched, s.Dropped, s.Errors = s.Matched+c.Matched, s.Dropped+c.Dropped, s.Errors+c.Errors
	}
	p.use(s)
	return nil
}

// use notes that somebody is there.
func (p *Projector) use(s *subscription) {
	s.Used = p.space.LogMillis
	p.touchSubscription(s)
}

// UnusedShare is the part of expires_after, one of so many, within which a worker that
// finds nothing need not be noted again.
const UnusedShare = 4

// unusedAt is when a subscription expires. What was not noted counts as use, too.
func (p *Projector) unusedAt(s *subscription) int64 {
	after := s.settings().ExpiresAfter.Std().Milliseconds()
	return s.Used + after + after/UnusedShare
}

// armUnused sees to it that a subscription which may expire is looked at.
func (p *Projector) armUnused(s *subscription) {
	if s.settings().ExpiresAfter == 0 {
		s.UnusedTimer = 0
		return
	}
	if due := p.unusedAt(s); s.UnusedTimer == 0 || due < s.UnusedTimer {
		s.UnusedTimer = due
		p.batch.SetTimer(store.Timer{DueMillis: due, Topic: s.number, Kind: store.TimerUnused})
	}
}

// unusedAgain is how much later an expired subscription is reported again, if
// it has not been ended by then.
const unusedAgain = 60_000 // ms of log time

// lookUnused reports a subscription that nobody has used for so long as its
// owner allows. It is ended by an entry of its own, which carries the notice.
func (p *Projector) lookUnused(timer store.Timer) error {
	s, err := p.numbered(timer.Topic)
	if err != nil || s == nil || s.UnusedTimer != timer.DueMillis || s.settings().ExpiresAfter == 0 {
		return err
	}
	due := p.unusedAt(s)
	if due <= p.space.LogMillis {
		p.subscribed.stirred = append(p.subscribed.stirred, Stirred{Number: s.number, ID: s.id(), Unused: true})
		due = p.space.LogMillis + unusedAgain
	}
	s.UnusedTimer = due
	p.batch.SetTimer(store.Timer{DueMillis: due, Topic: s.number, Kind: store.TimerUnused})
	p.touchSubscription(s)
	return nil
}

// post adds an event of the proposal to one of the broker's own topics.
func (p *Projector) post(proposal *eventlog.Proposal, topic string, policy event.Policy, e *eventlog.Entry) store.Verdict {
	t := p.ensure(topic, policy)
	d := decision{entry: e, policy: t.Policy, hlc: e.HLC}
	if d.hlc == 0 {
		d.hlc = p.space.HLC.Next(proposal.AdmittedMillis)
	}
	return p.accept(t, &d)
}

// notice posts the proposal's entry at an index, if it has one, where the broker
// tells of subscriptions.
func (p *Projector) notice(proposal *eventlog.Proposal, index int) (position uint64) {
	if index >= len(proposal.Entries) {
		return 0
	}
	return p.post(proposal, TopicSubscriptions, noticePolicy(), &proposal.Entries[index]).Position
}
