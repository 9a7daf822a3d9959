// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"slices"

	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// CauseUndelivered is the cause of the dead letter of an execute that no agent of its
// domain has acknowledged by its deliver_by.
const CauseUndelivered = "undelivered"

// overdue reports whether an event of a subscription is to become a dead letter because
// the bus has to say that it was not delivered: once in each subscription of an agent
// that it was for.
func (p *Projector) overdue(s *subscription, b *eventlog.Bury) (bool, error) {
	if b.Owed == "" {
		return false, nil
	}
	var o store.ObligationRow
	ok, err := p.messageRow(store.MessageObligation, b.Owed, &o)
	if err != nil || !ok || o.Letter == "" || o.Letter != b.Topic || o.Position != b.Position || slices.Contains(o.Buried, s.number) {
		return false, err
	}
	var m store.MessageRow
	ok, err = p.messageRow(store.MessageID, o.Cause, &m)
	return ok && slices.Contains(p.receivers(m.To), s.config.Owner), err
}

// undelivered notes where a dead letter is, for the page to name it.
func (p *Projector) undelivered(s *subscription, owed string, letter uint64) error {
	var o store.ObligationRow
	if ok, err := p.messageRow(store.MessageObligation, owed, &o); err != nil || !ok {
		return broken(err, "what the bus has to say about a dead letter is missing")
	}
	o.Buried = append(o.Buried, s.number)
	o.Refs = append(o.Refs, fmt.Sprintf("%s@%d", LetterTopic(s.id()), letter))
	p.setMessageRow(store.MessageObligation, owed, &o)
	return nil
}
