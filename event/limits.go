// SPDX-License-Identifier: Apache-2.0

package event

// The limits of what one event, batch, name or path may be. Each says what it
// stops. CloudEvents (core, Size Limits) obliges an intermediary to forward
// events of up to 64 KiB, so no limit on bytes is below that.
const (
	// MaxAttributes stops a small body from becoming a large index: an attribute
	// of seven bytes on the wire costs forty in memory. Real events have 5 to 20.
	MaxAttributes = 256

	// MaxAttributeBytes stops attributes from being used as payload; they are
	// copied into indexes and headers, which data is not.
	MaxAttributeBytes = 64 << 10

	// MaxNameBytes stops names that no header or index could carry. The
	// specification's 20 characters are only a SHOULD, so longer names pass.
	MaxNameBytes = 128

	// MaxNesting stops deep data from exhausting the stack of a recursive
	// reader further down the line.
	MaxNesting = 128

	// MaxMembers stops a body of short names from becoming a map six times its
	// size while duplicate names are looked for. It counts the members of an object
	// and of the objects around it. An event of 64 KiB cannot have as many.
	MaxMembers = 64 << 10

	// MaxBatch stops one atomic commit from holding up everybody else's.
	MaxBatch = 1000

	// DefaultMaxEventBytes is the size limit of a topic without a policy of its
	// own. It stops one event from crowding out the shared tail.
	DefaultMaxEventBytes = 256 << 10

	// MinMaxEventBytes is the least limit that a policy may set: events of
	// 64 KiB must pass (CloudEvents core, Size Limits).
	MinMaxEventBytes = 64 << 10

	// MaxMaxEventBytes is the greatest limit that a policy may set. It stops a
	// single event from filling the memory of every reader.
	MaxMaxEventBytes = 16 << 20

	// MaxKeyBytes stops keys from bloating the state index, of which each is a row key.
	MaxKeyBytes = 1024

	// MaxTopicBytes stops topic names that would bloat every row key.
	MaxTopicBytes = 255

	// MaxPatterns stops one reader from asking for an unbounded set of topics.
	MaxPatterns = 64

	// MaxPathBytes and MaxPathDepth bound the work of extracting a key from data.
	MaxPathBytes = 256
	MaxPathDepth = 16

	// MaxExpirySeconds is the greatest relative expiry, the end of the CloudEvents Integer.
	MaxExpirySeconds = 1<<31 - 1
)
