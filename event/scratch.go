// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// span is a part of the input or of the kept text of a scratch.
type span struct {
	start, end int
	kept       bool // of the kept text
}

// member is one attribute on its way into an Event. It holds no pointers, and
// members are sorted by index: moving pointers about costs write barriers, which
// was a quarter of the time of decoding.
type member struct {
	rank  uint64 // the first eight bytes of the name, big-endian: mostly decides the order
	name  span
	text  span // canonical string
	num   int32
	id    attrID
	kind  Kind
	plain bool // the text is printable ASCII, known from reading it
}

// payloadForm is how data arrived.
type payloadForm uint8

const (
	payloadNone   payloadForm = iota
	payloadJSON               // a valid JSON value, the member "data"
	payloadBase64             // a valid JSON string, the member "data_base64"
	payloadBytes              // bytes, an HTTP body
)

type payload struct {
	form payloadForm
	raw  []byte // aliases the input
}

// scratch is what decoding needs beside the event that it makes.
type scratch struct {
	dec     jsontext.Decoder
	buf     bytes.Buffer
	input   []byte // what dec reads
	kept    []byte // unescaped or copied names and values
	members []member
	order   []uint16 // indexes of members, sorted by name
	hasType bool     // datacontenttype is among the members
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func getScratch() *scratch { return scratches.Get().(*scratch) }

// release gives the scratch back, but for one that holds a lot: the pool is for
// the common case, and must not keep the memory of the largest event seen.
func (s *scratch) release() {
	const most = 1 << 20
	if len(s.input) <= most && cap(s.kept) <= most {
		scratches.Put(s)
	}
}

// parse points the JSON decoder at b, which it reads in place. Its defaults are
// the strict ones: no duplicate names at any depth, no invalid UTF-8.
func (s *scratch) parse(b []byte, options ...jsontext.Options) {
	s.input = b
	s.buf = *bytes.NewBuffer(b)
	s.dec.Reset(&s.buf, options...)
}

// begin prepares for the next event.
func (s *scratch) begin() {
	s.members, s.kept, s.hasType = s.members[:0], s.kept[:0], false
}

// bytes returns what a span stands for, until the next event begins.
func (s *scratch) bytes(p span) []byte {
	if p.kept {
		return s.kept[p.start:p.end]
	}
	return s.input[p.start:p.end]
}

// keep copies a string.
func (s *scratch) keep(v string) span {
	start := len(s.kept)
	s.kept = append(s.kept, v...)
	return span{start, len(s.kept), true}
}

// next makes room for one attribute. It is filled in its place, because copying
// it there showed in the profile, and finished by settle.
func (s *scratch) next() (*member, error) {
	n := len(s.members)
	if n == MaxAttributes {
		return nil, Errorf(CodeEventInvalid, "The event has more than %d attributes; put what is not metadata into data.", MaxAttributes)
	}
	if n == cap(s.members) {
		s.members = slices.Grow(s.members, 16)
	}
	s.members = s.members[:n+1]
	m := &s.members[n]
	*m = member{}
	return m, nil
}

// settle notes what follows from the name and id of a member.
func (s *scratch) settle(m *member) {
	m.rank = attrRanks[m.id]
	if m.id == attrOther {
		m.rank = rankOf(s.bytes(m.name))
	}
	if m.id == attrDataContentType {
		s.hasType = true
	}
}

// addValue takes one attribute from outside the input.
func (s *scratch) addValue(name string, v Value) error {
	m, err := s.next()
	if err != nil {
		return err
	}
	m.name, m.text, m.num, m.kind = s.keep(name), s.keep(v.text), v.num, v.kind
	m.id = attrOf(s.bytes(m.name))
	s.settle(m)
	return nil
}

// attrRanks are the ranks of the known names.
var attrRanks = func() (ranks [len(attrNames)]uint64) {
	for id, name := range attrNames {
		ranks[id] = rankOf([]byte(name))
	}
	return ranks
}()

func rankOf(name []byte) (rank uint64) {
	for i, c := range name[:min(8, len(name))] {
		rank |= uint64(c) << (56 - 8*i)
	}
	return rank
}

func (s *scratch) compare(a, b *member) int {
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	return bytes.Compare(s.bytes(a.name), s.bytes(b.name))
}

// sort puts the members in order. Events have few, and for those an insertion
// without calls through a function value is fastest.
func (s *scratch) sort() {
	const few = 32
	s.order = s.order[:0]
	for i := range s.members {
		s.order = append(s.order, uint16(i))
	}
	if len(s.members) > few {
		slices.SortFunc(s.order, func(a, b uint16) int { return s.compare(&s.members[a], &s.members[b]) })
		return
	}
	for i := 1; i < len(s.order); i++ {
		moved := s.order[i]
		j := i
		for ; j > 0 && s.compare(&s.members[moved], &s.members[s.order[j-1]]) < 0; j-- {
			s.order[j] = s.order[j-1]
		}
		s.order[j] = moved
	}
}
