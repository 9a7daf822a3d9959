// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"

	"signalbox/event"
)

// rowFormat begins every binary row, so that a later layout can be told apart.
const rowFormat = 1

// EventFlags are facts about a stored event. Their bits are part of the format.
type EventFlags uint8

// The flags of a stored event.
const (
	EventTombstone  EventFlags = 1 << iota // removes its key
	EventFold                              // Members contains CR or LF
	EventSuperseded                        // a newer HLC had already won when it was applied
	EventJSON                              // data is a JSON value
)

// EventRow is a stored event. Key and Members alias the row's bytes when it
// was decoded.
type EventRow struct {
	Flags        EventFlags
	LogMillis    int64 // log time at which it was applied
	HLC          event.HLC
	ExpiryMillis int64  // 0: never
	Count, Bytes uint64 // cumulative in its topic, this event included
	Leaf         uint64 // index of its audit leaf
	Salt         [16]byte
	Key          []byte
	DataOffset   uint32 // of the data member's value in Members
	DataLength   uint32
	Members      []byte
}

func (r *EventRow) append(dst []byte) []byte {
	dst = append(dst, rowFormat, byte(r.Flags))
	dst = binary.AppendUvarint(dst, uint64(r.LogMillis))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.HLC))
	dst = binary.AppendUvarint(dst, uint64(r.ExpiryMillis))
	dst = binary.AppendUvarint(dst, r.Count)
	dst = binary.AppendUvarint(dst, r.Bytes)
	dst = binary.AppendUvarint(dst, r.Leaf)
	dst = append(dst, r.Salt[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(r.Key)))
	dst = append(dst, r.Key...)
	dst = binary.AppendUvarint(dst, uint64(r.DataOffset))
	dst = binary.AppendUvarint(dst, uint64(r.DataLength))
	return append(dst, r.Members...)
}

// DecodeEvent decodes the value of an E row.
func DecodeEvent(b []byte) (EventRow, error) {
	r := rowReader{b: b}
	r.format()
	row := EventRow{Flags: EventFlags(r.byte())}
	row.LogMillis = int64(r.uvarint())
	row.HLC = event.HLC(r.uint64())
	row.ExpiryMillis = int64(r.uvarint())
	row.Count = r.uvarint()
	row.Bytes = r.uvarint()
	row.Leaf = r.uvarint()
	copy(row.Salt[:], r.take(16))
	row.Key = r.take(r.uvarint())
	row.DataOffset = uint32(r.uvarint())
	row.DataLength = uint32(r.uvarint())
	row.Members = r.b
	return row, r.error("event")
}

// WinnerFlags say what kind of winner a key has.
type WinnerFlags uint8

// The flags of a winner. Their bits are part of the format.
const (
	WinnerTombstone WinnerFlags = 1 << iota // the key was removed
	WinnerHidden                            // its event is gone (it expired); only the row guards the key
)

// WinnerRow is the event with the highest (HLC, source, id) of a key.
type WinnerRow struct {
	Position     uint64
	HLC          event.HLC
	Flags        WinnerFlags
	ExpiryMillis int64
	Size         uint32 // bytes that its event counts for in the topic's figures
	Source, ID   string
}

// Live reports whether the key has a value at the given log time.
func (r *WinnerRow) Live(logMillis int64) bool {
	return r.Flags == 0 && (r.ExpiryMillis == 0 || r.ExpiryMillis > logMillis)
}

func (r *WinnerRow) append(dst []byte) []byte {
	dst = append(dst, rowFormat, byte(r.Flags))
	dst = binary.BigEndian.AppendUint64(dst, r.Position)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.HLC))
	dst = binary.AppendUvarint(dst, uint64(r.ExpiryMillis))
	dst = binary.AppendUvarint(dst, uint64(r.Size))
	dst = binary.AppendUvarint(dst, uint64(len(r.Source)))
	dst = append(dst, r.Source...)
	return append(dst, r.ID...)
}

// DecodeWinner decodes the value of an S row.
func DecodeWinner(b []byte) (WinnerRow, error) {
	r := rowReader{b: b}
	r.format()
	row := WinnerRow{Flags: WinnerFlags(r.byte())}
	row.Position = r.uint64()
	row.HLC = event.HLC(r.uint64())
	row.ExpiryMillis = int64(r.uvarint())
	row.Size = uint32(r.uvarint())
	row.Source = string(r.take(r.uvarint()))
	row.ID = string(r.b)
	return row, r.error("winner")
}

// SeenRow remembers an event's first sight: enough to tell a repetition from
// a reuse of its id, and to give the first receipt again.
type SeenRow struct {
	Superseded bool
	Position   uint64
	HLC        event.HLC
	LogMillis  int64
	Content    [16]byte
}

func (r *SeenRow) append(dst []byte) []byte {
	superseded := byte(0)
	if r.Superseded {
		superseded = 1
	}
	dst = append(dst, rowFormat, superseded)
	dst = binary.BigEndian.AppendUint64(dst, r.Position)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.HLC))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.LogMillis))
	return append(dst, r.Content[:]...)
}

func decodeSeen(b []byte) (SeenRow, error) {
	r := rowReader{b: b}
	r.format()
	row := SeenRow{Superseded: r.byte() == 1}
	row.Position = r.uint64()
	row.HLC = event.HLC(r.uint64())
	row.LogMillis = int64(r.uint64())
	copy(row.Content[:], r.take(16))
	return row, r.error("seen")
}

// AnsweredRow remembers what an idempotent request was answered with.
type AnsweredRow struct {
	LogMillis int64
	Request   [16]byte
	Verdicts  []Verdict
}

// Verdict is the part of a receipt that the request itself does not tell.
type Verdict struct {
	Outcome  uint8
	Position uint64
	HLC      event.HLC
}

func (r *AnsweredRow) append(dst []byte) []byte {
	dst = append(dst, rowFormat)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.LogMillis))
	dst = append(dst, r.Request[:]...)
	for _, v := range r.Verdicts {
		dst = append(dst, v.Outcome)
		dst = binary.BigEndian.AppendUint64(dst, v.Position)
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.HLC))
	}
	return dst
}

func decodeAnswered(b []byte) (AnsweredRow, error) {
	r := rowReader{b: b}
	r.format()
	row := AnsweredRow{LogMillis: int64(r.uint64())}
	copy(row.Request[:], r.take(16))
	for !r.failed && len(r.b) > 0 {
		row.Verdicts = append(row.Verdicts, Verdict{Outcome: r.byte(), Position: r.uint64(), HLC: event.HLC(r.uint64())})
	}
	return row, r.error("answered")
}

// TimerKind says what a timer does when it is due.
type TimerKind uint8

// The kinds of timers. Their numbers are part of the format.
const (
	TimerExpire TimerKind = 1 // an event's expirytime: it is no longer delivered
	TimerPurge  TimerKind = 2 // a tombstone, or a hidden winner, is forgotten
	// A subscription, whose number is in Topic, has deadlines or may expire.
	TimerDeadline TimerKind = 3
	TimerUnused   TimerKind = 4
	// A ticket message at Position has a deadline: Key is that of its row, and Topic
	// which of the deadlines of its type it is.
	TimerMessage TimerKind = 5
	// The agent in Key, one of whose heartbeats is at Position, may be silent.
	TimerSilence TimerKind = 6
)

// Timer is something to be done in apply once log time has reached DueMillis.
type Timer struct {
	DueMillis int64
	Topic     uint32
	Position  uint64
	Kind      TimerKind
	Key       string // of TimerPurge, TimerMessage and TimerSilence
}

func decodeTimer(key, value []byte) (Timer, error) {
	if len(key) != 1+8+4+8+1 {
		return Timer{}, Damagedf("a timer key has %d bytes", len(key))
	}
	return Timer{
		DueMillis: int64(binary.BigEndian.Uint64(key[1:])),
		Topic:     binary.BigEndian.Uint32(key[9:]),
		Position:  binary.BigEndian.Uint64(key[13:]),
		Kind:      TimerKind(key[21]),
		Key:       string(value),
	}, nil
}

// rowReader consumes a binary row; once it has failed it yields zero values.
type rowReader struct {
	b      []byte
	failed bool
}

func (r *rowReader) format() {
	if r.byte() != rowFormat {
		r.failed = true
	}
}

func (r *rowReader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *rowReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *rowReader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *rowReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *rowReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.failed || n <= 0 {
		r.failed = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *rowReader) error(what string) error {
	if r.failed {
		return Damagedf("the bytes of a row of kind %q do not decode", what)
	}
	return nil
}
