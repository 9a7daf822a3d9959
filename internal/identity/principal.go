// SPDX-License-Identifier: Apache-2.0

// Package identity says who is calling. It turns a credential into a
// [Principal]; what a principal may do is decided in admission. It imports
// nothing of ours.
package identity

// Principal is a verified caller. Two principals are the same exactly when
// they are equal.
type Principal struct {
	subject string
}

// Anonymous is the caller of a broker that has no identity configured. Such a
// broker serves loopback addresses only.
func Anonymous() Principal { return Principal{} }

// Subject is the name that idempotency keys and the audit chain are scoped by;
// it is empty for the anonymous caller.
func (p Principal) Subject() string { return p.subject }
