// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a flag value such as 512, 64KiB, 256MiB or 2GiB.
type byteSize uint64

// sizeUnits are the binary units, the largest first. Decimal ones (MB) are refused rather than guessed at.
var sizeUnits = [...]struct {
	name  string
	bytes uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String gives the largest unit that divides the size.
func (s *byteSize) String() string {
	for _, u := range sizeUnits {
		if n := uint64(*s); n >= u.bytes && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(*s), 10)
}

// Set reads the flag.
func (s *byteSize) Set(text string) error {
	digits, unit := text, uint64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			digits, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size: write bytes, or a number with KiB, MiB, GiB or TiB", text)
	}
	*s = byteSize(n * unit)
	return nil
}

// Type names the value in help texts.
func (s *byteSize) Type() string { return "size" }
