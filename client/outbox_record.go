// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"signalbox/event"
)

// outboxHeader begins the file of an outbox; the number is the format's.
const outboxHeader = "signalbox.outbox/1\n"

func appendLetter(dst []byte, m *letter) []byte {
	return appendStep(dst, stepLetter, number64(m.number), []byte(m.topic), m.body)
}

func appendDead(dst []byte, d DeadLetter) []byte {
	return appendStep(dst, stepDead, number64(d.number), number64(uint64(d.At.UnixMilli())), []byte(d.Code), []byte(d.Reason))
}

// replay does again what a record lists.
func (b *Outbox) replay(record []byte) error {
	return eachStep(record, func(tag byte, f [4][]byte) error {
		if len(f[0]) != 8 {
			return fmt.Errorf("a number has %d bytes instead of 8", len(f[0]))
		}
		number := binary.BigEndian.Uint64(f[0])
		switch tag {
		case stepLetter:
			if number <= b.last {
				return fmt.Errorf("the number %d comes after %d", number, b.last)
			}
			ev, err := event.DecodeJSON(f[2])
			if err != nil {
				return err
			}
			// The record is only valid during the call.
			b.queue(&letter{number: number, topic: string(f[1]), event: ev, body: append([]byte(nil), f[2]...)})
		case stepSettled:
			b.unqueue(number)
		case stepDead:
			if len(f[1]) != 8 {
				return fmt.Errorf("a time has %d bytes instead of 8", len(f[1]))
			}
			if m := b.unqueue(number); m != nil {
				at := time.UnixMilli(int64(binary.BigEndian.Uint64(f[1])))
				b.dead = append(b.dead, DeadLetter{Topic: m.topic, Event: m.event, Code: event.Code(f[2]), Reason: string(f[3]), At: at, number: number})
			}
		case stepDiscard:
			for i := range b.dead {
				if b.dead[i].number == number {
					b.dead = append(b.dead[:i], b.dead[i+1:]...)
					break
				}
			}
		default:
			return fmt.Errorf("the step %q is none of an outbox", tag)
		}
		return nil
	})
}

// snapshot gives what is worth keeping as records, by number. It is called with the lock held.
func (b *Outbox) snapshot() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		waiting := b.waiting
		put := func(m *letter) bool { return yield(appendLetter(nil, m)) }
		for _, d := range b.dead {
			for ; len(waiting) > 0 && waiting[0].number < d.number; waiting = waiting[1:] {
				if !put(waiting[0]) {
					return
				}
			}
			m := &letter{number: d.number, topic: d.Topic, event: d.Event, body: appendPublished(nil, d.Event)}
			if !yield(appendDead(appendLetter(nil, m), d)) {
				return
			}
		}
		for _, m := range waiting {
			if !put(m) {
				return
			}
		}
	}
}

// tidy writes the file anew when most of it is out of date. It is called with the lock held.
func (b *Outbox) tidy() error {
	live := b.bytes
	for _, d := range b.dead {
		live += int64(len(d.Event.Data()))
	}
	if b.journal.size < replaceBytesMin+4*live {
		return nil
	}
	return b.journal.replace(b.snapshot())
}
