// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"
	"time"
)

// Clock is where the broker reads time.
type Clock interface {
	// Wall is the machine's wall clock, which people and NTP may step.
	Wall() time.Time
	// Mono is the time since some fixed moment; nobody can step it.
	Mono() time.Duration
}

// systemClock is the machine's clock. Its monotonic reading goes on while the
// machine sleeps, where the system has such a clock, so that a suspended broker
// wakes with the right time.
type systemClock struct {
	mu   sync.Mutex
	at   time.Time     // when sinceBoot was asked last; guarded by mu
	boot time.Duration // what it said; guarded by mu
	told time.Duration // the last answer; guarded by mu
}

// bootEvery is how often sinceBoot is asked. It is a system call, and so dearer
// than Go's own monotonic clock, which stops while the machine sleeps: a broker
// that wakes is late for so long at most.
const bootEvery = 50 * time.Millisecond

// Wall implements Clock.
func (c *systemClock) Wall() time.Time { return time.Now() }

// Mono implements Clock.
func (c *systemClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	since := now.Sub(c.at)
	if since > bootEvery {
		c.boot, c.at, since = sinceBoot(), now, 0
	}
	c.told = max(c.told, c.boot+since) // the two readings are not of one moment
	return c.told
}

// slewPer is how gently log time follows a wall clock that was stepped: by one
// part in a hundred. A 60 s expiry so stays within its 2 s of tolerance.
const slewPer = 100

// logClock is the clock of log time: it begins at the wall clock (or at the
// log's own time, if that is later), advances monotonically, never goes
// backwards, and is slewed towards the wall clock.
type logClock struct {
	source Clock

	mu   sync.Mutex
	now  time.Duration // Unix time; guarded by mu
	mono time.Duration // reading at which it was now; guarded by mu
	told int64         // the last answer; guarded by mu
}

func newLogClock(source Clock, logMillis int64) *logClock {
	start := max(time.Duration(source.Wall().UnixNano()), time.Duration(logMillis)*time.Millisecond)
	return &logClock{source: source, now: start, mono: source.Mono()}
}

// Millis returns the time as Unix milliseconds.
func (c *logClock) Millis() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono := c.source.Mono()
	elapsed := max(mono-c.mono, 0)
	if elapsed < time.Millisecond { // too short to slew: it would vanish in rounding
		c.told = max(c.told, (c.now + elapsed).Milliseconds())
		return c.told
	}
	ahead := c.now + elapsed - time.Duration(c.source.Wall().UnixNano())
	slew := min(max(ahead, -elapsed/slewPer), elapsed/slewPer)
	c.now += elapsed - slew
	c.mono = mono
	c.told = max(c.told, c.now.Milliseconds())
	return c.told
}

// Skew is how far the wall clock is from log time.
func (c *logClock) Skew() time.Duration {
	millis := c.Millis()
	return time.Duration(c.source.Wall().UnixNano()) - time.Duration(millis)*time.Millisecond
}
