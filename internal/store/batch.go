// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"signalbox/internal/eventlog"
)

// Batch collects the writes of one commit. A later write to a key wins over an
// earlier one.
//
// It is kept in the form in which Pebble logs a batch (see its batchrepr), so
// that rows are encoded where they will be read from, a refused batch of events
// is taken back by cutting the end off, and the memory is used again.
type Batch struct {
	// The writes by kind of row, each in order; no key is in two of them, but
	// that an event may be set in rows and removed in removed, which comes
	// later. A memtable takes neighbouring keys faster than scattered ones, and one
	// ticket message writes rows of half a dozen kinds.
	rows, removed, winners, seen, timers section
	messages                             [len(messageKinds)]section // by their places there

	sights []sight        // the records in seen, for the filter
	lists  []keyListWrite // the lists of keys in rows, to be remembered
	joined []byte         // the sections behind each other, for the commit
	store  *Store
}

// sight is a deduplication record on its way into the filter.
type sight struct {
	generation uint32
	place      seenPlace
	identity   [2]uint64
}

// Mark is a place in a batch: how far each section went.
type Mark struct {
	sections [sections]section
	sights   int
	lists    int
}

const sections = 5 + len(messageKinds)

func (b *Batch) sections() (all [sections]*section) {
	n := copy(all[:], []*section{&b.rows, &b.removed, &b.winners, &b.seen, &b.timers})
	for i := range b.messages {
		all[n+i] = &b.messages[i]
	}
	return all
}

// A batch that would fill half a memtable is not copied into one: Pebble keeps
// it, and then its memory is not ours to use again. These bounds stay well
// below that, counting what a memtable needs for each write at the most.
const (
	batchKeptBytes   = memtableBytes / 4
	writeOverheadMax = 512
)

// NewBatch returns an empty batch.
func (s *Store) NewBatch() *Batch {
	b, ok := s.batches.Get().(*Batch)
	if !ok {
		b = &Batch{store: s}
	}
	for _, w := range b.sections() {
		w.data, w.count = w.data[:0], 0
	}
	b.sights, b.lists, b.joined = b.sights[:0], b.lists[:0], b.joined[:0]
	return b
}

// Close gives the batch's memory back, once its commit has returned.
func (b *Batch) Close() {
	writes, _ := b.Size()
	if cap(b.joined)+writes*writeOverheadMax <= batchKeptBytes {
		b.store.batches.Put(b)
	}
}

// Size returns how many writes the batch has, and how many bytes they are.
func (b *Batch) Size() (writes, bytes int) {
	for _, w := range b.sections() {
		writes, bytes = writes+int(w.count), bytes+len(w.data)
	}
	return writes, bytes
}

// Mark returns the end of the batch, for Cut.
func (b *Batch) Mark() (m Mark) {
	for i, w := range b.sections() {
		m.sections[i] = *w
	}
	m.sights, m.lists = len(b.sights), len(b.lists)
	return m
}

// Cut takes back what was written since the mark.
func (b *Batch) Cut(m Mark) {
	for i, w := range b.sections() {
		w.data, w.count = w.data[:len(m.sections[i].data)], m.sections[i].count
	}
	b.sights, b.lists = b.sights[:m.sights], b.lists[:m.lists]
}

// commit hands the batch to Pebble.
func (b *Batch) commit(db *pebble.DB, o *pebble.WriteOptions) error {
	b.fillFilter()
	size, count := batchrepr.HeaderLen, uint32(0)
	for _, w := range b.sections() {
		size += len(w.data)
		count += w.count
	}
	if count == 0 {
		return nil
	}
	b.joined = append(slices.Grow(b.joined[:0], size), make([]byte, batchrepr.HeaderLen)...)
	for _, w := range b.sections() {
		b.joined = append(b.joined, w.data...)
	}
	batchrepr.SetCount(b.joined, count)
	batch := db.NewBatch()
	if err := batch.SetRepr(b.joined); err != nil {
		return err
	}
	if err := batch.Commit(o); err != nil { // and not closed: that would put our memory into Pebble's pool
		return err
	}
	b.store.lists.committed(b.lists)
	return nil
}

// fillFilter adds the records, and stores the filters that they complete.
func (b *Batch) fillFilter() {
	for i := range b.sights {
		s := &b.sights[i]
		if filter := b.store.seen.add(s.generation, s.place, s.identity); filter != nil {
			w := &b.rows
			at := w.begin(pebble.InternalKeyKindSet)
			w.data = appendSegmentKey(w.data, prefixFilter, s.generation, s.place.segment)
			w.end(at)
			at = w.length()
			w.data = filter.append(w.data)
			w.end(at)
		}
	}
}

// nextPlace is where the next deduplication record of a generation goes.
func (b *Batch) nextPlace(generation uint32) seenPlace {
	if n := len(b.sights); n > 0 && b.sights[n-1].generation == generation {
		return b.sights[n-1].place.next()
	}
	return b.store.seen.next(generation)
}

// section is a run of writes. A write is begun with its kind and key, and one
// that has a value is ended behind it.
type section struct {
	data  []byte
	count uint32
}

// lengthBytes is the size of a length, which is a varint but known only at the
// end: the bytes that it does not need say that there is more, and that it is
// nothing.
const lengthBytes = 4

func (w *section) begin(kind pebble.InternalKeyKind) (key int) {
	w.count++
	w.data = append(w.data, byte(kind))
	return w.length()
}

func (w *section) length() (at int) {
	w.data = append(w.data, 0, 0, 0, 0)
	return len(w.data)
}

// end writes the length of what has been appended since at. It panics at more
// than 256 MiB; events are limited to far less.
func (w *section) end(at int) {
	n := len(w.data) - at
	if n >= 1<<(7*lengthBytes) {
		panic(fmt.Sprintf("store: a row of %d bytes", n))
	}
	for i := range lengthBytes - 1 {
		w.data[at-lengthBytes+i] = byte(n) | 0x80
		n >>= 7
	}
	w.data[at-1] = byte(n)
}

// write appends a write whose key and value are at hand.
func (w *section) write(kind pebble.InternalKeyKind, key, value []byte) {
	at := w.begin(kind)
	w.data = append(w.data, key...)
	w.end(at)
	if kind != pebble.InternalKeyKindDelete && kind != pebble.InternalKeyKindSingleDelete {
		at = w.length()
		w.data = append(w.data, value...)
		w.end(at)
	}
}

func (w *section) deleteRange(start, end []byte) {
	w.write(pebble.InternalKeyKindRangeDelete, start, end)
}

// SetEvent stores an event. It is called once for each position.
func (b *Batch) SetEvent(topic uint32, position uint64, row *EventRow) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendEventKey(w.data, topic, position)
	w.end(at)
	at = w.length()
	w.data = row.append(w.data)
	w.end(at)
}

// DeleteEvent removes an event that SetEvent stored and nothing removed since.
func (b *Batch) DeleteEvent(topic uint32, position uint64) {
	w := &b.removed
	at := w.begin(pebble.InternalKeyKindSingleDelete)
	w.data = appendEventKey(w.data, topic, position)
	w.end(at)
}

// DeleteEvents removes the rows of the positions after and up to the given ones.
func (b *Batch) DeleteEvents(topic uint32, after, to uint64) {
	b.rows.deleteRange(appendEventKey(nil, topic, after+1), appendEventKey(nil, topic, to+1))
}

// SetWinner stores the winner of a key.
func (b *Batch) SetWinner(topic uint32, key string, row *WinnerRow) {
	w := &b.winners
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendWinnerKey(w.data, topic, key)
	w.end(at)
	at = w.length()
	w.data = row.append(w.data)
	w.end(at)
}

// DeleteWinner forgets a key.
func (b *Batch) DeleteWinner(topic uint32, key string) {
	w := &b.winners
	at := w.begin(pebble.InternalKeyKindDelete)
	w.data = appendWinnerKey(w.data, topic, key)
	w.end(at)
}

// SetSeen remembers an event's first sight. Generations only rise.
func (b *Batch) SetSeen(generation, topic uint32, identity eventlog.IdentityHash, row *SeenRow) {
	place := b.nextPlace(generation)
	b.sights = append(b.sights, sight{generation, place, identityHash(topic, &identity)})
	w := &b.seen
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendSeenKey(w.data, generation, place.segment, topic, identity.ID[:])
	w.data = append(w.data, identity.Source[:]...)
	w.end(at)
	at = w.length()
	w.data = row.append(w.data)
	w.end(at)
}

// SetAnswered remembers an idempotent request's answer.
func (b *Batch) SetAnswered(generation uint32, scope [16]byte, row *AnsweredRow) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendAnsweredKey(w.data, generation, scope)
	w.end(at)
	at = w.length()
	w.data = row.append(w.data)
	w.end(at)
}

// DeleteGeneration drops a whole generation of deduplication records.
func (b *Batch) DeleteGeneration(generation uint32) {
	b.store.seen.drop(generation)
	for _, prefix := range []byte{prefixSeen, prefixFilter, prefixAnswered} {
		start := appendUint32Key(nil, prefix, generation)
		b.rows.deleteRange(start, successor(start))
	}
}

// SetTimer arms a timer.
func (b *Batch) SetTimer(t Timer) {
	w := &b.timers
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendTimerKey(w.data, t)
	w.end(at)
	at = w.length()
	w.data = append(w.data, t.Key...)
	w.end(at)
}

// DeleteTimers removes all timers up to and including last. Timers that the
// same batch arms afterwards stay.
func (b *Batch) DeleteTimers(last Timer) {
	b.timers.deleteRange([]byte{prefixTimer}, append(appendTimerKey(nil, last), 0))
}

// DeleteTimer disarms a timer.
func (b *Batch) DeleteTimer(t Timer) { b.timers.write(kindDelete, appendTimerKey(nil, t), nil) }

// SetMinute records the first position of a minute of log time.
func (b *Batch) SetMinute(minute int64, position uint64) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendUint64Key(w.data, prefixMinute, uint64(minute))
	w.end(at)
	at = w.length()
	w.data = binary.BigEndian.AppendUint64(w.data, position)
	w.end(at)
}

// SetName stores a topic's number and policy.
func (b *Batch) SetName(t *Topic) {
	b.setJSON(appendNameKey(nil, prefixName, t.Name), nameRow{Number: t.Number, Deleted: t.Deleted, Policy: t.Policy})
}

// SetFigures stores a topic's figures.
func (b *Batch) SetFigures(topic uint32, f *Figures) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendUint32Key(w.data, prefixFigures, topic)
	w.end(at)
	at = w.length()
	w.data = f.append(w.data)
	w.end(at)
}

// SetGarbage marks a topic number whose rows nobody will read again. Its
// figures go at once: a group that makes and deletes the topic never wrote them.
func (b *Batch) SetGarbage(topic uint32) {
	b.rows.write(pebble.InternalKeyKindDelete, appendUint32Key(nil, prefixFigures, topic), nil)
	b.rows.write(pebble.InternalKeyKindSet, appendUint32Key(nil, prefixGarbage, topic), nil)
}

// DeleteTopicRows removes all rows under a topic number, and its garbage mark.
// Deduplication records and timers go with their generation and due time.
func (b *Batch) DeleteTopicRows(topic uint32) {
	for _, prefix := range []byte{prefixEvent, prefixHistory, prefixWinner} {
		start := appendUint32Key(nil, prefix, topic)
		b.rows.deleteRange(start, successor(start))
	}
	b.rows.write(pebble.InternalKeyKindDelete, appendUint32Key(nil, prefixGarbage, topic), nil)
}

// SetLeaves stores a commit's audit leaves, 32 bytes each.
func (b *Batch) SetLeaves(first uint64, leaves []byte) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendUint64Key(w.data, prefixLeaves, first)
	w.end(at)
	at = w.length()
	w.data = append(w.data, leaves...)
	w.end(at)
}

// SetEntries stores what a commit's audit leaves were made of.
func (b *Batch) SetEntries(first uint64, entries []byte) {
	b.rows.write(pebble.InternalKeyKindSet, appendUint64Key(nil, prefixEntries, first), entries)
}

// SetTreeNode stores the root of a complete subtree over 256^level leaves, and
// the head of the chain behind it if it is of the lowest level.
func (b *Batch) SetTreeNode(level uint8, n uint64, node *TreeNode) {
	b.rows.write(pebble.InternalKeyKindSet, appendTreeKey(nil, level, n), append(node.Root[:len(node.Root):len(node.Root)], node.Chain[:]...))
}

// SetCheckpoint stores a signed checkpoint over so many leaves.
func (b *Batch) SetCheckpoint(size uint64, signed []byte) {
	b.rows.write(pebble.InternalKeyKindSet, appendUint64Key(nil, prefixCheckpoint, size), signed)
}

// SetOutside notes how many entries of the audit trail a place outside has.
func (b *Batch) SetOutside(name string, entries uint64) {
	b.rows.write(pebble.InternalKeyKindSet, appendNameKey(nil, prefixOutside, name), binary.BigEndian.AppendUint64(nil, entries))
}

// SetSpace stores the space's own state.
func (b *Batch) SetSpace(s *Space) {
	w := &b.rows
	at := w.begin(pebble.InternalKeyKindSet)
	w.data = appendNameKey(w.data, prefixMeta, metaSpace)
	w.end(at)
	at = w.length()
	w.data = s.append(w.data)
	w.end(at)
}

// SetSettings stores the settings.
func (b *Batch) SetSettings(s eventlog.Settings) {
	b.setJSON(appendNameKey(nil, prefixMeta, metaSettings), s)
}

// setJSON panics if the value does not encode, which plain fields always do.
func (b *Batch) setJSON(key []byte, v any) {
	value, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("store: a row does not encode: %v", err))
	}
	b.rows.write(pebble.InternalKeyKindSet, key, value)
}
