// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/broker"
	"signalbox/internal/filter"
)

// TestCompiledFiltersAreBounded by number, and by how large they are.
func TestCompiledFiltersAreBounded(t *testing.T) {
	for name, length := range map[string]int{"many": 1, "large": 10_000} {
		var c broker.CompiledFilters
		for n := range 6000 {
			key := fmt.Sprint(n, strings.Repeat("x", length))
			for range 2 {
				if f, err := c.Get(key, func() (*filter.Filter, error) { return &filter.Filter{}, nil }); f == nil || err != nil {
					t.Fatal(f, err)
				}
			}
			if filters, bytes := c.Kept(); filters == 0 || filters > broker.CompiledMax || bytes > broker.CompiledBytes {
				t.Fatalf("%s: %d filters of %d bytes are kept", name, filters, bytes)
			}
		}
	}
}
