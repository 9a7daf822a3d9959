// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors is the set of the errors of an evaluation (3.3). A ParseError is none
// of them: it is a [SyntaxError], and there is no evaluation.
type Errors uint8

// The errors.
const (
	MathError Errors = 1 << iota
	CastError
	MissingAttributeError
	MissingFunctionError
	FunctionEvaluationError
	GenericError // the data is not the JSON that it is said to be
)

var errorNames = [...]string{"MathError", "CastError", "MissingAttributeError", "MissingFunctionError", "FunctionEvaluationError", "GenericError"}

// Has reports whether the set has one of the errors.
func (e Errors) Has(any Errors) bool { return e&any != 0 }

// Names returns the standard's names of the errors in the set.
func (e Errors) Names() (names []string) {
	for i, name := range errorNames {
		if e&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (e Errors) String() string { return strings.Join(e.Names(), ", ") }

// SyntaxError is the ParseError of the standard: a text that is no expression,
// exceeds a limit, or can be seen never to be what it is used for.
type SyntaxError struct {
	Message string // a sentence without a full stop
	Offset  int    // in bytes, from 0
	Line    int    // from 1
	Column  int    // in characters, from 1
	text    string
}

func newSyntaxError(text string, offset int, format string, args ...any) *SyntaxError {
	offset = min(offset, len(text))
	before := text[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return &SyntaxError{
		Message: fmt.Sprintf(format, args...), Offset: offset,
		Line: strings.Count(before, "\n") + 1, Column: utf8.RuneCountInString(before[start:]) + 1,
		text: text,
	}
}

// Error gives position and message.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// caretRoom is how many characters of a line are shown on either side of a
// fault, so that it fits a terminal.
const caretRoom = 36

// Caret gives the line at fault, as far as it fits, above a line with a ^ under
// the position. There is no line break at the end.
func (e *SyntaxError) Caret() string {
	start := strings.LastIndexByte(e.text[:e.Offset], '\n') + 1
	line, _, _ := strings.Cut(e.text[start:], "\n")
	line = strings.TrimSuffix(line, "\r")
	at := min(e.Offset-start, len(line)) // beyond it only at the end of a line
	before, after := []rune(line[:at]), []rune(line[at:])
	var shown, under strings.Builder
	if len(before) > caretRoom {
		before = before[len(before)-caretRoom:]
		shown.WriteString("…")
		under.WriteString(" ")
	}
	for _, r := range before {
		r = printable(r)
		shown.WriteRune(r)
		under.WriteString(blank(r))
	}
	for _, r := range after[:min(len(after), caretRoom)] {
		shown.WriteRune(printable(r))
	}
	if len(after) > caretRoom {
		shown.WriteString("…")
	}
	return shown.String() + "\n" + under.String() + "^"
}

// printable keeps what an expression says from working on a terminal, or from
// being read in another order than it stands.
func printable(r rune) rune {
	if r != '\t' && !unicode.IsPrint(r) {
		return utf8.RuneError
	}
	return r
}

// blank takes as much room on a terminal as a character.
func blank(r rune) string {
	switch {
	case r == '\t':
		return "\t"
	case unicode.In(r, unicode.Mn, unicode.Me): // they stand on the one before
		return ""
	case unicode.Is(wide, r):
		return "  "
	}
	return " "
}

// wide are the blocks of characters that take the room of two (Unicode Standard
// Annex 11).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1f64f, 1}, {0x1f900, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}
