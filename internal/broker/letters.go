// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// buryOne makes a dead letter of a pending event: with the token of the hand-out
// that was rejected, or without one if the event is spent. The event leaves the
// subscription in the commit that stores the letter. Code subscription_conflict
// says that somebody has it again.
func (b *Broker) buryOne(ctx context.Context, id string, position uint64, row *store.Pending, token uint64, cause, reason string) error {
	if err := b.disk.check(); err != nil {
		return err
	}
	number, config, state, ok, err := b.store.Subscription(id)
	if err != nil {
		return err
	}
	if !ok {
		return unknownSubscription(id)
	}
	if cause == "" {
		cause = projector.Spent(row, &config.Document.Config, state.Acked)
	}
	l := burial{b: b, id: id, row: row, op: eventlog.Bury{Position: position, Token: token, Cause: cause, Error: reason}, topic: row.Topic}
	found, err := l.find(number, &config.Document.Config)
	if err != nil {
		return err
	}
	op := &eventlog.Subscription{Op: eventlog.SubscriptionBury, ID: id, Bury: &l.op}
	if !found && token == 0 { // there is nothing to keep
		place := eventlog.Place{Cursor: state.Cursor, Began: state.Began, Since: state.Since}
		op = &eventlog.Subscription{Op: eventlog.SubscriptionHandOut, ID: id, HandOut: &eventlog.HandOut{Epoch: state.Epoch, From: place, To: place, Gone: []uint64{position}}}
	} else if found { // of what is rejected and gone nothing is kept either, but it is settled
		if err := l.write(); err != nil {
			return err
		}
	}
	result, err := b.subscribe(ctx, identity.Anonymous(), op, l.entries...)
	if err == nil && result.Delivery.Stale {
		err = event.Errorf(event.CodeSubscriptionConflict, "The hand-out is not the last one of its event.")
	}
	return err
}

// burial is what a dead letter is made of.
type burial struct {
	b        *Broker
	id       string
	row      *store.Pending
	op       eventlog.Bury
	topic    string // where the event was published
	original store.EventRow
	members  []byte // of the event as it was published
	offset   uint32 // of its data in members
	entries  []eventlog.Entry
}

// find looks the event up. That of a dead letter which has come back is taken
// from there, and quarantined if it has done so too often.
func (l *burial) find(number uint32, c *event.SubscriptionConfig) (bool, error) {
	topic, position, prefix := l.row.Topic, l.op.Position, uint32(0)
	if l.row.Letter != 0 {
		view := l.b.store.View(func() {})
		letter, ok, err := view.Letter(number, l.row.Letter)
		view.Close()
		if err != nil || !ok {
			return false, err
		}
		position, prefix, l.topic = l.row.Letter, letter.Prefix, letter.Topic
		if int(letter.Redrives) >= c.MaxRedrives {
			l.op.Cause = projector.CauseQuarantined
		}
	}
	stored, ok, err := l.b.dispatch.Lookup(topic, position, c.View)
	if err != nil || !ok {
		return false, err
	}
	l.original, l.members = stored.Row, stored.Row.Members[prefix:]
	l.offset = stored.Row.DataOffset
	if l.offset >= prefix {
		l.offset -= prefix
	}
	return true, nil
}

// write makes the entries. An event of a topic of dead letters leaves none: it is
// kept where it is, and one for each failure would have no end.
func (l *burial) write() error {
	if strings.HasPrefix(l.topic, projector.LetterTopic("")) || l.topic == projector.TopicSubscriptions {
		return nil
	}
	attempts := l.row.Attempts
	var prefix []byte
	for _, a := range []struct {
		name  string
		value any
	}{
		{"dlqcause", l.op.Cause}, {"dlqattempts", attempts}, {"dlqtopic", l.topic},
		{"dlqposition", fmt.Sprint(l.op.Position)}, {"dlqerror", l.op.Error},
	} {
		if a.value == "" {
			continue
		}
		value, err := json.Marshal(a.value)
		if err != nil {
			return err
		}
		prefix = append(append(fmt.Appendf(prefix, "%q:", a.name), value...), ',')
	}
	l.op.Prefix = uint32(len(prefix))
	letter := admission.Letter(prefix, l.members, l.original.HLC)
	letter.DataOffset, letter.DataLength = l.offset+l.op.Prefix, l.original.DataLength
	if l.original.DataLength == 0 {
		letter.DataOffset = 0
	}
	if l.original.Flags&store.EventFold != 0 {
		letter.Flags |= eventlog.FlagFold
	}
	if l.original.Flags&store.EventJSON != 0 {
		letter.Flags |= eventlog.FlagJSON
	}
	l.entries = append(l.entries, letter)
	if l.op.Cause != projector.CauseQuarantined {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"subscription": l.id, "topic": l.topic, "position": fmt.Sprint(l.op.Position), "source": letter.Source, "id": letter.ID,
		"attempts": attempts, "unanswered": l.row.Lost, "error": l.op.Error, "dead_letters": projector.LetterTopic(l.id),
	})
	if err != nil {
		return err
	}
	notice, err := l.b.notice(l.id, "signalbox.subscription.quarantined", data)
	l.entries = append(l.entries, notice)
	return err
}

// burySpent makes dead letters of the events of a subscription that are spent.
// What fails is found again by the next hand-out.
func (b *Broker) burySpent(id string) {
	number, config, state, ok, err := b.store.Subscription(id)
	if err != nil || !ok {
		return
	}
	var order []uint64 // dead letters come in the order of their events
	spent := map[uint64]store.Pending{}
	err = b.store.Outstanding(number, state.Epoch, func(position uint64, row store.Pending) (bool, error) {
		if row.State == store.PendingReady && projector.Spent(&row, &config.Document.Config, state.Acked) != "" {
			order = append(order, position)
			spent[position] = row
		}
		return true, nil
	})
	for _, position := range order {
		if row := spent[position]; err == nil {
			err = b.buryOne(context.Background(), id, position, &row, 0, "", row.Error)
		}
	}
	if err != nil {
		b.logger.Error("an event cannot be made a dead letter, and is kept", "subscription", id, "err", err)
	}
}

// Letter is a dead letter of a subscription.
type Letter struct {
	Position event.Cursor // in the topic of dead letters
	Topic    string       // of the original event
	At       event.Cursor // of the original event
	Cause    string
	Error    string
	Attempts int
	Redrives int
	Redriven bool // it is under way again
	Since    time.Time
	Event    []byte // as it was delivered
}

// LetterFilter selects dead letters.
type LetterFilter struct {
	Positions []uint64 // these; empty: all
	Cause     string   // with this cause; "": any
	Topic     string   // from a topic that matches; "": any
	Type      string   // of this type; "": any
	// Filter selects by the event as it was delivered; nil: any.
	Filter *filter.Filter
}

// letterTrial is what trying a filter on dead letters needs.
type letterTrial struct {
	machine filter.Machine
	record  filter.Record
}

// event reports whether the event of a dead letter is one of those selected.
func (f *LetterFilter) event(t *letterTrial, json []byte) bool {
	if kind, _ := event.LookupJSON(json, "type"); f.Type != "" && f.Type != kind {
		return false
	}
	if f.Filter == nil {
		return true
	}
	t.record.FillDelivered(json)
	return t.machine.Match(f.Filter, t.record.Event())
}

// causes are those that a dead letter may have.
var causes = []string{projector.CauseAttempts, projector.CauseRejected, projector.CauseQuarantined, projector.CauseUndelivered}

// check refuses what selects nothing because it is misspelt, and returns the pattern
// of the topics.
func (f *LetterFilter) check() (topics event.Pattern, err error) {
	if f.Cause != "" && !slices.Contains(causes, f.Cause) {
		return topics, event.Errorf(event.CodeParameterInvalid, "There is no cause %.40q; there are %s.", f.Cause, strings.Join(causes, ", ")).With("cause")
	}
	if f.Topic == "" {
		return topics, nil
	}
	if topics, err = event.ParsePattern(f.Topic); err != nil {
		return topics, event.AsError(err).With("topic")
	}
	return topics, nil
}

func (f *LetterFilter) match(topics event.Pattern, position uint64, l *store.Letter) bool {
	return (len(f.Positions) == 0 || slices.Contains(f.Positions, position)) && (f.Cause == "" || f.Cause == l.Cause) && (f.Topic == "" || topics.Match(l.Topic))
}

// LetterMax bounds the dead letters of one request.
const LetterMax = 1000

// letterScanMax bounds the dead letters that one request looks at.
const letterScanMax = 10_000

// Letters returns up to limit dead letters after a position, and where to go
// on; 0 means that there are no more.
func (b *Broker) Letters(p identity.Principal, id string, f LetterFilter, after uint64, limit int) (letters []Letter, next uint64, err error) {
	if err := b.reach(p).topic(projector.LetterTopic(id)); err != nil {
		return nil, 0, err
	}
	view := b.store.View(func() {})
	defer view.Close()
	number, _, state, ok, err := view.Subscription(id)
	if err != nil {
		return nil, 0, err
	}
	if !ok {
		return nil, 0, unknownSubscription(id)
	}
	topics, err := f.check()
	if err != nil {
		return nil, 0, err
	}
	limit = min(max(limit, 1), LetterMax)
	scanned, last := 0, after
	var t letterTrial
	err = view.Letters(number, after, func(position uint64, row store.Letter) (bool, error) {
		if len(letters) == limit || scanned == letterScanMax {
			next = last
			return false, nil
		}
		scanned++
		last = position
		if !f.match(topics, position, &row) {
			return true, nil
		}
		l, ok, err := b.letter(id, position, &row, state.Epoch)
		if err != nil {
			return false, err
		}
		if ok && f.event(&t, l.Event) {
			letters = append(letters, l)
		}
		return true, nil
	})
	return letters, next, err
}

func (b *Broker) letter(id string, position uint64, row *store.Letter, epoch uint32) (Letter, bool, error) {
	stored, ok, err := b.dispatch.Lookup(projector.LetterTopic(id), position, dispatch.ViewDefault)
	if err != nil || !ok {
		return Letter{}, false, err
	}
	original := b.dispatch.Original(&stored.Row, row.Prefix, row.Topic, row.Position)
	incarnation := b.dispatch.Head().Incarnation
	return Letter{
		Position: event.Cursor{Position: position, Incarnation: incarnation},
		At:       event.Cursor{Position: row.Position, Incarnation: incarnation},
		Topic:    row.Topic, Cause: row.Cause, Error: row.Error,
		Attempts: int(row.Attempts), Redrives: int(row.Redrives), Redriven: row.Redriven == epoch,
		Since: time.UnixMilli(row.LogMillis), Event: original.JSON(),
	}, true, nil
}

// LetterMove is what became of a request to redrive or discard.
type LetterMove struct {
	Moved int    // dead letters that are under way again, or gone
	Full  bool   // as many events are pending as may be: settle some first
	Next  uint64 // where to go on; 0: there are no more
}

// Redrive has dead letters delivered again, to this subscription only, with
// their ids and as they were. Quarantined ones are left where they are unless
// they are named or asked for.
func (b *Broker) Redrive(ctx context.Context, p identity.Principal, id string, f LetterFilter, after uint64, limit int) (LetterMove, error) {
	force := len(f.Positions) > 0 || f.Cause == projector.CauseQuarantined
	return b.moveLetters(ctx, p, f, after, limit, &eventlog.Subscription{Op: eventlog.SubscriptionRedrive, ID: id, Force: force})
}

// Discard removes dead letters for good. The reason is logged.
func (b *Broker) Discard(ctx context.Context, p identity.Principal, id string, f LetterFilter, after uint64, limit int, reason string) (LetterMove, error) {
	if strings.TrimSpace(reason) == "" {
		return LetterMove{}, event.Errorf(event.CodeParameterInvalid, "Say why: the reason is logged.").With("reason")
	}
	return b.moveLetters(ctx, p, f, after, limit, &eventlog.Subscription{Op: eventlog.SubscriptionDiscard, ID: id, Reason: cut(reason)})
}

// redrives refuses a stream, which has a cursor and nothing that is handed out.
func (b *Broker) redrives(id string) error {
	_, config, _, ok, err := b.store.Subscription(id)
	if err == nil && ok && config.Document.Config.Kind == event.KindStream {
		err = event.Errorf(event.CodeSubscriptionConflict, "The subscription's kind is stream, and to redrive is to hand out again. Read its dead letters on the topic %q, and discard what is done with.", projector.LetterTopic(id))
	}
	return err
}

func (b *Broker) moveLetters(ctx context.Context, p identity.Principal, f LetterFilter, after uint64, limit int, op *eventlog.Subscription) (LetterMove, error) {
	if err := b.own(p, op.ID); err != nil {
		return LetterMove{}, err
	}
	if op.Op == eventlog.SubscriptionRedrive {
		if err := b.redrives(op.ID); err != nil {
			return LetterMove{}, err
		}
	}
	letters, next, err := b.Letters(p, op.ID, f, after, limit)
	if err != nil {
		return LetterMove{}, err
	}
	if len(letters) == 0 && len(f.Positions) > 0 {
		return LetterMove{}, event.Errorf(event.CodeDeadLetterUnknown, "The subscription has none of these dead letters.")
	}
	if len(letters) == 0 {
		return LetterMove{Next: next}, nil
	}
	var entries []eventlog.Entry
	if op.Op == eventlog.SubscriptionDiscard {
		entry, err := b.discarded(op, letters, p)
		if err != nil {
			return LetterMove{}, err
		}
		entries = []eventlog.Entry{entry}
	}
	for i := range letters {
		op.Letters = append(op.Letters, letters[i].Position.Position)
	}
	result, err := b.subscribe(ctx, p, op, entries...)
	if err != nil {
		return LetterMove{}, err
	}
	return LetterMove{Moved: result.Delivery.Moved, Full: result.Delivery.Full, Next: next}, nil
}

// discarded is the notice that names what was discarded, by whom and why.
func (b *Broker) discarded(op *eventlog.Subscription, letters []Letter, p identity.Principal) (eventlog.Entry, error) {
	type gone struct {
		Topic    string       `json:"topic"`
		Position event.Cursor `json:"position"`
		Source   string       `json:"source"`
		ID       string       `json:"id"`
	}
	list := make([]gone, len(letters))
	for i := range letters {
		list[i] = gone{Topic: letters[i].Topic, Position: letters[i].At}
		list[i].Source, _ = event.LookupJSON(letters[i].Event, "source")
		list[i].ID, _ = event.LookupJSON(letters[i].Event, "id")
	}
	data, err := json.Marshal(map[string]any{"subscription": op.ID, "reason": op.Reason, "principal": p.Subject(), "events": list})
	if err != nil {
		return eventlog.Entry{}, err
	}
	return b.notice(op.ID, "signalbox.subscription.discarded", data)
}
