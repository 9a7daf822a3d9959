// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"sync"
)

// KeyList is the list of the pending events of a key.
type KeyList struct {
	First, Last uint64
}

func decodeKeyList(b []byte) (KeyList, error) {
	r := rowReader{b: b}
	r.format()
	return KeyList{r.uint64(), r.uint64()}, r.error("key list")
}

// keyListsKept bounds what is remembered of lists of keys, of some 100 bytes each, twice.
const keyListsKept = 1 << 14

// keyLists remembers the lists of keys that were written last. While a subscription is
// in use the list of a busy key comes and goes with each of its events, and to find that
// there is none just now Pebble reads all that ever was in its place and is not compacted
// yet, which takes longer the longer it goes on. Nothing is remembered of a list that
// was read only: what was not written lately is found at once.
type keyLists struct {
	mu          sync.Mutex
	now, before map[keyListID]KeyList // removed ones are zero; guarded by mu
}

type keyListID struct {
	number, epoch uint32
	key           [16]byte
}

// keyListWrite is a list that a batch sets, or, if it is zero, removes.
type keyListWrite struct {
	id   keyListID
	list KeyList
}

// get returns a list; known is false if it must be read.
func (k *keyLists) get(id keyListID) (list KeyList, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, known = k.now[id]
	if !known {
		list, known = k.before[id]
	}
	return list, known
}

// committed takes over what a commit has written.
func (k *keyLists) committed(writes []keyListWrite) {
	if len(writes) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range writes {
		if k.now == nil || len(k.now) >= keyListsKept {
			k.now, k.before = map[keyListID]KeyList{}, k.now
		}
		k.now[w.id] = w.list
	}
}

// SetKeyList stores the list of a key's pending events.
func (b *Batch) SetKeyList(number, epoch uint32, key [16]byte, l KeyList) {
	value := binary.BigEndian.AppendUint64([]byte{rowFormat}, l.First)
	b.rows.write(kindSet, appendKeyListKey(nil, keyListID{number, epoch, key}), binary.BigEndian.AppendUint64(value, l.Last))
	b.lists = append(b.lists, keyListWrite{keyListID{number, epoch, key}, l})
}

// DeleteKeyList removes the list of a key that has no pending events.
func (b *Batch) DeleteKeyList(number, epoch uint32, key [16]byte) {
	b.rows.write(kindDelete, appendKeyListKey(nil, keyListID{number, epoch, key}), nil)
	b.lists = append(b.lists, keyListWrite{id: keyListID{number, epoch, key}})
}

// KeyList returns the list of a key's pending events.
func (l *Lookup) KeyList(number, epoch uint32, key [16]byte) (list KeyList, ok bool, err error) {
	id := keyListID{number, epoch, key}
	if list, known := l.store.lists.get(id); known {
		return list, list.First != 0, nil
	}
	l.key = appendKeyListKey(l.key[:0], id)
	value, ok, err := l.get()
	if err == nil && ok {
		list, err = decodeKeyList(value)
	}
	return list, ok, err
}

// HasKeyList reports whether events of a key are pending.
func (s *Store) HasKeyList(number, epoch uint32, key [16]byte) (bool, error) {
	id := keyListID{number, epoch, key}
	if list, known := s.lists.get(id); known {
		return list.First != 0, nil
	}
	return get(s.db, appendKeyListKey(nil, id), func([]byte) error { return nil })
}

func appendKeyListKey(b []byte, id keyListID) []byte {
	return append(appendPendingKey(b, id.number, keyRow, id.epoch), id.key[:]...)
}
