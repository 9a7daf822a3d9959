// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/filter"
	"signalbox/internal/store"
)

// Views of a topic.
const (
	ViewDefault = ""        // current where the topic is compacted, else history
	ViewCurrent = "current" // of each key the winner only
	ViewHistory = "history" // whatever is retained
)

// Start says where a reader begins. The zero value is the oldest event that is
// retained; at most one field is set.
type Start struct {
	Cursor  *event.Cursor
	Now     bool
	Time    time.Time
	EventID string // after the event with this id; of a single topic
	// Exact says that the cursor is the place of a reader that was there before:
	// its @0 is a place, and not whatever is the oldest now.
	Exact bool
}

// Spec says what a reader reads.
type Spec struct {
	Patterns []event.Pattern // at least one
	Start    Start
	View     string
	Filter   *filter.Filter  // nil: everything
	Live     Mark            // where to begin on ephemeral topics
	Durable  bool            // nothing of ephemeral topics, which have no cursor
	Since    time.Time       // skip what was applied before
	Counted  func(Counts)    // is told of each window with a filter; may be nil
	Select   event.Selection // what of the events is delivered
	Expired  bool            // events that are stored though their expirytime has come, too
	// Check is asked of each window before it is delivered, and its error ends the
	// reader. May be nil.
	Check func() error
	// Withheld reports whether the ticket message at a position is kept from this reader,
	// which steps over it. May be nil.
	Withheld func(position uint64) (bool, error)
}

// Counts say what a filter made of the events of a window.
type Counts struct {
	Matched, Dropped uint64
	Failed           uint64 // of those that were dropped: the filter met an error
}

// Limit bounds one window. A window holds at least one event, if there is one.
type Limit struct {
	Events int
	Bytes  int
}

// Window is a step of a reader.
type Window struct {
	Deliveries []Delivery // in the order of their positions, then those without one
	Cursor     event.Cursor
	// CaughtUp says that with this window the reader has everything that was
	// durable when the window was taken, as of Cursor.
	CaughtUp bool
}

// scannedMax bounds the rows that one window steps over, and so the time that
// a poll takes however few of them are delivered.
const scannedMax = 10_000

// Reader is a cursor over the events of some topics. It belongs to one
// goroutine.
type Reader struct {
	d      *Dispatch
	group  *group
	sieve  *sieve // nil without a filter
	spec   Spec
	topic  string // the one topic, if it is one by name
	waits  bool   // it may read ticket messages, and some may be held
	cursor uint64
	since  int64  // skip what was applied before this log time
	began  uint64 // removals up to here took nothing from this reader
	spot   spot   // on ephemeral topics
	sifted sifted // with a filter
	count  Counts // of the window that is being taken
	merge  merge  // of what is behind the tail

	reached atomic.Uint64 // a copy of cursor that others may look at

	known map[*view]bool // whether a view matches; nil for a single topic
	items []*item        // scratch
	hits  []hit          // scratch
	held  []*held        // scratch
	out   []Delivery     // valid until the next Poll
	arena *[]byte        // of frames read from the store
}

// Open returns a reader. It fails with code cursor_foreign, cursor_expired,
// cursor_unknown, cursor_invalid or view_invalid. A topic that does not exist
// yet is an empty stream. The reader must be closed.
func (d *Dispatch) Open(spec Spec) (*Reader, error) {
	r := &Reader{d: d, spec: spec, sifted: sifted{epoch: -1}, merge: merge{all: spec.View == ViewHistory}}
	name, exact := spec.Patterns[0].Exact()
	if exact && len(spec.Patterns) == 1 {
		r.topic = name
	} else {
		r.known = map[*view]bool{}
	}
	r.group = d.join(spec.Patterns)
	r.waits = slices.ContainsFunc(spec.Patterns, d.mayHaveMessages)
	err := r.checkView()
	if err == nil {
		err = r.start(spec.Start)
		r.startLive(spec.Live)
	}
	if err != nil {
		d.leave(r.group)
		return nil, err
	}
	r.sieve = d.sift(r.group, spec.Filter)
	r.reached.Store(r.cursor)
	d.readers.enter(r)
	return r, nil
}

// Close releases the reader.
func (r *Reader) Close() {
	r.Release()
	r.d.readers.leave(r)
	if r.sieve != nil {
		r.sieve.unsift()
	}
	r.d.leave(r.group)
}

// Cursor is what the reader has stepped over.
func (r *Reader) Cursor() event.Cursor { return r.at(r.cursor) }

// at is the reader's cursor at a position. While it is before removals that the
// reader began after, the cursor says so, or it could not be resumed.
func (r *Reader) at(position uint64) event.Cursor {
	c := r.d.cursor(position)
	if position < r.began {
		c.Began = r.began
	}
	return c
}

// Changed returns a channel that is closed when something on the reader's
// topics becomes durable that passes its filter, and from time to time for
// nothing. Take it before the Poll that finds nothing.
func (r *Reader) Changed() <-chan struct{} {
	if r.sieve != nil {
		return r.sieve.changes()
	}
	return r.group.changes()
}

func (r *Reader) checkView() error {
	switch r.spec.View {
	case ViewDefault:
		return nil
	case ViewCurrent, ViewHistory:
	default:
		return event.Errorf(event.CodeViewInvalid, "There is no view %q; the views are `current` and `history`.", r.spec.View).With("view")
	}
	for _, p := range r.spec.Patterns {
		name, exact := p.Exact()
		if !exact {
			continue
		}
		t, err := r.d.Topic(name)
		switch current := r.spec.View == ViewCurrent; {
		case err != nil:
		case t.Policy.Ephemeral() && !current:
			return event.Errorf(event.CodeViewInvalid, "Topic %q is ephemeral, so its only view is `current`.", name).With("view")
		case !t.Policy.Ephemeral() && !t.Policy.Compacts() && current:
			return event.Errorf(event.CodeViewInvalid, "Topic %q is not compacted, so its only view is `history`.", name).With("view")
		}
	}
	return nil
}

func (r *Reader) start(s Start) error {
	if !r.spec.Since.IsZero() {
		r.since = r.spec.Since.UnixMilli()
	}
	switch {
	case s.Now:
		r.cursor = r.d.Head().Position
	case !s.Time.IsZero():
		return r.startAt(s.Time.UnixMilli())
	case s.EventID != "":
		return r.startAfter(s.EventID)
	case s.Cursor != nil && (s.Cursor.Position > 0 || s.Exact):
		return r.resume(*s.Cursor)
	default:
		r.fromOldest()
	}
	return nil
}

// fromOldest begins at the oldest retained event: whatever was removed so far
// is not missed.
func (r *Reader) fromOldest() {
	r.d.mu.RLock()
	defer r.d.mu.RUnlock()
	r.cursor = 0
	for v := range r.group.views {
		r.began = max(r.began, v.info.Load().RemovedTo)
	}
}

func (r *Reader) resume(c event.Cursor) error {
	r.d.mu.RLock()
	defer r.d.mu.RUnlock()
	r.cursor, r.began = c.Position, c.Began
	if c.Incarnation != "" && c.Incarnation != r.d.incarnation {
		return r.facts(event.Errorf(event.CodeCursorForeign, "The cursor %s belongs to another log: this one was created or restored since. %s", c, r.recovery()))
	}
	if max(c.Position, c.Began) > r.d.head {
		return r.facts(event.Errorf(event.CodeCursorForeign, "The cursor %s is beyond the log's head %s. %s", c, r.d.cursor(r.d.head), r.recovery()))
	}
	return r.checkRemoved()
}

// checkRemoved fails if something after the cursor was removed that is not
// merely superseded or expired, and says up to where. It is called with mu held.
func (r *Reader) checkRemoved() error {
	last := &store.Topic{}
	for v := range r.group.views {
		if t := v.info.Load(); t.RemovedTo > last.RemovedTo {
			last = t
		}
	}
	if last.RemovedTo <= max(r.cursor, r.began) {
		return nil
	}
	return r.facts(event.Errorf(event.CodeCursorExpired, "Something after the cursor %s was removed, from topic %q up to position %d. %s", r.Cursor(), last.Name, last.RemovedTo, r.recovery())).
		Fact("removed_to", r.d.cursor(last.RemovedTo).String())
}

// recovery says what a client can do: only compacted topics have a state to
// begin from. The place of a subscription is a place to begin at, and is never reset. It
// is called with mu held.
func (r *Reader) recovery() string {
	state, oldest := "Read the state and follow from its cursor, or start again at the oldest with `on_reset=earliest`.", "Start again at the oldest, or with `on_reset=earliest`."
	if r.spec.Durable {
		state, oldest = "Begin at the cursor of the state, once you have read that, or at `earliest`.", "Begin at `earliest`."
	}
	for v := range r.group.views {
		if t := v.info.Load(); !t.Deleted && t.Policy.Compacts() {
			return state
		}
	}
	return oldest
}

// facts adds what a client needs to recover. It names no more topics than can be
// asked for at once; of more, the reader's patterns speak. It is called with mu
// held.
func (r *Reader) facts(e *event.Error) *event.Error {
	topics := []string{}
	compacted := []string{}
	oldest, views := uint64(0), 0
	for v := range r.group.views {
		t := v.info.Load()
		oldest = Oldest(t)
		views++
		if t.RemovedTo > r.cursor {
			topics = append(topics, t.Name)
		}
		if !t.Deleted && t.Policy.Compacts() {
			compacted = append(compacted, t.Name)
		}
	}
	slices.Sort(topics)
	topics = topics[:min(len(topics), event.MaxPatterns)]
	slices.Sort(compacted)
	if len(compacted) > event.MaxPatterns {
		compacted = r.statePatterns(compacted)
	}
	if views > 1 { // of several topics only the beginning is before everything
		oldest = 0
	}
	e = e.Fact("oldest", r.d.cursor(oldest).String()).Fact("head", r.d.cursor(r.d.head).String()).Fact("topics", topics)
	if len(compacted) > 0 {
		e = e.Fact("state", "/v1/state?topics="+strings.Join(compacted, ","))
	}
	return e
}

// statePatterns are the reader's patterns without the names of topics that are
// not among the compacted ones.
func (r *Reader) statePatterns(compacted []string) (list []string) {
	for _, p := range r.spec.Patterns {
		name, exact := p.Exact()
		if _, has := slices.BinarySearch(compacted, name); exact && !has {
			continue
		}
		list = append(list, strings.ReplaceAll(p.Except("").String(), ">", "%3E"))
	}
	return list
}

// startAt begins at the first event applied at or after a log time.
func (r *Reader) startAt(millis int64) error {
	r.since = millis
	position, ok, err := r.d.store.MinuteAtOrBefore(millis / 60_000)
	if err != nil {
		return err
	}
	r.fromOldest()
	if ok {
		r.cursor = min(position-1, r.d.Head().Position)
	}
	return nil
}

// startAfter begins after the event with an id, looked up in the one topic
// within the deduplication window. Where several sources have used the id, it
// is the first of them, so that nothing is missed.
func (r *Reader) startAfter(id string) error {
	if r.topic == "" {
		return event.Errorf(event.CodeCursorInvalid, "Last-Event-ID %q is no cursor, and an event id can be looked up in a single topic only.", id).With("Last-Event-ID")
	}
	r.d.mu.RLock()
	space, v := r.d.space, r.d.topics[r.topic]
	r.d.mu.RUnlock()
	first := uint64(0)
	for back := uint32(0); v != nil && back <= min(1, space.Generation); back++ {
		err := r.d.store.SeenByID(space.Generation-back, v.info.Load().Number, event.HashID(id), func(row store.SeenRow) {
			known := row.Position <= space.Position && space.LogMillis-row.LogMillis < r.d.dedupMillis
			if known && (first == 0 || row.Position < first) {
				first = row.Position
			}
		})
		if err != nil {
			return err
		}
	}
	if first > 0 {
		return r.resume(r.d.cursor(first))
	}
	r.d.mu.RLock()
	defer r.d.mu.RUnlock()
	return r.facts(event.Errorf(event.CodeCursorUnknown, "No event with id %q was published to topic %q lately. %s", id, r.topic, r.recovery()))
}
