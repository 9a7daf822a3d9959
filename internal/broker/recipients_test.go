// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
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

// TestEntryListsEachPositionOnce: who asks for the same messages time and again has been
// given them, and in one entry that is said once.
func TestEntryListsEachPositionOnce(t *testing.T) {
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { o.ReadEntryEvery = time.Hour })
	defer func() { r.close() }()
	to := r.b.Recipient(identity.Anonymous(), "ticket", mustPatterns(t, "bus.>"), false)
	for _, positions := range [][]uint64{{5, 6, 9}, {5, 6, 9, 10}, {2}, {7}, {8}, {1, 3, 20}} {
		w := &dispatch.Window{Cursor: event.Cursor{Position: positions[len(positions)-1]}}
		for _, position := range positions {
			w.Deliveries = append(w.Deliveries, dispatch.Delivery{Position: position, Message: true})
		}
		to.Given(w)
	}
	r.reopen()
	entries := readEntries(t, r.b)
	if len(entries) != 1 || entries[0]["handed"] != "1-3,5-10,20" || entries[0]["messages"] != 13.0 || entries[0]["to"] != "20" {
		t.Errorf("the entries are %v", entries)
	}
}

// TestEntryListsNoMoreThanItIsFoundBy: what a reader is given of many tickets is in
// several entries, each of which every ticket in it finds.
func TestEntryListsNoMoreThanItIsFoundBy(t *testing.T) {
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { o.ReadEntryEvery = time.Hour })
	defer func() { r.close() }()
	const messages = 2*projector.TicketsOfEntryMax + 500
	w := &dispatch.Window{Cursor: event.Cursor{Position: messages + 7}}
	for position := uint64(1); position <= messages; position++ {
		w.Deliveries = append(w.Deliveries, dispatch.Delivery{Position: position, Message: true})
	}
	r.b.Recipient(identity.Anonymous(), "sse", mustPatterns(t, "bus.>"), true).Given(w)
	r.reopen()
	var got []string
	for _, e := range readEntries(t, r.b) {
		got = append(got, fmt.Sprint(e["handed"], " up to ", e["to"]))
	}
	if want := "[1-1000 up to 1000 1001-2000 up to 2000 2001-2500 up to 2507]"; fmt.Sprint(got) != want {
		t.Errorf("the entries list %v, want %s", got, want)
	}
}
