// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/bits"
	"time"
)

const (
	histogramSub     = 32 // parts of each power of two: an error of at most 3 %
	histogramSubBits = 5
	histogramSize    = 64 * histogramSub
)

// histogram counts durations in buckets that grow with the value, so that a bench of any length takes the same memory.
type histogram struct {
	counts [histogramSize]uint64
	n      uint64
	max    time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.counts[histogramBucket(uint64(max(d, 0)))]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile returns a value that at most a share q of the durations exceeds not, as the upper end of its bucket.
func (h *histogram) quantile(q float64) time.Duration {
	want := uint64(q * float64(h.n))
	var seen uint64
	for i, c := range h.counts {
		if seen += c; c > 0 && seen >= max(want, 1) {
			return min(time.Duration(histogramUpper(i)), h.max)
		}
	}
	return h.max
}

// histogramBucket is exact below 32 and then keeps the five bits behind the leading one.
func histogramBucket(v uint64) int {
	if v < histogramSub {
		return int(v)
	}
	exp := bits.Len64(v) - 1 - histogramSubBits
	return (exp+1)*histogramSub + int(v>>exp) - histogramSub
}

func histogramUpper(i int) uint64 {
	if i < histogramSub {
		return uint64(i)
	}
	exp := i/histogramSub - 1
	return (uint64(i%histogramSub+histogramSub)+1)<<exp - 1
}
