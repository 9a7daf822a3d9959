// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"fmt"
	"strings"
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
	at := min(e.Offset-start, len(line)) // beyond it only at the end of the text
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
		if r != '\t' {
			r = ' '
		}
		under.WriteRune(r)
	}
	for _, r := range after[:min(len(after), caretRoom)] {
		shown.WriteRune(printable(r))
	}
	if len(after) > caretRoom {
		shown.WriteString("…")
	}
	return shown.String() + "\n" + under.String() + "^"
}

// printable keeps what an expression says from working on a terminal.
func printable(r rune) rune {
	if r != '\t' && r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return utf8.RuneError
	}
	return r
}
