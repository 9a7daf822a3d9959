// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"bytes"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
)

// Canonical returns the canonical form (RFC 8785) of a JSON value. It refuses,
// with code message_invalid, what another reader could understand in another way:
// duplicate names, names that differ only by case, invalid UTF-8, lone surrogates,
// numbers that a double does not hold, and nesting beyond [MaxNesting].
func Canonical(value []byte) ([]byte, error) {
	if err := checkValue(value, ""); err != nil {
		return nil, err
	}
	return canonical(bytes.Clone(value)), nil
}

// canonical brings a value that was checked into canonical form, in place if
// that is possible.
func canonical(checked []byte) []byte {
	v := jsontext.Value(checked)
	// It cannot fail: the tokeniser took the value.
	_ = v.Canonicalize()
	return v
}

// scope is an object or array that is being read.
type scope struct {
	object bool
	name   bool              // the next token is a name
	folded map[string]string // of the names so far, by their folded form
}

// checkValue checks that a text is one JSON value which every reader understands
// alike. Field names what the text is, for the refusal.
func checkValue(text []byte, field string) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	var open []scope
	for first := true; first || len(open) > 0; first = false {
		token, err := d.ReadToken()
		if err != nil {
			return syntaxFault(err, field)
		}
		var top *scope
		if len(open) > 0 {
			top = &open[len(open)-1]
		}
		kind := token.Kind()
		switch kind {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			open = open[:len(open)-1]
			continue
		case jsontext.KindString:
			if top != nil && top.object && top.name {
				if err := top.see(token.String(), field); err != nil {
					return err
				}
				top.name = false
				continue
			}
		case jsontext.KindNumber:
			if number := token.String(); !exact(number) {
				return invalid(field, "has the number %.40s, which a double does not hold; write it as a string", number)
			}
		}
		if top != nil {
			top.name = true
		}
		if kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray {
			if len(open) == MaxNesting {
				return invalid(field, "is nested deeper than %d levels", MaxNesting)
			}
			open = append(open, scope{object: kind == jsontext.KindBeginObject, name: true})
		}
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return invalid(field, "has text after its JSON value")
	}
	return nil
}

// see notes a name of an object. A reader that ignores case would take two names
// that differ only by it for one, and one that differs so from a name of the
// protocol for that.
func (s *scope) see(name, field string) error {
	folded := fold(name)
	if s.folded == nil {
		s.folded = make(map[string]string, 8)
	}
	if other, ok := s.folded[folded]; ok {
		return invalid(field, "has the names %.40q and %.40q in one object, which differ only by case", other, name)
	}
	s.folded[folded] = name
	if folded != name && protocolNames()[folded] {
		return invalid(field, "has the name %.40q; in the protocol it is written %q", name, folded)
	}
	return nil
}

// fold maps names that differ only by case, in the sense of Unicode's simple
// folding, to one; a name of the protocol is its own.
func fold(name string) string {
	plain := true
	for i := 0; i < len(name) && plain; i++ {
		plain = name[i] < utf8.RuneSelf && (name[i] < 'A' || name[i] > 'Z')
	}
	if plain {
		return name
	}
	out := make([]byte, 0, len(name))
	for _, r := range name {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if least >= 'A' && least <= 'Z' {
			least += 'a' - 'A'
		}
		out = utf8.AppendRune(out, least)
	}
	return string(out)
}

// syntaxFault turns an error of the tokeniser into a refusal.
func syntaxFault(err error, field string) error {
	syntax := (*jsontext.SyntacticError)(nil)
	switch {
	case errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return invalid(field, "has the name %.40q twice in one object", syntax.JSONPointer.LastToken())
	case errors.As(err, &syntax) && !errors.Is(syntax.Err, io.ErrUnexpectedEOF):
		return invalid(field, "is not valid JSON at byte %d: %.80v", syntax.ByteOffset, syntax.Err)
	}
	return invalid(field, "is not valid JSON: it is empty or ends too early")
}

// invalid is the refusal of a message because of its form.
func invalid(field, format string, args ...any) *event.Error {
	subject := "The message "
	if field != "" {
		subject = "The message's member " + field + " "
	}
	return event.Errorf(event.CodeMessageInvalid, subject+format+".", args...).With(field)
}
