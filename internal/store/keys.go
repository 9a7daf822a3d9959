// SPDX-License-Identifier: Apache-2.0

package store

import "encoding/binary"

// The keyspace. t is a topic's number (uint32), p a position (uint64); all
// integers are big-endian, so that byte order is numeric order.
//
//	E t p             the event, see EventRow; of a compacted topic the winners
//	H t p             an event that is superseded and kept for min_compaction_lag
//	S t key           the winner of a key in a compacted topic, see WinnerRow
//	D gen s t identity  what an event's id and source were answered with, in segment s, see SeenRow
//	F gen s           the filter of a complete segment, see seenFilter
//	I gen scope       what an idempotent request was answered with
//	X due t p kind    a timer, see Timer
//	K minute          position of the first event of a minute of log time
//	N name            a topic's number and policy
//	T t               a topic's figures, written with each commit that changes them
//	G t               the number of a deleted topic whose rows are to be reclaimed
//	L leaf            one row per commit: the audit leaves from that index on
//	l leaf            one row per commit: the entries that these leaves are of
//	b level n         a node of the tree over the leaves, see TreeNode
//	c size            a signed checkpoint of the tree
//	o name            how many entries of the audit trail a place outside has
//	M name            the space's own state
//	u id              a subscription's number n (uint32)
//	U n               a subscription's document, see SubscriptionConfig
//	Y term 0 n        a term under which events for a webhook are found
//	V n               how far it is, see SubscriptionState
//	W n kind …        its deliveries: pending events, lists of keys, dead letters
//	A name            an agent's roles, domains and keys, see Agent
//	B kind key        what is known of ticket messages, see MessageKind
//
// Each E key is set once and deleted at most once, so that SingleDelete is
// safe: Pebble elides the pair when it meets in a compaction. An event that is
// kept as history moves from E to H, and from there it goes in ranges.
const (
	prefixEvent    = 'E'
	prefixHistory  = 'H'
	prefixWinner   = 'S'
	prefixSeen     = 'D'
	prefixFilter   = 'F'
	prefixAnswered = 'I'
	prefixTimer    = 'X'
	prefixMinute   = 'K'
	prefixName     = 'N'
	prefixFigures  = 'T'
	prefixGarbage  = 'G'
	prefixLeaves   = 'L'
	prefixEntries  = 'l'
	prefixTree     = 'b'
	prefixMeta     = 'M'

	prefixSubscriptionID    = 'u'
	prefixSubscription      = 'U'
	prefixSubscriptionState = 'V'
	prefixDelivery          = 'W'

	prefixAgent      = 'A'
	prefixCheckpoint = 'c'
	prefixOutside    = 'o'
	prefixMessage    = 'B'
)

// prefixTerm begins the terms of webhooks.
const prefixTerm = 'Y'

func appendEventKey(dst []byte, topic uint32, position uint64) []byte {
	dst = append(dst, prefixEvent)
	dst = binary.BigEndian.AppendUint32(dst, topic)
	return binary.BigEndian.AppendUint64(dst, position)
}

func appendWinnerKey(dst []byte, topic uint32, key string) []byte {
	dst = append(dst, prefixWinner)
	dst = binary.BigEndian.AppendUint32(dst, topic)
	return append(dst, key...)
}

func appendSegmentKey(dst []byte, prefix byte, generation, segment uint32) []byte {
	dst = append(dst, prefix)
	dst = binary.BigEndian.AppendUint32(dst, generation)
	return binary.BigEndian.AppendUint32(dst, segment)
}

func appendSeenKey(dst []byte, generation, segment, topic uint32, identity []byte) []byte {
	dst = appendSegmentKey(dst, prefixSeen, generation, segment)
	dst = binary.BigEndian.AppendUint32(dst, topic)
	return append(dst, identity...)
}

func appendAnsweredKey(dst []byte, generation uint32, scope [16]byte) []byte {
	dst = append(dst, prefixAnswered)
	dst = binary.BigEndian.AppendUint32(dst, generation)
	return append(dst, scope[:]...)
}

func appendTimerKey(dst []byte, t Timer) []byte {
	dst = append(dst, prefixTimer)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.DueMillis))
	dst = binary.BigEndian.AppendUint32(dst, t.Topic)
	dst = binary.BigEndian.AppendUint64(dst, t.Position)
	return append(dst, byte(t.Kind))
}

func appendUint64Key(dst []byte, prefix byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, prefix), n)
}

func appendUint32Key(dst []byte, prefix byte, n uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, prefix), n)
}

func appendNameKey(dst []byte, prefix byte, name string) []byte {
	return append(append(dst, prefix), name...)
}

func appendTreeKey(dst []byte, level uint8, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, prefixTree, level), n)
}

// successor returns the smallest key that is greater than every key with the
// given prefix.
func successor(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
