// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// again finds what is ready to be handed out again.
func (pl *plan) again(ctx context.Context) error {
	if pl.state.Ready == 0 {
		return nil
	}
	now, most := pl.b.clock.Millis(), pl.req.Max
	if pl.settings().Order == event.OrderStrict {
		most = min(most, 1-int(pl.state.Outstanding-pl.state.Ready))
	}
	var spent []uint64
	rows, ready := map[uint64]store.Pending{}, pl.state.Ready
	err := pl.b.store.Outstanding(pl.number, pl.state.Epoch, func(position uint64, row store.Pending) (bool, error) {
		if row.State != store.PendingReady {
			return true, nil
		}
		switch {
		case pl.reach.topic(row.Topic) != nil: // its owner may not read that any more
		case projector.Spent(&row, pl.settings(), pl.state.Acked) != "":
			spent = append(spent, position)
			rows[position] = row
		case row.DueMillis > now:
			pl.next = min(pl.next, time.Duration(row.DueMillis-now)*time.Millisecond)
		case len(pl.hand.Again) < most:
			pl.hand.Again = append(pl.hand.Again, position)
			rows[position] = row
		}
		// Behind the last one is what was settled since, of which Pebble keeps traces for a
		// while. What became ready after the state was read is cause to look again.
		ready--
		return ready > 0, nil
	})
	if err != nil {
		return err
	}
	for _, position := range spent {
		row := rows[position]
		if err := pl.b.buryOne(ctx, pl.id, position, &row, 0, "", row.Error); err != nil {
			pl.b.logger.Error("an event cannot be made a dead letter, and is kept", "subscription", pl.id, "position", position, "err", err)
			pl.next = min(pl.next, buryRetry)
		}
	}
	if len(spent) > 0 {
		return pl.unlessFailing(len(spent))
	}
	kept := pl.hand.Again[:0]
	for _, position := range pl.hand.Again {
		row := rows[position]
		json, ok, err := pl.b.pendingEvent(pl.number, pl.id, position, &row, pl.settings().View)
		if err != nil {
			return err
		}
		if !ok {
			if err := pl.gone(position, &row); err != nil {
				return err
			}
			continue
		}
		pl.json[position] = json
		kept = append(kept, position)
	}
	pl.hand.Again = kept
	return nil
}

// gone takes out an event that is not stored any more, and of those that are
// parked behind it the first ones, as far as they are gone, too: in a compacted
// topic all but the last of a key usually are.
func (pl *plan) gone(position uint64, row *store.Pending) error {
	for {
		pl.hand.Gone = append(pl.hand.Gone, position)
		if position = row.Next; position == 0 || len(pl.hand.Gone) >= candidatesMax {
			return nil
		}
		next, ok, err := pl.b.store.ParkedEvent(pl.number, pl.state.Epoch, position)
		if err != nil || !ok {
			return err
		}
		if _, stored, err := pl.b.pendingEvent(pl.number, pl.id, position, &next, pl.settings().View); err != nil || stored {
			return err
		}
		row = &next
	}
}

// buryRetry is how long an event waits that could not be made a dead letter.
const buryRetry = 5 * time.Second

// unlessFailing has the plan made anew where spent events are gone now. Where
// none could be buried, the others go on without them.
func (pl *plan) unlessFailing(spent int) error {
	_, _, state, ok, err := pl.b.store.Subscription(pl.id)
	if err != nil {
		return err
	}
	if !ok || state.Buried != pl.state.Buried || state.Gone != pl.state.Gone {
		return errStale
	}
	return nil
}

// pendingEvent returns a pending event as it is delivered, and whether it is
// still there for a reader of the view.
func (b *Broker) pendingEvent(number uint32, id string, position uint64, row *store.Pending, view string) (json []byte, ok bool, err error) {
	if row.Letter == 0 {
		stored, ok, err := b.dispatch.Lookup(row.Topic, position, view)
		if err != nil || !ok {
			return nil, false, err
		}
		return stored.JSON(), true, nil
	}
	snapshot := b.store.View(func() {})
	letter, known, err := snapshot.Letter(number, row.Letter)
	snapshot.Close()
	if err != nil || !known {
		return nil, false, err
	}
	stored, ok, err := b.dispatch.Lookup(projector.LetterTopic(id), row.Letter, dispatch.ViewDefault)
	if err != nil || !ok {
		return nil, false, err
	}
	original := b.dispatch.Original(&stored.Row, letter.Prefix, letter.Topic, letter.Position)
	return original.JSON(), true, nil
}
