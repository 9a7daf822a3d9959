// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"signalbox/event"
)

// sample is a typical event of 600 bytes.
func sample(i int) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":"0190b5f2-7c1e-7a3b-9f10-2b6c4d%06d","source":"/fleet/warehouse-7/robot/17",`+
		`"type":"com.example.fleet.task.updated","subject":"T-998","time":"2026-11-29T13:24:05.123456Z",`+
		`"datacontenttype":"application/json","partitionkey":"T-998","correlationid":"c-0190b5f27c1e",`+
		`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","data":{"task":"T-998","state":"PICKING",`+
		`"agent":"beta","attempt":2,"position":{"x":12.25,"y":7.5,"level":3},"battery":0.83,`+
		`"items":["sku-100234","sku-100235","sku-77"],"note":"aisle 4 blocked, rerouting via aisle six"}}`, i)
}

func sampleBatch(n int) []byte {
	events := make([][]byte, n)
	for i := range events {
		events[i] = sample(i)
	}
	return append(append([]byte{'['}, bytes.Join(events, []byte{','})...), ']')
}

func sampleEvent(b *testing.B) *event.Event {
	e, err := event.DecodeJSON(sample(0))
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func BenchmarkDecodeJSON(b *testing.B) {
	in := sample(0)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.DecodeJSON(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeBatch100(b *testing.B) {
	in := sampleBatch(100)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.DecodeBatch(in); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/event")
}

func BenchmarkDecodeBinary(b *testing.B) {
	h := http.Header{}
	body := sampleEvent(b).EncodeBinary(h)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.DecodeBinary(h, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeBinary(b *testing.B) {
	e := sampleEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		e.EncodeBinary(http.Header{})
	}
}

func BenchmarkAppendMembers(b *testing.B) {
	e := sampleEvent(b)
	extra := event.Attribute{Name: "recordedtime", Value: event.StringValue("2026-11-29T13:24:05.123Z")}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _, _ = e.AppendMembers(buf[:0], extra)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkContentHash(b *testing.B) {
	e := sampleEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		e.ContentHash()
	}
}

func BenchmarkWireBytes(b *testing.B) {
	e := sampleEvent(b)
	for b.Loop() {
		e.WireBytes()
	}
}

func BenchmarkLookupJSON(b *testing.B) {
	data := sampleEvent(b).Data()
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := event.LookupJSON(data, "position.level"); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkPatternMatch(b *testing.B) {
	p, err := event.ParsePattern("fleet.*.tasks.>")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !p.Match("fleet.north.tasks.picking.urgent") {
			b.Fatal("no match")
		}
	}
}
