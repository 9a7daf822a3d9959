// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"sync"

	"signalbox/event"
	"signalbox/internal/filter"
)

// selector says of each event whether a subscription selects it. It belongs to
// one goroutine.
type selector struct {
	source  string
	types   []string
	filter  *filter.Filter // nil: everything
	machine filter.Machine
	record  filter.Record
	compact func(topic string) bool
}

// verdictOn is what became of an event.
type verdictOn uint8

const (
	selected verdictOn = iota
	dropped
	failed // dropped, and the filter met an error
)

// selector makes one for a document that was checked when it was stored.
func (b *Broker) selector(d *event.Subscription) (*selector, error) {
	s := &selector{source: d.Source, types: d.Types}
	s.compact = func(topic string) bool {
		t, err := b.dispatch.Topic(topic)
		return err == nil && t.Policy.Compacts()
	}
	if d.Filters == nil {
		return s, nil
	}
	var err error
	s.filter, err = b.filters.get(string(d.Filters))
	return s, err
}

// on applies source, types and filters to an event as it is delivered.
func (s *selector) on(json []byte) verdictOn {
	if s.source != "" {
		if have, _ := event.LookupJSON(json, "source"); have != s.source {
			return dropped
		}
	}
	if len(s.types) > 0 {
		if have, _ := event.LookupJSON(json, "type"); !slices.Contains(s.types, have) {
			return dropped
		}
	}
	if s.filter == nil {
		return selected
	}
	s.record.FillDelivered(json)
	if s.machine.Match(s.filter, s.record.Event()) {
		return selected
	}
	// A tombstone has no data that a filter could ask about: who filters on it
	// has to learn that the key is gone.
	if s.machine.TouchedData() && s.removes(json) {
		return selected
	}
	if s.machine.Errors() != 0 {
		return failed
	}
	return dropped
}

// removes reports whether an event removes its key.
func (s *selector) removes(json []byte) bool {
	if event.HasMember(json, "data", "data_base64", "dataref") {
		return false
	}
	topic, _ := event.LookupJSON(json, "topic")
	return s.compact(topic)
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
