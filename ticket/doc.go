// SPDX-License-Identifier: Apache-2.0

// Package ticket is the language of the ticket protocol, which agents and the
// broker share: the envelope and its strict decoder, canonical bytes (RFC 8785),
// Ed25519 signatures, the hashes of slices and plans, the registry of the twelve
// types and of the states and moves of a ticket, and the catalogue of verbs.
//
// Its place in the flow is that of package event: it turns bytes into a [Message]
// before anything is decided, and says of a message what can be said without
// knowing any other. What depends on other messages (replays, the state of a
// ticket, whether an agent is registered) is the broker's.
//
// It guarantees that a [Message] keeps to the envelope's rules and keeps the
// bytes it was made from: they are what is stored, forwarded and verified, and
// nothing is ever serialised again. The decoder is strict, never panics, and does
// work that is bounded by the limits in limits.go and the length of the input.
//
// It imports event for errors, api for the registry, the JSON tokeniser jsontext, and
// validjson for whatever is read again of what the tokeniser has taken.
package ticket
