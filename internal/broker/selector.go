// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"

	"signalbox/event"
	"signalbox/internal/filter"
)

// selected returns the filter of what a subscription selects: by its source, its
// types and its filters. It is nil if that is everything.
func (b *Broker) selected(d *event.Subscription) (*filter.Filter, error) {
	if d.Filters == nil {
		return filter.Narrow(nil, d.Source, d.Types), nil
	}
	f, err := b.filters.get(string(d.Filters))
	if err != nil {
		return nil, err
	}
	return filter.Narrow(f, d.Source, d.Types), nil
}

// compiledMax bounds the filters that are kept compiled. Subscriptions with the
// same filters share one.
const compiledMax = 4096

// compiled keeps filters that were used lately.
type compiled struct {
	mu      sync.Mutex
	filters map[string]*filter.Filter // by document; guarded by mu
}

// get compiles a document of filters, or returns one that was.
func (c *compiled) get(document string) (*filter.Filter, error) {
	c.mu.Lock()
	f := c.filters[document]
	c.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := filter.ParseDocument([]byte(document))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filters == nil || len(c.filters) >= compiledMax {
		c.filters = map[string]*filter.Filter{}
	}
	c.filters[document] = f
	return f, nil
}
