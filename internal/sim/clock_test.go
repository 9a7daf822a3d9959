// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"sync"
	"time"
)

// clock is that of the broker's machine. It follows the bubble's time, and can do
// what clocks do: run too fast, be set, and go on while the machine sleeps.
type clock struct {
	mu    sync.Mutex
	since time.Time     // bubble's time of the readings below; guarded by mu
	wall  time.Time     // guarded by mu
	mono  time.Duration // guarded by mu
	drift int           // of the wall clock, parts in a million; guarded by mu
}

func newClock(wall time.Time) *clock {
	return &clock{since: time.Now(), wall: wall, mono: time.Hour}
}

// read takes a reading. It is called with mu held.
func (c *clock) read() {
	now := time.Now()
	passed := now.Sub(c.since)
	c.since = now
	c.mono += passed
	c.wall = c.wall.Add(passed + passed*time.Duration(c.drift)/1_000_000)
}

// Wall implements broker.Clock.
func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	return c.wall
}

// Mono implements broker.Clock.
func (c *clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	return c.mono
}

// suspend lets time pass while the machine sleeps: no timer runs.
func (c *clock) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	c.mono += d
	c.wall = c.wall.Add(d)
}

// set moves the wall clock, as people and NTP do.
func (c *clock) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	c.wall = c.wall.Add(d)
}

// drifts has the wall clock run too fast from now on, or too slowly.
func (c *clock) drifts(ppm int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	c.drift = ppm
}
