// SPDX-License-Identifier: Apache-2.0

package client

import (
	"sync"
	"time"

	"signalbox/event"
)

// Clock is a hybrid logical clock (Kulkarni et al. 2014): close to the wall clock, yet never behind anything it has
// observed. Clients that act for one agent should share one, see [WithClock]. All methods are safe for concurrent use.
type Clock struct {
	mu   sync.Mutex
	last event.HLC
	wall func() time.Time
}

// NewClock returns a clock that is ahead of start. An agent that stores the last stamp it used and passes it here stays
// ordered across its own restarts, even where the wall clock was set back in between; 0 starts from the wall clock.
func NewClock(start event.HLC) *Clock { return NewClockAt(start, time.Now) }

// NewClockAt is NewClock with another wall clock, for agents that live in simulated time.
func NewClockAt(start event.HLC, wall func() time.Time) *Clock {
	return &Clock{last: start, wall: wall}
}

// Stamp returns a stamp greater than every earlier one and than everything observed.
func (c *Clock) Stamp() event.HLC {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = c.last.Next(c.wall().UnixMilli())
	return c.last
}

// Observe merges a stamp that was read: later stamps are greater.
func (c *Clock) Observe(h event.HLC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, h)
}

// Last returns the greatest stamp given out or observed so far, for an agent that stores it.
func (c *Clock) Last() event.HLC {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
