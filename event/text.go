// SPDX-License-Identifier: Apache-2.0

package event

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// plainASCII reports whether a valid JSON string is printable ASCII without
// escapes, eight bytes at a time. The tokeniser has refused control characters,
// so what is left to find is the backslash, DEL and what is above ASCII.
func plainASCII(b []byte) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		escape, del := v^'\\'*ones, v^0x7f*ones
		// (x-ones)&^x has a high bit if and only if x has a zero byte.
		if (v|(escape-ones)&^escape|(del-ones)&^del)&highs != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// textFault says why b is not a CloudEvents String, or "" (core, Type System:
// no control characters, noncharacters or lone surrogates).
func textFault(b []byte) string {
	for i, c := range b {
		if c < 0x20 || c == 0x7f {
			return "has a control character"
		}
		if c >= utf8.RuneSelf {
			return unicodeFault(b[i:])
		}
	}
	return ""
}

func unicodeFault(b []byte) string {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			// Covers overlong forms and surrogates, which UTF-8 does not have.
			return "is not valid UTF-8"
		case r < 0x20 || 0x7f <= r && r <= 0x9f:
			return "has a control character"
		case 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe:
			return "has a Unicode noncharacter"
		}
		b = b[n:]
	}
	return ""
}

// parseTimestamp reads an RFC 3339 date-time. time.Parse is not used because it
// takes more than the grammar (a comma before the fraction, an hour of one
// digit) and less (lower-case t and z, leap seconds). The leap second counts as
// the first instant of the next minute.
func parseTimestamp[T string | []byte](s T) (time.Time, bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return time.Time{}, false
	}
	year1, month := twoDigits(s, 0), twoDigits(s, 5)
	year2, day := twoDigits(s, 2), twoDigits(s, 8)
	hour, minute, second := twoDigits(s, 11), twoDigits(s, 14), twoDigits(s, 17)
	if min(year1, year2, month-1, day-1, hour, minute, second) < 0 ||
		month > 12 || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	year := year1*100 + year2
	if day > daysIn(year, month) {
		return time.Time{}, false
	}
	i, nanos := 19, 0
	if s[i] == '.' {
		scale := 100_000_000
		start := i + 1
		for i = start; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
			nanos += int(s[i]-'0') * scale
			scale /= 10
		}
		if i == start {
			return time.Time{}, false
		}
	}
	offset, ok := zoneOffset(s[i:])
	if !ok {
		return time.Time{}, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC).Add(-time.Duration(offset) * time.Minute)
	// RFC 3339 5.7: a leap second is inserted at the end of a month, in UTC.
	if second == 60 && (t.Day() != 1 || t.Hour() != 0 || t.Minute() != 0) {
		return time.Time{}, false
	}
	return t, true
}

// zoneOffset reads "Z" or "+hh:mm", in minutes east of UTC.
func zoneOffset[T string | []byte](s T) (int, bool) {
	if len(s) == 1 {
		return 0, s[0]|0x20 == 'z'
	}
	if len(s) != 6 || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, false
	}
	hours, minutes := twoDigits(s, 1), twoDigits(s, 4)
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	offset := hours*60 + minutes
	if s[0] == '-' {
		offset = -offset
	}
	return offset, true
}

func twoDigits[T string | []byte](s T, i int) int {
	hi, lo := s[i]-'0', s[i+1]-'0'
	if hi > 9 || lo > 9 {
		return -1
	}
	return int(hi)*10 + int(lo)
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
