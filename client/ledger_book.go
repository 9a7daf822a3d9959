// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"signalbox/event"
)

// marksKept is how many effects are remembered whose events are no longer the winner of any key: a broker that was
// restored from a backup may deliver them once more. 32 bytes each.
const marksKept = 1 << 16

// effectID identifies the effect of one event, on whatever log and at whatever position it is delivered.
type effectID [16]byte

func effectOf(ev *event.Event) effectID {
	h := sha256.New()
	for _, part := range []string{ev.Topic(), ev.Source(), ev.ID()} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return effectID(h.Sum(nil)[:16])
}

// mark says how far an effect has come.
type mark struct {
	made  uint64    // its place among the marks; the oldest are forgotten first
	stamp event.HLC // drawn when the effect began, the same at every further attempt
	done  bool
}

// row is what the book holds about a key. A winner that is a tombstone, or has expired, stays for a while: it keeps
// older events of its key out.
type row struct {
	event    *event.Event
	involved bool // some event of the key was acted on
}

// book is a ledger's contents: for every key the event with the highest (HLC, source, id) that was ever put in. It is
// not safe for concurrent use.
type book struct {
	topics map[string]map[string]*row
	rows   int
	marks  map[effectID]*mark
	made   uint64 // the place of the last mark
	sweep  int    // the number of marks at which old ones are looked for

	cursor event.Cursor
	clock  event.HLC
	log    time.Time // the latest log time that was heard of
}

func newBook() *book {
	return &book{topics: map[string]map[string]*row{}, marks: map[effectID]*mark{}, sweep: marksKept}
}

// verdictOnEvent is what became of an event that was offered to the book.
type verdictOnEvent uint8

const (
	eventWins verdictOnEvent = iota
	eventRepeats
	eventAntecedes
)

// judge decides whether an event would win its key, and names the row that it met.
func (b *book) judge(key string, ev *event.Event) (verdictOnEvent, *row) {
	r := b.topics[ev.Topic()][key]
	switch {
	case r == nil && ev.Superseded():
		// What it lost against was removed before this book could see it.
		return eventAntecedes, nil
	case r == nil || beats(ev, r.event):
		return eventWins, r
	case beats(r.event, ev):
		return eventAntecedes, r
	}
	return eventRepeats, r
}

// put makes an event the winner of its key.
func (b *book) put(key string, ev *event.Event, involved bool) {
	topic := b.topics[ev.Topic()]
	if topic == nil {
		topic = map[string]*row{}
		b.topics[ev.Topic()] = topic
	}
	if r := topic[key]; r != nil {
		r.event, r.involved = ev, r.involved || involved
		return
	}
	topic[key] = &row{event: ev, involved: involved}
	b.rows++
}

// drop forgets a key.
func (b *book) drop(topic, key string) {
	if b.topics[topic][key] == nil {
		return
	}
	delete(b.topics[topic], key)
	if b.rows--; len(b.topics[topic]) == 0 {
		delete(b.topics, topic)
	}
}

// clear forgets all keys; the marks of effects stay.
func (b *book) clear() { b.topics, b.rows = map[string]map[string]*row{}, 0 }

// entry is a row as the agent sees it.
func (b *book) entry(key string, r *row) Entry {
	e := Entry{Topic: r.event.Topic(), Key: key, Event: r.event, Involved: r.involved}
	if m := b.marks[effectOf(r.event)]; m != nil {
		e.Acted = m.done
	}
	return e
}

// all gives every row, in no order.
func (b *book) all() iter.Seq2[string, *row] {
	return func(yield func(string, *row) bool) {
		for _, topic := range b.topics {
			for key, r := range topic {
				if !yield(key, r) {
					return
				}
			}
		}
	}
}

// entries returns all rows by position: the order in which they came to be.
func (b *book) entries() []Entry {
	out := make([]Entry, 0, b.rows)
	for key, r := range b.all() {
		out = append(out, b.entry(key, r))
	}
	slices.SortFunc(out, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(x.Event.Position(), y.Event.Position()), cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Key, y.Key))
	})
	return out
}

// mark notes how far an effect has come. A stamp, once given, stays.
func (b *book) mark(id effectID, stamp event.HLC, done bool) {
	m := b.marks[id]
	if m == nil {
		b.made++
		m = &mark{made: b.made, stamp: stamp}
		b.marks[id] = m
	}
	m.done = m.done || done
	if len(b.marks) > b.sweep {
		b.forgetMarks()
	}
}

// forgetMarks drops the oldest marks that no winner needs.
func (b *book) forgetMarks() {
	needed := make(map[effectID]bool, b.rows)
	for _, r := range b.all() {
		needed[effectOf(r.event)] = true
	}
	var spare []effectID
	for id := range b.marks {
		if !needed[id] {
			spare = append(spare, id)
		}
	}
	slices.SortFunc(spare, func(x, y effectID) int { return cmp.Compare(b.marks[x].made, b.marks[y].made) })
	for _, id := range spare[:max(0, len(spare)-marksKept/2)] {
		delete(b.marks, id)
	}
	b.sweep = len(b.marks) + marksKept/2
}

// hidden returns the keys whose winners stopped being a state so long before a time that the broker has forgotten them
// as well.
func (b *book) hidden(before time.Time) (keys [][2]string) {
	for key, r := range b.all() {
		if live(r.event, before) || r.event.HLC().Millis() >= before.UnixMilli() {
			continue
		}
		keys = append(keys, [2]string{r.event.Topic(), key})
	}
	return keys
}

// digest sums up what the book holds of one topic.
func (b *book) digest(topic string, at time.Time) *Digest {
	d := &Digest{Topic: topic, Cursor: b.cursor, LogTime: at}
	for key, r := range b.topics[topic] {
		if live(r.event, at) {
			d.add(key, r.event)
		}
	}
	return d
}
