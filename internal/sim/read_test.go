// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/filter"
)

const readersMax = 12

// pollAll is a window that is large enough for everything.
var pollAll = dispatch.Limit{Events: 100_000, Bytes: 64 << 20}

// reader is a client that follows topics. It is more often away than not, and has
// its cursor.
type reader struct {
	list     string
	patterns []event.Pattern
	view     string
	at       event.Cursor // what it has; the zero value: nothing yet
	since    int64        // log time from which on it wants events
	made     bool         // it wants those of type made only
	counts   dispatch.Counts
	reader   *dispatch.Reader
}

func (r *reader) String() string { return fmt.Sprintf("%s %q at %s", r.list, r.view, r.at) }

func (r *reader) close() {
	if r.reader != nil {
		r.reader.Close()
		r.reader = nil
	}
}

func (r *reader) matches(t *topic) bool {
	return slices.ContainsFunc(r.patterns, func(p event.Pattern) bool { return p.Match(t.name) })
}

// removedTo is the last removal that a reader could have missed.
func (w *world) removedTo(r *reader) (position uint64) {
	for _, t := range w.model.topics {
		if r.matches(t) {
			position = max(position, t.removedTo)
		}
	}
	return position
}

// stepFollow lets a new reader begin, in the place of an old one if there are
// many.
func stepFollow(w *world) {
	r := &reader{
		list: pick(w.rng, ">", "state.*", "log.*,auto.>", "state.kept", "state.lagged", "state.both", "log.short", "log.sized", "auto.1", "state.short,log.kept", "log.kept,state.short"),
		view: pick(w.rng, dispatch.ViewDefault, dispatch.ViewDefault, dispatch.ViewHistory, dispatch.ViewCurrent),
	}
	r.made = w.rng.IntN(3) == 0
	r.patterns = patterns(r.list)
	start := dispatch.Start{}
	begin := "the oldest"
	switch w.rng.IntN(8) {
	case 0:
		start.Now, begin = true, "now"
		r.at = w.cursor(w.model.position)
	case 1:
		since := w.clock.Wall().Add(-upTo(w.rng, pick(w.rng, time.Minute, 3*time.Hour)))
		start.Time, r.since, begin = since, since.UnixMilli(), since.String()
	}
	err := w.openReader(r, start)
	if err != nil {
		if code(err) == event.CodeViewInvalid && w.viewInvalid(r) {
			return
		}
		w.fail("a reader of %s from %s: %v", r, begin, err)
	}
	w.note("reader %s from %s", r, begin)
	if len(w.readers) < readersMax {
		w.readers = append(w.readers, r)
		return
	}
	i := w.rng.IntN(readersMax)
	w.readers[i].close()
	w.readers[i] = r
}

// viewInvalid reports whether a topic that a reader names has not got its view.
func (w *world) viewInvalid(r *reader) bool {
	return r.view == dispatch.ViewCurrent && slices.ContainsFunc(r.patterns, func(p event.Pattern) bool {
		name, exact := p.Exact()
		t := w.model.topics[name]
		return exact && t != nil && !t.deleted && !t.policy.Compacts()
	})
}

func (w *world) openReader(r *reader, start dispatch.Start) (err error) {
	request := broker.ReadRequest{Patterns: r.patterns, View: r.view, Start: start, Durable: true}
	if r.made {
		request.Counted = func(c dispatch.Counts) { r.counts = c }
		if request.Filter, err = filter.ParseText("type = 'made'"); err != nil {
			return err
		}
	}
	r.reader, err = w.broker.Read(request)
	return err
}

// stepRead lets a reader go on: one that is away comes back with its cursor.
func stepRead(w *world) {
	if len(w.readers) == 0 {
		return
	}
	w.read(w.readers[w.rng.IntN(len(w.readers))], dispatch.Limit{Events: pick(w.rng, 1, 5, 100_000), Bytes: pick(w.rng, 300, 64<<20)})
}

// stepLeave disconnects a reader.
func stepLeave(w *world) {
	if len(w.readers) > 0 {
		w.readers[w.rng.IntN(len(w.readers))].close()
	}
}

func (w *world) read(r *reader, limit dispatch.Limit) {
	if r.reader == nil && !w.resume(r) {
		return
	}
	for range 1 + w.rng.IntN(3) {
		if !w.poll(r, limit) {
			return
		}
	}
}

// resume opens a reader at its cursor. Where that cannot be, the reader is told
// why, and begins at the oldest.
func (w *world) resume(r *reader) bool {
	at := r.at
	r.since = 0 // it asks by its cursor from now on
	if w.rng.IntN(8) == 0 {
		at.Incarnation = "" // the short form
	}
	err := w.openReader(r, dispatch.Start{Cursor: &at})
	foreign := at.Position > 0 && (at.Incarnation != "" && at.Incarnation != w.model.settings.IncarnationName || max(at.Position, at.Began) > w.model.position)
	expired := at.Position > 0 && w.removedTo(r) > max(at.Position, at.Began)
	switch got := code(err); {
	case got == event.CodeViewInvalid && w.viewInvalid(r):
		return false // its topic was made anew, of another kind
	case foreign != (got == event.CodeCursorForeign), !foreign && expired != (got == event.CodeCursorExpired), err != nil && !foreign && !expired:
		w.fail("reader %s resumes: %v; foreign %t, expired %t", r, err, foreign, expired)
	case err == nil:
		return true
	default:
		w.note("reader %s resumes: %s", r, got)
		w.counts["resets"]++
	}
	r.at = event.Cursor{}
	if err := w.openReader(r, dispatch.Start{}); err != nil {
		w.fail("reader %s begins anew: %v", r, err)
	}
	return true
}

// poll takes a window and judges it. It reports whether there is more.
func (w *world) poll(r *reader, limit dispatch.Limit) (more bool) {
	from := r.reader.Cursor()
	window, err := r.reader.Poll(limit)
	missed := w.removedTo(r) > max(from.Position, from.Began)
	if err != nil {
		if code(err) != event.CodeCursorExpired || !missed {
			w.fail("reader %s polls: %v", r, err)
		}
		w.note("reader %s was told of a removal", r)
		w.counts["resets"]++
		r.close()
		r.at = event.Cursor{}
		return false
	}
	to := window.Cursor
	switch {
	case to.Position < from.Position, to.Position > w.model.position:
		w.fail("reader %s went from %s to %s, and the head is %d", r, from, to, w.model.position)
	case window.CaughtUp && to.Position != w.model.position: // a window that ended at its limit may not know that it is at the head
		w.fail("reader %s is at %s, the head is %d, and caught up is %t", r, to, w.model.position, window.CaughtUp)
	case to.Position == from.Position && !window.CaughtUp:
		w.fail("reader %s does not get on", r)
	case r.made && r.counts.Matched+r.counts.Dropped > to.Position-from.Position:
		w.fail("reader %s went from %s to %s, and counts %+v", r, from, to, r.counts)
	case len(window.Deliveries) > limit.Events:
		w.fail("reader %s asked for %d events and got %d", r, limit.Events, len(window.Deliveries))
	}
	if missed && !r.made { // it may have wanted nothing of it
		w.checkMissed(r, from, to.Position)
	}
	w.checkWindow(r, from.Position, to.Position, window.Deliveries)
	w.note("reader %s got %d up to %s", r, len(window.Deliveries), to)
	w.counts["deliveries"] += len(window.Deliveries)
	r.at = to
	return !window.CaughtUp
}

// checkMissed: a window with a removal in it must not be given out.
func (w *world) checkMissed(r *reader, from event.Cursor, to uint64) {
	after := max(from.Position, from.Began)
	for _, t := range w.model.topics {
		for _, removal := range t.removals {
			if r.matches(t) && removal > after && removal <= to {
				w.fail("reader %s stepped from %s to %d and was not told that %s had a removal at %d", r, from, to, t.name, removal)
			}
		}
	}
}

// checkWindow compares what a reader got of (from, to] with what it must get.
func (w *world) checkWindow(r *reader, from, to uint64, got []dispatch.Delivery) {
	now := w.broker.LogMillis()
	var candidates []*item
	for _, t := range w.model.topics {
		if !r.matches(t) {
			continue
		}
		for _, e := range t.events {
			if e.position > from && e.position <= to && e.millis >= r.since && (e.expiryMillis == 0 || e.expiryMillis > now) {
				if !r.made || e.typ == "made" {
					candidates = append(candidates, e)
				}
			}
		}
	}
	slices.SortFunc(candidates, func(a, b *item) int { return int(a.position) - int(b.position) })
	for _, e := range candidates {
		must, may := w.wants(r, e)
		if len(got) == 0 || got[0].Position != e.position {
			if must {
				w.fail("reader %s did not get %s", r, e)
			}
			continue
		}
		if !may {
			w.fail("reader %s got %s, which it must not", r, e)
		}
		w.checkEvent(&got[0], e)
		got = got[1:]
	}
	if len(got) > 0 {
		w.fail("reader %s, in (%d, %d], got %s", r, from, to, got[0].JSON())
	}
}

// wants says what a reader must get and what it may get, of what has not expired.
func (w *world) wants(r *reader, e *item) (must, may bool) {
	t := w.model.topics[e.topic]
	switch {
	case !t.policy.Compacts():
		return t.shows(e), t.shows(e)
	case t.keys[e.key] == e:
		return t.shows(e), t.shows(e)
	case r.view != dispatch.ViewHistory:
		return false, false
	}
	must = e.kept && e.position > t.retired && !w.model.past(t, e)
	return must, must || e.position > w.began // what the broker has in memory it may show for longer
}

func (w *world) checkEvent(d *dispatch.Delivery, want *item) {
	got := w.decode(d)
	key, _ := got.Key()
	keyed := !w.model.topics[want.topic].policy.Compacts() || key == "" || key == want.key
	if d.Position != want.position || got.Position() != want.position || got.ID() != want.id || got.Source() != want.source || got.Topic() != want.topic ||
		got.HLC() != want.hlc || got.Superseded() != want.late || !keyed {
		w.fail("what was delivered is %s, and must be %s", d.JSON(), want)
	}
}

func (e *item) String() string {
	return fmt.Sprintf("%s@%d %s/%s key %q hlc %s (late %t, kept %t, hidden %t, tombstone %t, expires %d)",
		e.topic, e.position, e.source, e.id, e.key, e.hlc, e.late, e.kept, e.hidden, e.tombstone, e.expiryMillis)
}

// stepFind lets a reader begin after an event that it knows by its id.
func stepFind(w *world) {
	if len(w.sent) == 0 {
		return
	}
	q := w.sent[w.rng.IntN(len(w.sent))]
	id := q.Events[w.rng.IntN(len(q.Events))].ID()
	want := uint64(0)
	if t := w.model.topics[q.Topic]; t != nil {
		for who, s := range t.seen {
			if who[1] == id && w.model.millis-s.millis < w.model.settings.DedupMillis && (want == 0 || s.position < want) {
				want = s.position
			}
		}
	}
	r := &reader{list: q.Topic, patterns: patterns(q.Topic)}
	err := w.openReader(r, dispatch.Start{EventID: id})
	defer r.close()
	must := event.Code("")
	switch {
	case want == 0:
		must = event.CodeCursorUnknown
	case w.removedTo(r) > want:
		must = event.CodeCursorExpired
	}
	if code(err) != must {
		w.fail("a reader of %s after event %s: %v, and must be %q at %d", q.Topic, id, err, must, want)
	}
	if err == nil && r.reader.Cursor() != w.cursor(want) {
		w.fail("a reader of %s after event %s is at %s, and must be at %d", q.Topic, id, r.reader.Cursor(), want)
	}
}
