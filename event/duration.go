// SPDX-License-Identifier: Apache-2.0

package event

import (
	"strconv"
	"strings"
	"time"
)

// Duration is a duration in a policy. In JSON it is a string in Go's units, to
// which days are added because retention is thought of in days.
type Duration time.Duration

// Day is 24 hours; the log's time knows no daylight saving.
const Day = Duration(24 * time.Hour)

// maxDuration is 100 years: stops sums with a time from overflowing.
const maxDuration = 36525 * Day

// ParseDuration reads "90s", "15m", "24h", "7d" or "1d12h". It refuses signs,
// fractions of a millisecond, which log time does not have, and more than 100 years.
func ParseDuration(s string) (Duration, error) {
	total, rest := Duration(0), s
	if days, more, ok := strings.Cut(s, "d"); ok {
		n, valid := parseDigits(days, uint64(maxDuration/Day))
		if !valid {
			return 0, durationFault(s)
		}
		total, rest = Duration(n)*Day, more
	}
	if rest != "" || total == 0 && rest == s {
		d, err := time.ParseDuration(rest)
		// The sign is refused because ParseDuration takes one, and one after the days.
		if err != nil || strings.ContainsAny(rest, "+-") || d > maxDuration.Std() {
			return 0, durationFault(s)
		}
		total += Duration(d)
	}
	if total > maxDuration || total.Std()%time.Millisecond != 0 {
		return 0, durationFault(s)
	}
	return total, nil
}

func durationFault(s string) *Error {
	return Errorf(CodePolicyInvalid, "%q is not a duration: write whole units, such as 90s, 15m, 24h or 7d, up to 100 years.", clip(s))
}

// Std returns the duration in the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns a form that [ParseDuration] reads: days where they are whole,
// else Go's form without trailing zero units.
func (d Duration) String() string {
	if d != 0 && d%Day == 0 {
		return strconv.FormatInt(int64(d/Day), 10) + "d"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
