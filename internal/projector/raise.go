// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"

	"signalbox/internal/store"
	"signalbox/ticket"
)

const (
	// raiseRowsMax and raiseBytesMax bound what a raised level has in memory of the rows
	// that it adds, of which a long log has millions.
	raiseRowsMax  = 16_384
	raiseBytesMax = 4 << 20
)

// raise writes what a level adds, portion by portion and ahead of the commit that raises
// it. All of it follows from rows that are committed, and nobody asks for it before the
// level is there: so a start that dies in between leaves nothing but rows that the next
// one writes again.
type raise struct {
	store *store.Store
	batch *store.Batch
	write func(*store.Batch) error // ahead
}

// raised makes what a higher feature level has rows for and the one before had not.
// It walks over all messages, once in the life of a log, while the start waits.
func (p *Projector) raised(before int) error {
	reaches := func(level int) bool { return before < level && p.settings.FeatureLevel >= level }
	r := &raise{store: p.store, batch: p.store.NewBatch(), write: p.writeAhead}
	defer func() { r.batch.Close() }()
	if reaches(levelOfTicket) {
		err := p.store.EachMessage(func(id string, row store.MessageRow) error {
			if row.Ticket == ticket.None {
				return nil
			}
			return r.row(store.MessageOfTicket, store.OfTicketKey(row.Ticket, row.Position), encoded(ofTicketRow(id, &row)))
		})
		if err != nil {
			return err
		}
	}
	if reaches(levelOfEntry) {
		if err := p.raiseEntries(r); err != nil {
			return err
		}
	}
	if reaches(levelOfStanding) {
		if err := p.raiseStanding(r); err != nil {
			return err
		}
	}
	if reaches(levelOfWaiting) {
		if err := p.raiseWaiting(r); err != nil {
			return err
		}
	}
	return r.write(r.batch)
}

// row adds a row, and writes the portion that it completes.
func (r *raise) row(kind store.MessageKind, key string, value []byte) error {
	r.batch.SetMessage(kind, key, value)
	return r.portion()
}

// portion writes the rows that there are, if they are enough.
func (r *raise) portion() error {
	if rows, bytes := r.batch.Size(); rows < raiseRowsMax && bytes < raiseBytesMax {
		return nil
	}
	err := r.write(r.batch)
	r.batch.Close()
	r.batch = r.store.NewBatch()
	return err
}

// encoded panics if a row does not encode, which plain fields always do.
func encoded(row any) []byte {
	value, err := store.EncodeMessage(row)
	if err != nil {
		panic(fmt.Sprintf("projector: a row about messages does not encode: %v", err))
	}
	return value
}
