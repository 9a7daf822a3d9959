// SPDX-License-Identifier: Apache-2.0

package cesql

// The limits of an expression, checked when it is parsed. They bound what it holds
// of memory and of the stack; how much work an evaluation does on large data, work.go
// bounds while it goes on.
const (
	// MaxBytes is the longest expression. It bounds everything that has no limit
	// of its own: operators, names, literals.
	MaxBytes = 16 << 10

	// MaxDepth stops nesting from exhausting the stack of parser and evaluation.
	// AND, OR and XOR in a row are one level however many they are.
	MaxDepth = 64

	// MaxList is the greatest number of elements after IN.
	MaxList = 512

	// MaxLikes is the greatest number of LIKE operators, each of which reads the
	// whole of its subject.
	MaxLikes = 64

	// MaxLikeSegment is the greatest number of characters between two % of a
	// pattern if one of them is _. So many are searched for in one pass.
	MaxLikeSegment = 64

	// MaxLikeSearches is the greatest number of such parts in one pattern, each of
	// which has a table of a kilobyte.
	MaxLikeSearches = 8

	// MaxCalls is the greatest number of function calls. With MaxText it bounds the
	// memory of an evaluation, for there is nothing else that makes new text.
	MaxCalls = 64

	// MaxPaths is the greatest number of different paths into data. Each reads the
	// data once, up to what it looks for.
	MaxPaths = 32

	// MaxAnys is the greatest number of uses of paths with [*], each of which reads
	// the data anew.
	MaxAnys = 32

	// MaxAnyList is the greatest number of values after IN with [*] on its left,
	// among which every element is looked for.
	MaxAnyList = 32

	// MaxPathSteps is the greatest number of names and indexes in a path.
	MaxPathSteps = 16

	// MaxText is the longest text, in bytes, that a function makes while it
	// evaluates. A longer one is a FunctionEvaluationError.
	MaxText = 64 << 10

	// MaxNumber is the longest number in data, in bytes, whose value is looked at. A
	// longer one is a GenericError.
	MaxNumber = 1 << 10

	// MaxInteger is the longest text, in bytes, that is cast to an Integer: zeros in
	// front could go on for ever.
	MaxInteger = 64
)
