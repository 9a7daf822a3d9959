// SPDX-License-Identifier: Apache-2.0

package event

import (
	"math"
	"strconv"
)

// HLC is a stamp of a hybrid logical clock (Kulkarni et al. 2014), packed so
// that integer order is causal order: 48 bits of Unix milliseconds above 16 bits
// of counter. Zero means that there is no stamp.
//
// The receive rule is max(local, received).Next(now): it takes the counter of
// the received stamp into account, so an effect never sorts before its cause.
type HLC uint64

const (
	hlcCounterBits   = 16
	hlcMillisMax     = 1<<48 - 1
	hlcCounterDigits = 5
)

// NewHLC packs a stamp. Milliseconds outside 48 bits are clamped.
func NewHLC(ms int64, counter uint16) HLC {
	ms = min(max(ms, 0), hlcMillisMax)
	return HLC(ms)<<hlcCounterBits | HLC(counter)
}

// Millis returns the Unix milliseconds of the stamp.
func (h HLC) Millis() int64 { return int64(h >> hlcCounterBits) }

// Counter returns the logical part of the stamp.
func (h HLC) Counter() uint16 { return uint16(h) }

// Next returns the stamp after h at a wall clock of nowMillis: the clock if it
// is ahead of h, else h plus one, where a full counter carries into the
// milliseconds. At the end of the range, some 8,900 years away, it stays there
// rather than wrap, because going backwards would undo what was decided.
func (h HLC) Next(nowMillis int64) HLC {
	if h == math.MaxUint64 {
		return h
	}
	return max(NewHLC(nowMillis, 0), h+1)
}

// String returns "<ms>.<counter>" with five digits of counter.
func (h HLC) String() string { return string(h.AppendTo(nil)) }

// AppendTo appends the form of [HLC.String] to dst.
func (h HLC) AppendTo(dst []byte) []byte {
	dst = strconv.AppendUint(dst, uint64(h>>hlcCounterBits), 10)
	c := uint64(h.Counter())
	return append(dst, '.',
		byte('0'+c/10000), byte('0'+c/1000%10), byte('0'+c/100%10), byte('0'+c/10%10), byte('0'+c%10))
}

// ParseHLC reads the form of [HLC.String], the same with fewer digits of
// counter ("5.1" has counter 1), or the packed decimal integer. A packed integer
// below 1<<48 is refused: it would be a stamp of 1970, and in practice is a
// count of milliseconds whose counter was forgotten, which read as packed would
// lose against everything without anybody being told.
func ParseHLC(s string) (HLC, error) {
	h := parseHLC(s)
	if h != 0 {
		return h, nil
	}
	if n, ok := parseDigits(s, hlcMillisMax); ok && n != 0 {
		return 0, Errorf(CodeHLCInvalid, "The hlc %s is a count of milliseconds without a counter; send %s.00000.", s, s).With(nameHLC)
	}
	return 0, Errorf(CodeHLCInvalid,
		"The hlc %q is not a stamp: send <unix milliseconds>.<counter 0 to 65535>, such as 1764422645000.00001.", clip(s)).With(nameHLC)
}

// parseHLC returns 0 for what is not a stamp.
func parseHLC[T string | []byte](s T) HLC {
	dot := 0
	for dot < len(s) && s[dot] != '.' {
		dot++
	}
	if dot == len(s) {
		n, ok := parseDigits(s, math.MaxUint64)
		if !ok || n <= hlcMillisMax {
			return 0
		}
		return HLC(n)
	}
	ms, ok := parseDigits(s[:dot], hlcMillisMax)
	counter := s[dot+1:]
	if !ok || len(counter) == 0 || len(counter) > hlcCounterDigits {
		return 0
	}
	// Leading zeros are what the canonical form pads the counter with.
	for len(counter) > 1 && counter[0] == '0' {
		counter = counter[1:]
	}
	c, ok := parseDigits(counter, math.MaxUint16)
	if !ok {
		return 0
	}
	return HLC(ms)<<hlcCounterBits | HLC(c)
}

// MarshalText gives the form of [HLC.String], and nothing for no stamp.
func (h HLC) MarshalText() ([]byte, error) {
	if h == 0 {
		return []byte{}, nil
	}
	return h.AppendTo(nil), nil
}

// UnmarshalText is the inverse of MarshalText.
func (h *HLC) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*h = 0
		return nil
	}
	v, err := ParseHLC(string(text))
	if err != nil {
		return err
	}
	*h = v
	return nil
}

// parseDigits reads a decimal number without sign, spaces or leading zeros that
// is at most limit. strconv accepts a sign and leading zeros, which would give
// one value several spellings.
func parseDigits[T string | []byte](s T, limit uint64) (uint64, bool) {
	if len(s) == 0 || len(s) > 20 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	var n uint64
	for i := 0; i < len(s); i++ {
		d := uint64(s[i] - '0')
		if d > 9 || n > (limit-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
