// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"container/heap"
	"errors"
	"math"
	"slices"
	"sync"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/metrics"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// HeldLimits bound what ephemeral topics hold in memory. A zero is the default.
type HeldLimits struct {
	// Topics is how many may hold something: a reader of all of them looks at
	// each. 10,000.
	Topics int
	// Keys is how many a topic may have, removed ones among them until they are
	// forgotten. 100,000.
	Keys int
	// TopicBytes stops one topic from taking the memory of all. 64 MiB.
	TopicBytes int
	// Bytes bounds all topics together. 256 MiB.
	Bytes int
	// Keyless and KeylessBytes are the events without a key that a topic holds
	// for readers that are a little behind; the oldest make room. 1024, 4 MiB.
	Keyless, KeylessBytes int
}

func (l *HeldLimits) fill() {
	l.Topics = cmp.Or(l.Topics, 10_000)
	l.Keys = cmp.Or(l.Keys, 100_000)
	l.TopicBytes = cmp.Or(l.TopicBytes, 64<<20)
	l.Bytes = cmp.Or(l.Bytes, 256<<20)
	l.Keyless = cmp.Or(l.Keyless, 1024)
	l.KeylessBytes = cmp.Or(l.KeylessBytes, 4<<20)
}

const (
	// guardMillis is how long a key that was removed or has expired is
	// remembered: for readers that have not been told, and against older events
	// that come late. After that the topic's floor stands for it. It bounds the
	// memory of keys that come and go.
	guardMillis = 60_000
	// expiredMax bounds what one step expires, and so how long it holds up
	// others; a place makes more room than it takes.
	expiredMax = 16
)

// hub holds the events of ephemeral topics, in memory and nowhere else. They
// have no position but a sequence number, by which each reader knows what it
// has. Nothing in it waits for the disk or for a reader.
//
// Methods that Dispatch calls take mu themselves; decide, checkRoom, put, remove
// and expire are called with mu held for writing.
type hub struct {
	limits   HeldLimits // does not change
	maxDrift int64      // ms; does not change

	mu       sync.RWMutex     // taken after Dispatch.mu where both are held
	boards   map[*view]*board // guarded by mu, and so is all that a board holds
	due      dueHeap          // guarded by mu
	sequence uint64           // of the newest event; guarded by mu
	hlc      event.HLC        // of the newest event; guarded by mu
	bytes    int              // of all boards; guarded by mu
	live     int              // keys that have a value, of all boards; guarded by mu

	metrics *metrics.Ephemeral
}

func newHub(limits HeldLimits, maxDriftMillis int64, m *metrics.Ephemeral) *hub {
	limits.fill()
	return &hub{limits: limits, maxDrift: maxDriftMillis, boards: map[*view]*board{}, metrics: m}
}

// Placed is what became of an event that was published to an ephemeral topic.
type Placed struct {
	HLC        event.HLC
	Superseded bool // its key has a newer one
}

// ErrNotEphemeral says that a topic's events belong in the log.
var ErrNotEphemeral = errors.New("dispatch: the topic is not ephemeral")

// place places events at once, all or none. With an error comes the index of
// the event at fault. It returns ErrNotEphemeral if the topic is no longer so.
func (h *hub) place(v *view, events []*held, now int64, seen event.HLC) (placed []Placed, at int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.gone.Load() || !v.info.Load().Policy.Ephemeral() {
		return nil, 0, ErrNotEphemeral
	}
	h.expire(now, expiredMax)
	h.hlc = max(h.hlc, seen)
	b := h.boards[v]
	if b == nil {
		b = &board{view: v, keys: map[string]*held{}}
	}
	placed = make([]Placed, len(events))
	room := demand{latest: map[string]*held{}}
	for i, e := range events {
		if placed[i], err = h.decide(b, e, now, room.latest); err != nil {
			return nil, i, err
		}
		if !placed[i].Superseded {
			room.add(b, e)
		}
	}
	if refused := h.checkRoom(b, &room); refused != nil {
		return nil, 0, refused
	}
	h.boards[v] = b
	for i, e := range events {
		if !placed[i].Superseded {
			h.put(b, e)
		}
	}
	return placed, 0, nil
}

// decide stamps an event or checks its stamp, and settles whether it wins its
// key. latest holds the winners among those of the same batch.
func (h *hub) decide(b *board, e *held, now int64, latest map[string]*held) (Placed, error) {
	if e.HLC == 0 {
		e.HLC = h.hlc.Next(now)
	} else if refused := projector.CheckDrift(e.HLC, now, h.maxDrift, h.hlc); refused != nil {
		return Placed{}, refused
	}
	h.hlc = max(h.hlc, e.HLC)
	if e.Key == "" {
		return Placed{HLC: e.HLC}, nil
	}
	prior := cmp.Or(latest[e.Key], b.keys[e.Key])
	if prior == nil && e.HLC <= b.floor {
		return Placed{}, event.Errorf(event.CodeHLCStale, "The key is unknown and the event's `hlc` %s is not above the topic's floor %s: a newer value of the key may have been removed. Publish with a current `hlc` if it is still true.", e.HLC, b.floor).
			With("hlc").Fact("floor", b.floor.String())
	}
	return Placed{HLC: e.HLC, Superseded: prior != nil && !e.beats(prior)}, nil
}

// demand is what events that are about to be placed need.
type demand struct {
	latest map[string]*held // by key
	keys   int              // that are new
	bytes  int              // more than is held of their keys now
	loose  int              // bytes of events without a key
}

func (d *demand) add(b *board, e *held) {
	if e.Key == "" {
		d.loose += e.cost()
		return
	}
	d.bytes += e.cost()
	if prior := cmp.Or(d.latest[e.Key], b.keys[e.Key]); prior != nil {
		d.bytes -= prior.cost()
	} else {
		d.keys++
	}
	d.latest[e.Key] = e
}

// checkRoom refuses what would exceed a limit. What takes no more than is there
// already, a tombstone above all, always passes.
func (h *hub) checkRoom(b *board, d *demand) error {
	l := &h.limits
	full := func(format string, args ...any) error {
		return event.Errorf(event.CodeTopicFull, format+" Let values expire sooner, or remove keys with tombstones.", args...)
	}
	switch {
	case d.keys > 0 && len(b.keys)+d.keys > l.Keys:
		return full("Topic %q holds %d keys, and may hold %d.", b.view.name, len(b.keys), l.Keys)
	case d.bytes > 0 && b.bytes+d.bytes > l.TopicBytes:
		return full("Topic %q holds %d bytes, and may hold %d.", b.view.name, b.bytes, l.TopicBytes)
	case d.bytes+d.loose > 0 && h.bytes+d.bytes+max(0, d.loose-b.loose) > l.Bytes:
		return full("The ephemeral topics hold %d bytes, and may hold %d.", h.bytes, l.Bytes)
	case h.boards[b.view] == nil && len(h.boards) >= l.Topics:
		return full("There are %d ephemeral topics that hold something, which is the limit.", l.Topics)
	}
	return nil
}

// put places one event in the stead of its key's last one.
func (h *hub) put(b *board, e *held) {
	if prior := b.keys[e.Key]; prior != nil {
		h.remove(prior)
	}
	h.sequence++
	e.sequence, e.board = h.sequence, b
	b.put(e)
	h.bytes += e.cost()
	if e.value() {
		h.live++
	}
	heap.Push(&h.due, e)
	for len(b.keyless) > 1 && (len(b.keyless) > h.limits.Keyless || b.loose > h.limits.KeylessBytes || h.bytes > h.limits.Bytes) {
		h.remove(b.keyless[0])
	}
}

func (h *hub) remove(v *held) {
	v.board.remove(v)
	h.bytes -= v.cost()
	if v.value() {
		h.live--
	}
	heap.Remove(&h.due, v.heap)
}

// sweep takes out everything that is due. It gives way to others after each
// step, so that a place or a reader never waits for the whole.
func (h *hub) sweep(now int64) {
	for more := true; more; {
		h.mu.Lock()
		more = h.expire(now, expiredMax)
		h.mu.Unlock()
	}
}

// expire takes out what is due, at most that much, and reports whether there
// is more. A value leaves a guard, so that an older one cannot take its place;
// guards and tombstones are forgotten in the end. It is called with mu held.
func (h *hub) expire(now int64, most int) (more bool) {
	for len(h.due) > 0 && h.due[0].due <= now {
		if most--; most < 0 {
			return true
		}
		v := h.due[0]
		h.remove(v)
		if v.Key == "" || v.value() {
			h.metrics.Expired.Inc()
		}
		switch b := v.board; {
		case v.Key == "":
		case v.value():
			guard := &held{Applied: projector.Applied{Key: v.Key, HLC: v.HLC}, board: b, source: v.source, id: v.id, due: now + guardMillis}
			b.setKey(guard)
			h.bytes += guard.cost()
			heap.Push(&h.due, guard)
		default:
			b.floor = max(b.floor, v.HLC)
			b.forgotten = max(b.forgotten, v.sequence)
		}
	}
	return false
}

// drop forgets a topic's board, and returns the sequence that readers must be
// beyond in order not to know anything of it.
func (h *hub) drop(v *view) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.boards[v]
	if b == nil {
		return 0
	}
	delete(h.boards, v)
	h.due = slices.DeleteFunc(h.due, func(e *held) bool { return e.board == b })
	for i, e := range h.due {
		e.heap = i
	}
	heap.Init(&h.due)
	h.bytes -= b.bytes + b.loose
	h.live -= b.values
	h.sequence++
	return h.sequence
}

// spot is a reader's place among the events of ephemeral topics.
type spot struct {
	after uint64 // it has everything up to here
	began uint64 // where the sequence was when it began
}

// next returns what the views hold for a reader, up to a limit, in the order in
// which it was placed; the spot to go on from; and whether that is all. Current
// is false if the reader may know something that is gone without a trace.
func (h *hub) next(views []*view, p spot, now int64, limit Limit, events []*held) (_ []*held, to spot, done, current bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	done, boards := true, 0
	for _, v := range views {
		b := h.boards[v]
		if b == nil {
			continue
		}
		if b.forgotten > max(p.after, p.began) {
			return nil, p, false, false
		}
		boards++
		var more bool
		events, more = b.since(p, now, limit.Events, events)
		done = done && !more
	}
	if boards > 1 {
		slices.SortFunc(events, func(a, b *held) int { return cmp.Compare(a.sequence, b.sequence) })
	}
	taken, bytes := 0, 0
	for taken < len(events) && taken < limit.Events && bytes < limit.Bytes {
		bytes += len(events[taken].Members)
		taken++
	}
	if taken == len(events) && done {
		p.after = h.sequence
		return events, p, true, true
	}
	if taken > 0 {
		p.after = events[taken-1].sequence
	}
	clear(events[taken:])
	return events[:taken], p, false, true
}

// values returns the live values of the views, in the order in which they were
// placed.
func (h *hub) values(views []*view, now int64) (values []*held) {
	all := Limit{Events: math.MaxInt, Bytes: math.MaxInt}
	values, _, _, _ = h.next(views, spot{began: math.MaxUint64}, now, all, nil)
	return values
}

// value returns the live value of a key, or nil.
func (h *hub) value(v *view, key string, now int64) *held {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if b := h.boards[v]; b != nil {
		if e := b.keys[key]; e != nil && e.value() && !e.expired(now) {
			return e
		}
	}
	return nil
}

// figures writes what a topic holds into a copy of its row.
func (h *hub) figures(v *view, t *store.Topic) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if b := h.boards[v]; b != nil {
		t.Events, t.Keys, t.Tombstones = uint64(b.values+len(b.keyless)), uint64(b.values), uint64(len(b.keys)-b.values)
		t.Retained, t.Floor = uint64(b.bytes+b.loose), b.floor
	}
}

// sample tells the metrics that are looked up.
func (h *hub) sample(s metrics.Sample) {
	h.mu.RLock()
	values, boards, bytes := h.live, len(h.boards), h.bytes
	h.mu.RUnlock()
	s.Set("signalbox_ephemeral_values", float64(values))
	s.Set("signalbox_ephemeral_topics", float64(boards))
	s.Set("signalbox_ephemeral_bytes", float64(bytes))
}

// newHeld makes an event to be placed of an admitted one.
func newHeld(t *store.Topic, key string, e *eventlog.Entry, now int64) *held {
	v := &held{source: e.Source, id: e.ID, due: math.MaxInt64, Applied: projector.Applied{
		Topic: t.Name, Key: key, LogMillis: now, HLC: e.HLC, ExpiryMillis: e.ExpiryMillis, Members: e.Members,
	}}
	if e.Flags&eventlog.FlagFold != 0 {
		v.Flags |= store.EventFold
	}
	if r := t.Policy.Retention; r != nil {
		v.due = now + r.Std().Milliseconds()
	}
	if e.ExpiryMillis != 0 {
		v.due = min(v.due, e.ExpiryMillis)
	}
	if e.Flags&eventlog.FlagBare != 0 && key != "" {
		v.Flags |= store.EventTombstone
		v.due = now + guardMillis
	}
	return v
}

// dueHeap orders events by when they are due; see container/heap.
type dueHeap []*held

func (q dueHeap) Len() int           { return len(q) }
func (q dueHeap) Less(i, j int) bool { return q[i].due < q[j].due }

func (q dueHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].heap, q[j].heap = i, j
}

func (q *dueHeap) Push(v any) {
	e := v.(*held)
	e.heap = len(*q)
	*q = append(*q, e)
}

func (q *dueHeap) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
