// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"sync"

	"signalbox/event"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Poll steps over the next window (cursor, end] and returns what of it is to
// be delivered. It does not block. In the current view a window holds the
// winners as of the moment it was taken, so that intermediate values are
// skipped and nothing superseded is ever delivered. A reader with a filter may
// get an empty window though there is more to step over. It fails with
// cursor_expired if the reader has fallen behind a removal.
//
// Of ephemeral topics a window holds, beside that, what was placed since the
// last one and has not been replaced. It fails with values_reset if the reader
// has fallen behind the forgetting of a tombstone.
//
// What the reader may read is checked when the window is there, so that nothing is
// delivered that came with or after the commit which took it from the reader.
func (r *Reader) Poll(limit Limit) (Window, error) {
	window, err := r.poll(limit)
	if err == nil {
		err = r.Check()
	}
	if err == nil && r.spec.Withheld != nil {
		err = r.withhold(&window)
	}
	if err != nil {
		return Window{}, err
	}
	return window, nil
}

// withhold takes out of a window what is kept from the reader.
func (r *Reader) withhold(w *Window) (err error) {
	w.Deliveries = slices.DeleteFunc(w.Deliveries, func(d Delivery) bool {
		if err != nil || !d.Message {
			return false
		}
		var kept bool
		kept, err = r.spec.Withheld(d.Position)
		return kept
	})
	return err
}

// Check reports why the reader may not go on.
func (r *Reader) Check() error {
	if r.spec.Check == nil {
		return nil
	}
	return r.spec.Check()
}

func (r *Reader) poll(limit Limit) (Window, error) {
	r.Release()
	if r.spec.Durable {
		return r.pollLog(limit)
	}
	done, err := r.pollLive(&limit)
	if err != nil {
		return Window{}, err
	}
	var window Window
	if limit.Events > 0 {
		window, err = r.pollLog(limit)
	} else {
		window = r.window(r.cursor, r.cursor >= r.ended())
	}
	if err == nil && (len(r.held) > 0 || !done) {
		r.addLive(&window, done)
	}
	return window, err
}

// pollLog is the part of Poll that has positions.
func (r *Reader) pollLog(limit Limit) (Window, error) {
	d := r.d
	d.mu.RLock()
	if r.sieve != nil { // at the head, too, so that it goes on from there by what the sorter knows
		d.mu.RUnlock()
		if window, ok := r.pollSieve(limit); ok {
			return window, nil
		}
		d.mu.RLock()
	}
	head := r.end()
	if r.cursor >= head {
		d.mu.RUnlock()
		return r.window(head, true), nil
	}
	to, most := head, limit.Events
	if r.sieve != nil { // from there on the sorter knows
		to, most = min(head, r.sifted.at), max(most, candidatesMin)
	}
	if r.cursor+1 < d.tail.oldest || r.cursor >= to {
		d.mu.RUnlock()
		return r.pollStore(limit)
	}
	end, bytes := r.cursor, 0
	for end < to && len(r.items) < most && bytes < limit.Bytes {
		end++
		i := d.tail.at(end)
		if !r.selects(i.view) {
			continue
		}
		if i.removed() {
			d.mu.RUnlock()
			return r.pollStore(limit) // which knows whether that matters to the reader
		}
		if r.wants(i, head) {
			r.items = append(r.items, i)
			if r.sieve == nil {
				bytes += len(i.Members)
			}
		}
	}
	d.mu.RUnlock()
	if r.sieve != nil {
		end = r.choose(limit, end) // without the lock, which holds up apply
	}
	r.deliverItems()
	return r.window(end, end == head), nil
}

// deliverItems makes the window of the items that were taken from the tail.
func (r *Reader) deliverItems() {
	for _, i := range r.items {
		if i.Position < r.began { // the shared frame has another cursor
			r.out = append(r.out, deliver(r.at(i.Position), &i.Applied))
			continue
		}
		r.out = append(r.out, *i.frame(r.d))
	}
}

// Release lets go of the last window before the next Poll does.
func (r *Reader) Release() {
	clear(r.items)
	clear(r.out)
	clear(r.held)
	r.items, r.out, r.held = r.items[:0], r.out[:0], r.held[:0]
	if r.arena != nil {
		arenas.Put(r.arena)
		r.arena = nil
	}
}

func (r *Reader) window(end uint64, caughtUp bool) Window {
	r.cursor = max(r.cursor, end)
	r.reached.Store(r.cursor)
	if caughtUp {
		r.merge.places = nil
	}
	w := Window{Cursor: r.at(r.cursor), CaughtUp: caughtUp}
	if r.spec.Counted != nil {
		r.count.Matched = uint64(len(r.out))
		r.spec.Counted(r.count)
	}
	r.count = Counts{}
	if !r.spec.Select.All() {
		for i := range r.out {
			r.out[i] = r.shape(&r.out[i])
		}
	}
	w.Deliveries = r.out
	return w
}

// shape builds a delivery with what is selected of another.
func (r *Reader) shape(d *Delivery) Delivery {
	frame := append(make([]byte, 0, len(d.Frame)), d.Frame[:d.json]...)
	out := Delivery{Position: d.Position, Message: d.Message, json: len(frame)}
	frame = r.spec.Select.AppendSelected(frame, d.JSON())
	if event.NeedsLineFold(frame[out.json:]) {
		out.raw = slices.Clone(frame[out.json:])
		event.FoldLines(frame[out.json:])
	}
	out.Frame = append(frame, "\n\n"...)
	return out
}

// removed reports whether the event may be gone from the store for another
// reason than supersession or expiry: the tail must not bring it back.
func (i *item) removed() bool {
	t := i.view.info.Load()
	return i.view.gone.Load() || i.forgotten || i.Position <= t.RetiredTo ||
		i.Flags&store.EventTombstone != 0 && i.Position <= t.RemovedTo
}

// wants reports whether an item of the tail is delivered in a window that is
// taken at head. It is called with mu held.
func (r *Reader) wants(i *item, head uint64) bool {
	if i.LogMillis < r.since {
		return false
	}
	if !r.spec.Expired && i.ExpiryMillis != 0 && i.ExpiryMillis <= max(r.d.space.LogMillis, r.d.now()) {
		return false
	}
	t := i.view.info.Load()
	if r.spec.View == ViewHistory || !t.Policy.Compacts() {
		return true
	}
	by := i.supersededBy.Load()
	return i.Flags&store.EventSuperseded == 0 && (by == 0 || by > head)
}

func (r *Reader) selects(v *view) bool {
	if r.known == nil {
		return v.name == r.topic
	}
	selected, known := r.known[v]
	if !known {
		if len(r.known) >= 4096 { // views of deleted topics would stay for ever
			clear(r.known)
		}
		selected = matches(r.spec.Patterns, v.name)
		r.known[v] = selected
	}
	return selected
}

// arenas holds the memory of frames that were read from the store. A reader
// that is caught up holds none.
var arenas = sync.Pool{New: func() any { return new([]byte) }}

// pollStore is Poll for a reader that is behind the tail.
func (r *Reader) pollStore(limit Limit) (Window, error) {
	d := r.d
	var head uint64
	var now int64
	var topics []*store.Topic
	var removed error
	snapshot := d.store.View(func() {
		d.mu.RLock()
		defer d.mu.RUnlock()
		head, now = r.end(), max(d.space.LogMillis, d.now())
		r.merge.millis = d.space.LogMillis
		if removed = r.checkRemoved(); removed == nil {
			topics = r.behind(limit.Events)
		}
	})
	defer snapshot.Close()
	if removed != nil {
		return Window{}, removed
	}
	var v *evaluator
	if r.sieve != nil {
		v = d.evaluator()
		defer v.release()
	}
	r.arena = arenas.Get().(*[]byte)
	arena := (*r.arena)[:0]
	scanned, bytes := 0, 0
	more := func() bool { return scanned < scannedMax && !v.late() }
	end, done, err := r.merge.step(snapshot, topics, r.cursor, head, limit.Events, func(t *store.Topic, position uint64, row *store.EventRow) bool {
		scanned++
		if row.LogMillis < r.since || (!r.spec.Expired && row.ExpiryMillis != 0 && row.ExpiryMillis <= now) {
			return more()
		}
		e := projector.Applied{Topic: t.Name, Position: position, HLC: row.HLC, Flags: row.Flags, Members: row.Members}
		if r.sieve != nil && !r.passes(v, &e) {
			return more()
		}
		arena = r.keep(arena, &e)
		bytes += len(row.Members)
		return len(r.out) < limit.Events && bytes < limit.Bytes && more()
	})
	*r.arena = arena
	if err != nil {
		return Window{}, err
	}
	d.metrics.Reading.StoreReads.Inc()
	d.metrics.Reading.StoreEvents.Add(float64(len(r.out)))
	return r.window(end, done), nil
}

// behind returns the topics in which the reader is behind, or none while the places
// of their next events are known. It is called with mu held.
func (r *Reader) behind(expect int) (topics []*store.Topic) {
	for len(r.merge.places) > 0 && r.merge.places[0].position <= r.cursor { // it has come further by the tail
		r.merge.pass(1)
	}
	if len(r.merge.places) > 0 {
		r.merge.renew(expect, r.d.asOfNow)
		return nil
	}
	for v := range r.group.views {
		if t := v.info.Load(); t.Last > r.cursor {
			topics = append(topics, t)
		}
	}
	return topics
}

// keep appends a stored event to the window.
func (r *Reader) keep(arena []byte, e *projector.Applied) []byte {
	start := len(arena)
	arena, json := appendFrame(arena, r.at(e.Position), e)
	out := Delivery{Position: e.Position, Message: projector.TicketTopic(e.Topic), Frame: arena[start:len(arena):len(arena)], json: json}
	if e.Flags&store.EventFold != 0 {
		out.raw = appendJSON(nil, e)
	}
	r.out = append(r.out, out)
	return arena
}
