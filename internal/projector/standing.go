// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"cmp"

	"signalbox/internal/store"
	"signalbox/ticket"
)

// Tickets are listed by their state by a row of each, or a list of those that are
// open would walk over all that ever were.

// levelOfStanding is the feature level from which on every ticket has a row by its
// state.
const levelOfStanding = 6

// stateOf is the state of a ticket, see store.TicketRow.
func stateOf(t *store.TicketRow) string { return cmp.Or(t.State, ticket.StateOpen) }

// stand stores that a ticket is in another state than it was; before is "" for a new
// one.
func (p *Projector) stand(id, before string, t *store.TicketRow) {
	state := stateOf(t)
	if state == before || p.settings.FeatureLevel < levelOfStanding {
		return
	}
	if before != "" {
		p.dropMessageRow(store.MessageStanding, store.StandingKey(before, id))
	}
	p.setMessageRow(store.MessageStanding, store.StandingKey(state, id), cmp.Or(t.Moved, t.Open))
}

// raiseStanding makes the rows of the tickets that there are. A start that was raising
// the level and died may have left some: they say where their tickets were then.
func (p *Projector) raiseStanding(r *raise) error {
	err := p.store.MessagesOfKind(store.MessageStanding, "", func(key string, _ []byte) (bool, error) {
		r.batch.DeleteMessage(store.MessageStanding, key)
		err := r.portion()
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return p.store.EachTicket(func(id string, t *store.TicketRow) error {
		return r.row(store.MessageStanding, store.StandingKey(stateOf(t), id), encoded(cmp.Or(t.Moved, t.Open)))
	})
}

// standing checks the row of a ticket by its state: the ticket is in it. Below the level
// there may be rows of a start that was raising it and died, which nobody keeps up.
func (v *verifier) standing(m *store.MessageAt) error {
	if v.tally.Settings.FeatureLevel < levelOfStanding {
		return nil
	}
	state, id, err := store.ParseStandingKey(m.Key)
	if err != nil {
		return err
	}
	var t store.TicketRow
	ok, err := v.in.Message(store.MessageTicket, id, &t)
	if err == nil && (!ok || stateOf(&t) != state) {
		v.found(Finding{What: "ticket", Key: id, Explanation: sprintf("The ticket is listed as %s, which it is not.", state)})
	}
	return err
}

// listed checks that a ticket is found by its state.
func (v *verifier) listed(id string, t *store.TicketRow) error {
	if v.tally.Settings.FeatureLevel < levelOfStanding {
		return nil
	}
	var moved string
	ok, err := v.in.Message(store.MessageStanding, store.StandingKey(stateOf(t), id), &moved)
	if err == nil && !ok {
		v.found(Finding{What: "ticket", Key: id, Explanation: sprintf("The ticket is %s, and is not listed as that.", stateOf(t))})
	}
	return err
}
