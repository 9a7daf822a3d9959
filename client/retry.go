// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry says how often and how patiently a client tries again. Waits grow exponentially and carry full jitter (each is
// drawn evenly between zero and the current bound), so that a fleet that lost its broker at one moment does not return
// at one moment.
type Retry struct {
	// Attempts bounds the tries of one call, the first included; 0 means 8. It does not bound a follower, which
	// reconnects until its context ends.
	Attempts int
	// Min is the bound of the first wait, doubled with each further try; 0 means 100 ms.
	Min time.Duration
	// Max caps both the jitter and what a server may ask for by Retry-After or a stream's retry field; 0 means 15 s.
	Max time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Attempts <= 0 {
		r.Attempts = 8
	}
	if r.Min <= 0 {
		r.Min = 100 * time.Millisecond
	}
	if r.Max <= 0 {
		r.Max = 15 * time.Second
	}
	r.Min = min(r.Min, r.Max)
	return r
}

// bound is the upper end of the wait before try n+1, for n from 1.
func (r Retry) bound(n int) time.Duration {
	d := r.Min
	for ; n > 1 && d < r.Max; n-- {
		d *= 2
	}
	return min(d, r.Max)
}

// wait is the time to wait before try n+1. A floor is what the server asked for; the jitter comes on top of it, for a
// server under load tells everybody the same number.
func (r Retry) wait(n int, floor time.Duration) time.Duration {
	floor = min(max(floor, 0), r.Max)
	return floor + rand.N(r.bound(n)+1)
}

// sleep waits for d or for the end of ctx, and reports the latter.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
