// SPDX-License-Identifier: Apache-2.0

// Package identity says who is calling. It turns a credential into a
// [Principal]; what a principal may do is decided in admission and, of reading, in
// package broker. Of ours it imports event.
package identity

// Principal is a verified caller. Two principals are the same if their subjects are.
type Principal struct {
	subject    string
	credential string // "": none that could end before the request does
}

// Anonymous is the caller of a broker that has no identity configured. Such a
// broker serves loopback addresses only.
func Anonymous() Principal { return Principal{} }

// Named is the principal of a name that was verified elsewhere, such as that of the
// agent that a subscription belongs to.
func Named(subject string) Principal { return Principal{subject: subject} }

// Credential is what the caller was verified by, such as the public key of an agent:
// once that does not count any more, the caller is nobody.
func (p Principal) Credential() string { return p.credential }

// Subject is the name that idempotency keys and the audit chain are scoped by;
// it is empty for the anonymous caller.
func (p Principal) Subject() string { return p.subject }
