// SPDX-License-Identifier: Apache-2.0

package event

import (
	"errors"
	"fmt"
	"strings"
)

// Error is the one error type that callers of the broker see. What is not an
// Error is a fault of the broker itself and becomes [CodeInternal] at the door.
type Error struct {
	// Code is what programs decide by; it never changes its meaning.
	Code Code
	// Message is a sentence for people that says what is wrong and what to do.
	Message string
	// Field names the attribute, member, header or parameter at fault, if one is.
	Field string
	// Facts are further members of the problem document, such as a measured
	// drift or the oldest cursor that is still available.
	Facts map[string]any
	// Err is the cause. It is for the diagnostics of the operator and is not
	// shown to the caller.
	Err error
}

// Errorf makes an error whose message is formatted as by [fmt.Errorf]; an
// operand of %w becomes its Err.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// With names the field at fault and returns e.
func (e *Error) With(field string) *Error {
	e.Field = field
	return e
}

// Fact adds a fact and returns e.
func (e *Error) Fact(name string, v any) *Error {
	if e.Facts == nil {
		e.Facts = make(map[string]any, 2)
	}
	e.Facts[name] = v
	return e
}

// Error gives the code, the message and the cause, for diagnostics.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Err != nil {
		// A message made with %w already ends in the text of its cause.
		if cause := e.Err.Error(); !strings.Contains(e.Message, cause) {
			b.WriteString(": ")
			b.WriteString(cause)
		}
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// AsError finds the first *Error in the chain of err. Anything else becomes
// [CodeInternal] with a fixed message, so that the text of an unforeseen error,
// which may tell about the machine or about other callers, never leaves it.
// It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{
		Code:    CodeInternal,
		Message: "The broker failed in a way it did not foresee; the operator finds the cause in its diagnostics.",
		Err:     err,
	}
}

// clip makes foreign text fit for a message: no longer than that, so that an
// answer is not larger than what provoked it, and valid UTF-8, which a problem
// document has to be.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
