// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/json"

	"signalbox/event"
)

// Space is the space's own state. It is written with every commit.
type Space struct {
	Position  uint64 // of the last accepted or superseded event
	HLC       event.HLC
	LogMillis int64
	Sequence  uint64 // of the last applied proposal
	Leaves    uint64 // how many audit leaves there are
	Chain     [32]byte
	TopicLast uint32 // highest topic number given out
	// Deduplication records live in generations of one window each; a
	// generation is dropped whole when the one after the next begins.
	Generation       uint32
	GenerationMillis int64 // log time at which it began
	Minute           int64 // the last minute that has a K row
}

func (s *Space) append(dst []byte) []byte {
	dst = append(dst, rowFormat)
	dst = binary.BigEndian.AppendUint64(dst, s.Position)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.HLC))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.LogMillis))
	dst = binary.BigEndian.AppendUint64(dst, s.Sequence)
	dst = binary.BigEndian.AppendUint64(dst, s.Leaves)
	dst = append(dst, s.Chain[:]...)
	dst = binary.BigEndian.AppendUint32(dst, s.TopicLast)
	dst = binary.BigEndian.AppendUint32(dst, s.Generation)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.GenerationMillis))
	return binary.BigEndian.AppendUint64(dst, uint64(s.Minute))
}

func decodeSpace(b []byte) (Space, error) {
	r := rowReader{b: b}
	r.format()
	s := Space{Position: r.uint64()}
	s.HLC = event.HLC(r.uint64())
	s.LogMillis = int64(r.uint64())
	s.Sequence = r.uint64()
	s.Leaves = r.uint64()
	copy(s.Chain[:], r.take(32))
	s.TopicLast = r.uint32()
	s.Generation = r.uint32()
	s.GenerationMillis = int64(r.uint64())
	s.Minute = int64(r.uint64())
	return s, r.error("space")
}

// Topic is a topic's number, policy and figures.
type Topic struct {
	Name    string
	Number  uint32
	Deleted bool // kept for its Floor and RemovedTo
	Policy  event.Policy
	Figures
}

// Figures are what changes in a topic with its events.
type Figures struct {
	Last       uint64    // position of its last event
	RetiredTo  uint64    // retention removed everything up to here
	RemovedTo  uint64    // a cursor before this has missed a removal
	Floor      event.HLC // an unknown key needs a higher HLC
	HighestHLC event.HLC
	Count      uint64 // events ever applied
	Bytes      uint64 // bytes ever applied
	Events     uint64 // retained events, superseded ones included
	Retained   uint64 // bytes of retained events
	Keys       uint64 // live keys of a compacted topic
	Tombstones uint64
	History    uint64 // retained events that are superseded
	// CompactedTo is up to where no superseded one is stored.
	CompactedTo uint64
	// GivenUpTo is the last superseded one that was past the lag when a longer one
	// took its place: up to there they only wait to be removed. 0 if none does.
	GivenUpTo uint64
}

// figuresFormat begins the figures. Rows of format 1 have no history, and those of
// format 2 nothing that was given up.
const (
	figuresFormat        = 3
	figuresFormatHistory = 2
)

func (f *Figures) append(dst []byte) []byte {
	dst = append(dst, figuresFormat)
	for _, v := range f.fields() {
		dst = binary.BigEndian.AppendUint64(dst, *v)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.Floor))
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.HighestHLC))
	dst = binary.BigEndian.AppendUint64(dst, f.History)
	dst = binary.BigEndian.AppendUint64(dst, f.CompactedTo)
	return binary.BigEndian.AppendUint64(dst, f.GivenUpTo)
}

func (f *Figures) fields() [9]*uint64 {
	return [9]*uint64{&f.Last, &f.RetiredTo, &f.RemovedTo, &f.Count, &f.Bytes, &f.Events, &f.Retained, &f.Keys, &f.Tombstones}
}

func decodeFigures(b []byte) (Figures, error) {
	r := rowReader{b: b}
	format := r.byte()
	r.failed = format < rowFormat || format > figuresFormat
	var f Figures
	for _, v := range f.fields() {
		*v = r.uint64()
	}
	f.Floor = event.HLC(r.uint64())
	f.HighestHLC = event.HLC(r.uint64())
	if format >= figuresFormatHistory {
		f.History, f.CompactedTo = r.uint64(), r.uint64()
	}
	if format >= figuresFormat {
		f.GivenUpTo = r.uint64()
	}
	return f, r.error("figures")
}

// nameRow is the value of an N row.
type nameRow struct {
	Number  uint32       `json:"number"`
	Deleted bool         `json:"deleted,omitempty"`
	Policy  event.Policy `json:"policy"`
}

func decodeName(name string, b []byte) (Topic, error) {
	var row nameRow
	if err := json.Unmarshal(b, &row); err != nil {
		return Topic{}, Damagedf("the row of topic %q: %w", name, err)
	}
	return Topic{Name: name, Number: row.Number, Deleted: row.Deleted, Policy: row.Policy}, nil
}
