// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/binary"
	"fmt"
)

// The steps of a record: a tag, then fields, each preceded by its length. A record is replayed step by step, and lists
// what happened in the order in which it did.
const (
	stepCursor   = 'C' // cursor
	stepClock    = 'H' // HLC, 8 bytes
	stepLog      = 'L' // log time in Unix milliseconds, 8 bytes
	stepClear    = 'X'
	stepPut      = 'E' // key, event, and "i" or nothing: involved
	stepDrop     = 'D' // topic, key
	stepInvolved = 'I' // topic, key
	stepBegun    = 'B' // effect, stamp of 8 bytes
	stepDone     = 'F' // effect, stamp of 8 bytes

	stepLetter  = 'Q' // number of 8 bytes, topic, event
	stepSettled = 'S' // number
	stepDead    = 'N' // number, Unix milliseconds of 8 bytes, code, reason
	stepDiscard = 'R' // number
)

// stepFields is how many fields follow each tag.
func stepFields(tag byte) (n int, known bool) {
	switch tag {
	case stepClear:
		return 0, true
	case stepCursor, stepClock, stepLog, stepSettled, stepDiscard:
		return 1, true
	case stepDrop, stepInvolved, stepBegun, stepDone:
		return 2, true
	case stepPut, stepLetter:
		return 3, true
	case stepDead:
		return 4, true
	}
	return 0, false
}

func appendStep(dst []byte, tag byte, fields ...[]byte) []byte {
	dst = append(dst, tag)
	for _, f := range fields {
		dst = append(binary.AppendUvarint(dst, uint64(len(f))), f...)
	}
	return dst
}

func number64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// eachStep takes a record apart. The fields are valid during the call only.
func eachStep(record []byte, do func(tag byte, fields [4][]byte) error) error {
	for len(record) > 0 {
		tag := record[0]
		count, known := stepFields(tag)
		if !known {
			return fmt.Errorf("client: a record has a step %q, which this version does not know", tag)
		}
		record = record[1:]
		var fields [4][]byte
		for i := range count {
			length, n := binary.Uvarint(record)
			if n <= 0 || length > uint64(len(record)-n) {
				return fmt.Errorf("client: a record ends within a step %q", tag)
			}
			fields[i], record = record[n:n+int(length)], record[n+int(length):]
		}
		if err := do(tag, fields); err != nil {
			return fmt.Errorf("client: a record has an unreadable step %q: %w", tag, err)
		}
	}
	return nil
}
