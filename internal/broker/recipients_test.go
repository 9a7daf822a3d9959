// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
)

// readEntries are the details of what readers without a subscription were given.
func readEntries(t *testing.T, b *broker.Broker) (out []map[string]any) {
	t.Helper()
	err := b.AuditLines(context.Background(), 0, b.AuditSize(), nil, func(l *audit.Line) (bool, error) {
		var detail map[string]any
		if l.Kind == audit.KindDelivery && json.Unmarshal(l.Detail, &detail) == nil && detail["op"] == "read" {
			out = append(out, detail)
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestManyReadersHaveBoundedEntries: beyond a number of readers what they are given is
// one entry for each door, and none of it is left out; and one entry does not list
// positions without end.
func TestManyReadersHaveBoundedEntries(t *testing.T) {
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { o.ReadEntryEvery = time.Hour })
	defer func() { r.close() }()
	const readers, scattered = 4096 + 100, 3000
	patterns := mustPatterns(t, "bus.>")
	window := func(position uint64) *dispatch.Window {
		return &dispatch.Window{Deliveries: []dispatch.Delivery{{Position: position, Message: true}}, Cursor: event.Cursor{Position: position}}
	}
	one := r.b.Recipient(identity.Anonymous(), "sse", patterns, true)
	for i := range uint64(scattered) {
		one.Given(window(1 + 2*i))
	}
	for i := range readers {
		r.b.Recipient(identity.Anonymous(), "poll", patterns, true).Given(window(uint64(i) + 1))
	}
	r.reopen()
	given, lists, unlisted := map[string]float64{}, 0, 0.0
	entries := readEntries(t, r.b)
	for _, e := range entries {
		door := e["door"].(string)
		given[door] += e["messages"].(float64)
		if positions, ok := e["handed"].(string); ok {
			lists += 1 + strings.Count(positions, ",")
			if len(positions) > 5000 {
				t.Errorf("an entry has %d bytes of positions", len(positions))
			}
		} else {
			unlisted += e["messages"].(float64)
		}
	}
	if given["sse"] != scattered || given["poll"] != readers || len(entries) > 4096+10 || float64(lists)+unlisted != scattered+readers || unlisted < 99 {
		t.Errorf("%d entries are of %v, with %d positions listed and %v not", len(entries), given, lists, unlisted)
	}
}
