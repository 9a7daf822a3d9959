// SPDX-License-Identifier: Apache-2.0

package ticket

import "signalbox/event"

const (
	// MaxMessageBytes stops a message from being refused later as too large an
	// event: it rides as data with attributes beside it, in topics that take
	// [event.DefaultMaxEventBytes].
	MaxMessageBytes = 128 << 10

	// MaxNesting stops deep payloads from exhausting the stack of a recursive
	// reader further down the line.
	MaxNesting = event.MaxNesting

	// maxExact is the greatest integer up to which every integer is a double
	// (RFC 7493 section 2.2).
	maxExact = 1<<53 - 1

	// maxNumberBytes stops numbers of a thousand digits from being compared.
	maxNumberBytes = 64

	// maxSteps stops a catalogue look-up from being a long computation; the schema
	// has the same limit for each list.
	maxSteps = 500

	// maxCatalogueBytes stops a catalogue from being an arbitrary document: it is
	// kept in memory and logged whole.
	maxCatalogueBytes = 256 << 10

	// maxBreakerFailures stops the row of a breaker, which has the time of each, from
	// growing.
	maxBreakerFailures = 100
)
