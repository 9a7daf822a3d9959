// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// demoClock is the machine's clock with a lead that can be made longer: both readings of it jump, as if the hours had
// really passed.
type demoClock struct {
	began time.Time

	mu   sync.Mutex
	lead time.Duration // guarded by mu
}

func newDemoClock() *demoClock { return &demoClock{began: time.Now()} }

// Wall is the simulated time of day.
func (c *demoClock) Wall() time.Time { return time.Now().Add(c.leadNow()) }

// Mono is the simulated time since the start.
func (c *demoClock) Mono() time.Duration { return time.Since(c.began) + c.leadNow() }

func (c *demoClock) leadNow() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lead
}

// pass lets simulated time pass.
func (c *demoClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead += d
}

// narrator prints what happens and keeps the claims that did not hold.
type narrator struct {
	out    io.Writer
	clock  *demoClock
	began  time.Time
	real   bool // time is not simulated, and seconds count
	checks int
	failed []string
}

// scene begins a part of the story.
func (n *narrator) scene(title string) { fmt.Fprintf(n.out, "\n%s\n", title) }

// says prints what one party did or saw, at the story's time.
func (n *narrator) says(who, format string, args ...any) {
	t := n.clock.Wall().Sub(n.began).Round(time.Minute)
	at := fmt.Sprintf("+%02d:%02d", int(t.Hours()), int(t.Minutes())%60)
	if n.real {
		at = fmt.Sprintf("%5.1fs", n.clock.Wall().Sub(n.began).Seconds())
	}
	fmt.Fprintf(n.out, "  %s  %-8s %s\n", at, who, fmt.Sprintf(format, args...))
}

// claim checks a promise; whatever it is about has just been printed.
func (n *narrator) claim(holds bool, format string, args ...any) {
	n.checks++
	text := fmt.Sprintf(format, args...)
	if holds {
		fmt.Fprintf(n.out, "          ok       %s\n", text)
		return
	}
	n.failed = append(n.failed, text)
	fmt.Fprintf(n.out, "          BROKEN   %s\n", text)
}

// verdict ends the story.
func (n *narrator) verdict() error {
	if len(n.failed) == 0 {
		fmt.Fprintf(n.out, "\nAll %d claims hold.\n", n.checks)
		return nil
	}
	err := fmt.Errorf("%d of %d claims do not hold", len(n.failed), n.checks)
	for _, f := range n.failed {
		err = errors.Join(err, errors.New(f))
	}
	return err
}
