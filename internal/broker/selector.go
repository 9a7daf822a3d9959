// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"sync"

	"signalbox/event"
	"signalbox/internal/filter"
)

// selected returns the filter of what a subscription selects: by its source, its
// types and its filters. It is nil if that is everything.
func (b *Broker) selected(d *event.Subscription) (*filter.Filter, error) {
	if d.Source == "" && len(d.Types) == 0 {
		return b.filtered(d)
	}
	return b.filters.get(fmt.Sprintf("narrow %q %q %s", d.Source, d.Types, d.Filters), func() (*filter.Filter, error) {
		f, err := b.filtered(d)
		if err != nil {
			return nil, err
		}
		return filter.Narrow(f, d.Source, d.Types), nil
	})
}

// filtered returns the filter that a subscription's filters make, nil if it has none.
func (b *Broker) filtered(d *event.Subscription) (*filter.Filter, error) {
	if d.Filters == nil {
		return nil, nil
	}
	return b.filters.get(string(d.Filters), func() (*filter.Filter, error) { return filter.ParseDocument(d.Filters) })
}

// compiledMax bounds the filters that are kept compiled, and compiledBytes what
// they are made of, for a filter takes up to some hundred times as much when it is
// compiled. Subscriptions that select the same share one.
const (
	compiledMax   = 4096
	compiledBytes = 1 << 20
)

// compiled keeps filters that were used lately.
type compiled struct {
	mu      sync.Mutex
	filters map[string]*filter.Filter // by what they are made of; guarded by mu
	bytes   int                       // of the keys; guarded by mu
}

// get compiles a filter, or returns the one that was for the same key.
func (c *compiled) get(key string, compile func() (*filter.Filter, error)) (*filter.Filter, error) {
	c.mu.Lock()
	f := c.filters[key]
	c.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := compile()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.filters[key]; kept != nil { // it was compiled meanwhile
		return kept, nil
	}
	if c.bytes += len(key); c.filters == nil || len(c.filters) >= compiledMax || c.bytes > compiledBytes {
		c.filters, c.bytes = map[string]*filter.Filter{}, len(key)
	}
	c.filters[key] = f
	return f, nil
}
