// SPDX-License-Identifier: Apache-2.0

// Package event holds the vocabulary that every other part of Signalbox and
// every Go client shares: the CloudEvents 1.0 envelope and its JSON and HTTP
// codecs, hybrid logical clock stamps, cursors, topic names and patterns, topic
// policies, receipts, and the closed list of error codes.
//
// Its place in the flow is the first and the last: a transport turns bytes into
// an [Event] here, and what subscribers receive was encoded here.
//
// It guarantees that an [Event] is valid: there is no way to build one that
// breaks a rule of the CloudEvents core specification, and none can be changed
// afterwards. Decoders are strict, never panic, and do work that is bounded by
// the limits in limits.go and the length of the input. The data bytes of an
// event are kept as they were received and are never serialised again.
//
// It imports the standard library and the JSON tokeniser jsontext, and nothing
// of Signalbox.
package event
