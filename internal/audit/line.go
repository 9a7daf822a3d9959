// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"signalbox/event"
)

// An export is lines of JSON: a [Start], then entries in order, and each signed
// checkpoint behind the last entry that it is about. The members of a line are in
// a fixed order and without space between them, so that reading them is cheap.

// Line is an entry in an export.
type Line struct {
	Entry
	// Known says that the entry is known, and not its leaf only: those that were
	// written before entries were kept have nothing else.
	Known bool
	Salt  []byte // of an event whose body still exists
	Body  []byte // that body, or what Detail is
	Leaf  [32]byte
	Chain [32]byte // its head after this entry
}

// Start is the first line of an export: what comes before it.
type Start struct {
	From     uint64   `json:"start,string"`
	Chain    string   `json:"chain"`    // in hexadecimal
	Subtrees []Hash   `json:"subtrees"` // roots of the complete subtrees before
	Keys     []string `json:"keys"`     // public keys that the broker claims
}

// AppendLine appends the line of an entry, with its end.
func AppendLine(dst []byte, l *Line) []byte {
	dst = strconv.AppendUint(append(dst, `{"index":"`...), l.Index, 10)
	if l.Known {
		dst = append(append(dst, `","kind":"`...), l.Kind.String()...)
		dst = strconv.AppendInt(append(dst, `","log_ms":`...), l.LogMillis, 10)
		dst = strconv.AppendUint(append(dst, `,"position":"`...), l.Position, 10)
		dst = strconv.AppendUint(append(dst, `","hlc":"`...), uint64(l.HLC), 10)
		dst = strconv.AppendUint(append(dst, `","flags":`...), uint64(l.Flags), 10)
		dst = append(append(dst, `,"topic":"`...), l.Topic...)
		dst = hex.AppendEncode(append(dst, `","digest":"`...), l.Digest[:])
		if l.Salt != nil {
			dst = hex.AppendEncode(append(dst, `","salt":"`...), l.Salt)
		}
		if l.Body != nil {
			dst = base64.StdEncoding.AppendEncode(append(dst, `","body":"`...), l.Body)
		}
	}
	dst = hex.AppendEncode(append(dst, `","leaf":"`...), l.Leaf[:])
	if l.Chain != ([32]byte{}) { // no head is that, behind any entry
		dst = hex.AppendEncode(append(dst, `","chain":"`...), l.Chain[:])
	}
	return append(dst, "\"}\n"...)
}

// AppendStart appends the first line.
func AppendStart(dst []byte, s Start) ([]byte, error) {
	if s.Subtrees == nil {
		s.Subtrees = []Hash{}
	}
	b, err := json.Marshal(s)
	return append(append(dst, b...), '\n'), err
}

// AppendCheckpoint appends the line of a checkpoint.
func AppendCheckpoint(dst, signed []byte) ([]byte, error) {
	b, err := json.Marshal(checkpointLineOf{string(signed)})
	return append(append(dst, b...), '\n'), err
}

type checkpointLineOf struct {
	Checkpoint string `json:"checkpoint"`
}

var (
	startPrefix      = []byte(`{"start":`)
	checkpointPrefix = []byte(`{"checkpoint":`)
)

func parseStart(line []byte) (s Start, chain [32]byte, err error) {
	if err := json.Unmarshal(line, &s); err != nil {
		return s, chain, err
	}
	if again, err := AppendStart(nil, s); err != nil || !bytes.Equal(bytes.TrimSuffix(again, []byte{'\n'}), line) {
		return s, chain, errors.New("it is not written as an export has it")
	}
	b, err := hex.DecodeString(s.Chain)
	if err != nil || len(b) != 32 {
		return s, chain, errors.New("it has no chain")
	}
	return s, [32]byte(b), nil
}

// ParseLine parses the line of an entry, without its end. Scratch is used for
// the body.
func ParseLine(line []byte, scratch *[]byte) (l Line, err error) {
	s := scanner{rest: line}
	s.expect(`{`)
	l.Index = s.number(s.member("index"))
	if kind, ok := s.next("kind"); ok {
		l.Known = true
		s.parseKnown(&l, kind, scratch)
	}
	s.hash(&l.Leaf, s.member("leaf"))
	if chain, ok := s.next("chain"); ok { // a proof has none
		s.hash(&l.Chain, chain)
	}
	s.expect(`}`)
	if s.failed != "" || len(s.rest) != 0 {
		return l, fmt.Errorf("it is no entry as an export has them: %s", cmp(s.failed, "there is more behind it"))
	}
	return l, nil
}

func cmp(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func (s *scanner) parseKnown(l *Line, kind []byte, scratch *[]byte) {
	var ok bool
	if l.Kind, ok = ParseKind(string(kind)); !ok {
		s.fail("kind")
	}
	l.LogMillis = int64(s.number(s.member("log_ms")))
	l.Position = s.number(s.member("position"))
	l.HLC = event.HLC(s.number(s.member("hlc")))
	flags := s.number(s.member("flags"))
	if flags > 255 {
		s.fail("flags")
	}
	l.Flags = byte(flags)
	l.Topic = string(s.member("topic"))
	s.hash(&l.Digest, s.member("digest"))
	var err error
	if salt, ok := s.next("salt"); ok {
		l.Salt = make([]byte, len(salt)/2)
		if len(salt)%2 != 0 || !decodeHex(l.Salt, salt) {
			s.fail("salt")
		}
	}
	if body, ok := s.next("body"); ok {
		if *scratch, err = strictBase64.AppendDecode((*scratch)[:0], body); err != nil {
			s.fail("body")
		}
		l.Body = *scratch
		if l.Body == nil {
			l.Body = []byte{}
		}
	} else if l.Salt != nil {
		s.fail("body") // of which the salt is
	}
}

// checkBody reports whether the body, if there is one, gives the digest.
func (l *Line) checkBody() bool {
	if l.Body == nil {
		return true
	}
	if l.Salt == nil {
		return sha256.Sum256(l.Body) == l.Digest
	}
	h := sha256.New()
	h.Write(l.Salt)
	h.Write(l.Body)
	return [32]byte(h.Sum(nil)) == l.Digest
}

// scanner reads the members of a line in their order. Once it has failed it
// yields nothing.
type scanner struct {
	rest   []byte
	begun  bool
	failed string // the member at fault
}

func (s *scanner) fail(what string) {
	if s.failed == "" {
		s.failed = what
	}
	s.rest = nil
}

func (s *scanner) expect(text string) {
	rest, ok := bytes.CutPrefix(s.rest, []byte(text))
	if !ok {
		s.fail(text)
		return
	}
	s.rest = rest
}

// next returns the value of the next member if it has the name: a string without
// escapes, or a number.
func (s *scanner) next(name string) (value []byte, ok bool) {
	b := s.rest
	if s.begun {
		if len(b) == 0 || b[0] != ',' {
			return nil, false
		}
		b = b[1:]
	}
	n := len(name)
	if len(b) < n+4 || b[0] != '"' || string(b[1:n+1]) != name || b[n+1] != '"' || b[n+2] != ':' {
		return nil, false
	}
	b = b[n+3:]
	if b[0] == '"' {
		end := bytes.IndexByte(b[1:], '"')
		if end < 0 || bytes.IndexByte(b[1:1+end], '\\') >= 0 {
			return nil, false
		}
		value, s.rest = b[1:1+end], b[2+end:]
	} else {
		end := 0
		for end < len(b) && b[end] >= '0' && b[end] <= '9' {
			end++
		}
		value, s.rest = b[:end], b[end:]
	}
	s.begun = true
	return value, true
}

func (s *scanner) member(name string) []byte {
	value, ok := s.next(name)
	if !ok {
		s.fail(name)
	}
	return value
}

func (s *scanner) number(text []byte) uint64 {
	if len(text) == 0 || len(text) > 20 || text[0] == '0' && len(text) > 1 {
		s.fail("a number")
		return 0
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		s.fail("a number")
	}
	return n
}

func (s *scanner) hash(dst *[32]byte, text []byte) {
	if len(text) != 64 {
		s.fail("a hash")
		return
	}
	if !decodeHex(dst[:], text) {
		s.fail("a hash")
	}
}

// What a line says has one spelling, so that no byte of an export can be changed
// unnoticed: neither capital digits nor bits that base64 has to spare.
var strictBase64 = base64.StdEncoding.Strict()

// decodeHex decodes hexadecimal digits that are no capitals.
func decodeHex(dst, text []byte) bool {
	var bad byte
	for i := range dst {
		high, low := hexDigits[text[2*i]], hexDigits[text[2*i+1]]
		bad |= high | low
		dst[i] = high<<4 | low
	}
	return bad < 16
}

// hexDigits are the values of the digits; 255 stands for what is none.
var hexDigits = func() (values [256]byte) {
	for i := range values {
		values[i] = 255
	}
	for value, digit := range "0123456789abcdef" {
		values[digit] = byte(value)
	}
	return values
}()
