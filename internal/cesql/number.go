// SPDX-License-Identifier: Apache-2.0

package cesql

import "math"

// numberValue makes the value of a JSON number: an Integer if it is one of 32
// bits, however it is written (1e3, 5.0, -0), else a Number.
func numberValue(literal []byte) Value {
	if len(literal) <= 10 {
		if n, ok := parseInteger(literal); ok {
			return IntegerValue(n)
		}
	}
	d := parseDecimal(literal)
	if d.point <= 10 {
		n, i := int64(0), 0
		d.digits.each(func(digit byte) bool {
			if int64(i) >= d.point {
				n = math.MaxInt64 // a digit after the point that is not 0
				return false
			}
			n = n*10 + int64(digit-'0')
			i++
			return true
		})
		for ; int64(i) < d.point && n < math.MaxInt64; i++ {
			n *= 10
		}
		if d.negative {
			n = -n
		}
		if n >= math.MinInt32 && n <= math.MaxInt32 {
			return IntegerValue(int32(n))
		}
	}
	return Value{text: literal, kind: Number}
}

// decimal is a number as 0.digits × 10^point. Zero has no digits.
type decimal struct {
	negative bool
	digits   digits
	point    int64
}

// digits is a part of a literal that begins and ends with a digit other than 0
// and may have a point in it.
type digits []byte

// next returns the digit at i or after it, and the position after that; 0 at
// the end.
func (d digits) next(i int) (digit byte, after int) {
	if i < len(d) && d[i] == '.' {
		i++
	}
	if i >= len(d) {
		return '0', i
	}
	return d[i], i + 1
}

func (d digits) each(f func(digit byte) bool) {
	for _, c := range d {
		if c != '.' && !f(c) {
			return
		}
	}
}

// pointMax keeps exponents from overflowing. Numbers with more than that many
// digits before the point are alike.
const pointMax = 1 << 40

// parseDecimal takes a JSON number apart.
func parseDecimal(literal []byte) (d decimal) {
	b := literal
	if len(b) > 0 && b[0] == '-' {
		d.negative, b = true, b[1:]
	}
	exponent := int64(0)
	for i, c := range b {
		if lower(c) == 'e' {
			exponent, b = parseExponent(b[i+1:]), b[:i]
			break
		}
	}
	point, first, last := len(b), -1, -1
	for i, c := range b {
		switch {
		case c == '.':
			point = i
		case c != '0':
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return decimal{} // minus zero is zero
	}
	d.digits = digits(b[first : last+1])
	d.point = int64(point-first) + exponent
	if point < first {
		d.point++ // for the point itself, which is no digit
	}
	return d
}

func parseExponent(b []byte) int64 {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative, b = b[0] == '-', b[1:]
	}
	n := int64(0)
	for _, c := range b {
		n = min(n*10+int64(c-'0'), pointMax)
	}
	if negative {
		return -n
	}
	return n
}

// compareNumbers compares two values of which each is an Integer or a Number,
// exactly: 0.1 is 0.10, and no digit is lost as it would be in a float.
func compareNumbers(x, y Value) int {
	if x.kind == Integer && y.kind == Integer {
		return order(x.num < y.num, x.num == y.num)
	}
	var roomX, roomY [11]byte
	a, b := decimalOf(x, roomX[:0]), decimalOf(y, roomY[:0])
	if a.sign() != b.sign() {
		return order(a.sign() < b.sign(), false)
	}
	c := a.compareDigits(&b)
	if a.negative {
		return -c
	}
	return c
}

func order(less, equal bool) int {
	switch {
	case less:
		return -1
	case equal:
		return 0
	}
	return 1
}

func decimalOf(v Value, room []byte) decimal {
	if v.kind == Number {
		return parseDecimal(v.text)
	}
	return parseDecimal(appendInt32(room, v.num))
}

func (d *decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func (d *decimal) compareDigits(e *decimal) int {
	if d.point != e.point {
		return order(d.point < e.point, false)
	}
	for i, j := 0, 0; i < len(d.digits) || j < len(e.digits); {
		var a, b byte
		a, i = d.digits.next(i)
		b, j = e.digits.next(j)
		if a != b {
			return order(a < b, false)
		}
	}
	return 0
}

// appendInt32 is strconv.AppendInt, which lets its argument escape.
func appendInt32(dst []byte, n int32) []byte {
	u := uint32(n)
	if n < 0 {
		dst, u = append(dst, '-'), -u
	}
	div := uint32(1)
	for u/div >= 10 {
		div *= 10
	}
	for ; div > 0; div /= 10 {
		dst = append(dst, '0'+byte(u/div%10))
	}
	return dst
}
