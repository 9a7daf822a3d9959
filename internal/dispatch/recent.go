// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"slices"

	"signalbox/event"
	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Retained is an event that is retained, for whoever wants to know what a filter
// makes of it. It is valid during the call that it is given to.
type Retained struct {
	Cursor    event.Cursor
	Record    *filter.Record
	Tombstone bool
	applied   *projector.Applied
}

// JSON is the event as it is delivered, in memory of its own.
func (e *Retained) JSON() []byte { return appendJSON(nil, e.applied) }

// past is a snapshot of some topics.
type past struct {
	d      *Dispatch
	view   *store.View
	topics []store.Topic // that have events, the last written to first
	head   uint64
	shown  uint64 // up to where ticket messages are shown
	millis int64  // log time
	now    int64  // what had expired by then is gone
}

func (d *Dispatch) past(patterns []event.Pattern) *past {
	p := &past{d: d}
	p.view = d.store.View(func() {
		d.mu.RLock()
		defer d.mu.RUnlock()
		p.head, p.shown = d.head, d.shown()
		p.millis, p.now = d.space.LogMillis, max(d.space.LogMillis, d.now())
		for _, v := range d.match(patterns) {
			if t := v.info.Load(); !t.Deleted && (t.Events > 0 || t.History > 0) {
				p.topics = append(p.topics, *t)
			}
		}
	})
	slices.SortFunc(p.topics, func(a, b store.Topic) int { return cmp.Compare(b.Last, a.Last) })
	return p
}

// Recent calls each with the last events that the topics retain, at most n of
// them and of compacted topics the winners, from the latest back, until it
// returns false or ctx ends, which is the error then. What has expired counts
// towards n. It returns the cursor at which that is exact.
func (d *Dispatch) Recent(ctx context.Context, patterns []event.Pattern, n int, each func(*Retained) (more bool)) (event.Cursor, error) {
	p := d.past(patterns)
	defer p.view.Close()
	at := d.cursor(p.head)
	found, err := p.lastPositions(ctx, n)
	if err != nil {
		return at, err
	}
	v := evaluators.Get().(*evaluator)
	defer v.release()
	for _, f := range found {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		more := true
		if _, err := p.show(v, f, func(e *Retained) { more = each(e) }); err != nil || !more {
			return at, err
		}
	}
	return at, nil
}

// lastPositions returns the highest positions in the topics, at most n of them,
// from the highest down. It reads keys only, and of no more topics than can have
// one of these.
func (p *past) lastPositions(ctx context.Context, n int) (found []place, err error) {
	lowest := uint64(0) // positions below it cannot be among the highest n
	trim := func() {
		slices.SortFunc(found, func(a, b place) int { return cmp.Compare(b.position, a.position) })
		if len(found) >= n {
			found = found[:n]
			lowest = found[n-1].position
		}
	}
	for i := range p.topics {
		t, left := &p.topics[i], n
		if err := ctx.Err(); err != nil || t.Last < lowest {
			return found, err
		}
		err := p.view.PositionsBack(t.Number, max(t.RetiredTo, lowest), p.end(t), func(position uint64) bool {
			found = append(found, place{position: position, topic: t})
			left--
			return left > 0
		})
		if err != nil {
			return nil, err
		}
		if len(found) >= 2*n || i == len(p.topics)-1 {
			trim()
		}
	}
	return found, nil
}

// end is the position up to which a topic is shown.
func (p *past) end(t *store.Topic) uint64 {
	if projector.TicketTopic(t.Name) {
		return p.shown
	}
	return p.head
}

// RetainedAt calls use with the event at a cursor's position, if one of the
// topics retains it, in its history too, and reports whether that is so. It fails with code
// cursor_foreign for a cursor of another log, or with the error of ctx.
func (d *Dispatch) RetainedAt(ctx context.Context, patterns []event.Pattern, c event.Cursor, use func(*Retained)) (bool, error) {
	if c.Incarnation != "" && c.Incarnation != d.incarnation {
		return false, event.Errorf(event.CodeCursorForeign, "The cursor %s belongs to another log: this one was created or restored since. Take a cursor of this one.", c)
	}
	p := d.past(patterns)
	defer p.view.Close()
	v := evaluators.Get().(*evaluator)
	defer v.release()
	for i := range p.topics {
		t := &p.topics[i]
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if c.Position > t.Last {
			break // and of the following ones, too
		}
		if c.Position > t.RetiredTo && c.Position <= p.end(t) {
			if ok, err := p.show(v, place{position: c.Position, topic: t}, use); ok || err != nil {
				return ok, err
			}
		}
		if t.History > 0 && c.Position > t.HistoryFrom() {
			if ok, err := p.show(v, place{position: c.Position, topic: t, superseded: true}, use); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

// show calls use with an event, unless it has expired or is not there.
func (p *past) show(v *evaluator, at place, use func(*Retained)) (shown bool, err error) {
	read := p.view.Event
	if at.superseded {
		read = p.view.HistoryEvent
	}
	_, err = read(at.topic.Number, at.position, func(row store.EventRow) error {
		if row.ExpiryMillis != 0 && row.ExpiryMillis <= p.now || at.superseded && at.topic.Past(at.position, &row, p.millis) {
			return nil
		}
		e := projector.Applied{Topic: at.topic.Name, Position: at.position, HLC: row.HLC, Flags: row.Flags, Members: row.Members}
		v.fill(&e)
		shown = true
		use(&Retained{Cursor: p.d.cursor(at.position), Record: &v.record, Tombstone: row.Flags&store.EventTombstone != 0, applied: &e})
		return nil
	})
	return shown, err
}
