// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package broker

import "time"

// started is an origin for monotonic readings.
var started = time.Now()

// sinceBoot counts from the start of the process, and not while the machine
// sleeps.
func sinceBoot() time.Duration { return time.Since(started) }
