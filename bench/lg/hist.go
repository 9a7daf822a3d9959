// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/bits"
	"time"
)

// hist is a log-linear latency histogram: 64 buckets per octave, so a quantile
// is off by 1.6 % at most. One goroutine owns it; results are merged.
type hist struct {
	buckets [64 * 64]uint64
	n       uint64
	max     int64
	sum     int64
}

func bucketOf(v int64) int {
	u := uint64(max(v, 0))
	if u < 64 {
		return int(u)
	}
	e := bits.Len64(u) - 7 // u>>e lies in [64,128).
	return (e+1)*64 + int(u>>uint(e)) - 64
}

func bucketValue(i int) int64 {
	if i < 64 {
		return int64(i)
	}
	return (int64(i%64) + 64) << uint(i/64-1)
}

func (h *hist) add(d time.Duration) {
	v := int64(d)
	h.buckets[bucketOf(v)]++
	h.n++
	h.sum += v
	h.max = max(h.max, v)
}

func (h *hist) merge(o *hist) {
	for i := range o.buckets {
		h.buckets[i] += o.buckets[i]
	}
	h.n += o.n
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

func (h *hist) quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	want := uint64(q * float64(h.n))
	var seen uint64
	for i, c := range h.buckets {
		if seen += c; seen > want {
			return bucketValue(i)
		}
	}
	return h.max
}

func micros(ns int64) float64 { return float64(ns/10) / 100 }

// into writes the quantiles in microseconds under the given prefix.
func (h *hist) into(r result, prefix string) {
	r[prefix+"p50_us"] = micros(h.quantile(.5))
	r[prefix+"p99_us"] = micros(h.quantile(.99))
	r[prefix+"p999_us"] = micros(h.quantile(.999))
	r[prefix+"max_us"] = micros(h.max)
	if h.n > 0 {
		r[prefix+"mean_us"] = micros(h.sum / int64(h.n))
	}
}
