// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"signalbox/internal/eventlog"
)

// Batch collects the writes of one commit. A later write to a key wins over an
// earlier one. The methods do not fail: Pebble's batch operations only return
// errors for batches that were already committed, and for sizes beyond 4 GiB.
type Batch struct {
	b     *pebble.Batch
	seen  *seenFilter
	key   []byte // scratch
	value []byte // scratch
}

// NewBatch returns an empty batch.
func (s *Store) NewBatch() *Batch { return &Batch{b: s.db.NewBatch(), seen: s.seen} }

// Close returns the batch's memory.
func (b *Batch) Close() {
	// Close fails only for a batch that is still being applied.
	_ = b.b.Close()
}

// Merge appends the writes of other.
func (b *Batch) Merge(other *Batch) { must(b.b.Apply(other.b, nil)) }

// Len is the size in bytes.
func (b *Batch) Len() int { return b.b.Len() }

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("store: a batch refused a write: %v", err))
	}
}

func (b *Batch) set() { must(b.b.Set(b.key, b.value, nil)) }

// SetEvent stores an event. It is called once for each position.
func (b *Batch) SetEvent(topic uint32, position uint64, row *EventRow) {
	b.key = appendEventKey(b.key[:0], topic, position)
	b.value = row.append(b.value[:0])
	b.set()
}

// DeleteEvent removes an event that SetEvent stored and nothing removed since.
func (b *Batch) DeleteEvent(topic uint32, position uint64) {
	b.key = appendEventKey(b.key[:0], topic, position)
	must(b.b.SingleDelete(b.key, nil))
}

// DeleteEvents removes the rows of the positions after and up to the given ones.
func (b *Batch) DeleteEvents(topic uint32, after, to uint64) {
	must(b.b.DeleteRange(appendEventKey(nil, topic, after+1), appendEventKey(nil, topic, to+1), nil))
}

// SetWinner stores the winner of a key.
func (b *Batch) SetWinner(topic uint32, key string, row *WinnerRow) {
	b.key = appendWinnerKey(b.key[:0], topic, key)
	b.value = row.append(b.value[:0])
	b.set()
}

// DeleteWinner forgets a key.
func (b *Batch) DeleteWinner(topic uint32, key string) {
	b.key = appendWinnerKey(b.key[:0], topic, key)
	must(b.b.Delete(b.key, nil))
}

// SetSeen remembers an event's first sight.
func (b *Batch) SetSeen(generation, topic uint32, identity eventlog.IdentityHash, row *SeenRow) {
	b.key = appendSeenKey(b.key[:0], generation, topic, identity.ID[:])
	b.key = append(b.key, identity.Source[:]...)
	b.value = row.append(b.value[:0])
	b.set()
	b.seen.add(generation, topic, &identity)
}

// SetAnswered remembers an idempotent request's answer.
func (b *Batch) SetAnswered(generation uint32, scope [16]byte, row *AnsweredRow) {
	b.key = appendAnsweredKey(b.key[:0], generation, scope)
	b.value = row.append(b.value[:0])
	b.set()
}

// DeleteGeneration drops a whole generation of deduplication records.
func (b *Batch) DeleteGeneration(generation uint32) {
	b.seen.drop(generation)
	for _, prefix := range []byte{prefixSeen, prefixAnswered} {
		start := appendUint32Key(nil, prefix, generation)
		must(b.b.DeleteRange(start, successor(start), nil))
	}
}

// SetTimer arms a timer.
func (b *Batch) SetTimer(t Timer) {
	b.key = appendTimerKey(b.key[:0], t)
	b.value = append(b.value[:0], t.Key...)
	b.set()
}

// DeleteTimers removes all timers up to and including last. Timers that the
// same batch arms afterwards stay.
func (b *Batch) DeleteTimers(last Timer) {
	must(b.b.DeleteRange([]byte{prefixTimer}, append(appendTimerKey(nil, last), 0), nil))
}

// SetMinute records the first position of a minute of log time.
func (b *Batch) SetMinute(minute int64, position uint64) {
	b.key = appendUint64Key(b.key[:0], prefixMinute, uint64(minute))
	b.value = binary.BigEndian.AppendUint64(b.value[:0], position)
	b.set()
}

// SetName stores a topic's number and policy.
func (b *Batch) SetName(t *Topic) {
	b.setJSON(appendNameKey(nil, prefixName, t.Name), nameRow{Number: t.Number, Deleted: t.Deleted, Policy: t.Policy})
}

// SetFigures stores a topic's figures.
func (b *Batch) SetFigures(topic uint32, f *Figures) {
	b.key = appendUint32Key(b.key[:0], prefixFigures, topic)
	b.value = f.append(b.value[:0])
	b.set()
}

// SetGarbage marks a topic number whose rows nobody will read again. Its
// figures go at once: a group that makes and deletes the topic never wrote them.
func (b *Batch) SetGarbage(topic uint32) {
	must(b.b.Delete(appendUint32Key(nil, prefixFigures, topic), nil))
	b.key, b.value = appendUint32Key(b.key[:0], prefixGarbage, topic), b.value[:0]
	b.set()
}

// DeleteTopicRows removes all rows under a topic number, and its garbage mark.
// Deduplication records and timers go with their generation and due time.
func (b *Batch) DeleteTopicRows(topic uint32) {
	for _, prefix := range []byte{prefixEvent, prefixWinner} {
		start := appendUint32Key(nil, prefix, topic)
		must(b.b.DeleteRange(start, successor(start), nil))
	}
	must(b.b.Delete(appendUint32Key(nil, prefixGarbage, topic), nil))
}

// SetLeaves stores a commit's audit leaves, 32 bytes each.
func (b *Batch) SetLeaves(first uint64, leaves []byte) {
	b.key = appendUint64Key(b.key[:0], prefixLeaves, first)
	must(b.b.Set(b.key, leaves, nil))
}

// SetSpace stores the space's own state.
func (b *Batch) SetSpace(s *Space) {
	b.key = appendNameKey(b.key[:0], prefixMeta, metaSpace)
	b.value = s.append(b.value[:0])
	b.set()
}

// SetSettings stores the settings.
func (b *Batch) SetSettings(s eventlog.Settings) {
	b.setJSON(appendNameKey(nil, prefixMeta, metaSettings), s)
}

func (b *Batch) setJSON(key []byte, v any) {
	value, err := json.Marshal(v)
	must(err) // plain fields only
	must(b.b.Set(key, value, nil))
}
