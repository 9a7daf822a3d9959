// SPDX-License-Identifier: Apache-2.0

// Package cesql is an engine for the CloudEvents SQL Expression Language 1.0,
// by which readers and subscriptions say what concerns them.
//
// [Parse] turns a text into an [Expression], which is compiled once: every
// operator is a closure over its operands, types that are known beforehand are
// cast beforehand, and attributes of which there are many events have a slot. A
// [Machine] then evaluates expressions on an [Event] without allocating. Errors
// are a set of bits, so they cost nothing while there are none.
//
// The engine guarantees that no text makes it panic or loop and that the work of
// an evaluation is bounded by the size of the event alone: limits.go bounds what an
// expression may have when it is parsed, there is no recursion over data, LIKE is
// linear in its subject, results of functions have a greatest size, and work.go ends
// what takes too much all the same. Characters are
// Unicode code points everywhere.
//
// Beyond the standard, which has no access to data, an expression may name
// values in JSON data, such as data.order.total; [Options.Strict] refuses that.
// The rules are in docs/filters.md.
//
// It imports the standard library only, and nothing of Signalbox, so that it can
// be read, tested and used by itself. Sections are those of the specification,
// https://github.com/cloudevents/spec/blob/cesql/v1.0.0/cesql/spec.md.
package cesql
