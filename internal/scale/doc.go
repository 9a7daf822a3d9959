// SPDX-License-Identifier: Apache-2.0

// Package scale holds tests of how much a broker can hold, and nothing else:
// connections, topics, events, readers that do not read, cursors that nobody comes
// back with. They run the built program as a process of its own and look at it as
// an operator does, at its memory and at how long it takes to be ready.
//
// They take minutes and gigabytes, so they run only when they are asked for:
//
//	make scale              at full size
//	make scale SIZE=0.01    at a hundredth of it, to see that it works
//
// What they fail on is a wrong answer and memory that grows with what must not cost
// any; the figures, as how soon a broker is ready, are in their log.
package scale
