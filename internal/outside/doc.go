// SPDX-License-Identifier: Apache-2.0

// Package outside is the places beside the data directory to which a broker brings
// its audit trail: a file that is appended to, and objects that are put once, at an
// https endpoint or in an object store. Whoever can change the data directory cannot
// take back what is there, if the place is run by somebody else.
//
// It knows bytes and where they go. What they are, in which order they come and when
// they are brought again is decided in broker. It imports nothing of ours.
package outside

import "context"

// Place takes pieces of the audit trail, whose first entries count up. It is used by
// one goroutine at a time.
type Place interface {
	// Last returns the last whole line that the place has, or nil if it has none or
	// cannot tell. It is asked at first, and after every Append that failed.
	Last(ctx context.Context) ([]byte, error)
	// Append adds lines of which the first is that of an entry, and returns when they
	// are durable there. If the place has a piece from that entry on already, it stays
	// as it is and is returned. After an error it is not known what the place has.
	Append(ctx context.Context, first uint64, lines []byte) (taken []byte, err error)
}
