// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"math"
	"strconv"
	"strings"
)

// exact reports whether a JSON number survives every reader that takes it for a
// double (RFC 7493 section 2.2): the shortest text of the double, whose digits are
// those of its canonical form, has to stand for the same decimal number. Canonicalising alone would not notice, for it
// writes what is left of the number.
func exact(text string) bool {
	if len(text) > maxNumberBytes {
		return false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(f) > maxExact {
		return false
	}
	digits, exponent := decimal(text)
	canonical, canonicalExponent := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	return digits == canonical && exponent == canonicalExponent
}

// decimal splits a JSON number into its significant digits, without zeros at
// either end, and the power of ten of the last one. The sign is left out: zero
// has one, and it means nothing.
func decimal(text string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "", 0
	}
	exponent, _ = strconv.Atoi(strings.TrimPrefix(power, "+")) // none is 0
	exponent -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	return trimmed, exponent + len(digits) - len(trimmed)
}
