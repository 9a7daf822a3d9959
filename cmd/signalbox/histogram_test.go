// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Quantiles are never too good: at most 3 % above the true value, never below it.
func TestHistogramQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var a, b histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(rng.ExpFloat64() * float64(3*time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			a.add(d)
		} else {
			b.add(d)
		}
	}
	a.merge(&b)
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.95, 0.99, 0.999, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		if got := a.quantile(q); got < want || float64(got) > float64(want)*1.04 {
			t.Errorf("quantile %g: %s, want %s", q, got, want)
		}
	}
	if a.n != 20_000 || a.max != all[len(all)-1] {
		t.Errorf("%d values, max %s", a.n, a.max)
	}
}

func TestHistogramBuckets(t *testing.T) {
	for v := uint64(0); v < 1<<62; v = v*3/2 + 1 {
		i := histogramBucket(v)
		if v > histogramUpper(i) || i > 0 && v <= histogramUpper(i-1) {
			t.Fatalf("%d is in bucket %d, which ends at %d", v, i, histogramUpper(i))
		}
	}
	if i := histogramBucket(1<<63 - 1); i >= histogramSize {
		t.Errorf("the longest duration is in bucket %d of %d", i, histogramSize)
	}
	var empty histogram
	if empty.quantile(0.5) != 0 {
		t.Error("an empty histogram has a quantile")
	}
}
